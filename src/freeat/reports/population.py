"""A population study as tables and charts: for the terminal, as Markdown, as one figure, and in the HTML report."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freeat.evaluation.matched import Interval
from freeat.reports.charts import ChartAxis, ChartPanel, ChartSeries, Curve, LineChart
from freeat.reports.plots import save_figure, series_style, styled
from freeat.reports.tables import NO_VALUE, ReportTable, TableCell, markdown_text
from freeat.stability.population import PopulationSettings
from freeat.stability.population_summary import (
    ArmSummary,
    Lever,
    PopulationDifference,
    PopulationLever,
    PopulationSummary,
)


def interval_cell(interval: Interval) -> TableCell:
    """A value with its interval, to two digits of the interval's width."""
    if interval.low is None or interval.high is None:
        return TableCell(text=f"{interval.value:.4g}")
    width = interval.high - interval.low
    digits = min(max(2, 1 - math.floor(math.log10(width))), 9) if width > 0 else 4
    value, low, high = (round(part, digits) + 0.0 for part in (interval.value, interval.low, interval.high))
    return TableCell(text=f"{value:.{digits}f}", detail=f"[{low:.{digits}f}, {high:.{digits}f}]")


def population_tables(summary: PopulationSummary) -> list[ReportTable]:
    """Every table of a study: gaps, exponents, differences of both, levers, bounds; those without rows are left out."""
    tables = [
        ReportTable(
            caption="Exact robust generalization gap at the last update (surrogate risk; 0–1 risk last)",
            columns=("instance", "algorithm", "strength", "train risk", "population risk", "gap", "0–1 gap"),
            rows=[_arm_row(row) for row in summary.arms],
            text_columns=2,
            notes=_errors(summary.arms),
        ),
        ReportTable(
            caption="Differences of the gap: after equal updates, and at equal robust training risk",
            columns=(
                "instance",
                "algorithm",
                "minus",
                "equal updates",
                "0–1",
                "equal training risk",
                "at risk",
            ),
            rows=[_difference_row(row) for row in summary.differences],
            text_columns=3,
        ),
        ReportTable(
            caption="Exponent a in gap ∝ n^(−a) at a fixed number of updates",
            columns=("instance", "algorithm", "a"),
            rows=[
                (_without_n(row.instance), row.arm, interval_cell(row.exponent)) for row in summary.exponents
            ],
            text_columns=2,
        ),
        ReportTable(
            caption="Difference of the exponents a, paired by seed",
            columns=("instance", "algorithm", "minus", "difference of a"),
            rows=[
                (_without_n(row.instance), row.arm, row.reference, interval_cell(row.difference))
                for row in summary.exponent_differences
            ],
            text_columns=3,
        ),
        ReportTable(
            caption="Change of the gap with what the bounds grow with, all else equal",
            columns=("model", "algorithm", "from – to", "pairs", "grows", "falls", "mean change"),
            rows=_lever_rows(summary.levers),
            text_columns=3,
        ),
        ReportTable(
            caption="Bounds on the expected surrogate gap, with constants in closed form",
            columns=("instance", "algorithm", "bound", "value", "measured"),
            rows=[
                (
                    row.instance.title(),
                    row.arm,
                    row.bound_name,
                    f"{row.bound:.3g}",
                    interval_cell(row.measured),
                )
                for row in summary.bounds
            ],
            text_columns=3,
        ),
    ]
    return [table for table in tables if table.rows]


def _errors(arms: Sequence[ArmSummary]) -> list[str]:
    """How well the risks of nets are estimated; those of linear classifiers are formulas."""
    largest = max((row.standard_error for row in arms), default=0.0)
    if largest == 0:
        return []
    return [
        f"Population risks are estimated on fresh examples, with a standard error of at most {largest:.4f}."
    ]


def _arm_row(row: ArmSummary) -> tuple[str | TableCell, ...]:
    return (
        row.instance.title(),
        row.arm,
        NO_VALUE if row.strength is None else f"{row.strength:.2f}",
        f"{row.train_surrogate:.4f}",
        f"{row.population_surrogate:.4f}",
        interval_cell(row.gap_surrogate),
        interval_cell(row.gap_zero_one),
    )


def _difference_row(row: PopulationDifference) -> tuple[str | TableCell, ...]:
    return (
        row.instance.title(),
        row.arm,
        row.reference,
        interval_cell(row.surrogate),
        interval_cell(row.zero_one),
        NO_VALUE if row.matched is None else interval_cell(row.matched.difference),
        NO_VALUE if row.matched is None else f"{1 - row.matched.level:.4f}",
    )


LEVERS: dict[Lever, str] = {"eps": "ε/‖μ‖", "alpha": "α_δ", "updates": "T", "d": "d", "m": "m"}


