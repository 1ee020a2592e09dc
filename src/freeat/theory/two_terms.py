"""Lemma 2's two terms, the chance of an early meeting and the distance after it, as a function of t₀."""

import math
from dataclasses import dataclass

from freeat.theory.growth import growths
from freeat.theory.logspace import exp_or_inf, log_expm1
from freeat.theory.problem import Problem, require_distance, require_positive
from freeat.theory.recursion import Recursion


def loss_difference_bound(p: Problem, distance: float) -> float:
    """Lemma 1: max_δ h is L_w-Lipschitz in w, so it differs by at most L_w·‖w − w′‖."""
    require_distance("distance", distance)
    return p.L_w * distance


def meeting_bound(p: Problem, *, t0: float, distance: float) -> float:
    """Lemma 2: b t₀/n + L_w E[d_t | d_{t₀} = 0], for a bound ``distance`` on that expectation.

    By Theorem 1 whatever bounds the stability for every S, S′ and x bounds the generalization gap.
    """
    require_distance("t0", t0)
    return p.b * t0 / p.n + loss_difference_bound(p, distance)


def two_term_bound(p: Problem, recursion: Recursion, *, t0: float, steps: float) -> float:
    """The function of t₀ that Lemma 3 minimizes: L_w (ξ/n) (steps/t₀)^ν + b t₀/n."""
    require_positive("t0", t0)
    require_positive("steps", steps)
    log_ratio = math.log(steps / t0)
    exponent = recursion.nu * log_ratio if log_ratio != 0 else 0.0
    log_distance = math.log(p.L_w * recursion.xi / p.n) + exponent
    return exp_or_inf(log_distance) + p.b * t0 / p.n


@dataclass(frozen=True, kw_only=True)
class SharpestBound:
    """The least that Lemma 2 and the growth lemmas give, and the batch t₀ it is attained at."""

    value: float
    t0: int


def sharpest_bound(
    algorithm: str, p: Problem, *, T: int, alpha: float | None = None, m: int | None = None
) -> SharpestBound:
    """The minimum of Lemma 2 over whole t₀ in [0, batches], with the recursion solved as `solved_recursion`.

    Never above the theorem's bound, whose t₀ is a real number and whose distance is relaxed twice.
    """
    steps = list(growths(algorithm, p, T=T, alpha=alpha, m=m))
    log_unit = math.log(steps[0].xi / p.n)
    best = SharpestBound(value=meeting_bound(p, t0=len(steps), distance=0.0), t0=len(steps))
    total = 0.0
    for t0 in range(len(steps) - 1, -1, -1):
        total += steps[t0].log_factor
        value = meeting_bound(p, t0=t0, distance=exp_or_inf(log_unit + log_expm1(total)))
        if value > best.value:  # convex in t₀: from here on it only grows
            break
        best = SharpestBound(value=value, t0=t0)
    return best
