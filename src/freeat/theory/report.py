"""One algorithm's bound with its parameters and hypotheses, as a typed value and as lines for a terminal."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from freeat.theory.bounds import THEOREMS, Bound, BoundRow, bound
from freeat.theory.problem import MEANINGS, USED, CheckedHypothesis, Problem, Status, checked_hypotheses

MARKS: Mapping[Status, str] = {"violated": "✗", "holds": "✓", "unknown": "?"}


@dataclass(frozen=True, kw_only=True)
class BoundDocument(BoundRow):
    """A bound with the parameters it used and did not use, its hypotheses and notes."""

    theorem: str
    parameters: dict[str, float]
    unused: dict[str, float]
    hypotheses: tuple[CheckedHypothesis, ...]
    notes: tuple[str, ...]


def bound_document(
    algorithm: str,
    p: Problem,
    *,
    T: int,
    alpha: float | None = None,
    m: int | None = None,
    facts: Mapping[str, bool] | None = None,
) -> BoundDocument:
    """The bound, its λ and t₀, the parameters it did not use, and its hypotheses checked against a run's facts.

    Every parameter is accepted for every algorithm. Without ``facts`` the status of every hypothesis is unknown.
    """
    result = bound(algorithm, p, T=T, alpha=alpha, m=m)
    every = {**asdict(p), "T": T, "alpha": alpha, "m": m}
    given = {name: every[name] for name in USED["free"] if every[name] is not None}
    return BoundDocument(
        **asdict(result.row()),
        theorem=THEOREMS[algorithm],
        parameters={name: value for name, value in given.items() if name in USED[algorithm]},
        unused={name: value for name, value in given.items() if name not in USED[algorithm]},
        hypotheses=checked_hypotheses(algorithm, facts or {}),
        notes=tuple(_notes(result, p)),
    )


def _notes(result: Bound, p: Problem) -> list[str]:
    notes = []
    if result.vacuous:
        notes.append("vacuous: the bound exceeds 1, and a loss in [0, 1] has no larger gap anyway")
    if result.t0_above:
        notes.append(
            f"t0 lies above [1, {result.steps:g}]: the chance ever to meet the replaced example, "
            f"at most b·batches/n = {p.b * math.ceil(result.steps) / p.n:.6g}, is a smaller bound"
        )
    elif result.t0_outside:
        notes.append(
            f"t0 lies below [1, {result.steps:g}]: the bound holds, but t0 = 0 would give a smaller one"
        )
    if result.steps != math.floor(result.steps):
        notes.append(
            f"m does not divide T = {result.T:g}: the theorem counts whole loops of m updates, so pass the next "
            "multiple of m"
        )
    if p.L_w > p.L:
        notes.append(f"L_w = {p.L_w:g} exceeds L = {p.L:g}: L bounds the slope in w too, pass L_w = {p.L:g}")
    return notes


def bound_lines(document: BoundDocument) -> list[str]:
    """The document as lines of plain text: result, notes, parameters, hypotheses."""
    batches = f" = {document.steps:g} batches" if document.algorithm == "free" else ""
    lines = [
        f"{document.algorithm} ({document.theorem}) after {document.updates:g} weight updates{batches}",
        f"  generalization gap ≤ {number_or_power(document.bound, document.log10_bound, 6)}",
        f"  lambda = {number_or_power(document.lam, document.log10_lam, 6)}",
        f"  t0     = {'beyond every float' if document.t0 is None else format(document.t0, '.6g')}",
        *(f"  note: {note}" for note in document.notes),
        "parameters",
        *(f"  {name} = {value:g}: {MEANINGS[name]}" for name, value in document.parameters.items()),
    ]
    if document.unused:
        unused = ", ".join(f"{name} = {value:g}" for name, value in document.unused.items())
        lines.append(f"  unused by {document.algorithm}: {unused}")
    lines.append("hypotheses")
    lines.extend(f"  {MARKS[h.status]} {h.key}: {h.sentence}" for h in document.hypotheses)
    return lines


def number_or_power(value: float | None, log10: float, digits: int) -> str:
    """A number, or a power of ten where it is beyond every float."""
    return f"10^{log10:.{digits}g}" if value is None else f"{value:.{digits}g}"
