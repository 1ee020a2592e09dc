"""The numbers printed in Tables 1 to 6, read from ``published.json``."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from freeat.files.documents import read_json

FORMAT = 1
PATH = Path(__file__).with_name("published.json")
COLUMNS = ("clean_train", "clean_test", "clean_gap", "robust_train", "robust_test", "robust_gap")


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A number as it is printed, in percent; ``recomputed`` where the columns it stands on say otherwise."""

    value: float
    std: float | None = None
    recomputed: float | None = None

    def words(self) -> dict[str, float | None]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """One algorithm on one data set under one norm."""

    table: str
    data: str
    norm: str
    label: str
    cells: Mapping[str, Printed]

    def words(self) -> dict[str, dict[str, float | None]]:
        return {column: cell.words() for column, cell in self.cells.items()}


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """A table of the paper; ``at`` is the part of the training after which it was read."""

    name: str
    title: str
    trials: int
    at: float
    rows: tuple[PublishedRow, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.rows[0].cells)

    def row(self, data: str, norm: str, label: str) -> PublishedRow | None:
        wanted = (data, norm, label)
        return next((row for row in self.rows if (row.data, row.norm, row.label) == wanted), None)


@cache
def published_tables() -> Mapping[str, PublishedTable]:
    """Every table of the paper by name."""
    tables = read_json(PATH, format=FORMAT)["tables"]
    return MappingProxyType({table["name"]: _table(table) for table in tables})


def _table(words: Mapping[str, Any]) -> PublishedTable:
    return PublishedTable(
        name=words["name"],
        title=words["title"],
        trials=words.get("trials", 1),
        at=words.get("at", 1.0),
        rows=tuple(row for block in words["blocks"] for row in _rows(words["name"], block)),
    )


def _rows(table: str, block: Mapping[str, Any]) -> Iterator[PublishedRow]:
    columns = [column for column in COLUMNS if column in block]
    for place, label in enumerate(block["labels"]):
        cells = {column: _printed(block, column, place) for column in columns}
        yield PublishedRow(table=table, data=block["data"], norm=block["norm"], label=label, cells=cells)


def _printed(block: Mapping[str, Any], column: str, place: int) -> Printed:
    extras = {
        name: block[name][column][place] for name in ("std", "recomputed") if column in block.get(name, {})
    }
    return Printed(value=block[column][place], **extras)