def _lever_rows(levers: Sequence[PopulationLever]) -> list[tuple[str | TableCell, ...]]:
    """For each algorithm and step of a lever: on how many instances the gap grows or falls beyond its interval."""
    grouped: dict[tuple[str, str, str], list[Interval]] = {}
    for row in levers:
        step = f"{LEVERS[row.lever]} = {row.low:.4g} – {row.high:.4g}"
        key = (f"{row.instance.model}, {row.instance.norm}", row.arm, step)
        grouped.setdefault(key, []).append(row.change)
    return [
        (
            *key,
            str(len(changes)),
            str(sum(change.excludes_zero and change.value > 0 for change in changes)),
            str(sum(change.excludes_zero and change.value < 0 for change in changes)),
            f"{float(np.mean([change.value for change in changes])):+.4f}",
        )
        for key, changes in grouped.items()
    ]


def _without_n(instance: PopulationSettings) -> str:
    return instance.title().replace(f", n = {instance.n}", "")


def population_lines(summary: PopulationSummary) -> list[str]:
    """The study for a terminal."""
    return [line for table in population_tables(summary) for line in (table.caption, *table.lines(), "")]


def population_markdown(summary: PopulationSummary) -> str:
    """The study as Markdown tables."""
    tables = population_tables(summary)
    return "\n\n".join(f"**{markdown_text(table.caption)}**\n\n{table.markdown()}" for table in tables) + "\n"


def shown_instance(summary: PopulationSummary) -> PopulationSettings:
    """The instance whose learning curves are shown: the one on which the last gaps differ most."""

    def difference(instance: PopulationSettings) -> float:
        last = [row.gap_surrogate.value for row in summary.arms if row.instance == instance]
        return max(last) - min(last)

    return max(dict.fromkeys(row.instance for row in summary.arms), key=difference)


def gap_chart(name: str, summary: PopulationSummary) -> LineChart:
    """The mean gap of every algorithm against its robust training risk, on one instance."""
    shown = shown_instance(summary)
    arms = [row for row in summary.arms if row.instance == shown]
    return LineChart(
        title=f"{name}: {shown.title()}",
        description="The exact robust generalization gap of every algorithm against its robust training risk.",
        axes=[
            ChartAxis(key="risk", label="robust training risk"),
            ChartAxis(key="updates", label="weight updates"),
        ],
        panels=[ChartPanel(title="exact robust generalization gap")],
        series=[
            ChartSeries(
                name=row.arm,
                curves=[
                    Curve(panel=0, x={"risk": row.curve_risk, "updates": row.curve_updates}, y=row.curve_gap)
                ],
            )
            for row in arms
        ],
        numbers=ReportTable(
            caption=shown.title(),
            columns=("algorithm", "updates", "train risk", "gap"),
            rows=[
                (row.arm, str(update), f"{risk:.4f}", f"{gap:.4f}")
                for row in arms
                for update, risk, gap in zip(row.curve_updates, row.curve_risk, row.curve_gap, strict=True)
            ],
        ),
    )


def draw_population(path: Path, summary: PopulationSummary) -> Path:
    """The gap against the training risk on one instance, and the differences on all, in one figure."""
    import matplotlib.pyplot as plt

    shown = shown_instance(summary)
    with styled():
        figure, axes = plt.subplots(1, 3, figsize=(13.5, 4.8), layout="constrained")
        for index, row in enumerate(row for row in summary.arms if row.instance == shown):
            axes[0].plot(row.curve_risk, row.curve_gap, label=row.arm, **series_style(index))
        axes[0].invert_xaxis()
        axes[0].set(
            xlabel="robust training risk (falls during training)", ylabel="exact robust generalization gap"
        )
        axes[0].set_title(shown.title(), fontsize=8.5)
        axes[0].legend(fontsize=7.5)
        _draw_differences(axes[1], summary.differences, matched=False)
        _draw_differences(axes[2], summary.differences, matched=True)
        return save_figure(figure, path)


def _draw_differences(panel: Any, differences: Sequence[PopulationDifference], *, matched: bool) -> None:
    """Every paired difference as a point with its interval, one group for each pair of algorithms."""
    pairs = list(dict.fromkeys((row.arm, row.reference) for row in differences))
    for height, pair in enumerate(pairs):
        rows = [row for row in differences if (row.arm, row.reference) == pair]
        found = [row.surrogate for row in rows]
        if matched:
            found = [row.matched.difference for row in rows if row.matched is not None]
        if not found:  # in no instance do both pass the same training risk
            continue
        heights = height + np.linspace(-0.3, 0.3, len(found)) if len(found) > 1 else np.array([float(height)])
        values = np.array([one.value for one in found])
        low = np.array([one.value if one.low is None else one.low for one in found])
        high = np.array([one.value if one.high is None else one.high for one in found])
        panel.errorbar(
            values,
            heights,
            xerr=[values - low, high - values],
            fmt="o",
            markersize=3,
            linewidth=1,
            color=series_style(height)["color"],
        )
    panel.axvline(0, color="0.5", linewidth=0.8)
    panel.set_yticks(range(len(pairs)), [f"{arm} −\n{reference}" for arm, reference in pairs], fontsize=7.5)
    panel.invert_yaxis()
    where = "equal robust training risk" if matched else "equal weight updates"
    panel.set(xlabel="difference of the gap, 95 %")
    panel.set_title(f"all instances, at {where}", fontsize=9)
