"""The paper's figures as charts, for the page and, as PNG and PDF, in the paper's form."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from freeat.experiments.paper.documents import (
    CurveFigure,
    CurveSeries,
    Figure,
    NormFigure,
    RadiusFigure,
    SeedMean,
    SizeFigure,
)
from freeat.reports.charts import (
    ChartAxis,
    ChartPanel,
    ChartSeries,
    Curve,
    HeatMap,
    HeatMapPanel,
    LineChart,
    positive,
)
from freeat.reports.paper_tables import heading, label_name, panel_name
from freeat.reports.plots import draw_heat_map, draw_line_chart
from freeat.reports.stability import SIZES
from freeat.reports.tables import ReportTable, number_text
from freeat.reports.training import AXES, PANELS

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
    paths = [folder / f"{figure.name}.{ending}" for ending in ENDINGS]
    chart = figure_chart(figure)
    if isinstance(chart, HeatMap):
        return [draw_heat_map(path, chart) for path in paths]
    styles = {label_name(label): style for label, style in STYLES.items()}
    series = [replace(one, name=label_name(one.name)) for one in chart.series]
    named = replace(chart, series=series)
    return [draw_line_chart(path, named, columns=_columns(figure), styles=styles) for path in paths]


def _columns(figure: Figure) -> int:
    """Panels in a row: those of one curve, those that share data set and norm, or the norms."""
    if isinstance(figure, CurveFigure):
        return len(PANELS)
    shared = max(Counter((panel.data, panel.norm) for panel in figure.panels).values())
    return shared if shared > 1 else len({panel.norm for panel in figure.panels})


def figure_chart(figure: Figure, *, log: bool = False) -> LineChart | HeatMap:
    """The chart of a figure; ``log``: the gap against n over logarithmic axes, without gaps of zero or less."""
    match figure:
        case CurveFigure():
            return _curves(figure)
        case RadiusFigure():
            return _radius(figure)
        case SizeFigure():
            return _size(figure, log=log)
        case NormFigure():
            return _norms(figure)


def _lines(
    figure: Figure, axes: Sequence[ChartAxis], panels: Sequence[ChartPanel], curves: dict[str, list[Curve]]
) -> LineChart:
    series = [ChartSeries(name=name, curves=own) for name, own in curves.items()]
    rows = [
        [name, panels[curve.panel].title, f"{curve.x[axes[0].key][k]:.4g}", number_text(y)]
        for name, own in curves.items()
        for curve in own
        for k, y in enumerate(curve.y)
    ]
    return LineChart(
        title=_title(figure),
        description=f"{figure.title}: {', '.join(curves)}",
        axes=axes,
        panels=panels,
        series=series,
        numbers=ReportTable(
            caption=f"{heading(figure.name)} as numbers",
            columns=("series", "panel", axes[0].label, "value"),
            rows=rows,
            text_columns=2,
        ),
    )


def _title(figure: Figure) -> str:
    return f"{heading(figure.name)}: {figure.title}"


def _in_percent(points: Sequence[SeedMean]) -> tuple[list[float], list[float], list[float]]:
    """Means of a series, and the ends of their intervals."""
    mean, low, high = ([100 * getattr(point, end) for point in points] for end in ("mean", "low", "high"))
    return mean, low, high


def _curves(figure: CurveFigure) -> LineChart:
    """Figures 1, 5, 11: training error, test error and gap of each panel; a last evaluation on more images separate."""
    panels: list[ChartPanel] = []
    curves: dict[str, list[Curve]] = {}
    for index, panel in enumerate(figure.panels):
        panels += [replace(one, title=f"{panel_name(panel)}: {one.title}") for one in PANELS]
        for one in panel.series:
            whole = one.equal_samples
            own = curves.setdefault(one.label, [])
            own += _learning(one, slice(whole), 3 * index)
            if whole < len(one.epochs):
                own += _learning(one, slice(whole, None), 3 * index, separate=True)
    axes = [ChartAxis(key=key, label=AXES[key][1]) for key in ("epochs", "updates")]
    return _lines(figure, axes, panels, curves)


def _learning(one: CurveSeries, part: slice, first: int, *, separate: bool = False) -> list[Curve]:
    """Training and test error and the gap along a part of the training, in the panels from ``first`` on."""
    x: dict[str, Sequence[float]] = {"epochs": one.epochs[part], "updates": one.updates[part]}
    train, test = ([100 * error for error in errors[part]] for errors in (one.train, one.test))
    gap, low, high = _in_percent(one.points[part])
    errors = [Curve(panel=first + k, x=x, y=y, separate=separate) for k, y in enumerate((train, test))]
    if separate:
        return [*errors, Curve(panel=first + 2, x=x, y=gap, separate=True)]
    return [*errors, Curve(panel=first + 2, x=x, y=gap, low=low, high=high)]


def _radius(figure: RadiusFigure) -> LineChart:
    """Figures 2, 3, 6 to 9: accuracy against the radius."""
    curves: dict[str, list[Curve]] = {}
    for index, panel in enumerate(figure.panels):
        for one in panel.series:
            x = {"levels": [255 * eps for eps in one.eps], "eps": one.eps}
            y, low, high = _in_percent(one.points)
            curves.setdefault(one.label, []).append(Curve(panel=index, x=x, y=y, low=low, high=high))
    axes = [ChartAxis(key="levels", label="radius ε in 255ths"), ChartAxis(key="eps", label="radius ε")]
    panels = [ChartPanel(title=panel_name(panel), unit="% correct") for panel in figure.panels]
    return _lines(figure, axes, panels, curves)


def _size(figure: SizeFigure, *, log: bool) -> LineChart:
    """Figures 4, 10: the gap against n, with the exponent of each series in its panel."""
    curves: dict[str, list[Curve]] = {}
    panels = []
    for index, panel in enumerate(figure.panels):
        for one in panel.series:
            y, low, high = (positive(values) if log else values for values in _in_percent(one.points))
            curve = Curve(panel=index, x={"n": one.n}, y=y, low=low, high=high)
            curves.setdefault(one.label, []).append(curve)
        fitted = [
            f"{label_name(one.label)}: n^{-one.exponent.value:.2f}" for one in panel.series if one.exponent
        ]
        panels.append(ChartPanel(title=panel_name(panel), unit="points", log=log, note="\n".join(fitted)))
    return _lines(figure, [replace(SIZES, log=log)], panels, curves)


def _norms(figure: NormFigure) -> HeatMap:
    """Figure 12: heat maps of the gradient norms, with the smallest so far."""
    panels, rows = [], []
    for panel in figure.panels:
        for one in panel.series:
            name = f"{panel_name(panel)}: {label_name(one.label)}"
            panels.append(
                HeatMapPanel(
                    title=name,
                    updates=[0, *one.updates],
                    counts=[
                        (column, round(10 * edge), images)
                        for column, counts in enumerate(one.counts)
                        for edge, images in zip(one.bins, counts, strict=False)  # one edge more than bins
                        if images
                    ],
                    smallest=one.smallest,
                )
            )
            pairs = zip(one.updates, one.smallest, strict=True)
            rows += [[name, str(update), f"{smallest:.3g}"] for update, smallest in pairs]
    columns = ("algorithm", "update", "smallest so far")
    return HeatMap(
        title=_title(figure),
        description=f"{figure.title}, with the running minimum",
        x_label="weight updates",
        y_label="‖∂h/∂δ‖",
        panels=panels,
        numbers=ReportTable(caption=f"{heading(figure.name)} as numbers", columns=columns, rows=rows),
    )
