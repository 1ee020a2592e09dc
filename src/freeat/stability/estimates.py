"""Uniform stability with valid confidence bounds; exponents in n with intervals."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from freeat.errors import InputError
from freeat.evaluation.matched import (
    FEW_SEEDS,
    Array,
    Interval,
    bootstrap_interval,
    leave_one_out,
    mean_interval,
    student_interval,
)
from freeat.evaluation.statistics import betting_lower_bound
from freeat.rng import stream_key

RESAMPLES = 2000
AT_ONCE = 50
"""Resamples that are evaluated at once: each has a number for every pair of neighbour and probe."""
SEEDS_FOR_STUDENT = 20
"""Seeds in each half from which on Student's t is reported: with fewer it is far from its level."""
SEEDS_FOR_UPPER_LIMIT = 12


@dataclass(frozen=True, kw_only=True)
class UniformStability:
    """Definition 1 over the tested pairs (S′, x): an estimate, and what is known of the true value at 95 %.

    Attributes:
        value: the cross-fitted estimate. It may be negative, where one half of the seeds does not confirm the other.
        guaranteed_lower_bound: holds for every distribution of the differences and any number of seeds; 0 where the
            seeds guarantee nothing.
        approximate_lower_bound: from Student's t. Its coverage falls below 95 % where differences are bimodal. None
            with fewer than 20 seeds in a half.
        upper_limit: of the largest over the tested pairs only, by bootstrap. None with fewer than 12 seeds.
    """

    value: float
    guaranteed_lower_bound: float
    approximate_lower_bound: float | None = None
    upper_limit: float | None = None


def uniform_stability(differences: Array) -> UniformStability:
    """Definition 1: the largest over (S′, x) of E_A[max_δ h(A(S), δ; x) − max_δ h(A(S′), δ; x)].

    ``differences`` has shape (seeds, neighbours, probes), is signed and lies in [−1, 1], as differences of 1 − p_y
    do; S, its neighbours and the probes are the same for all seeds. A maximum of noisy means is biased upwards, so
    the maximizing pair (and the order of S and S′) is chosen on one half of the seeds and valued on the other, both
    ways: ``value`` is the mean of the two. Each way has an expectation of at most the uniform stability, so a lower
    confidence bound of it is one of the uniform stability; of two at 97.5 % the larger holds at 95 %.
    """
    flat = _flattened(differences)
    if not (np.abs(flat) <= 1).all():
        raise InputError("differences beyond [−1, 1]: take them in a loss with values in [0, 1], as 1 − p_y")
    first, second = flat[0::2], flat[1::2]
    if not len(second):
        raise InputError(
            "uniform stability from 1 seed: run at least 2, to choose on one and value on another"
        )
    ways = _valued(first, second), _valued(second, first)
    student = max(0.0, *(mean_interval(way).low or 0.0 for way in ways))
    return UniformStability(
        value=float(np.mean([way.mean() for way in ways])),
        guaranteed_lower_bound=max(0.0, *(betting_lower_bound(way.tolist(), 0.975) for way in ways)),
        approximate_lower_bound=student if len(second) >= SEEDS_FOR_STUDENT else None,
        upper_limit=_upper_limit(flat) if len(flat) >= SEEDS_FOR_UPPER_LIMIT else None,
    )


def mean_largest(differences: Array) -> Interval:
    """The average over seeds of the largest absolute difference: at least the uniform stability, and no expectation."""
    return mean_interval(np.abs(_flattened(differences)).max(1))


def _flattened(differences: Array) -> Array:
    if differences.ndim != 3 or 0 in differences.shape:
        raise InputError(
            f"differences of shape {differences.shape}: must be (seeds, neighbours, probes), none empty"
        )
    return np.asarray(differences, dtype=np.float64).reshape(len(differences), -1)


def _valued(chosen_on: Array, valued_on: Array) -> Array:
    """One number per seed of one half: the difference at the pair, and with the sign, of the other's largest mean."""
    means = chosen_on.mean(0)
    at = np.abs(means).argmax()
    return np.asarray(np.sign(means[at]) * valued_on[:, at])


def _upper_limit(flat: Array) -> float:
    """max|D̄| plus the 95 % quantile of max|D̄* − D̄| over resampled seeds; at most 1, as every difference is."""
    means, weights = flat.mean(0), _resamples(len(flat))
    parts = (weights[k : k + AT_ONCE] for k in range(0, RESAMPLES, AT_ONCE))
    errors = np.concatenate([np.abs(part @ flat - means).max(1) for part in parts])
    return float(min(1.0, np.abs(means).max() + np.quantile(errors, 0.95)))


@cache
def _resamples(seeds: int) -> Array:
    """The weights of the seeds in every bootstrap resample: (RESAMPLES, seeds)."""
    rng = np.random.default_rng(stream_key(0, "bootstrap", seeds))
    return np.asarray(rng.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds)


def fitted_exponent(sizes: Array, values: Array) -> Interval | None:
    """a in value ∝ n^(−a) from values (seeds, sizes), by least squares on the logarithms of the means.

    The interval is a bootstrap over the seeds; with fewer than ``FEW_SEEDS``, where that is too narrow, Student's t on
    jackknife values. None where a mean is not positive and has no logarithm. Where some resampled mean is not, there
    is no interval: one from the others only would be too narrow.
    """
    x = np.log(sizes) - np.log(sizes).mean()

    def slope(means: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(-(np.log(means) @ x) / (x @ x))

    seeds, value = len(values), float(slope(values.mean(0)))
    if not np.isfinite(value):
        return None
    if seeds < 2:
        return Interval(value=value)
    weights = leave_one_out(seeds) if seeds < FEW_SEEDS else _resamples(seeds)
    spread = slope(weights @ values)
    if not np.isfinite(spread).all():
        return Interval(value=value)
    if seeds < FEW_SEEDS:
        return student_interval(value, seeds * value - (seeds - 1) * spread)
    return bootstrap_interval(value, spread)
