"""Charts as plain values: lines in panels and heat maps, drawn by matplotlib (``plots``) and in the HTML report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from freeat.reports.tables import ReportTable

MAX_POINTS = 240
"""Points a line has at most: a screen cannot separate more."""


@dataclass(frozen=True, kw_only=True)
class ChartAxis:
    """A quantity along x, by the key under which curves hold it."""

    key: str
    label: str
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class ChartPanel:
    """One pair of axes; ``level`` is a marked height, ``meaning`` its label, ``note`` a remark in its corner."""

    title: str
    unit: str = ""
    log: bool = False
    level: float | None = None
    meaning: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line in one panel: ``x`` by the axes' keys, ``y``, and the band from ``low`` to ``high``.

    ``limit`` marks a bound on a measured line, ``separate`` points that belong to no line.
    """

    panel: int
    x: Mapping[str, Sequence[float]]
    y: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None
    limit: bool = False
    separate: bool = False


@dataclass(frozen=True, kw_only=True)
class ChartSeries:
    """The curves of one name; the legend switches them on and off."""

    name: str
    curves: Sequence[Curve]


@dataclass(frozen=True, kw_only=True)
class LineChart:
    """Lines in one panel or more, with their numbers as a table."""

    kind: ClassVar[str] = "line-chart"
    title: str
    description: str
    axes: Sequence[ChartAxis]
    panels: Sequence[ChartPanel]
    series: Sequence[ChartSeries]
    numbers: ReportTable


@dataclass(frozen=True, kw_only=True)
class HeatMapPanel:
    """Counts as (column, bin, images), bins being tenths of a decade; the columns' edges; the running minimum."""

    title: str
    updates: Sequence[int]
    counts: Sequence[tuple[int, int, int]]
    smallest: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """Counts over (x, y), y in a logarithmic scale, with a line drawn over them."""

    kind: ClassVar[str] = "heat-map"
    title: str
    description: str
    x_label: str
    y_label: str
    panels: Sequence[HeatMapPanel]
    numbers: ReportTable


def thinned(length: int, most: int = MAX_POINTS) -> list[int]:
    """The indices to keep: all, or ``most`` evenly spaced with both ends."""
    if length <= most:
        return list(range(length))
    return sorted({round(k * (length - 1) / (most - 1)) for k in range(most)})


def positive(values: Sequence[float]) -> list[float | None]:
    """What a logarithmic axis can show."""
    return [float(value) if value > 0 else None for value in values]


def seed_curve(
    panel: int,
    x: Mapping[str, Sequence[float]],
    values: np.ndarray,
    *,
    log: bool = False,
    separate: bool = False,
) -> Curve:
    """Mean, lowest and highest over seeds of values (seeds, points); points ``separate`` have no band."""
    show = positive if log else list[float]
    band = len(values) > 1 and not separate
    return Curve(
        panel=panel,
        x=x,
        y=show(values.mean(0).tolist()),
        low=show(values.min(0).tolist()) if band else None,
        high=show(values.max(0).tolist()) if band else None,
        separate=separate,
    )
