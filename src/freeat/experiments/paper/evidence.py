"""What claims are decided on: rows of tables and series of figures, published or measured; and findings from them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from freeat.data.catalogue import SOURCES
from freeat.experiments.paper.documents import (
    CurveFigure,
    CurveSeries,
    Figure,
    Finding,
    NormFigure,
    NormSeries,
    Panel,
    RadiusFigure,
    RadiusSeries,
    Series,
    SizeFigure,
    SizeSeries,
    Table,
)
from freeat.experiments.paper.estimate import Estimate, proportion_error, smallest
from freeat.experiments.paper.published import PublishedRow, published_tables

S = TypeVar("S", bound=Series)


@dataclass(frozen=True, kw_only=True)
class EvidenceRow:
    """One algorithm in a table; ``cells`` is empty where its runs are missing."""

    data: str
    norm: str
    label: str
    cells: Mapping[str, Estimate]
    trained: bool = True


@dataclass(frozen=True, kw_only=True)
class EvidencePanel(Generic[S]):
    """One panel of a figure with its series by label."""

    data: str
    norm: str
    panel: str
    series: Mapping[str, S]

    @property
    def title(self) -> str:
        return " ".join(word for word in (self.data, self.norm, self.panel) if word)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Rows by table, and panels by figure of each kind."""

    tables: Mapping[str, Sequence[EvidenceRow]]
    curves: Mapping[str, Sequence[Panel[CurveSeries]]] = field(default_factory=dict)
    radii: Mapping[str, Sequence[Panel[RadiusSeries]]] = field(default_factory=dict)
    sizes: Mapping[str, Sequence[Panel[SizeSeries]]] = field(default_factory=dict)
    norms: Mapping[str, Sequence[Panel[NormSeries]]] = field(default_factory=dict)

    def blocks(self, *tables: str) -> list[tuple[str, str]]:
        """The data sets and norms that the tables have, each once."""
        rows = (row for name in tables for row in self.tables.get(name, ()))
        return list(dict.fromkeys((row.data, row.norm) for row in rows))

    def row(self, tables: Sequence[str], data: str, norm: str, label: str) -> EvidenceRow | None:
        """The first such row of the tables."""
        rows = (row for name in tables for row in self.tables.get(name, ()))
        return next((row for row in rows if (row.data, row.norm, row.label) == (data, norm, label)), None)


def panels(figures: Mapping[str, Sequence[Panel[S]]], *names: str) -> Iterator[EvidencePanel[S]]:
    """The panels of these figures; one that several share comes once, with the series of all of them."""
    together: dict[tuple[str, str, str], dict[str, S]] = {}
    for panel in (panel for name in names for panel in figures.get(name, ())):
        known = together.setdefault((panel.data, panel.norm, panel.panel), {})
        together[panel.data, panel.norm, panel.panel] = {one.label: one for one in panel.series} | known
    for (data, norm, place), series in together.items():
        yield EvidencePanel(data=data, norm=norm, panel=place, series=series)


def measured_evidence(tables: Sequence[Table], figures: Sequence[Figure]) -> Evidence:
    """The tables and figures of a reproduction, with the training images in the view of the paper's tables."""
    rows = {
        table.name: [
            EvidenceRow(
                data=row.data,
                norm=row.norm,
                label=row.label,
                cells={name: Estimate.of_mean(mean) for name, mean in (row.measured or {}).items()},
                trained=row.above_chance is not False,
            )
            for row in table.rows
        ]
        for table in tables
    }
    return Evidence(
        tables=rows,
        curves={figure.name: figure.panels for figure in figures if isinstance(figure, CurveFigure)},
        radii={figure.name: figure.panels for figure in figures if isinstance(figure, RadiusFigure)},
        sizes={figure.name: figure.panels for figure in figures if isinstance(figure, SizeFigure)},
        norms={figure.name: figure.panels for figure in figures if isinstance(figure, NormFigure)},
    )


