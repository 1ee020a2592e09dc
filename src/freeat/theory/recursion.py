"""The constants (ν, ξ) with which each algorithm enters Lemma 3; ν is the theorem's λ."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from freeat.errors import InputError, unknown_name
from freeat.theory.logspace import exp_or_inf
from freeat.theory.problem import MEANINGS, Problem, require_count

_ALWAYS = ("beta", "c", "L", "L_w", "eps", "b", "n", "T")
USED: Mapping[str, tuple[str, ...]] = {
    "vanilla": _ALWAYS,
    "fast": (*_ALWAYS, "psi", "alpha"),
    "free": (*_ALWAYS, "psi", "alpha", "m"),
}
"""The parameters that enter each algorithm's bound, in the order they are printed."""


@dataclass(frozen=True, kw_only=True)
class Recursion:
    """E[d_t] ≤ (1 + ν/t) E[d_{t−1}] + ν ξ/(n t), the hypothesis of Lemma 3.

    ν is kept as its logarithm: λ_Free grows like a power m − 1 and leaves the range of a float.
    """

    log_nu: float
    xi: float

    @property
    def nu(self) -> float:
        """ν itself, inf where it exceeds every float."""
        return exp_or_inf(self.log_nu)


def vanilla_recursion(p: Problem) -> Recursion:
    """Theorem 2: ν = λ_Vanilla = βc and ξ = 2εn + 2L/β (Lemma 4 with steps c/t)."""
    return Recursion(log_nu=math.log(p.beta * p.c), xi=2 * p.eps * p.n + 2 * p.L / p.beta)


def fast_recursion(p: Problem, *, alpha: float) -> Recursion:
    """Theorem 5: ν = λ_Fast = βc(1 + α_δεψβ) and ξ = 2L/(β(1 + α_δεψβ)) (Lemma 7 with steps c/t)."""
    gain = p.gain(alpha)
    return Recursion(
        log_nu=math.log(p.beta * p.c) + math.log1p(gain),
        xi=2 * p.L / (p.beta * (1 + gain)),
    )


def free_recursion(p: Problem, *, alpha: float, m: int) -> Recursion:
    """Theorem 4: ν = λ_Free = βc(1 + βc/m + α_δεψβ)^(m−1) and ξ = 2L/β (Lemma 6 with steps c/(mt))."""
    require_count("m", m)
    growth = p.beta * p.c / m + p.gain(alpha)
    return Recursion(
        log_nu=math.log(p.beta * p.c) + (m - 1) * math.log1p(growth),
        xi=2 * p.L / p.beta,
    )


def recursion_of(
    algorithm: str, p: Problem, *, alpha: float | None = None, m: float | None = None
) -> Recursion:
    """The algorithm's constants ν and ξ by name."""
    if algorithm not in USED:
        raise unknown_name("algorithm", algorithm, USED)
    if algorithm == "vanilla":
        return vanilla_recursion(p)
    alpha = needed("alpha", alpha, algorithm)
    if algorithm == "fast":
        return fast_recursion(p, alpha=alpha)
    return free_recursion(p, alpha=alpha, m=batch_updates(algorithm, m))


def batch_updates(algorithm: str, m: float | None) -> int:
    """Weight updates per batch: m for Free, 1 for the others, whatever m was given."""
    if algorithm != "free":
        return 1
    value = needed("m", m, algorithm)
    require_count("m", value)
    return int(value)


def needed(name: str, value: float | None, algorithm: str) -> float:
    """A parameter that the algorithm's bound cannot do without."""
    if value is None:
        raise InputError(
            f"{name} is missing: the bound of {algorithm} needs it; pass {name} ({MEANINGS[name]})"
        )
    return value
