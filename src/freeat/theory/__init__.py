"""The paper's stability bounds and the lemmas behind them, in pure Python."""

from freeat.theory.asymptotics import (
    Rate,
    comparison,
    free_lambda_ceiling,
    free_steps,
    m_scale,
    printed_m_scale,
    rate,
    ratio_to_vanilla,
    vanilla_exponent,
)
from freeat.theory.bounds import (
    Bound,
    bound,
    fast_bound,
    free_bound,
    optimal_t0,
    recursion_bound,
    vanilla_bound,
)
from freeat.theory.expansivity import (
    Eigendecomposition,
    eigendecomposition,
    expansivity,
    expansivity_power,
)
from freeat.theory.growth import (
    Growth,
    fast_growth,
    free_growth,
    free_growth_as_printed,
    growths,
    solved_recursion,
    vanilla_growth,
)
from freeat.theory.hypotheses import HYPOTHESES, Hypothesis, hypotheses, unsettled, violations
from freeat.theory.pathwise import fast_next, free_next, vanilla_next
from freeat.theory.problem import Problem
from freeat.theory.recursion import (
    Recursion,
    fast_recursion,
    free_recursion,
    recursion_of,
    vanilla_recursion,
)
from freeat.theory.report import bound_document, bound_lines
from freeat.theory.steps import absolute_step, relative_step, weight_step
from freeat.theory.sweep import sweep
from freeat.theory.two_terms import (
    SharpestBound,
    loss_difference_bound,
    meeting_bound,
    sharpest_bound,
    two_term_bound,
)

__all__ = [
    "HYPOTHESES",
    "Bound",
    "Eigendecomposition",
    "Growth",
    "Hypothesis",
    "Problem",
    "Rate",
    "Recursion",
    "SharpestBound",
    "absolute_step",
    "bound",
    "bound_document",
    "bound_lines",
    "comparison",
    "eigendecomposition",
    "expansivity",
    "expansivity_power",
    "fast_bound",
    "fast_growth",
    "fast_next",
    "fast_recursion",
    "free_bound",
    "free_growth",
    "free_growth_as_printed",
    "free_lambda_ceiling",
    "free_next",
    "free_recursion",
    "free_steps",
    "growths",
    "hypotheses",
    "loss_difference_bound",
    "m_scale",
    "meeting_bound",
    "optimal_t0",
    "printed_m_scale",
    "rate",
    "ratio_to_vanilla",
    "recursion_bound",
    "recursion_of",
    "relative_step",
    "sharpest_bound",
    "solved_recursion",
    "sweep",
    "two_term_bound",
    "unsettled",
    "vanilla_bound",
    "vanilla_exponent",
    "vanilla_growth",
    "vanilla_next",
    "vanilla_recursion",
    "violations",
    "weight_step",
]
