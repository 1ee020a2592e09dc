"""How the distance of two coupled runs grows: Lemmas 4 to 7, in expectation, on a path, and solved for every t."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from freeat.errors import InputError
from freeat.theory.bounds import (
    Recursion,
    batch_updates,
    exp_or_inf,
    fast_recursion,
    free_recursion,
    meeting_bound,
    needed,
    recursion_of,
    softplus,
    vanilla_recursion,
)
from freeat.theory.problem import Problem, require_count, require_distance, require_positive, weight_step


def log_expm1(x: float) -> float:
    """log(e^x − 1) for x ≥ 0; −inf at 0."""
    if x == 0:
        return -math.inf
    return x + math.log1p(-math.exp(-x)) if x > 1 else math.log(math.expm1(x))


def log_geometric_sum(x: float, terms: int) -> float:
    """log Σ_{j<terms} (1 + x)^j for x ≥ 0, by its closed form ((1 + x)^terms − 1)/x."""
    exponent = terms * math.log1p(x)
    if exponent == 0:
        return math.log(terms)
    return log_expm1(exponent) - math.log(x)


@dataclass(frozen=True, kw_only=True)
class Growth:
    """E[d_t] ≤ (1 + ρ) E[d_{t−1}] + ρ ξ/n, the inequality of Lemmas 4, 6 and 7; ρ is kept as its logarithm."""

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
        """ρ ξ/n, the bound on E[d_t] from E[d_{t−1}] = 0."""
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


Matrix = tuple[tuple[float, float], tuple[float, float]]


def expansivity(p: Problem, *, step: float, alpha: float) -> Matrix:
    """Lemma 5: η_t = [[1 + αβ, αβ], [γ, 1 + γ]] for the weight step α = α_{w,t} and γ = α_δ ε ψ β."""
    require_positive("step", step)
    descent, ascent = step * p.beta, p.gain(alpha)
    return (1 + descent, descent), (ascent, 1 + ascent)


def expansivity_power(p: Problem, *, step: float, alpha: float, m: int) -> Matrix:
    """Lemma 6's closed form of η_t^m, exact: I + s·(η_t − I) with s = Σ_{j<m} (1 + αβ + γ)^j.

    η_t − I has rank one and trace αβ + γ, so its square is (αβ + γ)(η_t − I). This is the product of the
    paper's eigen-decomposition, written so that it also holds for α_δ ε = 0, where that one divides by 0.
    """
    require_positive("step", step)
    require_count("m", m)
    descent, ascent = step * p.beta, p.gain(alpha)
    total = exp_or_inf(log_geometric_sum(descent + ascent, m))
    to_w, to_delta = _scaled(total, descent), _scaled(total, ascent)
    return (1 + to_w, to_w), (to_delta, 1 + to_delta)


def _scaled(total: float, part: float) -> float:
    """total·part, where an infinite total does not turn an absent part into nan."""
    return total * part if part > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Eigendecomposition:
    """η_t = ``vectors`` · diag(``values``) · ``inverse``, as printed in the proof of Lemma 6."""

    vectors: Matrix
    values: tuple[float, float]
    inverse: Matrix


def eigendecomposition(p: Problem, *, step: float, alpha: float) -> Eigendecomposition:
    """The eigen-decomposition of η_t in the proof of Lemma 6, with r = α_δ ε ψ / α_{w,t} > 0."""
    require_positive("step", step)
    descent, ascent = step * p.beta, p.gain(alpha)
    if ascent == 0:
        raise InputError(
            f"alpha·eps = {alpha * p.eps!r}: the decomposition divides by r = α_δεψ/α_w, which must be positive; "
            "use expansivity_power, which also holds at 0"
        )
    r = ascent / descent
    return Eigendecomposition(
        vectors=((1 / r, -1.0), (1.0, 1.0)),
        values=(1 + descent + ascent, 1.0),
        inverse=((r / (r + 1), r / (r + 1)), (-r / (r + 1), 1 / (r + 1))),
    )


def vanilla_next(p: Problem, *, step: float, d_w: float, met: bool) -> float:
    """Lemma 4's proof: ‖w_t − w_t′‖ after one Vanilla update from ``d_w``.

    ``met`` says whether the batch holds the replaced example.
    """
    require_positive("step", step)
    require_distance("d_w", d_w)
    shared = (1 + step * p.beta) * d_w + 2 * p.eps * step * p.beta
    if not met:
        return shared
    return ((p.b - 1) * shared + d_w + 2 * step * p.L) / p.b


def fast_next(p: Problem, *, step: float, alpha: float, d_w: float, met: bool) -> float:
    """Lemma 7's proof: ‖w_t − w_t′‖ after one Fast update."""
    require_positive("step", step)
    require_distance("d_w", d_w)
    own = 2 * step * p.L / p.b if met else 0.0
    return d_w + step * p.beta * (1 + p.gain(alpha)) * d_w + own


def free_next(
    p: Problem, *, step: float, alpha: float, d_w: float, d_delta: float, met: bool
) -> tuple[float, float]:
    """Lemma 5: (‖w − w′‖, mean ‖δ − δ′‖) after one of Free's m updates, η_t · (d_w, d_delta) + own part.

    ``d_delta`` is the batch's mean ‖δ_j − δ_j′‖ before the update.
    """
    require_distance("d_w", d_w)
    require_distance("d_delta", d_delta)
    (ww, wd), (dw, dd) = expansivity(p, step=step, alpha=alpha)
    own = 2 * p.L / p.b if met else 0.0
    return (
        ww * d_w + wd * d_delta + own * step,
        dw * d_w + dd * d_delta + own * p.gain(alpha) / p.beta,
    )
