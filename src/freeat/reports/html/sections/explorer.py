"""The bound explorer: Theorems 2, 4 and 5 with a slider for every parameter."""

from collections.abc import Sequence
from dataclasses import asdict

from freeat.reports.html.blocks import Explorer, Section, Slider
from freeat.reports.html.gather import Study
from freeat.stability.constants import Constants
from freeat.stability.setting import Setting
from freeat.stability.summary import problem_of
from freeat.theory.bounds import THEOREMS
from freeat.theory.problem import MEANINGS

SYMBOLS = {"beta": "β", "psi": "ψ", "eps": "ε", "alpha": "α_δ"}
RANGES: dict[str, tuple[float, float, float]] = {
    "eps": (0.5, 1e-3, 10),
    "m": (4, 1, 32),
    "alpha": (0.2, 1e-3, 10),
    "beta": (2, 1e-3, 1e3),
    "L": (1, 1e-3, 1e3),
    "L_w": (1, 1e-3, 1e3),
    "psi": (4, 1e-2, 1e6),
    "c": (0.1, 1e-4, 10),
    "b": (10, 1, 4096),
    "n": (1000, 10, 1e7),
    "T": (1000, 1, 1e7),
}
"""Where each slider begins, and its two ends."""
COUNTS = ("m", "b", "n", "T")


def explorer_section(studies: Sequence[Study]) -> Section:
    """Always there: it needs no results, but can begin with the constants that a study has measured."""
    sliders = [
        Slider(
            name=name,
            symbol=SYMBOLS.get(name, name),
            meaning=MEANINGS[name],
            value=value,
            low=low,
            high=high,
            whole=name in COUNTS,
        )
        for name, (value, low, high) in RANGES.items()
    ]
    explorer = Explorer(
        sliders=sliders,
        algorithms=[(name, theorem) for name, theorem in THEOREMS.items()],
        presets=[preset for study in studies for preset in _presets(study)],
    )
    return Section(
        key="explorer",
        title="Bound explorer",
        lead="The generalization bounds of Theorems 2 (Vanilla), 5 (Fast) and 4 (Free), recomputed as you move a"
        " slider. They hold for a loss in [0, 1], L2 balls and weight steps of at most c/t (for Free "
        "c/(mt)); above 1 a bound says nothing. α_δ is the paper's relative step: one attack step moves δ "
        "by α_δ·ε.",
        blocks=[explorer],
    )


def _presets(study: Study) -> list[tuple[str, dict[str, float]]]:
    """The measured constants of a study made as the theorems assume, for every algorithm with a bound."""
    if study.setting is None or study.summary is None:
        return []
    presets = []
    for row in study.summary["rows"]:
        setting = Setting(**{**study.setting, "n": row["n"]})
        constants = None if row["constants"] is None else Constants.of_row(row["constants"])
        covered = problem_of(setting, row["algorithm"], constants)
        if row["bound"] is None or covered is None:
            continue
        _, problem, run = covered
        if problem.eps > 0:  # no logarithmic slider has 0
            values = {name: value for name, value in (asdict(problem) | run).items() if value is not None}
            presets.append((f"{study.name}: {row['algorithm']}, n = {row['n']}", values))
    return presets
