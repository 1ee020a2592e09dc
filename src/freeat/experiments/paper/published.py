"""The numbers printed in Tables 1 to 6, read from ``published.json``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
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
class PublishedBlock:
    """The columns of a table on one data set under one norm, in percent by label."""

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
        cells = {
            column: Printed(
                value=values[index],
                std=self.std[column][index] if column in self.std else None,
                recomputed=self.recomputed[column][index] if column in self.recomputed else None,
            )
            for column in COLUMNS
            if (values := getattr(self, column)) is not None
        }
        return PublishedRow(
            table=table, data=self.data, norm=self.norm, label=self.labels[index], cells=cells
        )


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """A table of the paper; of ``runs`` runs for each number, read after the part ``at`` of the training."""

    name: str
    title: str
    blocks: tuple[PublishedBlock, ...]
    runs: int = 1
    at: float = 1.0

    @cached_property
    def rows(self) -> tuple[PublishedRow, ...]:
        return tuple(block.row(self.name, k) for block in self.blocks for k in range(len(block.labels)))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.rows[0].cells)

    def row(self, data: str, norm: str, label: str) -> PublishedRow | None:
        wanted = (data, norm, label)
        return next((row for row in self.rows if (row.data, row.norm, row.label) == wanted), None)


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """The file ``published.json``."""

    tables: tuple[PublishedTable, ...]


@cache
def published_tables() -> Mapping[str, PublishedTable]:
    """Every table of the paper by name."""
    tables = read_document(PATH, "published tables", PublishedFile).tables
    return MappingProxyType({table.name: table for table in tables})
