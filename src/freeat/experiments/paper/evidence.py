"""What claims are decided on: rows of tables and panels of figures, published or measured, and the tests of panels."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeAlias

from freeat.data.catalogue import SOURCES
from freeat.evaluation.statistics import not_above_chance
from freeat.experiments.paper.documents import (
    Figure,
    FigurePanel,
    FigureSeries,
    Finding,
    PaperFigure,
    PaperTable,
    PointSeries,
    S,
)
from freeat.experiments.paper.estimate import ErrorEstimate, average, proportion_error, smallest
from freeat.experiments.paper.published import PublishedRow, published_tables

COMPARABLE = 0.02
"""Accuracies and gaps that differ by less than this count as comparable or similar: the paper names no margin."""

Block: TypeAlias = tuple[str, str]
"""Data set and norm of a table's block."""


class NoStatistic(Exception):
    """Why a statistic has no value: a number is missing or meaningless."""


def missing(label: str) -> NoStatistic:
    return NoStatistic(f"{label} was not measured")


def at_chance(found: "EvidenceRow | FigureSeries") -> NoStatistic:
    reason = not_above_chance(found.label, found.constant_answers, runs=found.models)
    return NoStatistic(f"{reason}: its numbers say nothing")


@dataclass(frozen=True, kw_only=True)
class EvidenceRow:
    """One algorithm in a table; ``numbers`` by column, empty where its runs are missing."""

    data: str
    norm: str
    label: str
    numbers: Mapping[str, ErrorEstimate]
    above_chance: bool = True
    constant_answers: int = 0
    models: int = 1


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Rows by the name of their table, and figures."""

    tables: Mapping[str, Sequence[EvidenceRow]]
    figures: Sequence[Figure] = ()

    def rows(self, tables: Sequence[str]) -> Iterator[EvidenceRow]:
        """The rows of these tables; names of anything else have none."""
        return (row for name in tables for row in self.tables.get(name, ()))

    def blocks(self, tables: Sequence[str]) -> list[tuple[str, str]]:
        """The data sets and norms that the tables have, each once."""
        return list(dict.fromkeys((row.data, row.norm) for row in self.rows(tables)))

    def row(self, tables: Sequence[str], block: tuple[str, str], label: str) -> EvidenceRow | None:
        """The first such row of the tables."""
        wanted = (*block, label)
        return next((row for row in self.rows(tables) if (row.data, row.norm, row.label) == wanted), None)

    def number(self, tables: Sequence[str], block: tuple[str, str], label: str, column: str) -> ErrorEstimate:
        """The number in that row; raises ``NoStatistic`` where it is missing or its models are at chance."""
        row = self.row(tables, block, label)
        if row is None or not row.numbers:
            raise missing(label)
        if not row.above_chance:
            raise at_chance(row)
        return row.numbers[column]

    def panels(self, kind: type[PaperFigure[S]], figures: Sequence[str]) -> list[FigurePanel[S]]:
        """The panels of these figures; one that several share comes once, with the series of all of them."""
        found = {figure.name: figure.panels for figure in self.figures if isinstance(figure, kind)}
        merged: dict[tuple[str, str, str], dict[str, S]] = {}
        for panel in (panel for name in figures for panel in found.get(name, ())):
            series = merged.setdefault((panel.data, panel.norm, panel.panel), {})
            for one in panel.series:
                series.setdefault(one.label, one)
        return [
            FigurePanel(data=data, norm=norm, panel=panel, series=tuple(series.values()))
            for (data, norm, panel), series in merged.items()
        ]


def series_of(panel: FigurePanel[S], label: str) -> S:
    """The series of that label; raises ``NoStatistic`` where it is missing or its models are at chance."""
    found = next((series for series in panel.series if series.label == label), None)
    if found is None:
        raise missing(label)
    if not found.above_chance:
        raise at_chance(found)
    return found


def estimates(series: PointSeries) -> list[ErrorEstimate]:
    """The estimates along a series."""
    return [ErrorEstimate.of_mean(mean) for mean in series.points]


def measured_evidence(tables: Sequence[PaperTable], figures: Sequence[Figure]) -> Evidence:
    """The tables and figures of a reproduction, with the training images in the view of the paper's tables."""
    rows = {
        table.name: [
            EvidenceRow(
                data=row.data,
                norm=row.norm,
                label=row.label,
                numbers={name: ErrorEstimate.of_mean(mean) for name, mean in (row.measured or {}).items()},
                above_chance=row.above_chance is not False,
                constant_answers=row.constant_answers,
                models=row.seeds,
            )
            for row in table.rows
        ]
        for table in tables
    }
    return Evidence(tables=rows, figures=figures)


def published_evidence() -> Evidence:
    """The paper's tables; the numbers of its figures were not published."""
    tables = published_tables().items()
    return Evidence(
        tables={name: [_published(row, table.runs) for row in table.rows] for name, table in tables}
    )


