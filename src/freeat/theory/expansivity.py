"""How Free's inner loop spreads a difference in (w, δ): Lemma 5's matrix η_t and its powers (Lemma 6)."""

from dataclasses import dataclass

from freeat.errors import InputError
from freeat.theory.logspace import exp_or_inf, log_geometric_sum
from freeat.theory.problem import Problem, require_count, require_positive

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
