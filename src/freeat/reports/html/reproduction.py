"""A reproduction of the paper: the ledger of its claims, its tables with ours beside them, and its figures."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from freeat.experiments.paper.documents import (
    ClaimReport,
    CurveFigure,
    CurveSeries,
    Decision,
    Figure,
    FigurePanel,
    NormFigure,
    PaperTable,
    RadiusFigure,
    ReproductionDocument,
    SeedMean,
    SizeFigure,
    TableRow,
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
from freeat.reports.html.blocks import Block, CheckLine, ClaimBlock, Section, VerdictCounts
from freeat.reports.paper_tables import heading, printed
from freeat.reports.reproduction import VERDICTS, statistic_text
from freeat.reports.stability import SIZES
from freeat.reports.tables import (
    NOTHING,
    ReportTable,
    TableCell,
    norm_text,
    number_text,
    percent_spread,
    with_interval,
)
from freeat.reports.training import AXES, PANELS

Documents = Sequence[tuple[str, ReproductionDocument]]
PASSED = {"confirmed": True, "refuted": False}


def claims_section(documents: Documents) -> Section:
    """Every claim of the paper with what the published and the measured numbers say about it."""
    claims = [claim for _, document in documents for claim in document.claims]
    return Section(
        key="claims",
        title="Claims ledger",
        lead="The paper's claims in its own words, each turned into comparisons of the numbers that the paper "
        "printed and of those measured here. A comparison is decided only where its 95 % interval lies on one side "
        "of zero, measured with three seeds or more. Open a claim to see its comparisons.",
        blocks=[_claim(claim) for claim in claims],
    )


def _claim(claim: ClaimReport) -> ClaimBlock:
    where = ", ".join(heading(name) for name in claim.where)
    return ClaimBlock(
        sentence=_quoted(claim),
        source=f"our observation, not the paper's; {where}" if claim.ours else where,
        tallies=[_tally("measured here", claim.measured), _tally("published", claim.published)],
        checks=_comparisons(claim),
    )


def _quoted(claim: ClaimReport) -> str:
    """The paper's sentence in quotation marks, with dots where the quotation begins in mid-sentence."""
    sentence = claim.sentence
    if claim.ours:
        return sentence
    return f"“{'… ' if sentence[:1].islower() else ''}{sentence}”"


def _tally(label: str, rows: Sequence[Decision]) -> VerdictCounts:
    counts = Counter(row.verdict for row in rows)
    if len(counts) <= 1 and not counts["confirmed"] + counts["refuted"] + counts["undecided"]:
        return VerdictCounts(label=label, counts=[(None, "not published" if counts else "not measured")])
    shown = [verdict for verdict in VERDICTS if counts[verdict]]
    return VerdictCounts(
        label=label, counts=[(PASSED.get(verdict), f"{counts[verdict]} {verdict}") for verdict in shown]
    )


def _comparisons(claim: ClaimReport) -> list[CheckLine]:
    return [
        CheckLine(
            passed=PASSED.get(one.verdict),
            sentence=", ".join(filter(None, (source, one.panel))) + f": {one.verdict}",
            detail=_found(claim, one),
        )
        for source, found in (("measured", claim.measured), ("published", claim.published))
        for one in found
    ]


def _found(claim: ClaimReport, one: Decision) -> str:
    """The statistic that the claim says is positive, with its interval, and the reason of the verdict."""
    if one.statistic is None:
        return one.detail
    return f"{claim.statistic}: {statistic_text(one, claim.unit)}; {one.detail}"


def published_section(documents: Documents) -> Section:
    """The paper's tables, each number beside ours."""
    blocks: list[Block] = [_table(table) for _, document in documents for table in document.tables]
    notes = [f"left out: {one.what} ({one.reason})" for _, document in documents for one in document.left_out]
    notes += [f"{one.task} failed: {one.reason}" for _, document in documents for one in document.failures]
    first = ["In %: measured here, and beneath it as the paper prints it", *_scales(documents)]
    return Section(
        key="published",
        title="Published beside measured",
        lead="; ".join([*first, *dict.fromkeys(notes)]) + ".",
        blocks=blocks,
    )


def _scales(documents: Documents) -> list[str]:
    """How large the trained models and their data are, without which no two numbers can be compared."""
    lines = []
    for _, document in documents:
        specs = [run.spec for run in document.runs.values()]
        if specs:
            networks = ", ".join(sorted({spec["model"] for spec in specs}))
            sizes = sorted({spec["train_size"] for spec in specs if spec.get("train_size")})
            images = (
                f"on {' or '.join(map(str, sizes))} training images" if sizes else "on all training images"
            )
            lines.append(f"scale “{document.scale}” trains {networks} {images}")
    return lines


def _table(table: PaperTable) -> ReportTable:
    heads = [column.replace("_", " ") for column in table.columns]
    rows: list[list[str | TableCell]] = []
    for row in table.rows:
        cells = [_cell(row, column) for column in table.columns]
        rows.append([row.data, norm_text(row.norm), row.label, *cells])
    return ReportTable(
        caption=f"{heading(table.name)}: {table.title}",
        columns=("data", "norm", "algorithm", *heads),
        rows=rows,
        text_columns=3,
    )


