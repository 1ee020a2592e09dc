"""Honesty checks: what must hold for a robustness figure to be believed, each said in a plain sentence."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import betainc

from freeat.threat import NORMS

MASKED = "gradients may be masked, and the white-box figure is then too high"
LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check by name, whether it passed, and what it found."""

    name: str
    passed: bool
    sentence: str


def outdone(strong: Iterable[int], weak: Iterable[int]) -> bool:
    """Whether the weaker attack fools significantly more of the same images than the stronger one.

    McNemar's exact test on the images that only one of the two fools.
    """
    only_weak, only_strong = len({*weak} - {*strong}), len({*strong} - {*weak})
    if only_weak <= only_strong:
        return False
    tail = betainc(only_weak, only_strong + 1, 0.5)  # of n fair coin tosses, at least only_weak heads
    return float(tail) < LEVEL


def compare_cells(cells: Sequence[dict[str, Any]], *, known: Sequence[dict[str, Any]] = ()) -> list[Check]:
    """The checks between finished measurements: radii among each other, black box against white box.

    ``known`` are white-box measurements of the same models and images that were made before.
    """
    return [*_radii(cells), *_boxes([*cells, *known])]


def _groups(cells: Iterable[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell[key] for key in keys), []).append(cell)
    return groups


def _radii(cells: Sequence[dict[str, Any]]) -> list[Check]:
    checks = []
    for (model, attack, norm, split), group in _groups(cells, "model", "attack", "norm", "split").items():
        group = sorted(group, key=lambda cell: float(cell["eps"]))
        if len(group) == 1:
            continue
        # Each against the lowest before it, not its neighbour: many small rises add up.
        lowest = [min(group[:k], key=_accuracy) for k in range(1, len(group))]
        rises = [
            (low["eps"], cell["eps"])
            for low, cell in zip(lowest, group[1:], strict=True)
            if outdone(cell["fooled"], low["fooled"])
        ]
        said = f"{model}, {attack} ({_written(norm)}, {split}): robust accuracy"
        sentence = (
            f"{said} rises from ε = {rises[0][0]:.4g} to {rises[0][1]:.4g}: {MASKED}."
            if rises
            else f"{said} does not rise as ε grows from {group[0]['eps']:.4g} to {group[-1]['eps']:.4g}."
        )
        checks.append(Check(name="larger radius", passed=not rises, sentence=sentence))
    return checks


def _boxes(cells: Sequence[dict[str, Any]]) -> list[Check]:
    checks = []
    for (model, norm, split), group in _groups(cells, "model", "norm", "split").items():
        pairs = [pair for same in _groups(group, "eps").values() if (pair := _strongest(same))]
        beaten = [(strong, weak) for strong, weak in pairs if outdone(strong["fooled"], weak["fooled"])]
        said = f"{model} ({_written(norm)}, {split})"
        if beaten:
            strong, weak = beaten[0]
            sentence = (
                f"{said}: at ε = {weak['eps']:.4g} the black-box {weak['attack']} leaves "
                f"{weak['robust_accuracy']:.1%} right and the white-box {strong['attack']} leaves "
                f"{strong['robust_accuracy']:.1%}: {MASKED}."
            )
        else:
            sentence = f"{said}: at no radius does a black-box attack beat the white-box ones."
        if pairs:
            checks.append(Check(name="black box", passed=not beaten, sentence=sentence))
    return checks


def _written(norm: str) -> str:
    """L2 and Linf, as people write them."""
    return NORMS[norm].__name__


def _strongest(cells: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The strongest white-box and black-box attack among measurements at one radius, if there are both."""
    white = [cell for cell in cells if not cell["black_box"]]
    black = [cell for cell in cells if cell["black_box"]]
    if not white or not black:
        return None
    return min(white, key=_accuracy), min(black, key=_accuracy)


def _accuracy(cell: dict[str, Any]) -> float:
    return float(cell["robust_accuracy"])
