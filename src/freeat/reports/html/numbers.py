"""Numbers and series as a reader wants them: in percent, with their intervals, short enough for a page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import stdtrit

from freeat.evaluation.statistics import Interval, mean_std
from freeat.reports.html.blocks import Cell, Curve
from freeat.reports.text import NOTHING, percent, percent_interval, spread
from freeat.units import radius_text

NORMS = {"l2": "L2", "linf": "L∞"}
MOST = 240
"""Points a line has at most: more than a screen shows apart."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over seeds, its standard deviation, and a 95 % interval."""

    mean: float
    std: float | None
    low: float
    high: float


def over_seeds(values: Sequence[float], own: Interval, *, least: float) -> Estimate:
    """Over several seeds Student's interval of the mean; a single run keeps its ``own``, that over its images."""
    mean, std = mean_std(list(values))
    if std is None:
        return Estimate(mean=mean, std=None, low=own[0], high=own[1])
    half = float(stdtrit(len(values) - 1, 0.975)) * std / math.sqrt(len(values))
    return Estimate(mean=mean, std=std, low=max(least, mean - half), high=min(1.0, mean + half))


def in_percent(estimate: Estimate) -> Cell:
    """Mean ± standard deviation over seeds, and the interval beneath it, all in percent."""
    return Cell(
        text=spread(estimate.mean, estimate.std), detail=percent_interval(estimate.low, estimate.high)
    )


def share(value: float, low: float, high: float) -> Cell:
    """A share in percent with its interval beneath it."""
    return Cell(text=percent(value), detail=percent_interval(low, high))


class HasInterval(Protocol):
    """A value with the ends of its interval; any of them may be missing."""

    @property
    def value(self) -> float | None: ...

    @property
    def low(self) -> float | None: ...

    @property
    def high(self) -> float | None: ...


def with_interval(estimate: HasInterval | None, digits: int = 3) -> Cell:
    """A value with its interval beneath it."""
    if estimate is None or estimate.value is None:
        return Cell(text=NOTHING)
    low, high = estimate.low, estimate.high
    detail = "" if low is None or high is None else f"[{low:.{digits}g}, {high:.{digits}g}]"
    return Cell(text=f"{estimate.value:.{digits}g}", detail=detail)


def norm_text(norm: str) -> str:
    """A norm as readers know it; one that is not built in by its name."""
    return NORMS.get(norm, norm)


def ball_text(norm: str, eps: float) -> str:
    """A norm with its radius: L∞ ε = 8/255."""
    return f"{norm_text(norm)} ε = {radius_text(eps)}"


def count(value: float) -> str:
    """A whole number with its thousands apart."""
    return f"{value:,.0f}".replace(",", "\u202f")


def seconds(value: float) -> str:
    """A time in the unit in which it is a short number."""
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"


def times(factor: float) -> str:
    """How many times more: whole from ten on."""
    return f"{factor:.0f}" if factor >= 10 else f"{factor:.1f}"


def optional(value: float | None) -> str:
    """A number to four digits, or a dash."""
    return NOTHING if value is None else f"{value:.4g}"


def thinned(length: int, most: int = MOST) -> list[int]:
    """The places to keep: all, or ``most`` evenly spread with both ends."""
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
    apart: bool = False,
) -> Curve:
    """Mean, lowest and highest over seeds of values (seeds, points); points ``apart`` have no band."""
    show = positive if log else list[float]
    band = len(values) > 1 and not apart
    return Curve(
        panel=panel,
        x=x,
        y=show(values.mean(0).tolist()),
        low=show(values.min(0).tolist()) if band else None,
        high=show(values.max(0).tolist()) if band else None,
        apart=apart,
    )
