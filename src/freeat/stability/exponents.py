"""How distance, stability and gap fall with the sample size: exponents fitted over n, beside the predicted ones."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from freeat.algorithms import parse_algorithm
from freeat.files.documents import plain
from freeat.stability.estimates import fitted_exponent
from freeat.theory import rate

Cell = dict[str, Any]
Row = dict[str, Any]


def converged(cells: Sequence[Cell]) -> list[Cell]:
    """The cells whose runs stayed finite."""
    return [cell for cell in cells if cell.get("diverged") is None]


def distance_of(cell: Cell) -> float:
    return float(np.mean(cell["distances"][-1]["d_w"]))


def largest_of(cell: Cell) -> float:
    return float(np.abs(cell["differences"]).max())


def risk_gap_of(cell: Cell) -> float:
    last = cell["probes"][-1]
    return float(np.mean(last["risk_test"]) - np.mean(last["risk_train"]))


MEASURES: dict[str, Callable[[Cell], float]] = {
    "distance": distance_of,
    "mean_largest": largest_of,
    "risk_gap": risk_gap_of,
}
"""What a cell contributes to each fitted exponent."""


def exponents(cells: Sequence[Cell], rows: Sequence[Row]) -> list[Row]:
    """How gap, stability and distance fall with n, ∝ n^(−a): the fitted a with its interval, and the predicted one."""
    sizes = sorted({cell["n"] for cell in cells})
    if len(sizes) < 2:
        return []
    fits = [
        _exponent(name, sizes, converged(cells), [row for row in rows if row["algorithm"] == name])
        for name in dict.fromkeys(cell["algorithm"] for cell in cells)
    ]
    return [fit for fit in fits if fit is not None]


def _exponent(name: str, sizes: list[int], cells: Sequence[Cell], rows: list[Row]) -> Row | None:
    """The fits of one algorithm; None where no seed has every size."""
    own = [c for c in cells if c["algorithm"] == name]
    seeds = sorted({c["seed"] for c in own})
    by = {(c["n"], c["seed"]): c for c in own}
    whole = [seed for seed in seeds if all((n, seed) in by for n in sizes)]
    if not whole:
        return None
    row: Row = {"algorithm": name, "sizes": sizes, "seeds": len(whole)}
    for key, measure in MEASURES.items():
        values = np.array([[measure(by[n, seed]) for n in sizes] for seed in whole])
        fit = fitted_exponent(np.array(sizes, float), values)
        found = {"value": None, "low": None, "high": None} if fit is None else plain(fit)
        row[key] = {**found, "means": values.mean(0).tolist()}
    lam = next((r["bound"]["lam"] for r in rows if r["bound"] is not None), None)
    row["predicted"] = None if lam is None else _predicted(parse_algorithm(name).family, lam)
    return row


def _predicted(family: str, lam: float) -> float:
    """a of the bound; plain training is Vanilla at ε = 0, where Theorem 2 is a multiple of 1/n."""
    return 1.0 if family == "erm" else -rate(family, lam).n
