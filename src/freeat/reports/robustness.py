"""Robust accuracies as text: a table of results, the gaps, and the sanity checks in plain words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from freeat.experiments.sweep import SweepReport
from freeat.files.documents import plain
from freeat.reports.text import accuracy_lines, aligned, percent, run_remarks
from freeat.runs.results import StoredEvaluation
from freeat.units import radius_text

COLUMNS = (
    "model",
    "attack",
    "norm",
    "ε",
    "split",
    "n",
    "clean %",
    "robust %",
    "95 % interval",
    "turned wrong",
    "queries",
    "time",
)


def robustness_lines(
    report: SweepReport, *, plot: Path | None = None, examples: Sequence[tuple[str, str]] = ()
) -> list[str]:
    """The whole report of a sweep, line by line; ``examples`` are pairs of a file and its picture."""
    lines = aligned([COLUMNS, *(_row(result) for result in report.results)])
    for gap in report.gaps:
        lines.append(
            f"gap of {gap.model} ({gap.attack}, {gap.norm} {radius_text(gap.eps)}): "
            f"{percent(gap.value)} points [{percent(gap.low)}, {percent(gap.high)}]"
        )
    notes = dict.fromkeys(note for result in report.results for note in result.notes)
    lines += [f"note: {note}" for note in notes]
    lines += [f"{'ok' if check.passed else 'WARNING'}: {check.sentence}" for check in report.checks]
    if failed := [check for check in report.checks if not check.passed]:
        checks = "1 sanity check" if len(failed) == 1 else f"{len(failed)} sanity checks"
        lines.append(f"{checks} failed: do not trust these numbers before you know why.")
    lines += [f"stored in: {place}" for place in report.stored]
    if not report.stored:
        lines.append("nothing was stored: there is no place for it; name a folder with --out")
    if plot is not None:
        lines.append(f"plot: {plot}")
    return [*lines, *(f"examples: {arrays}, drawn in {picture}" for arrays, picture in examples)]


def trained_lines(report: SweepReport, algorithm: str, update: int | None) -> tuple[list[str], list[str]]:
    """A run that was evaluated as its training did: the table of its training, and what its reader must know."""
    splits: dict[str, Any] = {result.split: plain(result) for result in report.results}
    (gap,) = report.gaps
    notes = dict.fromkeys(note for result in report.results for note in result.notes)
    result = {
        **splits,
        "update": update,
        "attack": gap.attack,
        "eps": gap.eps,
        "gap": plain(gap),
        "clean_gap": plain(gap.clean),
        "notes": list(notes),
    }
    return accuracy_lines(algorithm, result), run_remarks(algorithm, result)


def attack_text(attack: str, iterate: str, settings: Mapping[str, Any]) -> str:
    """The attack's name, with what about it is not as usual."""
    alpha, precision = settings.get("alpha"), settings.get("precision", "fp32")
    usual = "zero" if attack.startswith("fgsm") else "uniform"
    start = settings.get("start", usual)
    words = [
        "last" if iterate == "last" else "",
        "" if precision == "fp32" else precision,
        "" if alpha is None else f"α = {radius_text(alpha)}",
        "" if start == usual else f"{start} start",
    ]
    said = ", ".join(word for word in words if word)
    return f"{attack} ({said})" if said else attack


def _row(result: StoredEvaluation) -> tuple[str, ...]:
    low, high = result.robust_interval
    return (
        result.model,
        attack_text(result.attack, result.iterate, result.settings),
        result.norm,
        radius_text(result.eps),
        result.split,
        str(result.n),
        percent(result.clean_accuracy),
        percent(result.robust_accuracy),
        f"[{percent(low)}, {percent(high)}]",
        f"{result.turned_wrong} of {result.n - result.wrong_when_clean}",
        f"{result.queries.mean:.0f}" if result.queries else "–",
        f"{result.seconds:.1f} s",
    )
