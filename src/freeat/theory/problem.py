"""The constants that Theorems 2, 4 and 5 speak of, checked once."""

import math
from dataclasses import dataclass

from freeat.errors import InputError

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
}
"""What each parameter of a bound means, by its name in this package."""


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


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Loss, ball, step constant and sample: what all three theorems share (Assumptions 1 and 2).

    ``beta``, ``L`` and ``L_w`` may be any upper estimates. The smallest ones satisfy L_w ≤ L, for a jointly
    L-Lipschitz h is L-Lipschitz in w; a larger ``L_w`` is accepted, gives a valid bound, and wastes.
    ``eps = 0`` is plain training. ``psi`` is needed by Fast and Free only.
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
        for name in ("beta", "c", "L", "L_w"):
            require_positive(name, getattr(self, name))
        require_non_negative("eps", self.eps)
        if self.psi is not None:
            require_positive("psi", self.psi)
        require_count("b", self.b)
        require_count("n", self.n)
        if self.b > self.n:
            raise InputError(f"b = {self.b} exceeds n = {self.n}: a batch is a subset, pass b ≤ n")

    def gain(self, alpha: float) -> float:
        """α_δ ε ψ β: how much a difference in (w, δ) adds to one in δ at an ascent step (Lemma 5)."""
        require_non_negative("alpha", alpha)
        if self.psi is None:
            raise InputError(
                "psi is missing: Fast and Free need ‖∇_δ h‖ ≥ 1/ψ; pass psi, e.g. 1 / (smallest norm seen)"
            )
        return alpha * self.eps * self.psi * self.beta
