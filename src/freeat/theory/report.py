"""One algorithm's bound as a JSON document and as the plain lines that a terminal shows."""

import math
from collections.abc import Mapping
from typing import Any

from freeat.theory.bounds import THEOREMS, Bound, bound
from freeat.theory.hypotheses import Hypothesis, hypotheses, unsettled, violations
from freeat.theory.problem import MEANINGS, Problem
from freeat.theory.recursion import USED

Document = dict[str, Any]


def bound_document(
    algorithm: str,
    *,
    beta: float,
    c: float,
    L: float,
    L_w: float,
    eps: float,
    b: int,
    n: int,
    T: int,
    psi: float | None = None,
    alpha: float | None = None,
    m: int | None = None,
    facts: Mapping[str, bool] | None = None,
) -> Document:
    """The bound, its λ and t₀, the parameters it did not use, and its hypotheses with what a run's facts say.

    Every parameter is accepted for every algorithm. Without ``facts`` no hypothesis is judged.
    """
    given = {"beta": beta, "c": c, "L": L, "L_w": L_w, "eps": eps, "b": b, "n": n, "T": T}
    given |= {name: value for name, value in (("psi", psi), ("alpha", alpha), ("m", m)) if value is not None}
    p = Problem(beta=beta, c=c, L=L, L_w=L_w, eps=eps, b=b, n=n, psi=psi)
    result = bound(algorithm, p, T=T, alpha=alpha, m=m)
    return {
        "format": 1,
        "theorem": THEOREMS[algorithm],
        **result.row(),
        "parameters": {name: value for name, value in given.items() if name in USED[algorithm]},
        "unused": {name: value for name, value in given.items() if name not in USED[algorithm]},
        "hypotheses": _judged(algorithm, facts or {}),
        "notes": _notes(result, p),
    }


def _judged(algorithm: str, facts: Mapping[str, bool]) -> list[dict[str, str]]:
    violated, unknown = violations(algorithm, facts), unsettled(algorithm, facts)

    def status(hypothesis: Hypothesis) -> str:
        if hypothesis in violated:
            return "violated"
        return "unknown" if hypothesis in unknown else "holds"

    return [{"key": h.key, "sentence": h.sentence, "status": status(h)} for h in hypotheses(algorithm)]


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


_MARKS = {"violated": "✗", "holds": "✓", "unknown": "?"}


def bound_lines(document: Document) -> list[str]:
    """The document as lines of plain text: result, notes, parameters, hypotheses."""
    batches = f" = {document['steps']:g} batches" if document["algorithm"] == "free" else ""
    lines = [
        f"{document['algorithm']} ({document['theorem']}) after {document['updates']:g} weight updates{batches}",
        f"  generalization gap ≤ {_number(document, 'bound')}",
        f"  lambda = {_number(document, 'lambda')}",
        f"  t0     = {'beyond every float' if document['t0'] is None else format(document['t0'], '.6g')}",
        *(f"  note: {note}" for note in document["notes"]),
        "parameters",
        *(f"  {name} = {value:g}: {MEANINGS[name]}" for name, value in document["parameters"].items()),
    ]
    if document["unused"]:
        unused = ", ".join(f"{name} = {value:g}" for name, value in document["unused"].items())
        lines.append(f"  unused by {document['algorithm']}: {unused}")
    lines.append("hypotheses")
    lines.extend(f"  {_MARKS[h['status']]} {h['key']}: {h['sentence']}" for h in document["hypotheses"])
    return lines


def _number(document: Document, key: str) -> str:
    """A number, or a power of ten where it is beyond every float."""
    value = document[key]
    return f"10^{document[f'log10_{key}']:.6g}" if value is None else f"{value:.6g}"
