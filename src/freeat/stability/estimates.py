"""Uniform stability and exponents in n, estimated with 95 % intervals by bootstrap over the seeds."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from freeat.errors import InputError
from freeat.rng import stream_key

Array = NDArray[np.float64]
RESAMPLES = 2000
AT_ONCE = 50
"""Resamples that are evaluated at once: each has a number for every pair of neighbour and probe."""


@dataclass(frozen=True, kw_only=True)
class BootstrapEstimate:
    """A value with its 95 % interval; ``low`` and ``high`` are None where one seed shows no spread."""

    value: float
    low: float | None = None
    high: float | None = None


def uniform_stability(differences: Array) -> BootstrapEstimate:
    """Definition 1: the largest over (S′, x) of E_A[max_δ h(A(S), δ; x) − max_δ h(A(S′), δ; x)].

    ``differences`` has shape (seeds, neighbours, probes) and is signed. A maximum of noisy means is biased
    upwards, so the maximizing pair (and the order of S and S′) is chosen on one half of the seeds and valued on
    the other, both ways, and the two values are averaged. The interval resamples the seeds of each half.
    """
    flat = _flattened(differences)
    halves = flat[0::2], flat[1::2]
    if not len(halves[1]):
        raise InputError(
            "uniform stability from 1 seed: run at least 2, to choose on one and value on another"
        )

    def valued(weights: tuple[Array, Array]) -> Array:
        means = [w @ half for w, half in zip(weights, halves, strict=True)]
        values = [_value(means[0], means[1]), _value(means[1], means[0])]
        return np.asarray(np.mean(values, axis=0))

    return _bootstrapped(valued, tuple(len(half) for half in halves))


def mean_largest(differences: Array) -> BootstrapEstimate:
    """The average over seeds of the largest absolute difference: at least the uniform stability, and no expectation."""
    return mean_estimate(np.abs(_flattened(differences)).max(1))


def mean_estimate(values: Array) -> BootstrapEstimate:
    """The mean of one number per seed."""
    values = np.asarray(values, dtype=np.float64)

    def mean(weights: tuple[Array, ...]) -> Array:
        return np.asarray(weights[0] @ values)

    return _bootstrapped(mean, (len(values),))


def _flattened(differences: Array) -> Array:
    if differences.ndim != 3 or 0 in differences.shape:
        raise InputError(
            f"differences of shape {differences.shape}: must be (seeds, neighbours, probes), none empty"
        )
    return np.asarray(differences, dtype=np.float64).reshape(len(differences), -1)


def _value(chosen_on: Array, valued_on: Array) -> Array:
    """The mean at the pair that is largest in absolute value elsewhere, with the sign it has there."""
    at = np.abs(chosen_on).argmax(-1)[..., None]
    sign = np.sign(np.take_along_axis(chosen_on, at, -1))
    return np.asarray((sign * np.take_along_axis(valued_on, at, -1))[..., 0])


def _bootstrapped(statistic: Callable[..., Array], sizes: tuple[int, ...]) -> BootstrapEstimate:
    """The statistic of all seeds and its percentile interval; it is a function of weights over the seeds."""
    value = float(statistic(tuple(np.full(size, 1 / size) for size in sizes)))
    if min(sizes) < 2:
        return BootstrapEstimate(value=value)
    rng = np.random.default_rng(stream_key(0, "bootstrap", *sizes))
    weights = tuple(rng.multinomial(size, np.full(size, 1 / size), RESAMPLES) / size for size in sizes)
    chunks = [slice(first, first + AT_ONCE) for first in range(0, RESAMPLES, AT_ONCE)]
    found = np.concatenate([statistic(tuple(w[chunk] for w in weights)) for chunk in chunks])
    low, high = np.percentile(found, (2.5, 97.5))
    return BootstrapEstimate(value=value, low=float(low), high=float(high))


def fitted_exponent(sizes: Array, values: Array) -> BootstrapEstimate | None:
    """a in value ∝ n^(−a) from values (seeds, sizes): least squares on the means' logarithms, bootstrap over seeds.

    None where a mean is not positive and has no logarithm. Where some resampled mean is not, there is no interval:
    one from the others only would be too narrow.
    """
    x = np.log(sizes) - np.log(sizes).mean()
    rng = np.random.default_rng(0)
    draws = rng.integers(0, len(values), (1000, len(values)))

    def slope(means: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(-(np.log(means) @ x) / (x @ x))

    value = float(slope(values.mean(0)))
    spread = slope(values[draws].mean(1))
    if not np.isfinite(value):
        return None
    if len(values) < 2 or not np.isfinite(spread).all():
        return BootstrapEstimate(value=value)
    low, high = np.percentile(spread, (2.5, 97.5))
    return BootstrapEstimate(value=value, low=float(low), high=float(high))
