"""Charts of training: learning curves as in Figure 1, algorithms with parts, gradient norms as in Figure 12."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from freeat.experiments.curves import comparable, seed_curves
from freeat.reports.charts import (
    ChartAxis,
    ChartPanel,
    ChartSeries,
    Curve,
    HeatMap,
    HeatMapPanel,
    LineChart,
    seed_curve,
    thinned,
)
from freeat.reports.plots import draw_line_chart, save_figure, series_style, styled
from freeat.reports.tables import ReportTable, number_text
from freeat.runs.spec import PLUS
from freeat.stability.results import GradientRecord
from freeat.training.records import Record

if TYPE_CHECKING:
    from freeat.experiments.comparison import AlgorithmSummary

AXES = {
    "epochs": ("equivalent_epoch", "epochs (Free's × m: equal numbers of weight updates)"),
    "updates": ("update", "weight updates"),
    "gradients": ("gradient_evaluations", "gradient evaluations (images)"),
    "seconds": ("seconds", "seconds"),
}
"""The x-axes of learning curves: the field of a record, and its label."""
PANELS = (
    ChartPanel(title="robust training error", unit="%"),
    ChartPanel(title="robust test error", unit="%"),
    ChartPanel(title="robust generalization gap", unit="points", level=0.0, meaning="no gap"),
)

History = list[Record]


def draw_curves(
    path: Path, series: Sequence[tuple[str, list[History]]], *, axis: str = "epochs", title: str
) -> None:
    """Draw the learning curves of several algorithms, each with one history per seed."""
    draw_line_chart(path, learning_curves(title, series), axis=axis)


def learning_curves(title: str, histories: Sequence[tuple[str, list[History]]]) -> LineChart:
    """Training error, test error and gap by name: means over the seeds, bands from the lowest to the highest.

    Where the last evaluation was made on more images than those before it, it is a point separate.
    """
    series = []
    for name, own in histories:
        curves = _error_curves([comparable(history) for history in own], separate=False)
        if last := larger_last(own):
            curves += _error_curves(last, separate=True)
        series.append(ChartSeries(name=name, curves=curves))
    return LineChart(
        title=title,
        description=f"Robust training error, test error and gap of {', '.join(one.name for one in series)}",
        axes=[ChartAxis(key=key, label=label) for key, (_, label) in AXES.items()],
        panels=PANELS,
        series=series,
        numbers=_numbers(series),
    )


def _error_curves(histories: list[History], *, separate: bool) -> list[Curve]:
    keep = thinned(min(map(len, histories)))
    x = {axis: errors(histories, key)[0][keep].tolist() for axis, (key, _) in AXES.items()}
    _, panels = errors(histories, "update")
    return [seed_curve(panel, x, rows[:, keep], separate=separate) for panel, rows in enumerate(panels)]


def _numbers(series: Sequence[ChartSeries]) -> ReportTable:
    rows = []
    for one in series:
        for start in range(0, len(one.curves), len(PANELS)):
            train, test, gap = one.curves[start : start + len(PANELS)]
            points = zip(*train.x.values(), train.y, test.y, gap.y, strict=True)
            rows += [[one.name, *map(number_text, point)] for point in points]
    heads = (
        "epochs",
        "updates",
        "gradient evaluations",
        "seconds",
        "train error %",
        "test error %",
        "gap (points)",
    )
    return ReportTable(
        caption="Learning curves as numbers, means over the seeds", columns=("algorithm", *heads), rows=rows
    )


def larger_last(histories: list[History]) -> list[History]:
    """The last records that were made on more images than those before them, each a history of its own."""
    sizes = [[(record.train.n, record.test.n) for record in history] for history in histories]
    return [history[-1:] for history, n in zip(histories, sizes, strict=True) if n[-1] != n[0]]


def errors(histories: list[History], key: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """The points all seeds have, as arrays (seeds, points): training error, test error, gap, in percent."""
    length = min(len(history) for history in histories)
    x = np.array(
        [[getattr(record, key) for record in history[:length]] for history in histories], float
    ).mean(0)

    accuracies = np.array(
        [
            [(record.train.robust_accuracy, record.test.robust_accuracy) for record in history[:length]]
            for history in histories
        ]
    )
    train, test = np.moveaxis(100 * (1 - accuracies), -1, 0)
    return x, [train, test, test - train]


def gap_chart(title: str, histories: Sequence[tuple[str, list[History]]]) -> LineChart | None:
    """The robust gap against robust training accuracy along the training, means over the seeds; None without curves."""
    series, rows = [], []
    for name, own in histories:
        curves = seed_curves(own)
        if curves is None:
            continue
        keep = thinned(curves.fit.shape[1])
        fit, gap = ((100 * values.mean(0))[keep].tolist() for values in (curves.fit, curves.gap))
        series.append(ChartSeries(name=name, curves=[Curve(panel=0, x={"fit": fit}, y=gap)]))
        rows += [[name, *map(number_text, point)] for point in zip(fit, gap, strict=True)]
    if not series:
        return None
    return LineChart(
        title=title,
        description=f"Robust gap against robust training accuracy of {', '.join(one.name for one in series)}",
        axes=[ChartAxis(key="fit", label="robust training accuracy in %")],
        panels=PANELS[-1:],
        series=series,
        numbers=ReportTable(
            caption="Gap against robust training accuracy as numbers, means over the seeds",
            columns=("algorithm", "robust train %", "robust gap (points)"),
            rows=rows,
        ),
    )


def draw_parts(path: Path, algorithms: Sequence["AlgorithmSummary"], *, title: str) -> Path:
    """Gap and robust test accuracy of every algorithm with each of its parts: mean ± standard deviation over seeds.

    The rows of an algorithm are grouped; a dotted line is its row with the fewest parts.
    """
    import matplotlib.pyplot as plt

    groups: dict[str, list[AlgorithmSummary]] = {}
    for row in algorithms:
        groups.setdefault(row.algorithm, []).append(row)
    names = list(groups)
    rows = [row for group in groups.values() for row in group]
    heights = {row.label: k + 0.6 * names.index(row.algorithm) for k, row in enumerate(rows)}
    panels = {"robust_gap": "robust generalization gap (points)", "robust_test": "robust test accuracy (%)"}
    with styled(**{"axes.grid": False}):
        size = (9.5, 0.26 * (heights[rows[-1].label] + 1) + 1.3)
        figure, axes = plt.subplots(1, 2, figsize=size, sharey=True, layout="constrained")
        for drawn, (key, label) in zip(axes, panels.items(), strict=True):
            for index, group in enumerate(groups.values()):
                at, values = [heights[row.label] for row in group], [getattr(row, key) for row in group]
                mean, std = [100 * one.mean for one in values], [100 * (one.std or 0) for one in values]
                style = series_style(index)
                drawn.errorbar(mean, at, xerr=std, fmt=style["marker"], color=style["color"])
                plain = min(range(len(group)), key=lambda k: group[k].label.count(PLUS))
                drawn.vlines(mean[plain], at[0] - 0.4, at[-1] + 0.4, color="0.6", linestyle=":", linewidth=1)
            drawn.set_xlabel(label)
            drawn.grid(axis="x", alpha=0.25, linewidth=0.6)
        axes[0].set_yticks(list(heights.values()), list(heights))
        axes[0].invert_yaxis()
        figure.suptitle(title, fontsize=10.5)
        return save_figure(figure, path)


FRONT = "Pareto front"


def cost_chart(title: str, models: Sequence[tuple[str, float, float]]) -> LineChart:
    """Robust test accuracy of trained models against gradient evaluations, given as (name, cost, share right).

    A line joins those of which no other is both cheaper and more accurate: the Pareto front.
    """
    front = pareto_front([(cost, accuracy) for _, cost, accuracy in models])

    def curve(chosen: Sequence[tuple[str, float, float]], *, separate: bool = False) -> Curve:
        x = {"gradients": [cost for _, cost, _ in chosen]}
        return Curve(panel=0, x=x, y=[100 * accuracy for _, _, accuracy in chosen], separate=separate)

    series = [ChartSeries(name=model[0], curves=[curve([model], separate=True)]) for model in models]
    series.append(ChartSeries(name=FRONT, curves=[curve([models[k] for k in front])]))
    return LineChart(
        title=title,
        description=f"Robust test accuracy against gradient evaluations of {', '.join(name for name, _, _ in models)}",
        axes=[ChartAxis(key="gradients", label=AXES["gradients"][1], log=True)],
        panels=[ChartPanel(title="robust test accuracy", unit="%")],
        series=series,
        numbers=ReportTable(
            caption="Robust test accuracy against cost as numbers, means over the seeds",
            columns=("algorithm", "gradient evaluations", "robust test %", FRONT),
            rows=[
                [name, f"{cost:,.0f}", f"{100 * accuracy:.1f}", "yes" if k in front else "no"]
                for k, (name, cost, accuracy) in enumerate(models)
            ],
        ),
    )


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The points (cost, value) that no other beats in one and equals in the other, the cheapest first."""
    front: list[int] = []
    for k in sorted(range(len(points)), key=lambda k: (points[k][0], -points[k][1])):
        if not front or points[k][1] > points[front[-1]][1]:
            front.append(k)
    return front


