"""The files of a reproduction: the claims with their verdicts as Markdown, the tables, the figures, one document."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from freeat.experiments.paper.documents import (
    ClaimReport,
    Decision,
    Fit,
    ReproductionDocument,
    Sufficiency,
    Verdict,
    write_reproduction,
)
from freeat.files.documents import write_text
from freeat.reports.paper_figures import draw_figure
from freeat.reports.paper_tables import comma_separated, data_name, label_name, latex, markdown, norm_name
from freeat.reports.tables import Markdown, listed, markdown_table

WRITTEN = {"md": markdown, "tex": latex, "csv": comma_separated}
VERDICTS: tuple[Verdict, ...] = ("confirmed", "refuted", "undecided", "not published")
DECIMALS = {"points": (100, 1), "decades": (1, 2), "number": (1, 2)}
"""By what a statistic is multiplied to be shown, and its digits."""

COUNTS = """\
What is measured on a data set counts only if Vanilla-10 really fits its training images, without which there is no
overfitting to compare, and if every algorithm's clean test and robust training accuracy (for ERM, clean training
accuracy) are above chance by their intervals. Chance is the share of the largest class of the split, the accuracy of a
constant answer:"""

RULES = """\
Each claim is turned into a statistic that the claim says is positive. It has one primary test, on the mean over its
panels; statements about single panels are corrected after Holm over the panels of the claim. *Measured*: confirmed or
refuted where the 95 % interval (for single panels, after the correction) lies wholly on one side of zero with at least
three seeds behind it, otherwise undecided, with the reason. Differences are paired by seed where the document has the
values of the seeds. The interval holds the spread over the seeds and the choice of the test images, not that of the
training images: where a scale trains on a part of a data set, all seeds train on the same part. *Published*: the same
tests on the printed numbers; most tables print a single run, so its interval holds the choice of the test images only.
Training accuracy is on augmented images, as in the paper. "Comparable" and "similar" are equivalence tests, two
one-sided tests within 2 points: the paper names no margin. Over its panels such a claim says that every panel is within
them: confirmed by the largest p-value, refuted by the smallest after Bonferroni; the statistic is the smallest."""


def claims_markdown(document: ReproductionDocument) -> str:
    """``claims.md``: a summary, then each claim panel by panel."""
    title = f"# The paper's claims, at scale `{document.scale}`"
    rows = [
        (
            Markdown(f"[{claim.id}](#{claim.id})"),
            *(Markdown(_summary(primary, panels)) for _, primary, panels in decisions_of(claim)),
        )
        for claim in document.claims
    ]
    summary = markdown_table(("claim", "published", "measured"), rows, text_columns=3)
    counts = [COUNTS, listed(map(_sufficient, document.sufficiency))] if document.sufficiency else []
    missing = missing_lines(document)
    parts = [title, *counts, RULES, listed(document.notes), summary, *map(_claim, document.claims)]
    parts += ["## What is missing", listed(missing)] if missing else []
    return "\n\n".join(filter(None, parts)) + "\n"


def _sufficient(one: Sufficiency) -> str:
    """Whether what was measured on a data set counts, and why."""
    verdict = {True: "counts", False: "does not count", None: "cannot be decided yet"}[one.counts]
    fits = "; ".join(map(_fits, one.vanilla))
    at_chance = "; ".join(
        f"{norm_name(row.norm)} {label_name(row.label)}{' (the same answer to every image)' if row.constant else ''}"
        for row in one.at_chance
    )
    chance = f"not above chance: {at_chance}" if at_chance else "every measured algorithm is above chance"
    return f"{data_name(one.data)} {verdict}. Robust training accuracy of Vanilla-10: {fits}; {chance}."


def _fits(fit: Fit) -> str:
    required = f"{norm_name(fit.norm)} (at least {100 * fit.least:.0f} % are required)"
    reached = "not measured" if fit.robust_train is None else f"{100 * fit.robust_train:.1f} %"
    return f"{reached} in {required}"


def missing_lines(document: ReproductionDocument) -> list[str]:
    """What was left out and what failed, as text; failures come last."""
    left_out = [f"left out: {one.what} ({one.reason})" for one in document.left_out]
    return left_out + [f"FAILED: {one.task}: {one.reason}" for one in document.failures]


def verdict_counts(decisions: Sequence[Decision]) -> list[tuple[Verdict | None, str]]:
    """Each verdict with its count as text; a single text without a verdict where nothing could be decided."""
    counts = Counter(one.verdict for one in decisions)
    if counts.keys() <= {"not published"}:
        return [(None, "not published" if counts else "not measured")]
    return [(verdict, f"{counts[verdict]} {verdict}") for verdict in VERDICTS if counts[verdict]]


def _summary(primary: Decision | None, decisions: Sequence[Decision]) -> str:
    """The primary verdict, and the counts over the panels."""
    counts = ", ".join(text for _, text in verdict_counts(decisions))
    return counts if primary is None else f"**{primary.verdict}**; panels: {counts}"


def _claim(claim: ClaimReport) -> str:
    shown = f"hown in {', '.join(claim.where)}."
    source = f"Our observation, not the paper's; s{shown}" if claim.ours else f"S{shown}"
    quoted = claim.sentence if claim.ours else f"“{claim.sentence}”"
    unit = "" if claim.unit == "number" else f", in {claim.unit}"
    lines = [f"## {claim.id}", f"> {quoted}", f"{source} Statistic: {claim.statistic}{unit}."]
    if claim.beside:
        lines.append(f"Beside it in the paper: “{claim.beside}”.")
    table = ["| numbers | panel | verdict | statistic | seeds | |", "|---|---|---|---:|---:|---|"]
    for origin, primary, panels in decisions_of(claim):
        for row in (primary, *panels) if primary else panels:
            verdict = f"**{row.verdict}**" if row is primary else row.verdict
            value, seeds = statistic_text(row, claim.unit), row.seeds or "–"
            table.append(f"| {origin} | {row.panel or '–'} | {verdict} | {value} | {seeds} | {row.detail} |")
    return "\n\n".join([*lines, "\n".join(table)])


def decisions_of(claim: ClaimReport) -> list[tuple[str, Decision | None, Sequence[Decision]]]:
    """The primary verdict and those on single panels, on the published and on the measured numbers."""
    return [
        ("published", claim.published_primary, claim.published),
        ("measured", claim.measured_primary, claim.measured),
    ]


def statistic_text(row: Decision, unit: str) -> str:
    """The statistic with its interval."""
    if row.statistic is None or row.low is None or row.high is None:
        return "–"
    factor, digits = DECIMALS[unit]
    value, low, high = (f"{factor * number:.{digits}f}" for number in (row.statistic, row.low, row.high))
    return f"{value} [{low}, {high}]"


def write_outputs(document: ReproductionDocument, folder: Path) -> list[Path]:
    """Write everything into ``folder``; returns the paths, ``claims.md`` first and ``reproduction.json`` last."""
    paths = [folder / "claims.md"]
    write_text(paths[0], claims_markdown(document))
    for table in document.tables:
        for ending, text in WRITTEN.items():
            path = folder / "tables" / f"{table.name}.{ending}"
            write_text(path, text(table))
            paths.append(path)
    for figure in document.figures:
        paths += draw_figure(figure, folder / "figures")
    return [*paths, write_reproduction(folder, document)]
