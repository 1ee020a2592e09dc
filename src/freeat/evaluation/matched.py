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
ROUNDING = 1e-12
"""Values that differ by a smaller part of themselves are equal but for rounding."""
FEW_SEEDS = 20
"""Below this number of seeds a bootstrap over seeds is too narrow: Student's t on jackknife values is used instead."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value with its 95 % interval; None where one seed, or seeds that agree exactly, show no spread.

    ``p`` is that of the two-sided test that the truth is 0, by what made the interval; None where it was not computed.
    """

    value: float
    low: float | None = None
    high: float | None = None
    p: float | None = None

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True, kw_only=True)
class MatchedGap:
    """The gaps of two algorithms at the training accuracy ``level``, and the first minus the second.

    ``method`` says how the interval of the difference was made.
    """

    level: float
    first: float
    second: float
    difference: Interval
    method: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageOutcomes:
    """1 for every image that is right and 0 for the others, of shape (seeds, times, images), on both splits.

    ``all_train``: the training images are all of S, so that another sample of them is not conceivable.
    """

    train: NDArray[np.uint8]
    test: NDArray[np.uint8]
    all_train: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class LearningCurves:
    """Learning curves by seed: fit (training accuracy) and gap, each of shape (seeds, times).

    With ``outcomes``, fit is their mean over the training images, and gap that minus their mean over the test images.
    """

    fit: Array
    gap: Array
    outcomes: ImageOutcomes | None = None

    def __post_init__(self) -> None:
        if self.fit.shape != self.gap.shape or self.fit.ndim not in (2, 3) or 0 in self.fit.shape:
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


def robust_overfitting(right: NDArray[np.uint8]) -> RobustOverfitting:
    """Best minus last robust test accuracy: chosen on one half of the test images, evaluated on the other, both ways.

    The halves are the images in even and in odd rows. Of several best checkpoints the latest is chosen.

    Args:
        right: 1 for every test image that is right under the attack and 0 for the others, of shape
            (seeds, times, images).
    """
    if right.ndim != 3 or 0 in right.shape or (n := right.shape[-1]) < 2:
        raise InputError(
            f"outcomes of shape {right.shape}: give (seeds, times, images), none empty, and two images or more"
        )
    halves = right[..., 0::2], right[..., 1::2]
    counts = np.stack([half.sum(-1, dtype=np.int64) for half in halves], -1)
    best = _best(counts)
    images = 0.0
    for half, chosen in zip(halves, (best[:, 1], best[:, 0]), strict=True):
        lost = np.take_along_axis(half, chosen[:, None, None], 1)[:, 0] - half[:, -1].astype(np.float64)
        images += mean_variance(lost.mean(0)) / 4
    on_all = right.mean(-1)
    return RobustOverfitting(
        difference=mean_interval(best_minus_last(counts, n), images),
        same_images=float((on_all.max(1) - on_all[:, -1]).mean()),
        evaluations=right.shape[1],
        n=n,
    )


