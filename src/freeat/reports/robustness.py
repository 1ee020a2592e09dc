"""Robustness figures as text: a table of cells, the gaps, and the honesty checks in plain words."""

from typing import Any

from freeat.reports.text import aligned, percent
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


def robustness_lines(report: dict[str, Any]) -> list[str]:
    """The whole report of a campaign, line by line."""
    lines = aligned([COLUMNS, *(_row(cell) for cell in report["cells"])])
    for gap in report["gaps"]:
        lines.append(
            f"gap of {gap['model']} ({gap['attack']}, {gap['norm']} {radius_text(gap['eps'])}): "
            f"{percent(gap['value'])} points [{percent(gap['low'])}, {percent(gap['high'])}]"
        )
    notes = dict.fromkeys(note for cell in report["cells"] for note in cell["notes"])
    lines += [f"note: {note}" for note in notes]
    failed = [check for check in report["checks"] if not check["passed"]]
    lines += [f"{'ok' if check['passed'] else 'WARNING'}: {check['sentence']}" for check in report["checks"]]
    if failed:
        checks = "1 honesty check" if len(failed) == 1 else f"{len(failed)} honesty checks"
        lines.append(f"{checks} failed: do not trust these figures before you know why.")
    places = report.get("stored", ())
    lines += [f"stored in: {place}" for place in places]
    if not places:
        lines.append("nothing was stored: there is no place for it; name a folder with --out")
    if "plot" in report:
        lines.append(f"plot: {report['plot']}")
    lines += [f"examples: {one['arrays']}, drawn in {one['picture']}" for one in report.get("examples", ())]
    return lines


def _turned(cell: dict[str, Any]) -> str:
    """How many of the images that were right when clean the attack made wrong; older cells do not say."""
    if "turned_wrong" not in cell:
        return "–"
    return f"{cell['turned_wrong']} of {cell['n'] - cell['wrong_when_clean']}"


def attack_text(cell: dict[str, Any]) -> str:
    """The attack's name, with what about it is not as usual; older cells know their iterate only."""
    settings = {"alpha": None, "precision": "fp32"} | cell.get("settings", {})
    words = [
        "last" if cell["iterate"] == "last" else "",
        "" if settings["precision"] == "fp32" else settings["precision"],
        "" if settings["alpha"] is None else f"α = {radius_text(settings['alpha'])}",
        f"{settings['start']} start" if _unusual_start(cell["attack"], settings) else "",
    ]
    said = ", ".join(word for word in words if word)
    return f"{cell['attack']} ({said})" if said else str(cell["attack"])


def _unusual_start(attack: str, settings: dict[str, Any]) -> bool:
    usual = "zero" if attack.startswith("fgsm") else "uniform"
    return str(settings.get("start", usual)) != usual


def _row(cell: dict[str, Any]) -> tuple[str, ...]:
    low, high = cell["robust_interval"]
    return (
        cell["model"],
        attack_text(cell),
        cell["norm"],
        radius_text(cell["eps"]),
        cell["split"],
        str(cell["n"]),
        percent(cell["clean_accuracy"]),
        percent(cell["robust_accuracy"]),
        f"[{percent(low)}, {percent(high)}]",
        _turned(cell),
        f"{cell['queries']['mean']:.0f}" if cell["queries"] else "–",
        f"{cell['seconds']:.1f} s",
    )
