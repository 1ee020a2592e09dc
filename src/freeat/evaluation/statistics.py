"""Confidence intervals of accuracies, of their differences and of bounded means; the accuracy of a constant answer."""

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist

from freeat.errors import InputError, printable

Limits = tuple[float, float]
BET = 0.75
"""The largest share of the capital that a bet may lose; Waudby-Smith and Ramdas advise 1/2 or 3/4."""


def wilson(successes: float, n: int, level: float = 0.95) -> Limits:
    """Wilson's score interval of a proportion; scipy's takes whole successes only, and differs in the last bits."""
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + level / 2)
    p = successes / n
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def difference(p: float, of_p: Limits, q: float, of_q: Limits) -> Limits:
    """Newcombe's interval of p − q from the intervals of two independent proportions."""
    low = (p - q) - math.hypot(p - of_p[0], of_q[1] - q)
    high = (p - q) + math.hypot(of_p[1] - p, q - of_q[0])
    return low, high


def paired(only_first: int, only_second: int, n: int, level: float = 0.95) -> Limits:
    """Bonett and Price's interval of p − q from n pairs, given the counts in which only one of the two succeeded."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    p, q = (only_first + 1) / (n + 2), (only_second + 1) / (n + 2)
    half = z * math.sqrt((p + q - (p - q) ** 2) / (n + 2))
    return max(-1.0, p - q - half), min(1.0, p - q + half)


def sampled(successes: float, n: int, population: int, level: float = 0.95) -> Limits:
    """The interval of a finite population's proportion from n of its members; a point when all were seen."""
    p = successes / n
    shrink = math.sqrt((population - n) / max(population - 1, 1))
    low, high = wilson(successes, n, level)
    return p - (p - low) * shrink, p + (high - p) * shrink


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Which hypotheses Holm's step-down procedure rejects: the chance of any wrong rejection is at most ``level``."""
    rejected = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] > level / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


def betting_lower_bound(values: Sequence[float], level: float = 0.95) -> float:
    """The one-sided lower confidence bound of the mean of independent values in [−1, 1], whatever their distribution.

    Waudby-Smith and Ramdas (2024), the upward half of the hedged capital process for a fixed number of values. For a
    candidate mean m, a capital of 1 is bet on values above m; each bet uses the mean and the variance of the values
    before it. If m is the mean, the capital ever reaches 1/(1 − level) with a chance of at most 1 − level (Ville's
    inequality). The bound is the largest m at which it does; −1 where there is none.
    """
    if not all(-1 <= value <= 1 for value in values):
        raise InputError("a betting confidence bound: all values must lie in [−1, 1]")
    goal = -math.log(1 - level)
    shares = [(1 + value) / 2 for value in values]
    bets, total, squares = [], 0.5, 0.25
    for t, share in enumerate(shares, 1):
        bets.append(math.sqrt(2 * goal * t / (squares * len(shares))))
        total += share
        squares += (share - total / (t + 1)) ** 2

    def reached(m: float) -> bool:
        capital = 0.0
        for bet, share in zip(bets, shares, strict=True):
            capital += math.log1p(min(bet, BET / m) * (share - m))
            if capital >= goal:
                return True
        return False

    # Every factor falls as m grows, so bisection finds the largest m.
    low, high = 0.0, 1.0
    while high - low > 1e-9:
        m = (low + high) / 2
        low, high = (m, high) if reached(m) else (low, m)
    return 2 * low - 1


def mean_std(values: list[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation; fewer than two values have none."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def chance(class_sizes: Iterable[int]) -> float:
    """The accuracy of the best constant answer: the share of the largest class among the evaluated images."""
    sizes = list(class_sizes)
    return max(sizes) / sum(sizes)


def class_text(number: int, name: str | None) -> str:
    """A class by its number, with its name on one line where it has another one: ``class 2 (cat)``."""
    line = " ".join(printable(name or "").split())
    return f"class {number}" if line in ("", str(number)) else f"class {number} ({line})"


def not_above_chance(name: str, constant_answers: int = 0, *, runs: int = 1) -> str:
    """Why the gap of an algorithm is no evidence; ``constant_answers`` counts its runs that answer always the same."""
    if not constant_answers:
        return f"{name} did not get above chance"
    where = f" in {constant_answers} of {runs} runs" if runs > 1 else ""
    return f"{name} gives the same answer to every image{where}"


def chance_remark(name: str, constant_answers: int = 0, *, runs: int = 1) -> str:
    """The remark on an algorithm that did not train above chance."""
    return f"{not_above_chance(name, constant_answers, runs=runs)}: its gap says nothing."