def gradient_heat_map(
    title: str, records: Mapping[str, Sequence[GradientRecord]], *, columns: int | None = None
) -> HeatMap:
    """Figure 12: how many images had which ‖∇_δ h‖ when, and the running minimum, which is 1/ψ.

    More records than ``columns`` are summed.
    """
    shown = {name: merged(rows, columns or len(rows)) for name, rows in records.items()}
    heads = ("algorithm", "update", "images", "5 % below", "median", "95 % below", "smallest so far")
    return HeatMap(
        title=title,
        description=f"Counts of the gradient norms of {', '.join(shown)} against updates, with the running minimum",
        x_label="weight updates",
        y_label="‖∂h/∂δ‖",
        panels=[
            HeatMapPanel(
                title=name,
                updates=[0, *(row.update for row in rows)],
                counts=[
                    (column, bin_, images)
                    for column, row in enumerate(rows)
                    for bin_, images in _counts(row).items()
                ],
                smallest=[row.smallest_so_far for row in rows],
            )
            for name, rows in shown.items()
        ],
        numbers=ReportTable(
            caption="Gradient norms as numbers, to a tenth of a decade",
            columns=heads,
            rows=[_quantiles(name, row) for name, rows in shown.items() for row in rows if row.bins],
        ),
    )


def merged(rows: Sequence[GradientRecord], most: int) -> list[GradientRecord]:
    """At most ``most`` records, each the sum of those since the one before."""
    sums: list[GradientRecord] = []
    counts: Counter[str] = Counter()
    ends = {index - 1 for index in thinned(len(rows) + 1, most + 1)}
    for index, row in enumerate(rows):
        counts.update(row.bins)
        if index in ends:
            sums.append(replace(row, bins=dict(counts)))
            counts.clear()
    return sums


def _counts(row: GradientRecord) -> dict[int, int]:
    """The images by bin, the lowest first."""
    return dict(sorted((int(bin_), images) for bin_, images in row.bins.items()))


def _quantiles(name: str, row: GradientRecord) -> list[str]:
    bins, images = np.array(list(_counts(row).items())).T
    seen = images.cumsum()
    at = bins[np.searchsorted(seen, np.array([0.05, 0.5, 0.95]) * seen[-1])]
    quantiles = [f"{10 ** ((bin_ + 0.5) / 10):.2g}" for bin_ in at]
    return [name, str(row.update), str(seen[-1]), *quantiles, f"{row.smallest_so_far:.3g}"]
