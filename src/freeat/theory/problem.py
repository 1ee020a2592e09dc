"""The constants of the bounds, checked once, and the hypotheses that each bound needs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from freeat.errors import InputError, unknown_name

SMALLEST, LARGEST = 1e-60, 1e60
"""The range of every constant: wide enough for any use, so narrow that no product of them overflows."""

MEANINGS = {
    "beta": "smoothness of h in (w, δ)",
    "c": "weight steps are at most c/t, for Free c/(mt)",
    "L": "joint Lipschitz constant of h in (w, δ)",
    "L_w": "Lipschitz constant of h in w",
    "psi": "1/ψ bounds ‖∇_δ h‖ from below",
    "eps": "radius ε of the L2 ball",
    "alpha": "relative attack step α_δ; one step moves δ by α_δ·ε",
    "m": "free steps per batch",
    "b": "batch size",
    "n": "number of training samples",
    "T": "number of weight updates",
    "eta": "gradients that training follows differ by at most β‖w − w′‖ + η; 2βε unless given",
    "step": "constant weight step α_w ≤ 1/(β + γ)",
    "decay": "weight decay γ; 0 unless given",
    "rho": "weight ρ > ℓ of the proximal term (ρ/2)‖w − u‖²",
    "ell": "max_δ h + (ℓ/2)‖w‖² is convex; β unless given",
}
"""What each parameter of a bound means, by its name in this package."""

COUNTS = ("m", "b", "n", "T")
"""The parameters that are whole numbers."""

_PAPER = ("beta", "c", "L", "L_w", "eps", "b", "n", "T")
USED: Mapping[str, tuple[str, ...]] = {
    "vanilla": _PAPER,
    "fast": (*_PAPER, "psi", "alpha"),
    "free": (*_PAPER, "psi", "alpha", "m"),
    "approximate": ("beta", "c", "L_w", "b", "n", "T", "eta"),
    "convex": ("beta", "L_w", "b", "n", "T", "eta", "step", "decay"),
    "proximal": ("c", "L_w", "b", "n", "T", "rho", "ell"),
}
"""The parameters that enter each bound, in the order they are printed."""

THEOREMS: Mapping[str, str] = {"vanilla": "Theorem 2", "fast": "Theorem 5", "free": "Theorem 4"}
"""The bounds of the paper; those of `USED` that are not here are derived in docs/theory.md."""


def _described(name: str, value: object) -> str:
    meaning = f" ({MEANINGS[name]})" if name in MEANINGS else ""
    return f"{name} = {value!r}{meaning}"


def require_positive(name: str, value: float) -> None:
    """Refuse a constant outside [SMALLEST, LARGEST]."""
    if not SMALLEST <= value <= LARGEST:
        rule = f"must be positive, between {SMALLEST:g} and {LARGEST:g}"
        raise InputError(f"{_described(name, value)} {rule}: pass a positive finite number")


def require_non_negative(name: str, value: float) -> None:
    """Refuse a constant that is neither 0 nor in [SMALLEST, LARGEST]."""
    if value != 0 and not SMALLEST <= value <= LARGEST:
        rule = f"must be 0 or lie between {SMALLEST:g} and {LARGEST:g}"
        raise InputError(f"{_described(name, value)} {rule}: pass a finite number that is not negative")


def require_count(name: str, value: float) -> None:
    """Refuse what is not a whole number in [1, LARGEST]."""
    if not 1 <= value <= LARGEST or value != math.floor(value):
        raise InputError(
            f"{_described(name, value)} must be a whole number from 1 to {LARGEST:g}: pass 1, 2, 3, …"
        )


def require_distance(name: str, value: float) -> None:
    """Refuse what cannot be a distance or a time: a negative number or nan (0 and inf can)."""
    if not value >= 0:
        raise InputError(f"{_described(name, value)} must not be negative: pass 0 or a positive number")


def require_sample(L_w: float, b: int, n: int) -> None:
    """Refuse what Lemma 3 takes of a sample and cannot be: L_w, the batch size b and the number of examples n."""
    require_positive("L_w", L_w)
    require_count("b", b)
    require_count("n", n)
    if b > n:
        raise InputError(f"b = {b} exceeds n = {n}: a batch is a subset, pass b ≤ n")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The constants of loss, ball, step size and sample in all three theorems (Assumptions 1 and 2).

    ``beta``, ``L`` and ``L_w`` may be any upper estimates. The smallest ones satisfy L_w ≤ L, because a jointly
    L-Lipschitz h is L-Lipschitz in w; a larger ``L_w`` is accepted and gives a valid but looser bound.
    ``eps = 0`` is standard training. Only Fast and Free need ``psi``.
    """

    beta: float
    c: float
    L: float
    L_w: float
    eps: float
    b: int
    n: int
    psi: float | None = None

    def __post_init__(self) -> None:
        for name in ("beta", "c", "L"):
            require_positive(name, getattr(self, name))
        require_non_negative("eps", self.eps)
        if self.psi is not None:
            require_positive("psi", self.psi)
        require_sample(self.L_w, self.b, self.n)

    def gain(self, alpha: float) -> float:
        """α_δ ε ψ β: how much a difference in (w, δ) adds to one in δ at an ascent step (Lemma 5)."""
        require_non_negative("alpha", alpha)
        if self.psi is None:
            raise InputError(
                "psi is missing: Fast and Free need ‖∇_δ h‖ ≥ 1/ψ; pass psi, e.g. 1 / (smallest norm seen)"
            )
        return alpha * self.eps * self.psi * self.beta