def _cell(row: TableRow, column: str) -> TableCell:
    """The measured number, and beneath it the published one."""
    measured, published = (row.measured or {}).get(column), (row.published or {}).get(column)
    text = NOTHING if measured is None else percent_spread(measured.mean, measured.std)
    if published is None:
        return TableCell(text=text, detail="not published")
    misprint = "" if published.recomputed is None else f" (its columns give {published.recomputed:.1f})"
    return TableCell(text=text, detail=f"paper {printed(published)}{misprint}")


def figures_section(documents: Documents) -> Section:
    """The paper's figures, as far as they were measured."""
    blocks: list[Block] = []
    for figure in (figure for _, document in documents for figure in document.figures):
        if any(panel.series for panel in figure.panels):
            blocks += _charts(figure)
    lead = "The paper's figures with the numbers measured here, means over the seeds."
    return Section(key="figures", title="Figures of the paper", lead=lead, blocks=blocks)


def _charts(figure: Figure) -> list[Block]:
    match figure:
        case CurveFigure():
            return [_curves(figure)]
        case RadiusFigure():
            return [_radius(figure)]
        case SizeFigure():
            return [_size(figure), _exponents(figure)]
        case NormFigure():
            return [_norms(figure)]


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


def _panel_title(panel: FigurePanel[Any]) -> str:
    return ", ".join(word for word in (panel.data, norm_text(panel.norm), panel.panel) if word)


def _in_percent(points: Sequence[SeedMean]) -> tuple[list[float], list[float], list[float]]:
    """Means of a series, and the ends of their intervals."""
    columns = (
        [point.mean for point in points],
        [point.low for point in points],
        [point.high for point in points],
    )
    mean, low, high = ([100 * value for value in column] for column in columns)
    return mean, low, high


def _curves(figure: CurveFigure) -> LineChart:
    panels: list[ChartPanel] = []
    curves: dict[str, list[Curve]] = {}
    for index, panel in enumerate(figure.panels):
        panels += [replace(one, title=f"{_panel_title(panel)}: {one.title}") for one in PANELS]
        for one in panel.series:
            whole = one.equal_samples
            own = curves.setdefault(one.label, [])
            own += _learning(one, slice(whole), 3 * index)
            if whole < len(one.epochs):
                own += _learning(one, slice(whole, None), 3 * index, apart=True)
    axes = [ChartAxis(key=key, label=AXES[key][1]) for key in ("epochs", "updates")]
    return _lines(figure, axes, panels, curves)


def _learning(one: CurveSeries, part: slice, first: int, *, apart: bool = False) -> list[Curve]:
    """Training and test error and the gap along a part of the training, in the panels from ``first`` on."""
    x: dict[str, Sequence[float]] = {"epochs": one.epochs[part], "updates": one.updates[part]}
    train, test = ([100 * error for error in errors[part]] for errors in (one.train, one.test))
    gap, low, high = _in_percent(one.points[part])
    errors = [Curve(panel=first + k, x=x, y=y, apart=apart) for k, y in enumerate((train, test))]
    if apart:
        return [*errors, Curve(panel=first + 2, x=x, y=gap, apart=True)]
    return [*errors, Curve(panel=first + 2, x=x, y=gap, low=low, high=high)]


def _radius(figure: RadiusFigure) -> LineChart:
    curves: dict[str, list[Curve]] = {}
    for index, panel in enumerate(figure.panels):
        for one in panel.series:
            x = {"levels": [255 * eps for eps in one.eps], "eps": one.eps}
            y, low, high = _in_percent(one.points)
            curves.setdefault(one.label, []).append(Curve(panel=index, x=x, y=y, low=low, high=high))
    axes = [ChartAxis(key="levels", label="radius ε in 255ths"), ChartAxis(key="eps", label="radius ε")]
    panels = [ChartPanel(title=_panel_title(panel), unit="% right") for panel in figure.panels]
    return _lines(figure, axes, panels, curves)


def _size(figure: SizeFigure) -> LineChart:
    curves: dict[str, list[Curve]] = {}
    for index, panel in enumerate(figure.panels):
        for one in panel.series:
            y, low, high = map(positive, _in_percent(one.points))
            curve = Curve(panel=index, x={"n": one.n}, y=y, low=low, high=high)
            curves.setdefault(one.label, []).append(curve)
    panels = [ChartPanel(title=_panel_title(panel), unit="points", log=True) for panel in figure.panels]
    return _lines(figure, [SIZES], panels, curves)


def _exponents(figure: SizeFigure) -> ReportTable:
    """How fast each gap falls, panel by panel."""
    labels = dict.fromkeys(one.label for panel in figure.panels for one in panel.series)
    fits = {
        (_panel_title(panel), one.label): one.exponent
        for panel in figure.panels
        for one in panel.series
        if one.exponent
    }
    titles = [_panel_title(panel) for panel in figure.panels]
    missing = len(fits) < len(labels) * len(titles)
    return ReportTable(
        caption=f"{heading(figure.name)}: fitted exponents a, the gap going with n⁻ᵃ, with 95 % intervals",
        columns=("algorithm", *titles),
        rows=[[label, *(with_interval(fits.get((title, label))) for title in titles)] for label in labels],
        notes=["–: a single n, or a gap of zero or less, to which no power can be fitted."]
        if missing
        else [],
    )


def _norms(figure: NormFigure) -> HeatMap:
    panels, rows = [], []
    for panel in figure.panels:
        for one in panel.series:
            name = f"{_panel_title(panel)}: {one.label}"
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
