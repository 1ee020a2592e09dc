"""What a claim comes to in one panel: a statistic that the claim says is positive, with its interval."""

from collections.abc import Sequence
from dataclasses import dataclass

from freeat.experiments.paper.estimate import Estimate, smallest
from freeat.experiments.paper.evidence import Evidence, Row

COMPARABLE = 0.02
"""Accuracies and gaps that differ by less than this count as comparable or similar: our reading of the words."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The statistic in one panel, signed so that the claim says it is positive; or why there is none."""

    panel: str
    detail: str
    statistic: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: int = 0


def positive(panel: str, estimate: Estimate, detail: str) -> Finding:
    """The claim says that this is positive."""
    low, high = estimate.interval()
    return Finding(
        panel=panel, detail=detail, statistic=estimate.value, low=low, high=high, seeds=estimate.seeds
    )


def all_positive(panel: str, estimates: Sequence[Estimate], detail: str) -> Finding:
    """The claim says that all of these are positive: judged by the smallest."""
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

    one: Row | None
    other: Row | None
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
