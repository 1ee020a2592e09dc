"""The generalization bounds: Lemma 3, and Theorems 2 (Vanilla), 5 (Fast) and 4 (Free) as its instances."""

import math
import sys
from dataclasses import dataclass, replace
from typing import Protocol

from freeat.errors import InputError, unknown_name
from freeat.theory.problem import (
    MEANINGS,
    THEOREMS,
    Problem,
    require_count,
    require_distance,
    require_positive,
)

LOG_LARGEST = math.log(sys.float_info.max)


def exp_or_inf(x: float) -> float:
    """e^x, and inf only where e^x exceeds every float."""
    return math.exp(x) if x <= LOG_LARGEST else math.inf


def softplus(x: float) -> float:
    """log(1 + e^x), without overflow."""
    return x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(x))


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

    def averaged(self, steps: float) -> "Recursion":
        """The recursion whose Lemma 3 bounds the mean of the weights after each of ``steps`` batches (derived here).

        ξ is multiplied by κ = min(1, (1 + 1/steps)^(ν+1)/(ν + 1)), which bounds the mean over t of (t/steps)^ν.
        """
        log_kappa = (self.nu + 1) * math.log1p(1 / steps) - softplus(self.log_nu)
        # ν = inf leaves nan or inf: averaging then gains nothing
        return replace(self, xi=self.xi * math.exp(log_kappa)) if log_kappa < 0 else self


class Sample(Protocol):
    """What Lemma 3 takes besides a recursion: L_w, the batch size b and the number of examples n."""

    @property
    def L_w(self) -> float: ...
    @property
    def b(self) -> int: ...
    @property
    def n(self) -> int: ...


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
    if algorithm not in THEOREMS:
        raise unknown_name("algorithm", algorithm, THEOREMS)
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
    """The parameter, refused where it is missing although the algorithm's bound needs it."""
    if value is None:
        raise InputError(
            f"{name} is missing: the bound of {algorithm} needs it; pass {name} ({MEANINGS[name]})"
        )
    return value


@dataclass(frozen=True, kw_only=True)
class BoundRow:
    """A bound as numbers that JSON can hold: None where one exceeds every float.

    ``log10_lam`` is None where the bound has neither λ nor t₀.
    """

    algorithm: str
    lam: float | None
    log10_lam: float | None
    bound: float | None
    log10_bound: float
    t0: float | None
    updates: float
    steps: float
    vacuous: bool
    t0_outside: bool


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Lemma 3's bound on the generalization adversarial risk, kept in logarithms.

    ``T`` counts weight updates; ``steps`` counts batches (T/m for Free), the T of Lemma 3. ``t0_above`` says
    whether t₀ > steps, which a large λ blurs in ``log_t0`` itself.
    """

    algorithm: str
    log_lam: float
    log_bound: float
    log_t0: float
    t0_above: bool
    T: float
    steps: float

    @property
    def value(self) -> float:
        """The bound, inf only where it exceeds every float."""
        return exp_or_inf(self.log_bound)

    @property
    def lam(self) -> float:
        """The theorem's λ, inf only where it exceeds every float."""
        return exp_or_inf(self.log_lam)

    @property
    def t0(self) -> float:
        """The batch t₀ that minimizes Lemma 2's bound, inf only where it exceeds every float."""
        return exp_or_inf(self.log_t0)

    @property
    def vacuous(self) -> bool:
        """Whether the bound exceeds 1, which a loss in [0, 1] satisfies without any theorem."""
        return self.log_bound > 0

    @property
    def t0_outside(self) -> bool:
        """Whether t₀ lies outside [1, steps], where the bound holds but is not Lemma 2's best."""
        return self.t0_above or self.log_t0 < 0

    def row(self) -> BoundRow:
        """The bound as numbers for a table, a plot or JSON."""
        return BoundRow(
            algorithm=self.algorithm,
            lam=_finite(self.lam),
            log10_lam=self.log_lam / math.log(10),
            bound=_finite(self.value),
            log10_bound=self.log_bound / math.log(10),
            t0=_finite(self.t0),
            updates=self.T,
            steps=self.steps,
            vacuous=self.vacuous,
            t0_outside=self.t0_outside,
        )


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def recursion_bound(p: Problem, *, nu: float, xi: float, T: float) -> Bound:
    """Lemma 3: b/n (1 + 1/ν) (L_w ξ ν / b)^(1/(ν+1)) T^(ν/(ν+1)) for any recursion with constants ν, ξ."""
    require_positive("nu", nu)
    require_positive("xi", xi)
    return lemma_3("recursion", p, Recursion(log_nu=math.log(nu), xi=xi), T=T, steps=T)


