"""The paper's figures from a reproduction's document, in the paper's form, as PNG and PDF."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freeat.experiments.paper.documents import (
    CurveFigure,
    CurveSeries,
    Figure,
    FigurePanel,
    NormFigure,
    PointSeries,
    RadiusFigure,
    SizeFigure,
)
from freeat.reports.paper_tables import heading, label_name, panel_name
from freeat.reports.plots import HOLLOW, look, save_figure, styled

STYLES = {
    "vanilla-10": 0,
    "fast": 1,
    "fast-7/255": 1,
    "free-4": 2,
    "free-6": 3,
    "fast-10/255": 3,
    "free-8": 4,
    "free-2": 5,
    "free-10": 6,
    "vanilla-7": 7,
}
"""Every algorithm keeps its colour and marker from figure to figure."""

ENDINGS = ("png", "pdf")


def draw_figure(figure: Figure, folder: Path) -> list[Path]:
    """The figure as ``NAME.png`` and ``NAME.pdf``; none where nothing of it was measured."""
    if not figure.panels:
        return []
    with styled():
        drawn = _drawn(figure)
        drawn.suptitle(f"{heading(figure.name)}: {figure.title}", fontsize=10.5)
        return [save_figure(drawn, folder / f"{figure.name}.{ending}") for ending in ENDINGS]


def _drawn(figure: Figure) -> Any:
    match figure:
        case CurveFigure():
            return _curves(figure)
        case RadiusFigure():
            return _radius(figure)
        case SizeFigure():
            return _size(figure)
        case NormFigure():
            return _norms(figure)


def _look(label: str) -> dict[str, Any]:
    return look(STYLES.get(label, len(STYLES)))


def _title(panel: FigurePanel[Any]) -> str:
    return panel_name(panel.data, panel.norm, panel.panel)


def _percent(values: Sequence[float]) -> np.ndarray:
    return 100 * np.asarray(values, float)


def _legend(figure: Any, axes: Sequence[Any]) -> None:
    """One legend for all panels, each label once."""
    entries = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=min(8, len(entries)))


def _band(axis: Any, x: Any, series: PointSeries) -> None:
    """The points of a series with their 95 % intervals, as far as ``x`` goes."""
    label, n = series.label, len(x)
    points = series.points[:n]
    y, low, high = (_percent([getattr(point, name) for point in points]) for name in ("mean", "low", "high"))
    axis.plot(x, y, label=label_name(label), markevery=max(1, n // 8), **_look(label))
    axis.fill_between(x, low, high, color=_look(label)["color"], alpha=0.15, linewidth=0)


def _curves(figure: CurveFigure) -> Any:
    """Figures 1, 5, 11: training error, test error and gap side by side, a row per panel."""
    import matplotlib.pyplot as plt

    panels = figure.panels
    drawn, axes = plt.subplots(
        len(panels), 3, figsize=(11.5, 3.1 * len(panels) + 0.6), layout="constrained", squeeze=False
    )
    for row, panel in zip(axes, panels, strict=True):
        for series in panel.series:
            _learning_curve(row, series)
        for axis, text in zip(
            row, ("robust train error (%)", "robust test error (%)", "gap (points)"), strict=True
        ):
            axis.set(title=f"{_title(panel)}: {text}", xlabel="epochs (Free's × m)")
    _legend(drawn, list(axes[:, 0]))
    return drawn


def _learning_curve(row: Sequence[Any], series: CurveSeries) -> None:
    """The curve on equal samples; a last evaluation on more images is drawn apart as a hollow mark."""
    x, whole = np.asarray(series.epochs, float), series.equal_samples
    gap = tuple(point.mean for point in series.points)
    for axis, values in zip(row[:2], (series.train, series.test), strict=True):
        axis.plot(x[:whole], _percent(values)[:whole], label=label_name(series.label), **_look(series.label))
    _band(row[2], series.epochs[:whole], series)
    for axis, values in zip(row, (series.train, series.test, gap), strict=True):
        axis.plot(x[whole:], _percent(values)[whole:], **(_look(series.label) | HOLLOW))


def _grid(panels: Sequence[FigurePanel[Any]]) -> tuple[Any, list[Any]]:
    """Axes for the panels: L2 on the left, Linf on the right, a row per data set and target or source."""
    import matplotlib.pyplot as plt

    rows = list(dict.fromkeys((panel.data, panel.panel) for panel in panels))
    norms = sorted({panel.norm for panel in panels})
    drawn, axes = plt.subplots(
        len(rows),
        len(norms),
        figsize=(4.4 * len(norms) + 0.6, 3.1 * len(rows) + 0.7),
        layout="constrained",
        squeeze=False,
    )
    for axis in axes.flat:
        axis.set_visible(False)
    taken = []
    for panel in panels:
        axis = axes[rows.index((panel.data, panel.panel))][norms.index(panel.norm)]
        axis.set_visible(True)
        axis.set_title(_title(panel))
        taken.append(axis)
    return drawn, taken


def _radius(figure: RadiusFigure) -> Any:
    """Figures 2, 3, 6 to 9: accuracy against the radius."""
    drawn, axes = _grid(figure.panels)
    for axis, panel in zip(axes, figure.panels, strict=True):
        for series in panel.series:
            _band(axis, _percent(series.eps) * 2.55, series)
        axis.set(xlabel="radius ε, in 255ths", ylabel="accuracy (%)", ylim=(0, None))
    _legend(drawn, axes)
    return drawn


def _size(figure: SizeFigure) -> Any:
    """Figures 4, 10: the gap against n, with the exponent of each series in its panel."""
    drawn, axes = _grid(figure.panels)
    for axis, panel in zip(axes, figure.panels, strict=True):
        for series in panel.series:
            _band(axis, series.n, series)
        fitted = [
            f"{label_name(series.label)}: n^{-series.exponent.value:.2f}"
            for series in panel.series
            if series.exponent
        ]
        axis.set(xlabel="training images n (equal updates)", ylabel="robust gap (points)")
        axis.annotate(
            "\n".join(fitted), (0.97, 0.96), xycoords="axes fraction", ha="right", va="top", fontsize=7.5
        )
    _legend(drawn, axes)
    return drawn


def _norms(figure: NormFigure) -> Any:
    """Figure 12: heat maps of the gradient norms, with the smallest so far."""
    import matplotlib.pyplot as plt

    shown = [(panel, series) for panel in figure.panels for series in panel.series]
    columns = max(len(panel.series) for panel in figure.panels)
    rows = -(-len(shown) // columns)
    drawn, axes = plt.subplots(
        rows, columns, figsize=(4.6 * columns, 3.5 * rows), layout="constrained", squeeze=False
    )
    for axis, (panel, series) in zip(axes.flat, shown, strict=False):
        updates, counts = np.array([0, *series.updates]), np.array(series.counts, float)
        axis.pcolormesh(updates, 10 ** np.asarray(series.bins), np.log1p(counts.T), cmap="viridis")
        smallest = np.maximum(series.smallest, 10 ** series.bins[0])  # a logarithmic axis has no zero
        axis.plot(updates[1:], smallest, color="white", linewidth=1.2)
        axis.set(yscale="log", xlabel="weight updates", title=f"{_title(panel)}, {label_name(series.label)}")
        axis.set_ylabel("‖∇_δ h‖; white: smallest so far")
        axis.grid(False)
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    return drawn
