"""One update of two coupled runs, on its path: the inequalities inside the proofs of Lemmas 4, 5 and 7.

``d_w`` is ‖w − w′‖ before the update, ``d_delta`` the batch's mean ‖δ_j − δ_j′‖, ``met`` whether the batch
holds the replaced example.
"""

from freeat.theory.expansivity import expansivity
from freeat.theory.problem import Problem, require_distance, require_positive


def vanilla_next(p: Problem, *, step: float, d_w: float, met: bool) -> float:
    """Lemma 4's proof: ‖w_t − w_t′‖ after one Vanilla update, with and without the replaced example."""
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
    """Lemma 5: (‖w − w′‖, mean ‖δ − δ′‖) after one of Free's m updates, η_t · (d_w, d_delta) + own part."""
    require_distance("d_w", d_w)
    require_distance("d_delta", d_delta)
    (ww, wd), (dw, dd) = expansivity(p, step=step, alpha=alpha)
    own = 2 * p.L / p.b if met else 0.0
    return (
        ww * d_w + wd * d_delta + own * step,
        dw * d_w + dd * d_delta + own * p.gain(alpha) / p.beta,
    )
