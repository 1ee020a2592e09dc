"""A reproduction of the paper: the ledger of its claims, and its tables with ours beside them."""

from collections.abc import Sequence

from freeat.reports.claims import counted, statistic_text
from freeat.reports.html.blocks import Block, Cell, Section, Table, Verdict, Verdicts
from freeat.reports.html.gather import Json
from freeat.reports.html.tasks import NORMS
from freeat.reports.table import spread

Documents = Sequence[tuple[str, Json]]
PASSED = {"confirmed": True, "refuted": False}


def claims_section(documents: Documents) -> Section | None:
    """Every claim of the paper with what the published and the measured numbers say about it."""
    claims = [claim for _, document in documents for claim in document["claims"]]
    if not claims:
        return None
    folded = [Verdicts(caption=_said(claim), verdicts=_verdicts(claim), folded=True) for claim in claims]
    return Section(
        key="claims",
        title="Claims ledger",
        lead="The paper's claims in its own words, each held against the numbers it printed and against those "
        "measured here. A claim is decided only where its 95 % interval is.",
        blocks=[_summary(claims), *folded],
    )


def _said(claim: Json) -> str:
    return str(claim["sentence"]) + (" (our observation)" if claim["ours"] else "")


def _summary(claims: Sequence[Json]) -> Table:
    """How each claim fared, in a line."""
    rows = [[_said(claim), counted(claim["published"]), counted(claim["measured"])] for claim in claims]
    return Table(
        caption="Each claim, by the comparisons it makes",
        columns=("claim", "on the published numbers", "on those measured here"),
        rows=rows,
        words=3,
    )


def _verdicts(claim: Json) -> list[Verdict]:
    return [
        Verdict(
            passed=PASSED.get(one["verdict"]),
            sentence=", ".join(filter(None, (source, one["panel"]))) + f": {one['verdict']}",
            detail=_found(claim, one),
        )
        for source in ("measured", "published")
        for one in claim[source]
    ]


def _found(claim: Json, one: Json) -> str:
    """The statistic that the claim says is positive, with its interval, and the reason of the verdict."""
    if one["statistic"] is None:
        return str(one["detail"])
    return f"{claim['statistic']}: {statistic_text(one, claim['unit'])}; {one['detail']}"


def published_section(documents: Documents) -> Section | None:
    """The paper's tables, each number beside ours."""
    blocks: list[Block] = [_table(table) for _, document in documents for table in document["tables"]]
    if not blocks:
        return None
    notes = [
        f"left out: {one['what']} ({one['reason']})"
        for _, document in documents
        for one in document["left_out"]
    ]
    notes += [
        f"{one['task']} failed: {one['reason']}" for _, document in documents for one in document["failures"]
    ]
    return Section(
        key="published",
        title="Published beside measured",
        lead="; ".join(["In %: measured here, and beneath it as the paper prints it", *dict.fromkeys(notes)])
        + ".",
        blocks=blocks,
    )


def _table(table: Json) -> Table:
    heads = [column.replace("_", " ") for column in table["columns"]]
    rows = []
    for row in table["rows"]:
        cells = [_cell(row, column) for column in table["columns"]]
        rows.append([row["data"], NORMS.get(row["norm"], row["norm"]), row["label"], *cells])
    return Table(
        caption=f"{table['name']}: {table['title']}",
        columns=("data", "norm", "algorithm", *heads),
        rows=rows,
        words=3,
    )


def _cell(row: Json, column: str) -> Cell:
    measured, published = ((row[side] or {}).get(column) for side in ("measured", "published"))
    text = "–" if measured is None else spread(measured["mean"], measured["std"])
    return Cell(text=text, detail="not published" if published is None else f"paper {_printed(published)}")


def _printed(number: Json) -> str:
    text = f"{number['value']:g}" if number.get("std") is None else f"{number['value']:g} ± {number['std']:g}"
    recomputed = number.get("recomputed")
    return text if recomputed is None else f"{text} (its columns give {recomputed:g})"