def vanilla_bound(p: Problem, *, T: float) -> Bound:
    """Theorem 2: Lemma 3 with ν = λ_Vanilla and ξ = 2εn + 2L/β, over T steps of at most c/t."""
    return _bound("vanilla", p, vanilla_recursion(p), T=T)


def fast_bound(p: Problem, *, T: float, alpha: float) -> Bound:
    """Theorem 5: Lemma 3 with ν = λ_Fast and ξ = 2L/(β(1 + α_δεψβ)), over T steps of at most c/t."""
    return _bound("fast", p, fast_recursion(p, alpha=alpha), T=T)


def free_bound(p: Problem, *, T: float, alpha: float, m: int) -> Bound:
    """Theorem 4: Lemma 3 with ν = λ_Free and ξ = 2L/β, over T/m steps of at most c/(mt).

    The proof counts whole loops: where m does not divide T, the bound at the next multiple of m is the safe one.
    """
    return _bound("free", p, free_recursion(p, alpha=alpha, m=m), T=T, m=m)


def bound(
    algorithm: str,
    p: Problem,
    *,
    T: float,
    alpha: float | None = None,
    m: float | None = None,
    average: bool = False,
) -> Bound:
    """The algorithm's bound by name; ``alpha`` and ``m`` may be given where they are not used.

    With ``average`` it bounds the gap of the mean of the weights after every update, which is derived here
    (`Recursion.averaged`, docs/theory.md), in place of that of the last weights.
    """
    recursion = recursion_of(algorithm, p, alpha=alpha, m=m)
    return _bound(algorithm, p, recursion, T=T, m=batch_updates(algorithm, m), average=average)


def _bound(
    algorithm: str, p: Problem, recursion: Recursion, *, T: float, m: int = 1, average: bool = False
) -> Bound:
    require_count("T", T)
    return lemma_3(algorithm, p, recursion, T=T, steps=T / m, average=average)


def lemma_3(
    algorithm: str, p: Sample, recursion: Recursion, *, T: float, steps: float, average: bool = False
) -> Bound:
    """Lemma 3's bound, which equals b/n (1 + 1/ν) t₀ with t₀ = (L_w ξ ν steps^ν / b)^(1/(ν+1)).

    At this t₀ Lemma 2's bound is least; Lemma 3's text says "maximized". t₀ is a weighted geometric mean of
    L_w ξ ν / b and ``steps``.
    """
    require_positive("steps", steps)
    if average:
        recursion = recursion.averaged(steps)
    log_pull = math.log(p.L_w * recursion.xi / p.b) + recursion.log_nu
    # 1/(ν+1) and ν/(ν+1) from log ν, so that a ν beyond every float gives 0 and 1 instead of nan
    share, rest = math.exp(-softplus(recursion.log_nu)), math.exp(-softplus(-recursion.log_nu))
    log_t0 = share * log_pull + rest * math.log(steps)
    return Bound(
        algorithm=algorithm,
        log_lam=recursion.log_nu,
        log_bound=math.log(p.b / p.n) + softplus(-recursion.log_nu) + log_t0,
        log_t0=log_t0,
        t0_above=log_pull > math.log(steps),
        T=T,
        steps=steps,
    )


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
