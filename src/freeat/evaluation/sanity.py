"""Sanity checks against gradient masking: what must hold of a model and its attacks, in plain sentences."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from scipy.special import betainc
from torch import Tensor, nn

from freeat.attacks.pgd import Pgd
from freeat.attacks.result import Attack, Oracle
from freeat.attacks.square import Square
from freeat.compute.frozen import frozen
from freeat.data import Images
from freeat.evaluation.evaluate import (
    constant_answer,
    device_and_dtype,
    evaluate,
    image_batches,
    inconsistencies,
    logits_of,
)
from freeat.evaluation.statistics import class_text
from freeat.objectives import cross_entropy
from freeat.threat import L2, NORMS, Ball
from freeat.units import radius_text

MASKED = "gradients may be masked, and the white-box accuracy is then too high"
LEVEL = 0.05
IMAGES = 64
"""The images on which a model is checked."""
ANSWERS = 256
"""The images on which its answers must differ: more, so that small classes are among them."""


@dataclass(frozen=True, kw_only=True)
class SanityCheck:
    """A sanity check by name, whether it passed, and what it found."""

    name: str
    passed: bool
    sentence: str


def fools_fewer(strong: Iterable[int], weak: Iterable[int]) -> bool:
    """Whether the stronger attack fools significantly fewer of the same images than the weaker one.

    McNemar's exact test on the images that only one of the two fools.
    """
    only_weak, only_strong = len({*weak} - {*strong}), len({*strong} - {*weak})
    if only_weak <= only_strong:
        return False
    tail = betainc(only_weak, only_strong + 1, 0.5)  # P(at least only_weak of n), each with probability 1/2
    return float(tail) < LEVEL


class Compared(Protocol):
    """What a comparison needs of an evaluation of a model under an attack."""

    @property
    def model(self) -> str: ...
    @property
    def attack(self) -> str: ...
    @property
    def norm(self) -> str: ...
    @property
    def eps(self) -> float: ...
    @property
    def split(self) -> str: ...
    @property
    def black_box(self) -> bool: ...
    @property
    def robust_accuracy(self) -> float: ...
    @property
    def fooled(self) -> Sequence[int]: ...
    @property
    def constant_answer(self) -> int | None: ...


def compare(results: Sequence[Compared], *, known: Sequence[Compared] = ()) -> list[SanityCheck]:
    """The checks between finished evaluations: radii among each other, black box against white box.

    ``known`` are white-box evaluations of the same models and images that were made before. A model that gives the
    same answer to every image has nothing to mask, and is left out.
    """
    results, known = (
        [result for result in some if result.constant_answer is None] for some in (results, known)
    )
    return [*_compare_radii(results), *_compare_boxes([*results, *known])]


def _groups(
    results: Iterable[Compared], *names: Literal["model", "attack", "norm", "split", "eps"]
) -> dict[tuple[Any, ...], list[Compared]]:
    groups: dict[tuple[Any, ...], list[Compared]] = {}
    for result in results:
        groups.setdefault(tuple(getattr(result, name) for name in names), []).append(result)
    return groups


def _compare_radii(results: Sequence[Compared]) -> list[SanityCheck]:
    checks = []
    for (model, attack, norm, split), group in _groups(results, "model", "attack", "norm", "split").items():
        group = sorted(group, key=lambda result: result.eps)
        if len(group) == 1:
            continue
        # Each against the lowest before it, not its neighbour: many small rises add up.
        lowest = [min(group[:k], key=_accuracy) for k in range(1, len(group))]
        rises = [
            (low.eps, result.eps)
            for low, result in zip(lowest, group[1:], strict=True)
            if fools_fewer(result.fooled, low.fooled)
        ]
        sentence = f"{model}, {attack} ({_written(norm)}, {split}): robust accuracy "
        if rises:
            sentence += f"rises from ε = {radius_text(rises[0][0])} to {radius_text(rises[0][1])}: {MASKED}."
        else:
            sentence += (
                f"does not rise as ε grows from {radius_text(group[0].eps)} to {radius_text(group[-1].eps)}."
            )
        checks.append(SanityCheck(name="larger radius", passed=not rises, sentence=sentence))
    return checks


def _compare_boxes(results: Sequence[Compared]) -> list[SanityCheck]:
    checks = []
    for (model, norm, split), group in _groups(results, "model", "norm", "split").items():
        pairs = [pair for same in _groups(group, "eps").values() if (pair := _strongest(same))]
        beaten = [(strong, weak) for strong, weak in pairs if fools_fewer(strong.fooled, weak.fooled)]
        subject = f"{model} ({_written(norm)}, {split})"
        if beaten:
            strong, weak = beaten[0]
            sentence = (
                f"{subject}: at ε = {radius_text(weak.eps)} the black-box {weak.attack} leaves "
                f"{weak.robust_accuracy:.1%} right and the white-box {strong.attack} leaves "
                f"{strong.robust_accuracy:.1%}: {MASKED}."
            )
        else:
            sentence = f"{subject}: at no radius does a black-box attack beat the white-box ones."
        if pairs:
            checks.append(SanityCheck(name="black box", passed=not beaten, sentence=sentence))
    return checks


def _written(norm: str) -> str:
    """L2 or Linf, as in print."""
    return NORMS[norm].__name__


def _strongest(results: Sequence[Compared]) -> tuple[Compared, Compared] | None:
    """The strongest white-box and black-box attack among evaluations at one radius, if there are both."""
    white = [result for result in results if not result.black_box]
    black = [result for result in results if result.black_box]
    if not white or not black:
        return None
    return min(white, key=_accuracy), min(black, key=_accuracy)


def _accuracy(result: Compared) -> float:
    return result.robust_accuracy


def sanity_checks(
    model: nn.Module,
    images: Images,
    ball: Ball,
    *,
    classes: int,
    names: Sequence[str] = (),
    seed: int = 0,
    batch_size: int = IMAGES,
) -> list[SanityCheck]:
    """Mode, determinism, batches, answers, gradients; more steps, larger radii, a very large radius, a black box.

    Of a model that gives the same answer to every image only the first four are made: the others would take
    an answer that no attack changes for gradient masking. Costs about 90 gradient evaluations and 120 forward
    passes of each of 64 images, and a forward pass of each of 256 images. ``names`` are those of the classes.
    """
    many_images = images.sample(ANSWERS)
    images = images.sample(IMAGES)
    was_training = any(module.training for module in model.modules())
    device, dtype = device_and_dtype(model)
    x, y = images.to(device).batch(torch.arange(len(images)))
    with frozen(model, "eval"):
        checks = [
            _mode(model, x[:batch_size].to(dtype), was_training),
            _determinism(model, x[:batch_size].to(dtype)),
            _batch(model, x[:batch_size].to(dtype)),
            _different_answers(model, many_images, batch_size, names),
        ]
        if not checks[-1].passed:
            return checks
        checks.append(_gradients(model, x.to(dtype), y, ball, batch_size))

    def fooled(attack: Attack, at: Ball) -> list[int]:
        found = evaluate(
            model,
            images,
            attack,
            at,
            classes=classes,
            seed=seed,
            batch_size=batch_size,
            check_consistency=False,
        )
        return found.index[~found.robust_correct].tolist()

    huge = _huge(ball, images.shape)
    few = fooled(Pgd(steps=5, iterate="last"), ball)
    many = fooled(Pgd(steps=20, iterate="last"), ball)
    black = fooled(Square(queries=100), ball)
    n = len(images)
    larger = []
    if wider := _wider(ball):
        wide = fooled(Pgd(steps=20, iterate="last"), wider)
        radii = radius_text(wider.eps), radius_text(ball.eps)
        counts = f"ε = {radii[0]} fools {len(wide)} of {n} images and ε = {radii[1]} fools {len(many)}"
        larger.append(_order("larger radius", counts, wide, many))
    return [
        *checks,
        _order(
            "more steps", f"20 steps fool {len(many)} of {n} images and 5 steps fool {len(few)}", many, few
        ),
        *larger,
        _vanishing(huge, n - len(fooled(Pgd(steps=40), huge)), n),
        _order(
            "black box",
            f"PGD-20 fools {len(many)} of {n} images and Square with 100 queries fools {len(black)}",
            many,
            black,
        ),
    ]


@torch.no_grad()
def _mode(model: nn.Module, x: Tensor, was_training: bool) -> SanityCheck:
    """Whether a model in evaluation mode is still in it, and as it was, after it has classified images."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model(x)
    training = [name for name, module in model.named_modules() if module.training]
    changed = [
        name
        for name, buffer in model.named_buffers()
        if name not in before or not torch.equal(buffer, before[name])
    ]
    mode = "was in training mode and was put into" if was_training else "is in"
    sentence = f"The model {mode} evaluation mode."
    if training:
        layer = repr(training[0]) if training[0] else "the model itself"
        sentence = (
            f"The model returns to training mode while it classifies ({layer} first): it is not evaluated as it would "
            "be used."
        )
    elif changed:
        sentence = (
            f"The model changes while it classifies ({changed[0]!r} first): its logits depend on the images before, "
            "and these attacks take them for fixed."
        )
    return SanityCheck(name="evaluation mode", passed=not training and not changed, sentence=sentence)