def published_evidence() -> Evidence:
    """The paper's tables; the numbers of its figures were not published."""
    tables = published_tables().items()
    return Evidence(
        tables={name: [_published(r, table.trials) for r in table.rows] for name, table in tables}
    )


def _published(row: PublishedRow, trials: int) -> EvidenceRow:
    """Printed numbers with the error that the test images leave: training images were all seen."""
    n = SOURCES[row.data].n_test
    cells = {}
    for column, cell in row.cells.items():
        kind, split = column.split("_")
        error = 0.0 if split == "train" else proportion_error(row.cells[f"{kind}_test"].value / 100, n)
        std = None if cell.std is None else cell.std / 100
        cells[column] = Estimate.of(mean=cell.value / 100, std=std, seeds=trials, image_error=error)
    return EvidenceRow(data=row.data, norm=row.norm, label=row.label, cells=cells)


def points(series: CurveSeries | RadiusSeries | SizeSeries) -> list[Estimate]:
    """The estimates along a series."""
    columns = zip(series.values, series.std, series.seeds_at, series.image_error, strict=True)
    return [
        Estimate.of(mean=mean, std=std, seeds=seeds, image_error=error) for mean, std, seeds, error in columns
    ]


COMPARABLE = 0.02
"""Accuracies and gaps that differ by less than this count as comparable or similar: our reading of the words."""


def positive(panel: str, estimate: Estimate, detail: str) -> Finding:
    """The claim says that this is positive."""
    low, high = estimate.interval()
    return Finding(
        panel=panel, detail=detail, statistic=estimate.value, low=low, high=high, seeds=estimate.seeds
    )


def all_positive(panel: str, estimates: Sequence[Estimate], detail: str) -> Finding:
    """The claim says that all of these are positive: the smallest decides."""
    value, low, high = smallest(estimates)
    seeds = min(estimate.seeds for estimate in estimates)
    return Finding(panel=panel, detail=detail, statistic=value, low=low, high=high, seeds=seeds)


def similar(panel: str, difference: Estimate, detail: str) -> Finding:
    """The claim says that a difference is small: what is left of the margin is positive."""
    low, high = difference.interval()
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return Finding(
        panel=panel,
        detail=detail,
        statistic=COMPARABLE - abs(difference.value),
        low=COMPARABLE - max(abs(low), abs(high)),
        high=COMPARABLE - nearest,
        seeds=difference.seeds,
    )


def lacking(panel: str, reason: str) -> Finding:
    return Finding(panel=panel, detail=reason)


def unmeasured(name: str) -> str:
    return f"{name} was not measured"


def at_chance(name: str) -> str:
    return f"{name} did not get above chance: its numbers say nothing"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two algorithms in one block of the tables."""

    one: EvidenceRow | None
    other: EvidenceRow | None
    names: tuple[str, str]
    block: tuple[str, str]

    @property
    def panel(self) -> str:
        return " ".join((*self.block, self.names[0]))

    def reason(self) -> str | None:
        """Why the two cannot be compared, if so."""
        for row, name in zip((self.one, self.other), self.names, strict=True):
            if row is None or not row.cells:
                return unmeasured(name)
            if not row.trained:
                return at_chance(name)
        return None

    def cells(self, column: str, other_column: str) -> tuple[Estimate, Estimate]:
        assert self.one is not None
        assert self.other is not None
        return self.one.cells[column], self.other.cells[other_column]

    def text(self, column: str, other_column: str) -> str:
        """Both numbers, for people."""
        one, other = self.cells(column, other_column)
        words, beside = column.replace("_", " "), other_column.replace("_", " ")
        return f"{words} {100 * one.value:.1f} %; {beside} of {self.names[1]} {100 * other.value:.1f} %"


def pair(
    evidence: Evidence, tables: Sequence[str], block: tuple[str, str], one: str, other: str, *more: str
) -> Pair:
    """The rows of two algorithms; the other may also stand in further tables (``more``)."""
    return Pair(
        one=evidence.row(tables, *block, one),
        other=evidence.row((*tables, *more), *block, other),
        names=(one, other),
        block=block,
    )