def _published(row: PublishedRow, runs: int) -> EvidenceRow:
    """Printed numbers with the error that the test images leave: training images were all seen."""
    n = SOURCES[row.data].n_test
    numbers = {}
    for column, cell in row.cells.items():
        kind, split = column.split("_")
        error = 0.0 if split == "train" else proportion_error(row.cells[f"{kind}_test"].value / 100, n)
        std = None if cell.std is None else cell.std / 100
        numbers[column] = ErrorEstimate.of(mean=cell.value / 100, std=std, seeds=runs, image_error=error)
    return EvidenceRow(data=row.data, norm=row.norm, label=row.label, numbers=numbers)


@dataclass(frozen=True, kw_only=True)
class PanelTest:
    """What a claim says of a panel: all differences are positive, or, with a ``margin``, all are within it.

    Without differences, ``detail`` is the reason.
    """

    panel: str
    detail: str
    differences: tuple[ErrorEstimate, ...] = ()
    margin: float | None = None

    @property
    def seeds(self) -> int:
        return min((difference.seeds for difference in self.differences), default=0)

    def finding(self) -> Finding:
        """The smallest difference with its interval, or the smallest of what they leave of the margin."""
        if not self.differences:
            return Finding(panel=self.panel, detail=self.detail)
        value, low, high = smallest(self.differences, self.margin)
        return Finding(
            panel=self.panel, detail=self.detail, statistic=value, low=low, high=high, seeds=self.seeds
        )

    def p_true(self) -> float:
        """The p-value of the test by which the claim is confirmed: of several differences, the largest.

        That all hold is an intersection–union test, which needs no correction. With a margin, a difference has the
        p-value of two one-sided tests (equivalence).
        """
        if self.margin is None:
            return max(difference.p_above(0) for difference in self.differences)
        return max(side.p_above(-self.margin) for side in self._sides())

    def p_false(self) -> float:
        """The p-value of the test by which the claim is refuted; of several differences, by Bonferroni."""
        if self.margin is None:
            least = min(difference.times(-1).p_above(0) for difference in self.differences)
        else:
            least = min(side.p_above(self.margin) for side in self._sides())
        return min(1.0, len(self.differences) * least)

    def _sides(self) -> Iterator[ErrorEstimate]:
        """Every difference with either sign."""
        return (difference.times(sign) for difference in self.differences for sign in (1, -1))


Statistic: TypeAlias = Callable[[Evidence, Sequence[str]], Iterator[PanelTest]]
"""The tests of a claim from the tables and figures that show it, by their names."""


def over_panels(tests: Sequence[PanelTest]) -> Finding:
    """What a claim says of all its panels; they all have numbers.

    With a margin, that every difference of every panel is within it: in a mean, opposite signs would cancel. Else that
    the mean is positive: one difference per seed, the mean of those of the panels. Where several differences must be
    positive in a panel, the ends of the panels' intervals are averaged, which holds however they depend on each other.
    """
    panels = f"{len(tests)} panel{'s' if len(tests) > 1 else ''}"
    margin = tests[0].margin
    if margin is not None:
        every = tuple(difference for test in tests for difference in test.differences)
        least = min(tests, key=lambda test: smallest(test.differences, margin)[0]).panel
        detail = f"smallest in {least}" if len(tests) > 1 else ""
        return PanelTest(panel=f"all of {panels}", detail=detail, differences=every, margin=margin).finding()
    title = f"mean over {panels}"
    if all(len(test.differences) == 1 for test in tests):
        mean = average([test.differences[0] for test in tests])
        return PanelTest(panel=title, detail="", differences=(mean,)).finding()
    ends = [smallest(test.differences) for test in tests]
    value, low, high = (fmean(column) for column in zip(*ends, strict=True))
    seeds = min(test.seeds for test in tests)
    return Finding(panel=title, detail="", statistic=value, low=low, high=high, seeds=seeds)


def positive(panel: str, detail: str, *values: ErrorEstimate) -> PanelTest:
    """The claim says that all of these are positive: the smallest decides."""
    return PanelTest(panel=panel, detail=detail, differences=values)


def similar(panel: str, detail: str, difference: ErrorEstimate) -> PanelTest:
    """The claim says that a difference is small: equivalence within the margin."""
    shown = f"{detail}; difference {100 * difference.value:+.1f} points"
    return PanelTest(panel=panel, detail=shown, differences=(difference,), margin=COMPARABLE)


def attempt(panel: str, statistic: Callable[..., PanelTest], *values: Any) -> PanelTest:
    """The test of a statistic in a panel, or the reason why it has no value."""
    try:
        return statistic(panel, *values)
    except NoStatistic as reason:
        return PanelTest(panel=panel, detail=str(reason))
