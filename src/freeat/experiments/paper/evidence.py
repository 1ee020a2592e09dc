"""What claims are judged on: the cells of tables and the series of figures, published or measured."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from freeat.data.sources import SOURCES
from freeat.experiments.paper.estimate import Estimate, proportion_error
from freeat.experiments.paper.published import PublishedRow, published_tables

Series = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One algorithm in a table; ``cells`` is empty where its runs are missing."""

    data: str
    norm: str
    label: str
    cells: Mapping[str, Estimate]
    trained: bool = True


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel of a figure with its series by label."""

    data: str
    norm: str
    panel: str
    series: Mapping[str, Series]

    @property
    def title(self) -> str:
        return " ".join(word for word in (self.data, self.norm, self.panel) if word)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Rows by table and panels by figure."""

    tables: Mapping[str, Sequence[Row]]
    figures: Mapping[str, Sequence[Panel]]

    def blocks(self, *tables: str) -> list[tuple[str, str]]:
        """The data sets and norms that the tables have, each once."""
        rows = (row for name in tables for row in self.tables.get(name, ()))
        return list(dict.fromkeys((row.data, row.norm) for row in rows))

    def row(self, tables: Sequence[str], data: str, norm: str, label: str) -> Row | None:
        """The first such row of the tables."""
        rows = (row for name in tables for row in self.tables.get(name, ()))
        return next((row for row in rows if (row.data, row.norm, row.label) == (data, norm, label)), None)

    def panels(self, *figures: str) -> Iterator[Panel]:
        """The panels of the figures; one that several share comes once, with the series of all of them."""
        together: dict[str, Panel] = {}
        for panel in (panel for name in figures for panel in self.figures.get(name, ())):
            known = together.get(panel.title, panel)
            together[panel.title] = replace(panel, series={**panel.series, **known.series})
        yield from together.values()


def measured_evidence(document: Mapping[str, Any]) -> Evidence:
    """The tables and figures of a reproduction, with the training images in the view of the paper's tables."""
    tables = {
        table["name"]: [
            Row(
                data=row["data"],
                norm=row["norm"],
                label=row["label"],
                cells={c: Estimate.of_cell(cell) for c, cell in (row["measured"] or {}).items()},
                trained=row["above_chance"] is not False,
            )
            for row in table["rows"]
        ]
        for table in document["tables"]
    }
    figures = {
        figure["name"]: [
            Panel(
                data=panel["data"],
                norm=panel["norm"],
                panel=panel["panel"],
                series={series["label"]: series for series in panel["series"]},
            )
            for panel in figure["panels"]
        ]
        for figure in document["figures"]
    }
    return Evidence(tables=tables, figures=figures)


def published_evidence() -> Evidence:
    """The paper's tables; its figures are pictures, whose numbers were not published."""
    tables = {
        name: [_published_row(row, table.trials) for row in table.rows]
        for name, table in published_tables().items()
    }
    return Evidence(tables=tables, figures={})


def _published_row(row: PublishedRow, trials: int) -> Row:
    """Printed numbers with the error that the test images leave: training images were all seen."""
    n = SOURCES[row.data].n_test
    cells = {}
    for column, cell in row.cells.items():
        kind, split = column.split("_")
        error = 0.0 if split == "train" else proportion_error(row.cells[f"{kind}_test"].value / 100, n)
        std = None if cell.std is None else cell.std / 100
        cells[column] = Estimate.of(mean=cell.value / 100, std=std, seeds=trials, image_error=error)
    return Row(data=row.data, norm=row.norm, label=row.label, cells=cells)


def points(series: Series, key: str) -> list[Estimate]:
    """The estimates along a series."""
    columns = zip(series[key], series["std"], series["seeds_at"], series["image_error"], strict=True)
    return [
        Estimate.of(mean=mean, std=std, seeds=seeds, image_error=error) for mean, std, seeds, error in columns
    ]