def relative_step(alpha_absolute: float, eps: float) -> float:
    """The paper's α_δ of an attack step in input units: ‖π_Δ(g)‖ = ε, so a step moves δ by α_δ·ε."""
    require_non_negative("alpha_absolute", alpha_absolute)
    require_positive("eps", eps)
    return alpha_absolute / eps


def absolute_step(alpha: float, eps: float) -> float:
    """The attack step in input units of the paper's relative α_δ."""
    require_non_negative("alpha", alpha)
    require_positive("eps", eps)
    return alpha * eps


def weight_step(c: float, t: int, m: int = 1) -> float:
    """The largest weight step the theorems allow at batch t: c/t, for Free c/(mt) in all m updates."""
    require_positive("c", c)
    require_count("t", t)
    require_count("m", m)
    return c / (m * t)


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One hypothesis: its key, a plain sentence, and the bounds that need it."""

    key: str
    sentence: str
    algorithms: tuple[str, ...] = tuple(THEOREMS)


_BY_LEMMA_3 = (*THEOREMS, "approximate", "proximal")


HYPOTHESES: tuple[Hypothesis, ...] = (
    Hypothesis(
        key="bounded_loss",
        sentence="The loss h lies in [0, 1] (1 − p_y does; cross-entropy does not).",
        algorithms=_BY_LEMMA_3,
    ),
    Hypothesis(
        key="lipschitz",
        sentence="h is L-Lipschitz in (w, δ) and L_w-Lipschitz in w, for all w reached and all δ in the ball.",
    ),
    Hypothesis(
        key="smooth",
        sentence="The gradient of h in (w, δ) is β-Lipschitz (ReLU networks have no such β).",
    ),
    Hypothesis(
        key="per_sample_loss",
        sentence="h is a function of w, δ and one example: no batch norm in training mode, no dropout.",
        algorithms=tuple(USED),
    ),
    Hypothesis(
        key="l2_ball",
        sentence="The perturbation set is the L2 ball of radius ε.",
    ),
    Hypothesis(
        key="no_box",
        sentence="x + δ is not clamped to the range of images.",
    ),
    Hypothesis(
        key="no_augmentation",
        sentence="Images are seen as they are stored, without augmentation.",
        algorithms=tuple(USED),
    ),
    Hypothesis(
        key="plain_sgd",
        sentence="Weights move by plain SGD: no momentum, weight decay, clipping, weight perturbation or averaging.",
        algorithms=(*THEOREMS, "approximate"),
    ),
    Hypothesis(
        key="vanishing_step",
        sentence="The weight step at batch t is at most c/t; for Free at most c/(mt), in all its m updates.",
        algorithms=(*THEOREMS, "approximate"),
    ),
    Hypothesis(
        key="sampling_without_replacement",
        sentence="Each batch is a uniform subset of b distinct examples, drawn independently at every step "
        "(not the successive slices of a shuffled epoch).",
        algorithms=_BY_LEMMA_3,
    ),
    Hypothesis(
        key="exact_inner_max",
        sentence="The attack attains the maximum of h over the ball (PGD only approaches it).",
        algorithms=("vanilla", "convex"),
    ),
    Hypothesis(
        key="psi_positive",
        sentence="‖∇_δ h‖ ≥ 1/ψ at every point where the training takes that gradient.",
        algorithms=("fast", "free"),
    ),
    Hypothesis(
        key="constant_attack_step",
        sentence="The relative attack step α_δ is the same throughout the training.",
        algorithms=("fast", "free"),
    ),
    Hypothesis(
        key="fresh_start",
        sentence="δ starts anew at every batch, by a draw that depends on neither w nor the data.",
        algorithms=("fast", "free"),
    ),
    Hypothesis(
        key="lipschitz_w",
        sentence="max_δ h is L_w-Lipschitz in w, and no gradient that training follows is longer than L_w.",
        algorithms=("approximate", "convex", "proximal"),
    ),
    Hypothesis(
        key="approximately_smooth",
        sentence="For every example, the gradients that training follows at w and w′ differ by at most "
        "β‖w − w′‖ + η (η = 2βε for every attack in the L2 ball, where h is β-smooth in (w, δ)).",
        algorithms=("approximate", "convex"),
    ),
    Hypothesis(
        key="convex",
        sentence="h is convex in w for every δ, and all holds for every w (linear models with a convex loss).",
        algorithms=("convex",),
    ),
    Hypothesis(
        key="constant_step",
        sentence="Weights move by SGD with one constant step α_w ≤ 1/(β + γ) and weight decay γ: no momentum or "
        "clipping.",
        algorithms=("convex",),
    ),
    Hypothesis(
        key="even_sampling",
        sentence="Every batch holds each example with the same chance b/n (shuffled epochs do, too).",
        algorithms=("convex",),
    ),
    Hypothesis(
        key="weakly_convex",
        sentence="max_δ h + (ℓ/2)‖w‖² is convex in w (ℓ = β where h is β-smooth in w for every δ).",
        algorithms=("proximal",),
    ),
    Hypothesis(
        key="exact_proximal_step",
        sentence="Each step solves its proximal problem exactly: w_t minimizes the batch's mean of max_δ h plus "
        "(ρ/2)‖w − u_{t−1}‖².",
        algorithms=("proximal",),
    ),
    Hypothesis(
        key="slow_step",
        sentence="The slow weights move to u_t = u_{t−1} + α_t ρ (w_t − u_{t−1}) with α_t ≤ c/t and α_t ≤ 1/ρ, and are "
        "what is evaluated.",
        algorithms=("proximal",),
    ),
)
"""All that the bounds assume, each with the bounds that assume it."""

Status = Literal["violated", "holds", "unknown"]


@dataclass(frozen=True, kw_only=True)
class CheckedHypothesis:
    """A hypothesis, and whether the facts of a run deny it, confirm it, or leave it unknown."""

    key: str
    sentence: str
    status: Status


def hypotheses(algorithm: str) -> list[Hypothesis]:
    """The hypotheses of a bound, by its name in `USED`."""
    if algorithm not in USED:
        raise unknown_name("algorithm", algorithm, USED)
    return [hypothesis for hypothesis in HYPOTHESES if algorithm in hypothesis.algorithms]


def checked_hypotheses(algorithm: str, facts: Mapping[str, bool]) -> tuple[CheckedHypothesis, ...]:
    """The hypotheses of a bound with their status; ``facts`` maps a key to whether it holds."""
    known = {hypothesis.key for hypothesis in HYPOTHESES}
    for key in facts:
        if key not in known:
            raise unknown_name("hypothesis", key, known)

    def status(key: str) -> Status:
        if key not in facts:
            return "unknown"
        return "holds" if facts[key] else "violated"

    return tuple(
        CheckedHypothesis(key=hypothesis.key, sentence=hypothesis.sentence, status=status(hypothesis.key))
        for hypothesis in hypotheses(algorithm)
    )


def violations(algorithm: str, facts: Mapping[str, bool]) -> list[CheckedHypothesis]:
    """The hypotheses that the facts deny."""
    return [checked for checked in checked_hypotheses(algorithm, facts) if checked.status == "violated"]
