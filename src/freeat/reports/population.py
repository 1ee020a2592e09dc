"""A population study as text, Markdown and one figure."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freeat.evaluation.matched import Interval
from freeat.reports.plots import look, save_figure, styled
from freeat.reports.tables import NOTHING, aligned
from freeat.stability.population import PopulationResult, PopulationSettings
from freeat.stability.population_summary import ArmDifference, PopulationSummary, gaps

ARM_COLUMNS = ("arm", "strength", "train risk", "population risk", "gap", "0–1 gap")
DIFFERENCE_COLUMNS = ("arm", "minus", "equal updates", "0–1, equal updates", "equal training risk", "at risk")


def interval_text(interval: Interval) -> str:
    """A value with its interval, to two digits of the interval's width."""
    if interval.low is None or interval.high is None:
        return f"{interval.value:.4g}"
    width = interval.high - interval.low
    digits = min(max(2, 1 - math.floor(math.log10(width))), 9) if width > 0 else 4
    value, low, high = (round(part, digits) + 0.0 for part in (interval.value, interval.low, interval.high))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _tables(summary: PopulationSummary) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Every table of a study under its title: rows of text, the heading first."""
    rows: list[tuple[str, ...]]
    tables: list[tuple[str, list[tuple[str, ...]]]] = []
    for instance in dict.fromkeys(row.instance for row in summary.arms):
        arms = [row for row in summary.arms if row.instance == instance]
        rows = [
            (
                row.arm,
                NOTHING if row.strength is None else f"{row.strength:.2f}",
                f"{row.train_surrogate:.4f}",
                f"{row.population_surrogate:.4f}",
                interval_text(row.gap_surrogate),
                interval_text(row.gap_zero_one),
            )
            for row in arms
        ]
        tables.append((f"{instance.title()}, T = {instance.updates}", [ARM_COLUMNS, *rows]))
        differences = [row for row in summary.differences if row.instance == instance]
        if differences:
            tables.append(
                ("differences of the gap", [DIFFERENCE_COLUMNS, *map(_difference_row, differences)])
            )
    if summary.exponents:
        rows = [(row.arm, _without_n(row.instance), interval_text(row.exponent)) for row in summary.exponents]
        tables.append(("exponent a in gap ∝ n^(−a)", [("arm", "instance", "a"), *rows]))
    if summary.bounds:
        rows = [
            (row.arm, str(row.instance.n), row.bound_name, f"{row.bound:.3g}", interval_text(row.measured))
            for row in summary.bounds
        ]
        tables.append(("bounds on the surrogate gap", [("arm", "n", "bound", "value", "measured"), *rows]))
    return tables


def _difference_row(row: ArmDifference) -> tuple[str, ...]:
    return (
        row.arm,
        row.reference,
        interval_text(row.surrogate),
        interval_text(row.zero_one),
        interval_text(row.matched.difference),
        f"{1 - row.matched.level:.4f}",
    )


def _without_n(instance: PopulationSettings) -> str:
    return instance.title().replace(f", n = {instance.n}", "")


def population_lines(summary: PopulationSummary) -> list[str]:
    """The study for a terminal."""
    lines: list[str] = []
    for title, rows in _tables(summary):
        lines += ["", title, *aligned(rows)]
    return lines[1:]


def population_markdown(summary: PopulationSummary) -> str:
    """The study as Markdown tables."""
    parts: list[str] = []
    for title, (head, *rows) in _tables(summary):
        lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
        lines.insert(1, "|---|" + "---:|" * (len(head) - 1))
        parts.append("\n".join([f"**{title}**", "", *lines]))
    return "\n\n".join(parts) + "\n"


def draw_population(path: Path, results: Sequence[PopulationResult], summary: PopulationSummary) -> Path:
    """The gap against the training risk of one instance, and the differences of all, in one figure."""
    import matplotlib.pyplot as plt

    instances = list(dict.fromkeys(result.settings for result in results))
    shown = instances[len(instances) // 2]
    with styled():
        figure, axes = plt.subplots(1, 3, figsize=(13, 4.6), layout="constrained")
        for place, result in enumerate(r for r in results if r.settings == shown):
            risk = np.array(result.trajectory.train["surrogate"]).mean(1)
            axes[0].plot(risk, gaps(result, "surrogate").mean(0), label=result.arm, **look(place))
        axes[0].invert_xaxis()
        axes[0].set(
            xlabel="robust training risk (falls during training)",
            ylabel="exact robust generalization gap",
            title=f"one instance: {shown.title()}",
        )
        axes[0].title.set_fontsize(8.5)
        axes[0].legend(fontsize=7.5)
        _draw_differences(axes[1], summary.differences, matched=False)
        _draw_differences(axes[2], summary.differences, matched=True)
        return save_figure(figure, path)


def _draw_differences(panel: Any, differences: Sequence[ArmDifference], *, matched: bool) -> None:
    """Every paired difference as a point with its interval, one row for each pair of arms."""
    pairs = list(dict.fromkeys((row.arm, row.reference) for row in differences))
    for height, pair in enumerate(pairs):
        rows = [row for row in differences if (row.arm, row.reference) == pair]
        found = [row.matched.difference if matched else row.surrogate for row in rows]
        heights = height + np.linspace(-0.3, 0.3, len(found)) if len(found) > 1 else np.array([float(height)])
        values = np.array([one.value for one in found])
        low = np.array([one.value if one.low is None else one.low for one in found])
        high = np.array([one.value if one.high is None else one.high for one in found])
        panel.errorbar(
            values, heights, xerr=[values - low, high - values], fmt="o", markersize=3, linewidth=1,
            color=look(height)["color"],
        )  # fmt: skip
    panel.axvline(0, color="0.5", linewidth=0.8)
    panel.set_yticks(range(len(pairs)), [f"{arm} − {reference}" for arm, reference in pairs], fontsize=8)
    panel.invert_yaxis()
    where = "equal robust training risk" if matched else "equal weight updates"
    panel.set(xlabel="difference of the gap (95 %)", title=f"all instances, at {where}")
