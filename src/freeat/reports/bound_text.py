"""Several bounds as plain lines: parameters once, a table of the algorithms, and the hypotheses once."""

from collections.abc import Sequence
from typing import Any

from freeat.reports.text import aligned
from freeat.theory.problem import MEANINGS

Document = dict[str, Any]
MARKS = {"violated": "✗", "holds": "✓", "unknown": "?"}


def bound_comparison_lines(documents: Sequence[Document]) -> list[str]:
    """The bounds of several algorithms for the same parameters."""
    return [
        *_parameters(documents),
        "",
        *aligned([("algorithm", "theorem", "λ", "bound", "t₀", ""), *map(_row, documents)]),
        *(f"note ({one['algorithm']}): {note}" for one in documents for note in one["notes"]),
        "",
        *_hypotheses(documents),
    ]


def _parameters(documents: Sequence[Document]) -> list[str]:
    lines = ["parameters"]
    for name, meaning in MEANINGS.items():
        users = [one["algorithm"] for one in documents if name in one["parameters"]]
        if users:
            value = next(one["parameters"][name] for one in documents if name in one["parameters"])
            lines.append(f"  {name} = {value:g}{_only(users, documents)}: {meaning}")
    return lines


def _row(one: Document) -> tuple[str, ...]:
    batches = f"{one['steps']:g} batches"
    judgement = ["vacuous: above 1"] if one["vacuous"] else []
    judgement += [f"t₀ outside 1 to {batches}"] if one["t0_outside"] else []
    t0 = "beyond every float" if one["t0"] is None else f"{one['t0']:.4g}"
    return (
        one["algorithm"],
        one["theorem"],
        _number(one, "lambda"),
        _number(one, "bound"),
        t0,
        ", ".join(judgement),
    )


def _number(one: Document, key: str) -> str:
    """A number, or a power of ten where it is beyond every float."""
    return f"10^{one[f'log10_{key}']:.4g}" if one[key] is None else f"{one[key]:.4g}"


def _hypotheses(documents: Sequence[Document]) -> list[str]:
    """Every hypothesis once, with the algorithms whose bound needs it where not all do."""
    found = {h["key"]: h for one in documents for h in one["hypotheses"]}
    unknown = any(hypothesis["status"] == "unknown" for hypothesis in found.values())
    lines = [
        "hypotheses" + (" (?: not known of numbers alone; a run is judged with --from)" if unknown else "")
    ]
    for key, hypothesis in found.items():
        needing = [one["algorithm"] for one in documents if any(h["key"] == key for h in one["hypotheses"])]
        lines.append(
            f"  {MARKS[hypothesis['status']]} {key}{_only(needing, documents)}: {hypothesis['sentence']}"
        )
    return lines


def _only(algorithms: Sequence[str], documents: Sequence[Document]) -> str:
    return "" if len(algorithms) == len(documents) else f" ({' and '.join(algorithms)} only)"
