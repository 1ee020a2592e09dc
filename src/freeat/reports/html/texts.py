"""Numbers as a reader wants them: in percent, in points, with their intervals."""

from typing import Any

from freeat.reports.html.blocks import Cell
from freeat.reports.html.tasks import Estimate
from freeat.reports.text import percent, spread


def in_percent(estimate: Estimate) -> Cell:
    """Mean ± standard deviation over seeds, and the interval beneath it, all in percent."""
    return Cell(
        text=spread(estimate.mean, estimate.std),
        detail=f"[{percent(estimate.low)}, {percent(estimate.high)}]",
    )


def with_interval(estimate: Any, digits: int = 3) -> Cell:
    """An estimate as JSON holds it: value, low, high; any of them may be missing."""
    if not estimate or estimate.get("value") is None:
        return Cell(text="–")
    low, high = estimate.get("low"), estimate.get("high")
    detail = "" if low is None or high is None else f"[{low:.{digits}g}, {high:.{digits}g}]"
    return Cell(text=f"{estimate['value']:.{digits}g}", detail=detail)


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
