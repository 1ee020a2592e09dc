"""A reproduction of the paper: the ledger of its claims, its tables with ours beside them, and its figures."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from freeat.experiments.paper import documents
from freeat.experiments.paper.documents import (
    ClaimReport,
    CurveFigure,
    CurveSeries,
    Decision,
    Figure,
    NormFigure,
    Printed,
    RadiusFigure,
    ReproductionDocument,
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
from freeat.reports.html.blocks import Block, CheckLine, ClaimBlock, Section, VerdictCounts
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
from freeat.stability.estimates import BootstrapEstimate

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
    where = ", ".join(title_of(place) for place in claim.where)
    return ClaimBlock(
        sentence=_said(claim),
        source=f"our observation, not the paper's; {where}" if claim.ours else where,
        tallies=[_tally("measured here", claim.measured), _tally("published", claim.published)],
        checks=_comparisons(claim),
    )


def _said(claim: ClaimReport) -> str:
    """The paper's words in quotation marks, with dots where they begin in mid-sentence."""
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


def title_of(name: str) -> str:
    """The name of a table or figure as a reader knows it: Table 1."""
    return name.replace("-", " ").capitalize()


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
    said = []
    for _, document in documents:
        specs = [run.spec for run in document.runs.values()]
        if specs:
            networks = ", ".join(sorted({spec["model"] for spec in specs}))
            sizes = sorted({spec["train_size"] for spec in specs if spec.get("train_size")})
            images = (
                f"on {' or '.join(map(str, sizes))} training images" if sizes else "on all training images"
            )
            said.append(f"scale “{document.scale}” trains {networks} {images}")
    return said


def _table(table: documents.Table) -> ReportTable:
    heads = [column.replace("_", " ") for column in table.columns]
    rows: list[list[str | TableCell]] = []
    for row in table.rows:
        cells = [_cell(row, column) for column in table.columns]
        rows.append([row.data, norm_text(row.norm), row.label, *cells])
    return ReportTable(
        caption=f"{title_of(table.name)}: {table.title}",
        columns=("data", "norm", "algorithm", *heads),
        rows=rows,
        text_columns=3,
    )


def _cell(row: documents.Row, column: str) -> TableCell:
    measured, published = (row.measured or {}).get(column), (row.published or {}).get(column)
    text = NOTHING if measured is None else percent_spread(measured.mean, measured.std)
    return TableCell(
        text=text, detail="not published" if published is None else f"paper {_printed(published)}"
    )


def _printed(number: Printed) -> str:
    text = f"{number.value:.1f}" if number.std is None else f"{number.value:.1f} ± {number.std:.1f}"
    return text if number.recomputed is None else f"{text} (its columns give {number.recomputed:.1f})"


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
            caption=f"{title_of(figure.name)} as numbers",
            columns=("series", "panel", axes[0].label, "value"),
            rows=rows,
            text_columns=2,
        ),
    )


def _title(figure: Figure) -> str:
    return f"{title_of(figure.name)}: {figure.title}"


def _place(panel: documents.Panel[Any]) -> str:
    return ", ".join(word for word in (panel.data, norm_text(panel.norm), panel.panel) if word)


def _curves(figure: CurveFigure) -> LineChart:
    panels: list[ChartPanel] = []
    curves: dict[str, list[Curve]] = {}
    for place, panel in enumerate(figure.panels):
        panels += [replace(one, title=f"{_place(panel)}: {one.title}") for one in PANELS]
        for one in panel.series:
            whole = one.evaluated_alike
            own = curves.setdefault(one.label, [])
            own += _learning(one, slice(whole), 3 * place)
            if whole < len(one.epochs):
                own += _learning(one, slice(whole, None), 3 * place, apart=True)
    axes = [ChartAxis(key=key, label=AXES[key][1]) for key in ("epochs", "updates")]
    return _lines(figure, axes, panels, curves)


def _learning(one: CurveSeries, part: slice, first: int, *, apart: bool = False) -> list[Curve]:
    """Training and test error and the gap along a part of the training, in the panels from ``first`` on."""
    x: dict[str, Sequence[float]] = {"epochs": one.epochs[part], "updates": one.updates[part]}
    columns = (one.train, one.test, one.gap, one.low, one.high)
    train, test, gap, low, high = ([100 * v for v in column[part]] for column in columns)
    errors = [Curve(panel=first + k, x=x, y=y, apart=apart) for k, y in enumerate((train, test))]
    if apart:
        return [*errors, Curve(panel=first + 2, x=x, y=gap, apart=True)]
    return [*errors, Curve(panel=first + 2, x=x, y=gap, low=low, high=high)]


def _radius(figure: RadiusFigure) -> LineChart:
    curves: dict[str, list[Curve]] = {}
    for place, panel in enumerate(figure.panels):
        for one in panel.series:
            x = {"levels": [255 * eps for eps in one.eps], "eps": one.eps}
            y, low, high = ([100 * v for v in column] for column in (one.accuracy, one.low, one.high))
            curves.setdefault(one.label, []).append(Curve(panel=place, x=x, y=y, low=low, high=high))
    axes = [ChartAxis(key="levels", label="radius ε in 255ths"), ChartAxis(key="eps", label="radius ε")]
    panels = [ChartPanel(title=_place(panel), unit="% right") for panel in figure.panels]
    return _lines(figure, axes, panels, curves)


def _size(figure: SizeFigure) -> LineChart:
    curves: dict[str, list[Curve]] = {}
    for place, panel in enumerate(figure.panels):
        for one in panel.series:
            y, low, high = (positive([100 * v for v in column]) for column in (one.gap, one.low, one.high))
            curve = Curve(panel=place, x={"n": one.n}, y=y, low=low, high=high)
            curves.setdefault(one.label, []).append(curve)
    panels = [ChartPanel(title=_place(panel), unit="points", log=True) for panel in figure.panels]
    return _lines(figure, [SIZES], panels, curves)


def _exponents(figure: SizeFigure) -> ReportTable:
    """How fast each gap falls, panel by panel."""
    labels = dict.fromkeys(one.label for panel in figure.panels for one in panel.series)
    fits = {
        (_place(panel), one.label): BootstrapEstimate(**vars(one.exponent))
        for panel in figure.panels
        for one in panel.series
        if one.exponent
    }
    places = [_place(panel) for panel in figure.panels]
    missing = len(fits) < len(labels) * len(places)
    return ReportTable(
        caption=f"{title_of(figure.name)}: fitted exponents a, the gap going with n⁻ᵃ, with 95 % intervals",
        columns=("algorithm", *places),
        rows=[[label, *(with_interval(fits.get((place, label))) for place in places)] for label in labels],
        notes=["–: a single n, or a gap of zero or less, to which no power can be fitted."]
        if missing
        else [],
    )


def _norms(figure: NormFigure) -> HeatMap:
    panels, rows = [], []
    for panel in figure.panels:
        for one in panel.series:
            name = f"{_place(panel)}: {one.label}"
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
        numbers=ReportTable(caption=f"{title_of(figure.name)} as numbers", columns=columns, rows=rows),
    )
