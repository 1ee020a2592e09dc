"""Elementary functions of logarithms that neither overflow nor cancel."""

import math
import sys

LOG_LARGEST = math.log(sys.float_info.max)


def exp_or_inf(x: float) -> float:
    """e^x, and inf only where e^x exceeds every float."""
    return math.exp(x) if x <= LOG_LARGEST else math.inf


def softplus(x: float) -> float:
    """log(1 + e^x)."""
    return x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(x))


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
