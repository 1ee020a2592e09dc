"""A reproduction of the paper: its claims with their verdicts, its tables with ours beside them, and its figures."""

from collections.abc import Sequence

from freeat.experiments.paper.documents import (
    ClaimReport,
    Decision,
    PaperTable,
    ReproductionDocument,
    SizeFigure,
    TableRow,
)
from freeat.reports.html.blocks import Block, CheckLine, ClaimBlock, Section, VerdictCounts
from freeat.reports.paper_figures import figure_chart
from freeat.reports.paper_tables import heading, panel_name, printed
from freeat.reports.reproduction import decisions_of, statistic_text, verdict_counts
from freeat.reports.tables import (
    NO_VALUE,
    ReportTable,
    TableCell,
    norm_text,
    percent_spread,
    with_interval,
)

Documents = Sequence[tuple[str, ReproductionDocument]]
PASSED = {"confirmed": True, "refuted": False}


def claims_section(documents: Documents) -> Section:
    """Every claim of the paper with what the published and the measured numbers say about it."""
    claims = [claim for _, document in documents for claim in document.claims]
    return Section(
        key="claims",
        title="Claims of the paper",
        lead="The paper's claims in its own words, each turned into comparisons of the numbers that the paper "
        "printed and of those measured here. A claim is decided on the mean over its panels (that numbers are "
        "comparable: on all of its panels) where the 95 % interval lies on one side of zero, measured with three "
        "seeds or more; single panels are corrected after Holm. Open a claim to see its comparisons.",
        blocks=[_claim(claim) for claim in claims],
    )


def _claim(claim: ClaimReport) -> ClaimBlock:
    where = ", ".join(heading(name) for name in claim.where)
    return ClaimBlock(
        sentence=_quoted(claim),
        source=f"our observation, not the paper's; {where}" if claim.ours else where,
        tallies=[
            _counts("measured here", claim.measured_primary, claim.measured),
            _counts("published", claim.published_primary, claim.published),
        ],
        checks=_comparisons(claim),
    )


def _quoted(claim: ClaimReport) -> str:
    """The paper's sentence in quotation marks, with dots where the quotation begins in mid-sentence."""
    if claim.ours:
        return claim.sentence
    quotes = (
        f"“{'… ' if text[:1].islower() else ''}{text}”" for text in (claim.sentence, claim.beside) if text
    )
    return " The paper also says: ".join(quotes)


def _counts(label: str, primary: Decision | None, decisions: Sequence[Decision]) -> VerdictCounts:
    """The primary verdict, then those on single panels."""
    counts = [(PASSED.get(verdict or ""), text) for verdict, text in verdict_counts(decisions)]
    if primary is not None:
        counts.insert(0, (PASSED.get(primary.verdict), f"{primary.verdict} on the whole; panels:"))
    return VerdictCounts(label=label, counts=counts)


def _comparisons(claim: ClaimReport) -> list[CheckLine]:
    return [
        CheckLine(
            passed=PASSED.get(one.verdict),
            sentence=", ".join(filter(None, (source, one.panel))) + f": {one.verdict}",
            detail=_found(claim, one),
        )
        for source, primary, panels in reversed(decisions_of(claim))
        for one in ((primary, *panels) if primary else panels)
    ]


def _found(claim: ClaimReport, one: Decision) -> str:
    """The statistic that the claim says is positive, with its interval, and the reason of the verdict."""
    if one.statistic is None:
        return one.detail
    return "; ".join(filter(None, (f"{claim.statistic}: {statistic_text(one, claim.unit)}", one.detail)))


def published_section(documents: Documents) -> Section:
    """The paper's tables, published beside measured."""
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
    """Network, n and epochs of the trained models: the scale at which numbers can be compared."""
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
    text = NO_VALUE if measured is None else percent_spread(measured.mean, measured.std)
    if published is None:
        return TableCell(text=text, detail="not published")
    misprint = "" if published.recomputed is None else f" (its columns give {published.recomputed:.1f})"
    return TableCell(text=text, detail=f"paper {printed(published)}{misprint}")


def figures_section(documents: Documents) -> Section:
    """The paper's figures, as far as they were measured."""
    blocks: list[Block] = []
    for figure in (figure for _, document in documents for figure in document.figures):
        if any(panel.series for panel in figure.panels):
            blocks.append(figure_chart(figure, log=True))
            if isinstance(figure, SizeFigure):
                blocks.append(_exponents(figure))
    lead = "The paper's figures with the numbers measured here, means over the seeds."
    return Section(key="figures", title="Figures of the paper", lead=lead, blocks=blocks)


def _exponents(figure: SizeFigure) -> ReportTable:
    """How fast each gap falls, panel by panel."""
    labels = dict.fromkeys(one.label for panel in figure.panels for one in panel.series)
    fits = {
        (panel_name(panel), one.label): one.exponent
        for panel in figure.panels
        for one in panel.series
        if one.exponent
    }
    titles = [panel_name(panel) for panel in figure.panels]
    missing = len(fits) < len(labels) * len(titles)
    return ReportTable(
        caption=f"{heading(figure.name)}: fitted exponents a, the gap going with n⁻ᵃ, with 95 % intervals",
        columns=("algorithm", *titles),
        rows=[[label, *(with_interval(fits.get((title, label))) for title in titles)] for label in labels],
        notes=["–: a single n, or a gap of zero or less, to which no power can be fitted."]
        if missing
        else [],
    )
