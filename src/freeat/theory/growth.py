"""How the expected distance of two coupled runs grows: Lemmas 4, 6 and 7, one batch and solved for every t."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from freeat.errors import InputError
from freeat.theory.logspace import exp_or_inf, log_expm1, log_geometric_sum, softplus
from freeat.theory.problem import Problem, require_count, require_positive
from freeat.theory.recursion import (
    Recursion,
    batch_updates,
    fast_recursion,
    free_recursion,
    needed,
    recursion_of,
    vanilla_recursion,
)
from freeat.theory.steps import weight_step


@dataclass(frozen=True, kw_only=True)
class Growth:
    """E[d_t] ≤ (1 + ρ) E[d_{t−1}] + ρ ξ/n, the shape that Lemmas 4, 6 and 7 share; ρ as its logarithm."""

    log_rate: float
    xi: float
    n: int

    @property
    def factor(self) -> float:
        """1 + ρ."""
        return exp_or_inf(self.log_factor)

    @property
    def log_factor(self) -> float:
        """log(1 + ρ)."""
        return softplus(self.log_rate)

    @property
    def offset(self) -> float:
        """ρ ξ/n, what one batch adds to two runs that were still equal."""
        return exp_or_inf(self.log_rate + math.log(self.xi / self.n))

    def after(self, distance: float) -> float:
        """The bound on E[d_t] from one on E[d_{t−1}]."""
        return self.factor * distance + self.offset if distance > 0 else self.offset


def vanilla_growth(p: Problem, *, step: float) -> Growth:
    """Lemma 4: E[d_t] ≤ (1 + αβ) E[d_{t−1}] + (αβ/n)(2εn + 2L/β) for the weight step α = α_{w,t}."""
    return _growth(p, vanilla_recursion(p), step=step, log_rate=0.0)


def fast_growth(p: Problem, *, step: float, alpha: float) -> Growth:
    """Lemma 7: E[d_t] ≤ (1 + αβ(1 + α_δεψβ)) E[d_{t−1}] + 2αL/n for the weight step α = α_{w,t}."""
    return _growth(p, fast_recursion(p, alpha=alpha), step=step, log_rate=math.log1p(p.gain(alpha)))


def free_growth(p: Problem, *, step: float, alpha: float, m: int) -> Growth:
    """Lemma 6 before its last two inequalities: ρ = αβ Σ_{j<m} (1 + αβ + α_δεψβ)^j, the (w, w) entry of η_t^m.

    ``m`` may be the number of updates of a last loop that was cut short.
    """
    require_positive("step", step)
    require_count("m", m)
    log_sum = log_geometric_sum(step * p.beta + p.gain(alpha), m)
    return _growth(p, free_recursion(p, alpha=alpha, m=m), step=step, log_rate=log_sum)


def free_growth_as_printed(p: Problem, *, t: int, alpha: float, m: int) -> Growth:
    """Lemma 6 as printed: ρ = (βc/t)(1 + α_{w,t}β + α_δεψβ)^(m−1) with α_{w,t} = c/(mt)."""
    step = weight_step(p.c, t, m)
    log_rate = math.log(m) + (m - 1) * math.log1p(step * p.beta + p.gain(alpha))
    return _growth(p, free_recursion(p, alpha=alpha, m=m), step=step, log_rate=log_rate)


def _growth(p: Problem, constants: Recursion, *, step: float, log_rate: float) -> Growth:
    """ρ = αβ·e^log_rate, with the ξ that the lemma shares with its theorem."""
    require_positive("step", step)
    return Growth(log_rate=math.log(step * p.beta) + log_rate, xi=constants.xi, n=p.n)


def growths(
    algorithm: str, p: Problem, *, T: int, alpha: float | None = None, m: int | None = None
) -> Iterator[Growth]:
    """The growth at each batch t = 1, 2, … of T weight updates with steps c/t, for Free c/(mt).

    Free's last loop is cut at T: where m does not divide T it makes the T mod m updates that are left.
    """
    updates = batch_updates(algorithm, m)
    recursion_of(algorithm, p, alpha=alpha, m=m)  # refuses an unknown name or a missing parameter at once
    require_count("T", T)
    return (
        _at_batch(algorithm, p, t=t, alpha=alpha, loop=updates, left=T - (t - 1) * updates)
        for t in range(1, batches(T, updates) + 1)
    )


def batches(T: int, updates: int) -> int:
    """The number of batches that T weight updates take, the last one perhaps cut short."""
    return -(-T // updates)


def _at_batch(algorithm: str, p: Problem, *, t: int, alpha: float | None, loop: int, left: int) -> Growth:
    step = weight_step(p.c, t, loop)
    if algorithm == "vanilla":
        return vanilla_growth(p, step=step)
    alpha = needed("alpha", alpha, algorithm)
    if algorithm == "fast":
        return fast_growth(p, step=step, alpha=alpha)
    return free_growth(p, step=step, alpha=alpha, m=min(loop, left))


def solved_recursion(
    algorithm: str, p: Problem, *, T: int, t0: int = 0, alpha: float | None = None, m: int | None = None
) -> list[float]:
    """The bounds on E[d_t | d_{t₀} = 0] for every batch t = t₀, t₀ + 1, …, starting with 0.

    Iterated from the lemmas themselves: E[d_t] + ξ/n ≤ Π (1 + ρ_s) · ξ/n, without Lemma 3's Π(1 + ν/s) ≤
    (T/t₀)^ν and without dropping −ξ/n.
    """
    steps = list(growths(algorithm, p, T=T, alpha=alpha, m=m))
    if not 0 <= t0 <= len(steps):
        raise InputError(
            f"t0 = {t0} must lie in [0, {len(steps)}], the batches of T = {T} updates: pass less"
        )
    log_unit = math.log(steps[0].xi / p.n)
    total, distances = 0.0, [0.0]
    for growth in steps[t0:]:
        total += growth.log_factor
        distances.append(exp_or_inf(log_unit + log_expm1(total)))
    return distances
