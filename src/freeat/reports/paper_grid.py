"""A table of the paper as a grid of texts in the paper's layout, published beside measured."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from freeat.reports.paper_names import COLUMNS, data_name, label_name, norm_name
from freeat.reports.text import spread

Row = Mapping[str, Any]
NOTHING = "–"
MISPRINT = "†"
SIDE_BY_SIDE = ("table-2", "table-3", "table-6")
"""The tables that put the norms beside each other; the others put the blocks below each other."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """An algorithm, under the heading of its block where blocks stand side by side."""

    name: str
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of the grid: its leading words, then a text per column."""

    words: tuple[str, ...]
    cells: tuple[str, ...]
    opens_block: bool = False


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Headings and lines; ``words`` are the headings of the leading columns."""

    words: tuple[str, ...]
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    @property
    def grouped(self) -> bool:
        return any(column.group for column in self.columns)

    def groups(self) -> list[tuple[str, int]]:
        """Headings above the columns, with how many columns they span."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if spans and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1] + 1)
            else:
                spans.append((column.group, 1))
        return spans


def grids(table: Mapping[str, Any]) -> list[Grid]:
    """The table as one grid, or as one for each data set where the paper stacks them."""
    if table["name"] not in SIDE_BY_SIDE:
        return [_below(table)]
    datas = dict.fromkeys(row["data"] for row in table["rows"])
    return [_beside(table, data) for data in datas]


def _below(table: Mapping[str, Any]) -> Grid:
    """Tables 1, 4, 5: the blocks below each other, a column per algorithm."""
    labels = list(dict.fromkeys(row["label"] for row in table["rows"]))
    blocks = list(dict.fromkeys((row["data"], row["norm"]) for row in table["rows"]))
    lines = []
    for data, norm in blocks:
        own = {row["label"]: row for row in table["rows"] if (row["data"], row["norm"]) == (data, norm)}
        block = (data_name(data), norm_name(norm))
        lines += list(_lines(table["columns"], [own.get(label) for label in labels], block))
    return Grid(
        words=("Dataset", "Attack", "Results (%)", ""),
        columns=tuple(Column(name=label_name(label)) for label in labels),
        lines=tuple(lines),
    )


def _beside(table: Mapping[str, Any], data: str) -> Grid:
    """Tables 2, 3, 6: one data set, its norms side by side."""
    rows = [row for row in table["rows"] if row["data"] == data]
    return Grid(
        words=("Results (%)", ""),
        columns=tuple(
            Column(name=label_name(row["label"]), group=f"{data_name(data)}, {norm_name(row['norm'])} attack")
            for row in rows
        ),
        lines=tuple(_lines(table["columns"], rows, ())),
    )


def _lines(columns: Sequence[str], rows: Sequence[Row | None], block: tuple[str, ...]) -> Iterator[Line]:
    """For each result: the paper's numbers, ours, and ours on the plain training images where that differs."""
    opens = True
    for column in columns:
        for source in ("published", *views(column)):
            words = (
                *(block if opens else [""] * len(block)),
                COLUMNS[column] if source == "published" else "",
            )
            cells = tuple(_cell(row, source, column) for row in rows)
            yield Line(words=(*words, SOURCES[source]), cells=cells, opens_block=opens)
            opens = False


def views(column: str) -> tuple[str, ...]:
    """How a column was measured: on the augmented images as in the paper, and plain; test images are always plain."""
    return ("measured",) if column.endswith("_test") else ("measured", "plain")


SOURCES = {"published": "paper", "measured": "measured", "plain": "measured, plain images"}


def _cell(row: Row | None, source: str, column: str) -> str:
    found = row[source].get(column) if row is not None and row[source] else None
    if found is None:
        return NOTHING
    if source != "published":
        return spread(found["mean"], found["std"])
    std = "" if found["std"] is None else f" ± {found['std']:.1f}"
    return f"{found['value']:.1f}{std}" + (MISPRINT if found["recomputed"] is not None else "")


def notes(table: Mapping[str, Any]) -> list[str]:
    """What a reader of the table must know."""
    lines = [
        "Measured: mean ± standard deviation over the seeds; without ± there was one seed. Training accuracy is on "
        "augmented images, as in the paper, and on the images as they are where it says plain."
    ]
    at_chance, fewer = [], []
    for row in table["rows"]:
        name = f"{data_name(row['data'])}, {norm_name(row['norm'])}, {label_name(row['label'])}"
        for column, cell in (row["published"] or {}).items():
            if cell["recomputed"] is not None:
                lines.append(
                    f"{MISPRINT} {name}: printed {COLUMNS[column].lower()} {cell['value']:.1f}, "
                    f"its columns give {cell['recomputed']:.1f}."
                )
        if row["above_chance"] is False:
            at_chance.append(name)
        if row["collapsed"]:
            lines.append(f"{name} had collapsed in {row['collapsed']} of {row['seeds']} runs.")
        if row["seeds"] < len(row["runs"]):
            fewer.append(f"{name} ({row['seeds']} of {len(row['runs'])})")
    if at_chance:
        lines.append(f"Not above chance, so that their gaps say nothing: {'; '.join(at_chance)}.")
    if fewer:
        lines.append(f"Finished with fewer seeds than asked for: {'; '.join(fewer)}.")
    return [*lines, *table["notes"]]
