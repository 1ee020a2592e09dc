"""Step sizes as the theorems write them: the relative attack step α_δ, the vanishing weight step."""

from freeat.theory.problem import require_count, require_non_negative, require_positive


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