def best_minus_last(right: NDArray[np.int64], n: int) -> Array:
    """The difference of ``robust_overfitting`` of every seed.

    ``right`` counts the images that are right, of shape (seeds, times, halves); the first half has ⌈n/2⌉ of the n.
    """
    accuracy = right / np.array([n - n // 2, n // 2])
    chosen_on_other = np.take_along_axis(accuracy, _best(right)[:, None, ::-1], axis=1)[:, 0]
    return np.asarray((chosen_on_other - accuracy[:, -1]).mean(-1))


def _best(right: NDArray[np.int64]) -> NDArray[np.int64]:
    """The latest of the best checkpoints on each half, of shape (seeds, halves)."""
    return np.asarray(right.shape[1] - 1 - right[:, ::-1].argmax(1))


def paired_difference(first: Array, second: Array, images: float = 0.0) -> Interval:
    """The mean of first − second over paired seeds, with Student's t interval; ``images`` as in it."""
    return mean_interval(np.asarray(first) - np.asarray(second), images)


def mean_interval(values: Array, images: float = 0.0) -> Interval:
    """The mean of one number per seed, with Student's t interval; ``images`` as in it."""
    values = np.asarray(values, dtype=np.float64)
    return student_interval(float(values.mean()), values, images)


def mean_variance(of_images: Array) -> float:
    """The variance that the choice of images adds to a mean over them; of one image it is not known, 0."""
    return float(of_images.var(ddof=1)) / len(of_images) if len(of_images) > 1 else 0.0


def matched_gap(first: LearningCurves, second: LearningCurves) -> MatchedGap | None:
    """The gaps at the largest training accuracy that both reach, paired by seed; None where the curves pass none in
    common: one begins above all that the other reaches.

    Curves are averaged over seeds and made monotone in t by isotonic regression; the time at which they reach the level
    is found by linear interpolation, and the gap is read there. The level is found anew in every replicate.

    With ``FEW_SEEDS`` and more the interval is a bootstrap over paired seeds. A bootstrap over three seeds is their
    range, which covers 75 %: with fewer it is Student's t on jackknife values. Where the outcomes of all images are
    known, the images are drawn anew too, the same for both algorithms and all times: in the bootstrap together with
    the seeds, otherwise as a second source of error with Satterthwaite's degrees of freedom.
    """
    seeds = len(first.fit)
    if len(second.fit) != seeds:
        raise InputError(
            f"{seeds} and {len(second.fit)} seeds: comparisons are paired, give the same seeds to both"
        )
    fits = [isotonic_regression(curve.fit.mean(0)).x for curve in (first, second)]
    if max(fit[0] for fit in fits) > min(fit[-1] for fit in fits):
        return None
    whole = np.full((1, seeds), 1 / seeds)
    level, one, two = (float(v[0]) for v in _read(first, second, whole))
    rng = np.random.default_rng(stream_key(0, "matched gap", seeds))
    weights = rng.multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES) / seeds
    images = _other_images(first, second, rng)
    if seeds >= FEW_SEEDS:
        method = f"bootstrap over {seeds} paired seeds{' and images' if images else ''}"
        _, ones, twos = _read(*(images or (first, second)), weights)
        difference = bootstrap_interval(one - two, ones - twos)
    else:
        method = f"Student's t over {seeds} paired seeds{' and a bootstrap over images' if images else ''}"
        spread = 0.0
        if images:
            _, ones, twos = _read(*images, np.repeat(whole, RESAMPLES, 0))
            spread = float((ones - twos).var(ddof=1))
        difference = student_interval(one - two, matched_differences(first, second), spread)
    if difference.low is None:
        method = "none, with one seed" if seeds == 1 else f"none, as {seeds} seeds agree exactly"
    return MatchedGap(level=level, first=one, second=two, difference=difference, method=method)


def _other_images(
    first: LearningCurves, second: LearningCurves, rng: np.random.Generator
) -> tuple[LearningCurves, LearningCurves] | None:
    """Both curves on ``RESAMPLES`` samples of their images, (resamples, seeds, times); None where they are not known.

    Both algorithms are evaluated on the same images, at all times.
    """
    one, two = first.outcomes, second.outcomes
    if one is None or two is None or one.train.shape[-1] != two.train.shape[-1]:
        return None
    if one.test.shape[-1] != two.test.shape[-1] or one.all_train != two.all_train:
        return None

    def drawn(n: int) -> Array:
        return rng.multinomial(n, np.full(n, 1 / n), RESAMPLES).T / n

    n = one.train.shape[-1]
    of_train = np.full((n, RESAMPLES), 1 / n) if one.all_train else drawn(n)
    of_test = drawn(one.test.shape[-1])

    def on_them(outcomes: ImageOutcomes) -> LearningCurves:
        fit: Array = np.moveaxis(outcomes.train @ of_train, -1, 0)
        return LearningCurves(fit=fit, gap=fit - np.moveaxis(outcomes.test @ of_test, -1, 0))

    return on_them(one), on_them(two)


def matched_differences(first: LearningCurves, second: LearningCurves) -> Array:
    """The jackknife values of the difference in ``matched_gap``, one per seed; the level is found anew for each."""
    seeds = len(first.fit)
    _, one, two = _read(first, second, np.full((1, seeds), 1 / seeds))
    _, ones, twos = _read(first, second, leave_one_out(seeds))
    return seeds * (one - two) - (seeds - 1) * (ones - twos)


def leave_one_out(seeds: int) -> Array:
    """The weights of the seeds in the means of all but one of them, a row for each; one seed is not left out."""
    return (np.ones((seeds, seeds)) - np.eye(seeds)) / (seeds - 1) if seeds > 1 else np.ones((1, 1))


def student_interval(value: float, values: Array, images: float = 0.0) -> Interval:
    """A value with Student's t interval, from one number per seed whose mean has its error.

    ``images`` is the variance that the choice of images adds. Where it is 0, seeds that agree exactly have no interval:
    they do not show how far another seed would be.
    """
    if len(values) < 2:
        return Interval(value=value)
    agree = float(np.ptp(values)) <= ROUNDING * float(np.abs(values).max())
    seeds = 0.0 if agree else float(values.var(ddof=1)) / len(values)
    total = seeds + images
    if total == 0:
        return Interval(value=value)
    freedom = (len(values) - 1) * (total / seeds) ** 2 if seeds else np.inf
    error = np.sqrt(total)
    half = float(student.ppf(0.975, freedom) * error)
    p = 2 * float(student.sf(abs(value) / error, freedom))
    return Interval(value=value, low=value - half, high=value + half, p=p)


def bootstrap_interval(value: float, replicates: Array) -> Interval:
    """A value with the 95 % range of its bootstrap replicates; replicates that are all equal show no spread."""
    if float(np.ptp(replicates)) <= ROUNDING * max(1.0, float(np.abs(replicates).max())):
        return Interval(value=value)
    low, high = np.percentile(replicates, (2.5, 97.5))
    beyond = max(1, min(int((replicates <= 0).sum()), int((replicates >= 0).sum())))
    p = min(1.0, 2 * beyond / len(replicates))
    return Interval(value=value, low=float(low), high=float(high), p=p)


def _read(first: LearningCurves, second: LearningCurves, weights: Array) -> tuple[Array, Array, Array]:
    """Level and both gaps for every row of weights over the seeds; of curves (resamples, seeds, times), by resample."""
    fitted, gapped = (
        [np.einsum("rs,st->rt" if part.ndim == 2 else "rs,rst->rt", weights, part) for part in parts]
        for parts in ((first.fit, second.fit), (first.gap, second.gap))
    )
    found = []
    for row in range(len(weights)):
        fits = [isotonic_regression(fit[row]).x for fit in fitted]
        level = min(fit[-1] for fit in fits)
        gaps = [_gap_at(level, fit, gap[row]) for fit, gap in zip(fits, gapped, strict=True)]
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
