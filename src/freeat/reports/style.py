"""How pictures look: one colour, marker and line per algorithm, safe for colour-blind readers."""

from contextlib import AbstractContextManager
from typing import Any

import matplotlib

matplotlib.use("Agg")

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", ":", "-.")

HOLLOW: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "none", "markersize": 7}
"""Over a series' look: a mark of its own, apart from the line."""

SETTINGS: dict[str, Any] = {
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.7,
    "lines.markersize": 4,
}


def look(place: int) -> dict[str, Any]:
    """Colour, marker and line of the series at this place; where the colours begin anew, the line is another."""
    rounds, at = divmod(place, len(OKABE_ITO))
    return {"color": OKABE_ITO[at], "marker": MARKERS[at], "linestyle": LINES[rounds % len(LINES)]}


def styled(**changes: Any) -> AbstractContextManager[None]:
    """Pictures drawn inside look like ours; the caller's own settings come back afterwards."""
    settings: Any = {**SETTINGS, **changes}  # the stub wants a literal type for every key
    return matplotlib.rc_context(settings)
