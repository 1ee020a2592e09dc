"""The numbers printed in Tables 1 to 6, read from ``published.json``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

from freeat.experiments.paper.documents import Printed
from freeat.files.documents import read_document

PATH = Path(__file__).with_name("published.json")
COLUMNS = ("clean_train", "clean_test", "clean_gap", "robust_train", "robust_test", "robust_gap")


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """One algorithm on one data set under one norm."""

    table: str
    data: str
    norm: str
    label: str
    cells: Mapping[str, Printed]


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """A table of the paper; of ``runs`` runs for each number, read after the part ``at`` of the training."""

    name: str
    title: str
    runs: int
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
    tables = read_document(PATH, "published tables", _File).tables
    return MappingProxyType({table.name: table.published() for table in tables})


@dataclass(frozen=True, kw_only=True)
class _Block:
    """The columns of a table on one data set under one norm, as the file has them, in percent by label."""

    data: str
    norm: str
    labels: tuple[str, ...]
    robust_train: tuple[float, ...]
    robust_test: tuple[float, ...]
    robust_gap: tuple[float, ...]
    clean_train: tuple[float, ...] | None = None
    clean_test: tuple[float, ...] | None = None
    clean_gap: tuple[float, ...] | None = None
    std: dict[str, tuple[float, ...]] = field(default_factory=dict)
    recomputed: dict[str, tuple[float | None, ...]] = field(default_factory=dict)

    def row(self, table: str, index: int) -> PublishedRow:
        columns = {column: getattr(self, column) for column in COLUMNS}
        cells = {
            column: Printed(
                value=values[index],
                std=self.std[column][index] if column in self.std else None,
                recomputed=self.recomputed[column][index] if column in self.recomputed else None,
            )
            for column, values in columns.items()
            if values is not None
        }
        return PublishedRow(
            table=table, data=self.data, norm=self.norm, label=self.labels[index], cells=cells
        )


@dataclass(frozen=True, kw_only=True)
class _Table:
    name: str
    title: str
    blocks: tuple[_Block, ...]
    runs: int = 1
    at: float = 1.0

    def published(self) -> PublishedTable:
        rows = tuple(block.row(self.name, k) for block in self.blocks for k in range(len(block.labels)))
        return PublishedTable(name=self.name, title=self.title, runs=self.runs, at=self.at, rows=rows)


@dataclass(frozen=True, kw_only=True)
class _File:
    tables: tuple[_Table, ...]
