"""A bound with its parameters and hypotheses, as a typed value and as lines for a terminal."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from freeat.theory.bounds import Bound, BoundRow
from freeat.theory.derived import DEFAULTS_FROM, ConvexBound, bound_by_name, completed, source
from freeat.theory.problem import MEANINGS, USED, CheckedHypothesis, Status, checked_hypotheses

MARKS: Mapping[Status, str] = {"violated": "✗", "holds": "✓", "unknown": "?"}


@dataclass(frozen=True, kw_only=True)
class BoundDocument(BoundRow):
    """A bound with the parameters it used and did not use, its hypotheses and notes.

    ``source`` is a theorem of the paper, or says that the bound is derived here.
    """

    source: str
    parameters: dict[str, float]
    unused: dict[str, float]
    hypotheses: tuple[CheckedHypothesis, ...]
    notes: tuple[str, ...]


def bound_document(
    algorithm: str,
    parameters: Mapping[str, float | None],
    *,
    facts: Mapping[str, bool] | None = None,
    average: bool = False,
) -> BoundDocument:
    """The bound, its λ and t₀, the parameters it did not use, and its hypotheses checked against a run's facts.

    Every parameter is accepted for every bound (`bound_by_name`). Without ``facts`` the status of every hypothesis is
    unknown.
    """
    result = bound_by_name(algorithm, parameters, average=average)
    given = {name: value for name in MEANINGS if (value := parameters.get(name)) is not None}
    every = completed(parameters)
    names = set(USED[algorithm])
    for name, origins in DEFAULTS_FROM.items():
        if name in names and name not in given:
            names.update(origins)
    used = {name: value for name in MEANINGS if name in names and (value := every[name]) is not None}
    return BoundDocument(
        **asdict(result.row()),
        source=source(algorithm, average=average),
        parameters=used,
        unused={name: value for name, value in given.items() if name not in used},
        hypotheses=checked_hypotheses(algorithm, facts or {}),
        notes=(*([AVERAGED] if average else []), *_notes(result, used)),
    )


AVERAGED = "averaged: for the mean of the weights after every update, not for the last weights"


def _notes(result: Bound | ConvexBound, used: Mapping[str, float]) -> list[str]:
    if isinstance(result, ConvexBound):
        drift = f"{result.drift:.6g} where inner maximizers differ on common examples"
        return [f"{drift}, {result.own:.6g} from the replaced example; for a loss that need not be bounded"]
    notes = []
    if result.vacuous:
        notes.append("vacuous: the bound exceeds 1, and a loss in [0, 1] has no larger gap anyway")
    if result.t0_above:
        notes.append(
            f"t0 lies above [1, {result.steps:g}]: the chance ever to meet the replaced example, "
            f"at most b·batches/n = {used['b'] * math.ceil(result.steps) / used['n']:.6g}, is a smaller bound"
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
    L_w, L = used["L_w"], used.get("L", math.inf)
    if L_w > L:
        notes.append(f"L_w = {L_w:g} exceeds L = {L:g}: L bounds the slope in w too, pass L_w = {L:g}")
    return notes


def bound_lines(document: BoundDocument) -> list[str]:
    """The document as lines of plain text: result, notes, parameters, hypotheses."""
    batches = f" = {document.steps:g} batches" if document.algorithm == "free" else ""
    lines = [
        f"{document.algorithm} ({document.source}) after {document.updates:g} weight updates{batches}",
        f"  generalization gap ≤ {number_or_power(document.bound, document.log10_bound, 6)}",
        *_lambda_and_t0(document),
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


def _lambda_and_t0(document: BoundDocument) -> list[str]:
    if document.log10_lam is None:
        return []
    return [
        f"  lambda = {number_or_power(document.lam, document.log10_lam, 6)}",
        f"  t0     = {'beyond every float' if document.t0 is None else format(document.t0, '.6g')}",
    ]


def number_or_power(value: float | None, log10: float | None, digits: int) -> str:
    """A number, a power of ten where it is beyond every float, or – where the bound has none."""
    if log10 is None:
        return "–"
    return f"10^{log10:.{digits}g}" if value is None else f"{value:.{digits}g}"