@torch.no_grad()
def _determinism(model: nn.Module, x: Tensor) -> SanityCheck:
    first = model(x)
    model(1 - x.flip(0))  # other images in between: a model that keeps state remembers them
    passed = bool(torch.equal(first, model(x)))
    sentence = (
        "The model gives the same logits twice."
        if passed
        else "The model gives other logits the second time: it is random or keeps state, and these attacks, which "
        "take it for fixed, overestimate it."
    )
    return SanityCheck(name="deterministic", passed=passed, sentence=sentence)


def _batch(model: nn.Module, x: Tensor) -> SanityCheck:
    """Whether an image has the same logits in a smaller batch, up to rounding."""
    logits = logits_of(model, x)
    passed = not inconsistencies(lambda images: logits if len(images) == len(x) else model(images), x, logits)
    sentence = (
        "The logits of an image do not depend on its batch."
        if passed
        else "The logits of an image depend on the others of its batch: the accuracy holds for these batches only."
    )
    return SanityCheck(name="independent of the batch", passed=passed, sentence=sentence)


def _different_answers(
    model: nn.Module, images: Images, batch_size: int, names: Sequence[str]
) -> SanityCheck:
    """Whether the model distinguishes any two of the images, where they are of several classes."""
    batches = image_batches(model, images, batch_size)
    predicted = torch.cat([logits_of(model, batch.x).argmax(-1) for batch in batches])
    count, constant = len({*predicted.tolist()}), constant_answer(predicted, images.y)
    sentence = f"The model gives {count} different answers to {len(images)} images."
    if constant is not None:
        answer = class_text(constant, names[constant] if names else None)
        sentence = (
            f"The model gives the same answer, {answer}, to all {len(images)} images looked at: its accuracy "
            "is no more than the share of that class, and its gap says nothing."
        )
    elif count == 1:
        sentence = (
            f"The {len(images)} images looked at are of one class, and the model gives them one answer."
        )
    return SanityCheck(name="different answers", passed=constant is None, sentence=sentence)


