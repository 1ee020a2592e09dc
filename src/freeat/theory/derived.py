"""Bounds that the paper does not have: approximate smoothness, convex losses, averaging and proximal steps.

All are derived here; docs/theory.md proves them ("Bounds beside the paper's"). Two are Lemma 3 with constants of their
own. They need no L: the gradients that training follows are gradients in w, so L_w bounds them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from freeat.errors import InputError, unknown_name
from freeat.theory.bounds import Bound, BoundRow, Recursion, bound, lemma_3, needed
from freeat.theory.problem import (
    THEOREMS,
    USED,
    Problem,
    require_count,
    require_non_negative,
    require_positive,
    require_sample,
)


@dataclass(frozen=True, kw_only=True)
class ApproximatelySmooth:
    """SGD with steps of at most c/t on a loss that is β-smooth up to η, convex or not.

    Hypotheses: max_δ h lies in [0, 1] and is L_w-Lipschitz in w. The gradients G that training follows have
    ‖G‖ ≤ L_w and, on each example, ‖G(w) − G(w′)‖ ≤ β‖w − w′‖ + η. Batches are independent uniform subsets.

    η = 2βε for a β-smooth h and any attack in the L2 ball of radius ε, exact or not. With that η, and L for L_w
    in ξ, the bound is Theorem 2.
    """

    beta: float
    c: float
    eta: float
    L_w: float
    b: int
    n: int

    def __post_init__(self) -> None:
        require_positive("beta", self.beta)
        require_positive("c", self.c)
        require_non_negative("eta", self.eta)
        require_sample(self.L_w, self.b, self.n)

    @property
    def recursion(self) -> Recursion:
        """ν = βc and ξ = (ηn + 2L_w)/β."""
        return Recursion(
            log_nu=math.log(self.beta * self.c), xi=(self.eta * self.n + 2 * self.L_w) / self.beta
        )

    def bound(self, *, T: float, average: bool = False) -> Bound:
        """Lemma 3 after T updates; with ``average`` for the mean of the weights after every update."""
        require_count("T", T)
        return lemma_3("approximate", self, self.recursion, T=T, steps=T, average=average)


@dataclass(frozen=True, kw_only=True)
class Proximal:
    """Exact proximal steps on mini-batches: slow weights follow the Moreau envelope of the adversarial loss.

    With u_{t−1} given, w_t minimizes the batch's mean of max_δ h plus (ρ/2)‖w − u_{t−1}‖², and
    u_t = u_{t−1} + α_t ρ (w_t − u_{t−1}). The bound is for u_T.

    Hypotheses: max_δ h lies in [0, 1], is L_w-Lipschitz in w and ℓ-weakly convex (max_δ h + (ℓ/2)‖w‖² is convex;
    ℓ = β where h is β-smooth in w for every δ). 0 < ℓ < ρ, α_t ≤ c/t and α_t ≤ 1/ρ. Batches are independent
    uniform subsets. Nothing is assumed about η: the term 2ε per example of Theorem 2 is absent.
    """

    c: float
    rho: float
    ell: float
    L_w: float
    b: int
    n: int

    def __post_init__(self) -> None:
        require_positive("c", self.c)
        require_positive("rho", self.rho)
        require_positive("ell", self.ell)
        if self.ell >= self.rho:
            raise InputError(
                f"rho = {self.rho:g} must exceed ell = {self.ell:g}, or the proximal problem need not be convex: "
                "pass a larger rho"
            )
        require_sample(self.L_w, self.b, self.n)

    @property
    def recursion(self) -> Recursion:
        """ν = cρℓ/(ρ − ℓ) and ξ = 2L_w/ℓ."""
        return Recursion(
            log_nu=math.log(self.c * self.ell) - math.log1p(-self.ell / self.rho), xi=2 * self.L_w / self.ell
        )

    def bound(self, *, T: float, average: bool = False) -> Bound:
        """Lemma 3 after T proximal steps; with ``average`` for the mean of the slow weights after every step."""
        require_count("T", T)
        return lemma_3("proximal", self, self.recursion, T=T, steps=T, average=average)


@dataclass(frozen=True, kw_only=True)
class ConvexBound:
    """A bound on the gap as the sum of two parts, in the units of the loss.

    ``drift`` comes from inner maximizers that differ on common examples (0 where η = 0); ``own`` from the
    replaced example. A loss that is convex on all of space is not bounded, so no value is vacuous.
    """

    drift: float
    own: float
    T: float
    algorithm: str = "convex"

    @property
    def value(self) -> float:
        return self.drift + self.own

    @property
    def log_bound(self) -> float:
        return math.log(self.value)

    def row(self) -> BoundRow:
        """The bound as numbers for a table, a plot or JSON."""
        return BoundRow(
            algorithm=self.algorithm,
            lam=None,
            log10_lam=None,
            bound=self.value,
            log10_bound=math.log10(self.value),
            t0=None,
            updates=self.T,
            steps=self.T,
            vacuous=False,
            t0_outside=False,
        )


@dataclass(frozen=True, kw_only=True)
class Convex:
    """SGD with a constant step α_w and weight decay γ on a convex loss that is β-smooth up to η.

    w ← (1 − α_w γ) w − α_w · (the batch's mean of G), with α_w ≤ 1/(β + γ).

    Hypotheses, for every w: max_δ h is convex and L_w-Lipschitz in w (it is convex where h(·, δ) is), G is one of its
    subgradients (the gradient at an exact maximizer is), and ‖G(w) − G(w′)‖ ≤ β‖w − w′‖ + η on each example. Every
    batch holds each example with chance b/n: independent subsets and shuffled epochs do. The loss need not be bounded.

    The Moreau envelope of a convex loss is convex and ρ-smooth: ``beta=rho, eta=0`` is the bound for exact proximal
    steps on it.
    """

    beta: float
    eta: float
    step: float
    L_w: float
    b: int
    n: int
    decay: float = 0.0

    def __post_init__(self) -> None:
        require_positive("beta", self.beta)
        require_non_negative("eta", self.eta)
        require_positive("step", self.step)
        require_non_negative("decay", self.decay)
        if self.step * (self.beta + self.decay) > 1 + 1e-12:
            raise InputError(
                f"step = {self.step:g} exceeds 1/(beta + decay) = {1 / (self.beta + self.decay):g}, beyond which "
                "a step may expand distances: pass a smaller step"
            )
        require_sample(self.L_w, self.b, self.n)

    def bound(self, *, T: float, average: bool = False) -> ConvexBound:
        """L_w · (p η α_w √(2 S(q²)) + (2 L_w α_w/n) S(q)), q = 1 − α_w γ, S(x) = Σ_{t<T} x^t, p = min(1, bT/n).

        With ``average``, for the mean of the weights after every update, S(x) is replaced by min(S(x), (T + 1)/2).
        """
        require_count("T", T)
        met = min(1.0, self.b * T / self.n)
        # 1 − q and 1 − q², without cancellation
        kept = self.step * self.decay
        own, drift = (_geometric_sum(gap, T) for gap in (kept, kept * (2 - kept)))
        if average:
            own, drift = min(own, (T + 1) / 2), min(drift, (T + 1) / 2)
        return ConvexBound(
            drift=self.L_w * met * self.eta * self.step * math.sqrt(2 * drift),
            own=2 * self.L_w**2 * self.step * own / self.n,
            T=T,
        )


def _geometric_sum(gap: float, terms: float) -> float:
    """Σ_{t < terms} (1 − gap)^t for 0 ≤ gap ≤ 1."""
    if gap == 0:
        return terms
    return 1 / gap if gap >= 1 else -math.expm1(terms * math.log1p(-gap)) / gap


DERIVED: Mapping[str, type[ApproximatelySmooth | Convex | Proximal]] = {
    "approximate": ApproximatelySmooth,
    "convex": Convex,
    "proximal": Proximal,
}
"""The bounds derived here, by their names in `USED`."""


def bound_by_name(
    name: str, parameters: Mapping[str, float | None], *, average: bool = False
) -> Bound | ConvexBound:
    """A bound of the paper or one derived here, from parameters by name (`MEANINGS`); what it does not use is ignored.

    Args:
        name: A key of `USED`: vanilla, fast, free, approximate, convex or proximal.
        parameters: Values by name; η, ℓ and γ have defaults (`completed`).
        average: Bound the gap of the mean of the weights after every update instead of the last weights.

    Raises:
        InputError: If the name is unknown, or a parameter is missing or outside its range.
    """
    if name not in USED:
        raise unknown_name("algorithm", name, USED)
    parameters = completed(parameters)
    values: dict[str, Any] = {one: needed(one, parameters.get(one), name) for one in USED[name]}
    T = values.pop("T")
    if name in DERIVED:
        return DERIVED[name](**values).bound(T=T, average=average)
    own = {field.name for field in fields(Problem)}
    p = Problem(**{one: value for one, value in values.items() if one in own})
    return bound(name, p, T=T, alpha=values.get("alpha"), m=values.get("m"), average=average)


def source(name: str, *, average: bool = False) -> str:
    """Where a bound comes from: its theorem in the paper, or derived here."""
    if name not in THEOREMS:
        return "derived here"
    return f"{THEOREMS[name]}, averaged here" if average else THEOREMS[name]


DEFAULTS_FROM: Mapping[str, tuple[str, ...]] = {"eta": ("beta", "eps"), "ell": ("beta",)}
"""The parameters from which `completed` takes one that is not given."""


def completed(parameters: Mapping[str, float | None]) -> dict[str, float | None]:
    """The parameters with those that have defaults: η = 2βε, ℓ = β (both for a β-smooth h) and γ = 0."""
    beta, eps = parameters.get("beta"), parameters.get("eps")
    defaults = {"eta": None if beta is None or eps is None else 2 * beta * eps, "ell": beta, "decay": 0.0}
    given = {name: value for name, value in parameters.items() if value is not None}
    return {**parameters, **defaults, **given}
