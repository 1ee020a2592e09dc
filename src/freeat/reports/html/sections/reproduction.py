"""A reproduction of the paper: the ledger of its claims, and its tables with ours beside them."""

from collections import Counter
from collections.abc import Sequence

from freeat.reports.claims import VERDICTS, statistic_text
from freeat.reports.html.blocks import Block, Cell, Claim, Section, Table, Tally, Verdict
from freeat.reports.html.gather import Json
from freeat.reports.html.tasks import NORMS
from freeat.reports.text import spread

Documents = Sequence[tuple[str, Json]]
PASSED = {"confirmed": True, "refuted": False}


def claims_section(documents: Documents) -> Section | None:
    """Every claim of the paper with what the published and the measured numbers say about it."""
    claims = [claim for _, document in documents for claim in document["claims"]]
    if not claims:
        return None
    return Section(
        key="claims",
        title="Claims ledger",
        lead="The paper's claims in its own words, each turned into comparisons of the numbers that the paper "
        "printed and of those measured here. A comparison is decided only where its 95 % interval lies on one side "
        "of zero, measured with three seeds or more. Open a claim to see its comparisons.",
        blocks=[_claim(claim) for claim in claims],
    )


def _claim(claim: Json) -> Claim:
    where = ", ".join(title_of(place) for place in claim["where"])
    return Claim(
        sentence=_said(claim),
        source=f"our observation, not the paper's; {where}" if claim["ours"] else where,
        tallies=[_tally("measured here", claim["measured"]), _tally("published", claim["published"])],
        verdicts=_verdicts(claim),
    )


def _said(claim: Json) -> str:
    """The paper's words in quotation marks, with dots where they begin in mid-sentence."""
    sentence = str(claim["sentence"])
    if claim["ours"]:
        return sentence
    return f"“{'… ' if sentence[:1].islower() else ''}{sentence}”"


def _tally(label: str, rows: Sequence[Json]) -> Tally:
    counts = Counter(row["verdict"] for row in rows)
    if len(counts) <= 1 and not counts["confirmed"] + counts["refuted"] + counts["undecided"]:
        return Tally(label=label, counts=[(None, "not published" if counts else "not measured")])
    shown = [verdict for verdict in VERDICTS if counts[verdict]]
    return Tally(
        label=label, counts=[(PASSED.get(verdict), f"{counts[verdict]} {verdict}") for verdict in shown]
    )


def title_of(name: str) -> str:
    """The name of a table or figure as a reader knows it: Table 1."""
    return name.replace("-", " ").capitalize()


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
        specs = [run["spec"] for run in document["runs"].values()]
        if specs:
            networks = ", ".join(sorted({spec["model"] for spec in specs}))
            sizes = sorted({spec["train_size"] for spec in specs if spec.get("train_size")})
            images = (
                f"on {' or '.join(map(str, sizes))} training images" if sizes else "on all training images"
            )
            said.append(f"scale “{document['scale']}” trains {networks} {images}")
    return said


def _table(table: Json) -> Table:
    heads = [column.replace("_", " ") for column in table["columns"]]
    rows = []
    for row in table["rows"]:
        cells = [_cell(row, column) for column in table["columns"]]
        rows.append([row["data"], NORMS.get(row["norm"], row["norm"]), row["label"], *cells])
    return Table(
        caption=f"{title_of(table['name'])}: {table['title']}",
        columns=("data", "norm", "algorithm", *heads),
        rows=rows,
        words=3,
    )


def _cell(row: Json, column: str) -> Cell:
    measured, published = ((row[side] or {}).get(column) for side in ("measured", "published"))
    text = "–" if measured is None else spread(measured["mean"], measured["std"])
    return Cell(text=text, detail="not published" if published is None else f"paper {_printed(published)}")


def _printed(number: Json) -> str:
    std, recomputed = number.get("std"), number.get("recomputed")
    text = f"{number['value']:.1f}" if std is None else f"{number['value']:.1f} ± {std:.1f}"
    return text if recomputed is None else f"{text} (its columns give {recomputed:.1f})"
