"""The bounds as T and n grow: exponents, the comparison with Vanilla, Remark 3 on m, and sweeps."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from freeat.errors import InputError, unknown_name
from freeat.theory.bounds import (
    Bound,
    BoundRow,
    exp_or_inf,
    fast_bound,
    free_bound,
    vanilla_bound,
)
from freeat.theory.derived import bound_by_name
from freeat.theory.problem import MEANINGS, THEOREMS, Problem, require_distance, require_positive


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A bound of order T^``T`` · n^``n``."""

    T: float
    n: float

    @property
    def along_n(self) -> float:
        """The exponent of n when T grows in proportion to n: at 0 more data do not lower the bound."""
        return self.T + self.n


def rate(algorithm: str, lam: float) -> Rate:
    """The order of Theorem 2's bound, (T/n)^(λ/(λ+1)), or of Theorems 4 and 5's, T^(λ/(λ+1))/n.

    For Vanilla it is the limit of large n at a fixed ε > 0; `vanilla_exponent` gives it at a finite n.
    """
    if algorithm not in THEOREMS:
        raise unknown_name("algorithm", algorithm, THEOREMS)
    require_lambda(lam)
    power = 1 / (1 + 1 / lam)
    return Rate(T=power, n=-power if algorithm == "vanilla" else -1.0)


def vanilla_exponent(p: Problem) -> float:
    """d log(bound) / d log n of Theorem 2 at this n: from −1 where εβn ≪ L to −λ/(λ+1) where εβn ≫ L."""
    pull = p.eps * p.beta * p.n
    return -1 + pull / (pull + p.L) / (p.beta * p.c + 1)


def ratio_to_vanilla(lam: float, *, lam_vanilla: float, T: float, n: float) -> float:
    """The paper's ratio of orders: (T/n)^(1/(λ_Vanilla+1)) · (1/T)^(1/(λ+1)), λ that of Free or Fast."""
    require_lambda(lam)
    require_lambda(lam_vanilla)
    require_positive("T", T)
    require_positive("n", n)
    return float((T / n) ** (1 / (lam_vanilla + 1)) * T ** (-1 / (lam + 1)))


def require_lambda(lam: float) -> None:
    """Refuse a λ that is not positive; inf is a λ beyond every float, whose exponents are the limits."""
    require_distance("lam", lam)
    if lam == 0:
        raise InputError("lam = 0 must be positive: every theorem has λ ≥ βc > 0")


@dataclass(frozen=True, kw_only=True)
class ComparisonRow:
    """The three bounds at one n, and the ratios of Fast's and Free's to Vanilla's."""

    n: int
    updates: int
    log10_vanilla: float
    log10_fast: float
    log10_fast_over_vanilla: float
    order_fast_over_vanilla: float
    log10_free: float
    log10_free_over_vanilla: float
    order_free_over_vanilla: float


def comparison(
    p: Problem, *, ns: Iterable[int], updates_per_example: int, alpha: float, m: int
) -> list[ComparisonRow]:
    """The paper's comparison for T = O(n): the bounds at T = updates_per_example·n, and their ratios to Vanilla's.

    Beside each ratio of bounds stands the paper's ratio of orders, which leaves the constants out.
    """
    return [_compared(replace(p, n=n), T=updates_per_example * n, alpha=alpha, m=m) for n in ns]


def _compared(p: Problem, *, T: int, alpha: float, m: int) -> ComparisonRow:
    vanilla, fast = vanilla_bound(p, T=T), fast_bound(p, T=T, alpha=alpha)
    free = free_bound(p, T=T, alpha=alpha, m=m)

    def log10_ratio(other: Bound) -> float:
        return (other.log_bound - vanilla.log_bound) / math.log(10)

    def order(other: Bound) -> float:
        return ratio_to_vanilla(other.lam, lam_vanilla=vanilla.lam, T=T, n=p.n)

    return ComparisonRow(
        n=p.n,
        updates=T,
        log10_vanilla=vanilla.log_bound / math.log(10),
        log10_fast=fast.log_bound / math.log(10),
        log10_fast_over_vanilla=log10_ratio(fast),
        order_fast_over_vanilla=order(fast),
        log10_free=free.log_bound / math.log(10),
        log10_free_over_vanilla=log10_ratio(free),
        order_free_over_vanilla=order(free),
    )


def printed_m_scale(p: Problem, *, alpha: float) -> float:
    """Remark 3's scale for m as printed, α_δ ε ψ / c; `m_scale` is the one that Theorem 4 supports."""
    return p.gain(alpha) / (p.beta * p.c)


def m_scale(p: Problem, *, alpha: float) -> float:
    """c/(α_δ ε ψ): for m = O(c/(α_δεψ)), λ_Free stays below `free_lambda_ceiling` whatever m is."""
    gain = p.gain(alpha)
    return p.beta * p.c / gain if gain > 0 else math.inf


def free_lambda_ceiling(p: Problem, *, multiple: float) -> float:
    """βc·e^((1 + K)βc) ≥ λ_Free for every m ≤ K·c/(α_δεψ), K = ``multiple``: Remark 3 made exact.

    For such m, α_δεψβ ≤ Kβc/m, and (1 + (1 + K)βc/m)^(m−1) ≤ e^((1+K)βc).
    """
    require_positive("multiple", multiple)
    return exp_or_inf(math.log(p.beta * p.c) + (1 + multiple) * p.beta * p.c)


@dataclass(frozen=True, kw_only=True)
class FreeStepsRow:
    """Theorem 4's bound at one m, relative to m = 1, and whether m lies below the two scales of Remark 3."""

    m: int
    log10_lam: float
    log10_bound: float
    log10_over_m1: float
    below_scale: bool
    below_printed_scale: bool


def free_steps(p: Problem, *, ms: Iterable[int], T: int, alpha: float) -> list[FreeStepsRow]:
    """Remark 3 as a table: λ_Free and Theorem 4's bound along m, relative to m = 1."""
    single = free_bound(p, T=T, alpha=alpha, m=1)
    rows = []
    for m in ms:
        at_m = free_bound(p, T=T, alpha=alpha, m=m)
        rows.append(
            FreeStepsRow(
                m=m,
                log10_lam=at_m.log_lam / math.log(10),
                log10_bound=at_m.log_bound / math.log(10),
                log10_over_m1=(at_m.log_bound - single.log_bound) / math.log(10),
                below_scale=m <= m_scale(p, alpha=alpha),
                below_printed_scale=m <= printed_m_scale(p, alpha=alpha),
            )
        )
    return rows


@dataclass(frozen=True, kw_only=True)
class SweepRow(BoundRow):
    """One bound at one value of the parameter that a sweep varies."""

    parameter: str
    value: float


def sweep(
    parameters: Mapping[str, float | None],
    parameter: str,
    values: Iterable[float],
    *,
    names: Sequence[str] = tuple(THEOREMS),
    average: bool = False,
) -> list[SweepRow]:
    """One row per value of ``parameter``, a key of `MEANINGS`, and bound; the other parameters stay as given."""
    if parameter not in MEANINGS:
        raise unknown_name("parameter", parameter, MEANINGS)
    return [
        SweepRow(parameter=parameter, value=value, **asdict(at.row()))
        for value in values
        for at in (bound_by_name(n, {**parameters, parameter: value}, average=average) for n in names)
    ]
