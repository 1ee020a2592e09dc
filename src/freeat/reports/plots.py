"""Charts drawn by matplotlib, in a style that is safe for colour-blind readers."""

import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from freeat.files.documents import write_bytes
from freeat.reports.charts import ChartAxis, ChartPanel, Curve, HeatMap, HeatMapPanel, LineChart

matplotlib.use("Agg")

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", ":", "-.")

HOLLOW: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "none", "markersize": 7}
"""What the style of separate points changes: a marker, no line."""

SETTINGS: dict[str, Any] = {
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.7,
    "lines.markersize": 4,
}

LEGEND_MARK, LEGEND_LETTER = 0.65, 0.082
"""Inches in a legend: a marker with the space around it, and each letter of a name."""


def series_style(index: int) -> dict[str, Any]:
    """Colour, marker and line style of a series; where the colours repeat, the line style changes."""
    rounds, at = divmod(index, len(OKABE_ITO))
    return {"color": OKABE_ITO[at], "marker": MARKERS[at], "linestyle": LINES[rounds % len(LINES)]}


def styled(**changes: Any) -> AbstractContextManager[None]:
    """Figures drawn inside have the style of this package; the caller's settings are restored afterwards."""
    settings: Any = {**SETTINGS, **changes}  # the stub wants a literal type for every key
    return matplotlib.rc_context(settings)


def save_figure(figure: Any, path: Path) -> Path:
    """Write the figure atomically and close it: PNG, PDF or SVG by the name's ending, PNG without one."""
    import matplotlib.pyplot as plt

    ending = path.suffix.lstrip(".") or "png"
    drawn = io.BytesIO()
    # A date would make every PDF another file.
    figure.savefig(drawn, format=ending, metadata={"CreationDate": None} if ending == "pdf" else None)
    plt.close(figure)
    write_bytes(path, drawn.getvalue())
    return path


def draw_line_chart(
    path: Path,
    chart: LineChart,
    *,
    axis: str | None = None,
    columns: int | None = None,
    styles: Mapping[str, int] | None = None,
) -> Path:
    """The panels of a chart, over its first x-axis or the one named; one legend for all of them.

    They are side by side, or ``columns`` to a row. ``styles`` holds the index of a series' style by its name.
    """
    import matplotlib.pyplot as plt

    along = next(one for one in chart.axes if axis in (None, one.key))
    longest = max(len(one.name) for one in chart.series)
    entry = LEGEND_MARK + LEGEND_LETTER * longest
    across = min(columns or len(chart.panels), len(chart.panels))
    rows = -(-len(chart.panels) // across)
    width = max(3.8 * across + 0.6, entry + 0.4)
    with styled():
        figure, grid = plt.subplots(
            rows, across, figsize=(width, 3.1 * rows + 0.8), layout="constrained", squeeze=False
        )
        axes = grid.flatten().tolist()
        for unused in axes[len(chart.panels) :]:
            unused.set_visible(False)
        for index, series in enumerate(chart.series):
            style = series_style((styles or {}).get(series.name, index))
            for curve in series.curves:
                _draw_curve(axes[curve.panel], curve, along.key, series.name, style)
        curves = [curve for series in chart.series for curve in series.curves]
        if any(curve.separate for curve in curves):
            label = "hollow: the last evaluation, on more images"
            axes[0].plot([], [], label=label, marker="o", color="0.4", **HOLLOW)
        for k, (drawn, panel) in enumerate(zip(axes, chart.panels, strict=False)):
            _finish_panel(drawn, panel, along, [curve for curve in curves if curve.panel == k])
        figure.suptitle(chart.title, fontsize=10.5)
        names = int((width - 0.4) / entry)
        handles = {
            label: handle
            for drawn in axes
            for handle, label in zip(*drawn.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=max(1, min(len(handles), names)),
        )
        return save_figure(figure, path)


def _draw_curve(axes: Any, curve: Curve, key: str, name: str, style: dict[str, Any]) -> None:
    x, y = curve.x[key], np.array(curve.y, float)
    if curve.separate:
        axes.plot(x, y, **(style | HOLLOW))
    elif curve.limit:
        label = f"bound, {name}" + (" (above)" if np.isnan(y).all() else "")
        axes.plot(x, y, label=label, color=style["color"], linewidth=0.9)
    else:
        axes.plot(x, y, label=name, markevery=max(1, len(x) // 8), **style)
        if curve.low is not None and curve.high is not None:
            low, high = np.array(curve.low, float), np.array(curve.high, float)
            axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def _finish_panel(axes: Any, panel: ChartPanel, along: ChartAxis, curves: Sequence[Curve]) -> None:
    """Titles, scales, the marked height and the note of a panel."""
    unit = f" ({panel.unit})" if panel.unit else ""
    axes.set_title(f"{panel.title}{unit}", fontsize="medium")  # the default is wider than a panel of three
    axes.set(xlabel=along.label, xscale="log" if along.log else "linear")
    values = [y for curve in curves for row in (curve.y, curve.low or ()) for y in row if y is not None]
    if panel.log:
        if any(value > 0 for value in values):  # a logarithmic axis cannot be empty
            axes.set_yscale("log")
    elif values and min(values) >= 0:
        axes.set_ylim(bottom=0)
    if panel.level is not None:
        axes.axhline(panel.level, color="0.6", linewidth=0.8)
    axes.annotate(
        panel.note, (0.97, 0.96), xycoords="axes fraction", ha="right", va="top", fontsize="x-small"
    )


def draw_heat_map(path: Path, chart: HeatMap) -> Path:
    """The panels of a heat map side by side, with one scale of colours; the running minimum in white."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm

    most = max(2, *(images for panel in chart.panels for _, _, images in panel.counts))
    with styled(**{"axes.grid": False}):
        figure, axes = plt.subplots(
            1, len(chart.panels), figsize=(4.6 * len(chart.panels), 3.9), layout="constrained", squeeze=False
        )
        for drawn, panel in zip(axes[0], chart.panels, strict=True):
            edges, counts = _binned(panel)
            mesh = drawn.pcolormesh(panel.updates, edges, counts, norm=LogNorm(1, most), cmap="viridis")
            drawn.set_facecolor(mesh.cmap(0.0))  # where no image was
            drawn.plot(panel.updates[1:], panel.smallest, color="white", linewidth=1.2)
            drawn.set(yscale="log", xlabel=chart.x_label, title=panel.title)
        axes[0][0].set_ylabel(f"{chart.y_label} of each image; white: running minimum")
        figure.colorbar(mesh, ax=axes[0].tolist(), label="images since the record before")
        figure.suptitle(chart.title, fontsize=10.5)
        return save_figure(figure, path)


def _binned(panel: HeatMapPanel) -> tuple[np.ndarray, np.ndarray]:
    """The edges of the bins, and the counts (bins, columns)."""
    bins = [bin_ for _, bin_, _ in panel.counts]
    lowest, highest = min(bins, default=0), max(bins, default=0)
    counts = np.zeros((highest - lowest + 1, len(panel.smallest)))
    for column, bin_, images in panel.counts:
        counts[bin_ - lowest, column] = images
    return 10 ** (np.arange(lowest, highest + 2) / 10), counts
