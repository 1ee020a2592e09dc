"""The three bounds together along one parameter, as rows for a table, a plot or JSON."""

from collections.abc import Iterable
from dataclasses import fields, replace

from freeat.errors import unknown_name
from freeat.theory.bounds import bound
from freeat.theory.problem import MEANINGS, Problem
from freeat.theory.recursion import USED

Row = dict[str, str | float | bool | None]

_OF_PROBLEM = frozenset(field.name for field in fields(Problem))


def sweep(p: Problem, parameter: str, values: Iterable[float], *, T: int, alpha: float, m: int) -> list[Row]:
    """One row per value and algorithm; ``parameter`` is one of beta, c, L, L_w, psi, eps, alpha, m, b, n, T."""
    if parameter not in MEANINGS:
        raise unknown_name("parameter", parameter, MEANINGS)
    return [row for value in values for row in _at(p, parameter, value, {"T": T, "alpha": alpha, "m": m})]


def _at(p: Problem, parameter: str, value: float, run: dict[str, float]) -> list[Row]:
    if parameter in _OF_PROBLEM:
        p = replace(p, **{parameter: value})  # type: ignore[arg-type]
    else:
        run = {**run, parameter: value}
    head: Row = {"parameter": parameter, "value": value}
    return [head | bound(name, p, T=run["T"], alpha=run["alpha"], m=run["m"]).row() for name in USED]