def _gradients(model: nn.Module, x: Tensor, y: Tensor, ball: Ball, batch_size: int) -> SanityCheck:
    """Gradients at the images themselves, where every attack begins."""
    oracle = Oracle(model, "fp32", x)

    def largest_entry(x: Tensor, y: Tensor) -> Tensor:
        delta = torch.zeros_like(x).requires_grad_()
        with torch.enable_grad():
            losses = cross_entropy(oracle.logits(ball.apply(x, delta)), y)
        return oracle.gradient(losses, delta).abs().amax((1, 2, 3))

    rows = [slice(first, first + batch_size) for first in range(0, len(x), batch_size)]
    largest = torch.cat([largest_entry(x[some], y[some]) for some in rows])
    broken, zero = int((~largest.isfinite()).sum()), int((largest == 0).sum())
    sentence = (
        f"Of {len(x)} images, {zero} have a zero gradient and {broken} one that is not finite: {MASKED}."
        if broken or zero
        else f"The gradient is finite and not zero at all {len(x)} images looked at."
    )
    return SanityCheck(name="gradients", passed=not broken and not zero, sentence=sentence)


def _order(name: str, counts: str, strong: list[int], weak: list[int]) -> SanityCheck:
    beaten = fools_fewer(strong, weak)
    if beaten:
        return SanityCheck(name=name, passed=False, sentence=f"{counts}: {MASKED}.")
    ordered = "as it should be" if len(strong) >= len(weak) else "no more than noise apart"
    return SanityCheck(name=name, passed=True, sentence=f"{counts}, {ordered}.")


def _vanishing(ball: Ball, right: int, n: int) -> SanityCheck:
    finding = (
        f"At the very large radius ε = {radius_text(ball.eps)}, PGD-40 leaves {right} of {n} images right"
    )
    sentence = f"{finding}, where none should be: {MASKED}." if right else f"{finding}, as it should."
    return SanityCheck(name="very large radius", passed=not right, sentence=sentence)


def _wider(ball: Ball) -> Ball | None:
    """A ball of twice the radius; a Linf ball beyond half the range of a pixel has none."""
    return ball.scaled(2) if isinstance(ball, L2) or ball.eps <= 0.5 else None


def _huge(ball: Ball, shape: tuple[int, int, int]) -> Ball:
    """A ball in which every image reaches the grey one, so that no classifier can be right."""
    half = 0.5 * torch.Size(shape).numel() ** 0.5 if isinstance(ball, L2) else 0.5
    return type(ball)(max(half, ball.eps), ball.box)
