"""What learning curves say: the gaps of two algorithms at equal fit, and robust overfitting.

At the same number of updates an algorithm that fits less has a smaller gap for that reason alone. Here the gap is read
from the learning curves at a training accuracy (or one minus a training risk) that both reach. Robust overfitting is
the best robust test accuracy during training minus the last.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.stats import t as student

from freeat.errors import InputError
from freeat.rng import stream_key

Array = NDArray[np.float64]
RESAMPLES = 1000
FEW_SEEDS = 20
"""Below this number of seeds a bootstrap over seeds is too narrow: Student's t on jackknife values is used instead."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value with its 95 % interval; None where one seed shows no spread."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True, kw_only=True)
class MatchedGap:
    """The gaps of two algorithms at the training accuracy ``level``, and the first minus the second."""

    level: float
    first: float
    second: float
    difference: Interval


@dataclass(frozen=True, kw_only=True, eq=False)
class LearningCurves:
    """Learning curves by seed: fit (training accuracy) and gap, each of shape (seeds, times)."""

    fit: Array
    gap: Array

    def __post_init__(self) -> None:
        if self.fit.shape != self.gap.shape or self.fit.ndim != 2 or 0 in self.fit.shape:
            raise InputError(
                f"curves of shapes {self.fit.shape} and {self.gap.shape}: give both as (seeds, times), none empty"
            )


@dataclass(frozen=True, kw_only=True)
class RobustOverfitting:
    """Best minus last robust test accuracy of ``evaluations`` checkpoints on ``n`` test images, mean over the seeds.

    ``difference`` is cross-fitted. ``same_images`` chooses and evaluates the best checkpoint on the same images, which
    gives a positive number where there is only noise.
    """

    difference: Interval
    same_images: float
    evaluations: int
    n: int


def robust_overfitting(right: NDArray[np.int64], n: int) -> RobustOverfitting:
    """Best minus last robust test accuracy: chosen on one half of the test images, evaluated on the other, both ways.

    Of several best checkpoints the latest is chosen.

    Args:
        right: the number of images that are right under the attack, of shape (seeds, times, halves); the first half has
            ⌈n/2⌉ images, the second ⌊n/2⌋.
        n: the number of test images.
    """
    if right.ndim != 3 or right.shape[-1] != 2 or 0 in right.shape or n < 2:
        raise InputError(
            f"{n} images, counts of shape {right.shape}: give (seeds, times, 2), none empty, and two images or more"
        )
    accuracy = right / np.array([n - n // 2, n // 2])
    times = accuracy.shape[1]
    best = times - 1 - accuracy[:, ::-1].argmax(1)  # (seeds, halves)
    chosen_on_other = np.take_along_axis(accuracy, best[:, None, ::-1], axis=1)[:, 0]
    values = (chosen_on_other - accuracy[:, -1]).mean(-1)
    on_all = right.sum(-1) / n
    return RobustOverfitting(
        difference=mean_interval(values),
        same_images=float((on_all.max(1) - on_all[:, -1]).mean()),
        evaluations=times,
        n=n,
    )


def paired_difference(first: Array, second: Array) -> Interval:
    """The mean of first − second over paired seeds, with Student's t interval."""
    return mean_interval(np.asarray(first) - np.asarray(second))


def mean_interval(values: Array) -> Interval:
    """The mean of one number per seed, with Student's t interval."""
    values = np.asarray(values, dtype=np.float64)
    return _student(float(values.mean()), values)


def matched_gap(first: LearningCurves, second: LearningCurves) -> MatchedGap:
    """The gaps at the largest training accuracy that both reach, paired by seed.

    Curves are averaged over seeds and made monotone in t by isotonic regression; the time at which they reach the level
    is found by linear interpolation, and the gap is read there. The level is found anew in every replicate.
    """
    seeds = len(first.fit)
    if len(second.fit) != seeds:
        raise InputError(
            f"{seeds} and {len(second.fit)} seeds: comparisons are paired, give the same seeds to both"
        )
    whole = np.full((1, seeds), 1 / seeds)
    level, one, two = (float(v[0]) for v in _read(first, second, whole))
    if seeds >= FEW_SEEDS:
        rng = np.random.default_rng(stream_key(0, "matched gap", seeds))
        weights = rng.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds
        _, ones, twos = _read(first, second, weights)
        low, high = np.percentile(ones - twos, (2.5, 97.5))
        difference = Interval(value=one - two, low=float(low), high=float(high))
    else:
        difference = _student(one - two, matched_differences(first, second))
    return MatchedGap(level=level, first=one, second=two, difference=difference)


def matched_differences(first: LearningCurves, second: LearningCurves) -> Array:
    """The jackknife values of the difference in ``matched_gap``, one per seed; the level is found anew for each."""
    seeds = len(first.fit)
    whole = np.full((1, seeds), 1 / seeds)
    left_out = (np.ones((seeds, seeds)) - np.eye(seeds)) / (seeds - 1) if seeds > 1 else whole
    _, one, two = _read(first, second, whole)
    _, ones, twos = _read(first, second, left_out)
    return seeds * (one - two) - (seeds - 1) * (ones - twos)


def pass_common_level(first: LearningCurves, second: LearningCurves) -> bool:
    """Whether the curves pass a common training accuracy: neither begins above the largest that the other reaches."""
    fits = [isotonic_regression(curve.fit.mean(0)).x for curve in (first, second)]
    return bool(max(fit[0] for fit in fits) <= min(fit[-1] for fit in fits))


def _student(value: float, values: Array) -> Interval:
    if len(values) < 2:
        return Interval(value=value)
    half = float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return Interval(value=value, low=value - half, high=value + half)


def _read(first: LearningCurves, second: LearningCurves, weights: Array) -> tuple[Array, Array, Array]:
    """Level and both gaps for every row of weights over the seeds."""
    found = []
    for row in weights:
        fits = [isotonic_regression(row @ curve.fit).x for curve in (first, second)]
        level = min(fit[-1] for fit in fits)
        gaps = [_gap_at(level, fit, row @ c.gap) for fit, c in zip(fits, (first, second), strict=True)]
        found.append((level, *gaps))
    columns = np.array(found).T
    return columns[0], columns[1], columns[2]


def _gap_at(level: float, fit: Array, gap: Array) -> float:
    """The gap where a monotone fit first reaches the level."""
    after = int(np.searchsorted(fit, level, side="left"))
    if after == 0:
        return float(gap[0])
    share = (level - fit[after - 1]) / (fit[after] - fit[after - 1])
    return float(gap[after - 1] + share * (gap[after] - gap[after - 1]))
