"""Estimates over seeds and images: their intervals cover the true value."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from freeat.experiments.paper.estimate import (
    ErrorEstimate,
    average,
    beyond_proportion,
    exponent,
    proportion_error,
    seed_mean,
    smallest,
)

finite = st.floats(-1, 1)
errors = st.floats(1e-4, 0.2)
estimates = st.builds(
    ErrorEstimate.of, mean=finite, std=st.none() | errors, seeds=st.integers(2, 9), image_error=errors
)


def test_interval_without_image_error_is_students() -> None:
    values = [0.31, 0.35, 0.36, 0.30]
    mean = seed_mean(values, [0.0] * 4)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (mean.low, mean.high) == pytest.approx((low, high))
    assert mean.std == pytest.approx(np.std(values, ddof=1))


def test_one_seed_has_the_error_of_its_images_only() -> None:
    mean = seed_mean([0.4], [0.01])
    assert mean.std is None
    assert mean.high - mean.low == pytest.approx(2 * 1.959964 * 0.01)
    assert ErrorEstimate.of_mean(mean).interval() == (mean.low, mean.high)


def test_the_interval_of_a_proportion_lies_between_0_and_1() -> None:
    mean = seed_mean([0.0, 0.02], [0.01, 0.01], (0, 1))
    assert mean.low == 0 < mean.high
    assert ErrorEstimate.of_mean(mean).interval()[0] < 0, "differences keep the whole error"


def test_two_samples_of_seeds_are_compared_as_welch_does() -> None:
    one, other = [0.3, 0.34, 0.32], [0.5, 0.61, 0.55, 0.56]
    difference = ErrorEstimate.of_mean(seed_mean(other, [0.0] * 4)) - ErrorEstimate.of_mean(
        seed_mean(one, [0.0] * 3)
    )
    expected = stats.ttest_ind(other, one, equal_var=False).confidence_interval(0.95)
    assert difference.interval() == pytest.approx((expected.low, expected.high))
    assert difference.seeds == 3


@given(estimates, estimates, finite)
def test_differences_are_antisymmetric_and_shift(a: ErrorEstimate, b: ErrorEstimate, constant: float) -> None:
    low, high = (a - b).interval()
    assert (b - a).interval() == pytest.approx((-high, -low))
    assert (a - b).plus(constant).interval() == pytest.approx((low + constant, high + constant))
    assert (a - b).variance == pytest.approx(a.variance + b.variance)


@given(estimates, st.floats(0.5, 0.9))
def test_intervals_of_lower_levels_lie_inside(a: ErrorEstimate, level: float) -> None:
    (low, high), (inner_low, inner_high) = a.interval(), a.interval(level)
    assert low <= inner_low <= a.value <= inner_high <= high


@given(st.lists(estimates, min_size=1, max_size=6))
def test_an_average_has_no_smaller_error_than_its_members(members: list[ErrorEstimate]) -> None:
    mean = average(members)
    assert mean.value == pytest.approx(np.mean([e.value for e in members]))
    assert min(e.variance for e in members) <= mean.variance * (1 + 1e-9)
    assert mean.variance <= max(e.variance for e in members) * (1 + 1e-9)


def test_the_interval_covers_seeds_and_shared_test_images() -> None:
    """An accuracy that varies by seed, seen on images that all seeds share: 95 % of intervals hold the truth."""
    rng = np.random.default_rng(0)
    truth, spread, images, seeds, repeats = 0.3, 0.02, 400, 3, 1500
    held = 0
    for _ in range(repeats):
        accuracies = rng.normal(truth, spread, seeds)
        draws = rng.random(images)  # how hard each image is: common to the seeds
        values = [float((draws < p).mean()) for p in accuracies]
        mean = seed_mean(values, [proportion_error(p, images) for p in values])
        held += mean.low <= truth <= mean.high
    assert 0.94 <= held / repeats <= 0.995


def test_the_smallest_of_several_is_covered() -> None:
    rng = np.random.default_rng(1)
    truths, error, repeats = np.array([0.05, 0.06, 0.05, 0.2]), 0.02, 1500
    held = 0
    for _ in range(repeats):
        seen = rng.normal(truths, error)
        value, low, high = smallest(
            [ErrorEstimate.of(mean=v, std=None, seeds=1, image_error=error) for v in seen]
        )
        assert low <= value <= high
        held += low <= truths.min() <= high
    assert held / repeats >= 0.945


@given(estimates)
def test_the_smallest_of_one_is_that_one(a: ErrorEstimate) -> None:
    assert smallest([a]) == pytest.approx((a.value, *a.interval()))


def test_exponent_and_its_error_are_recovered() -> None:
    sizes = [256, 512, 1024, 4096]
    gaps = [ErrorEstimate.of(mean=3 * n**-0.4, std=None, seeds=3, image_error=0.001) for n in sizes]
    fitted = exponent(sizes, gaps)
    assert fitted is not None
    assert fitted.value == pytest.approx(0.4)
    rng = np.random.default_rng(2)
    logs = np.log(sizes)
    again = [
        -np.polyfit(
            logs, np.log([g.value + e for g, e in zip(gaps, rng.normal(0, 0.001, 4), strict=True)]), 1
        )[0]
        for _ in range(3000)
    ]
    assert math.sqrt(fitted.variance) == pytest.approx(np.std(again), rel=0.05)


def test_there_is_no_exponent_without_two_sizes_or_a_gap() -> None:
    gap = ErrorEstimate.of(mean=0.1, std=None, seeds=1, image_error=0.01)
    assert exponent([256], [gap]) is None
    assert exponent([256, 256], [gap, gap]) is None
    assert exponent([256, 512], [gap, gap.times(-1)]) is None


@pytest.mark.parametrize("ends", [(0.4, 0.2), (0.4, 0.35), (0.1, 0.0), (0.02, -0.01)])
def test_a_fall_beyond_proportion_is_covered_also_where_it_ends_at_zero(ends: tuple[float, float]) -> None:
    rng = np.random.default_rng(3)
    truth, spread, seeds, repeats = np.array([*ends, 0.8, 0.7]), 0.02, 3, 1500
    held = 0
    for _ in range(repeats):
        first, last, start, end = (
            ErrorEstimate.of_mean(seed_mean(rng.normal(t, spread, seeds).tolist(), [0.0] * seeds))
            for t in truth
        )
        low, high = beyond_proportion((first, last), (start, end)).interval()
        held += low <= truth[0] * truth[3] / truth[2] - truth[1] <= high
    assert 0.93 <= held / repeats <= 0.995


def test_a_proportional_fall_gives_zero() -> None:
    one, half = (
        ErrorEstimate.of(mean=m, std=0.01, seeds=s, image_error=0.01) for m, s in ((0.4, 5), (0.2, 3))
    )
    level = beyond_proportion((one, half), (one.times(2), half.times(2)))
    assert level.value == pytest.approx(0)
    assert level.seeds == 3


@given(st.floats(0, 1), st.integers(2, 10_000))
def test_a_proportion_has_an_error_unless_all_were_seen(p: float, n: int) -> None:
    assert proportion_error(p, n) > 0
    assert proportion_error(p, n, n) == 0
    assert proportion_error(p, n, 2 * n) < proportion_error(p, n)


def test_estimates_of_the_same_seeds_are_compared_in_pairs() -> None:
    one, other = [0.3, 0.5, 0.4, 0.9], [0.35, 0.52, 0.47, 0.95]
    first, second = (
        ErrorEstimate.of_mean(seed_mean(values, [0.0] * 4, of_seeds=range(4))) for values in (one, other)
    )
    expected = stats.ttest_rel(other, one).confidence_interval(0.95)
    assert (second - first).interval() == pytest.approx((expected.low, expected.high))
    assert (second - first).freedom == 3
    assert (second - first).p_above(0) == pytest.approx(
        stats.ttest_rel(other, one, alternative="greater").pvalue
    )


def test_pairs_are_the_seeds_that_both_have() -> None:
    first = ErrorEstimate.of_mean(seed_mean([0.5, 0.6, 0.9], [0.01] * 3, of_seeds=(0, 2, 1)))
    second = ErrorEstimate.of_mean(seed_mean([0.2, 0.1], [0.01] * 2, of_seeds=(2, 0)))
    difference = first - second
    assert difference.by_seed == pytest.approx({0: 0.4, 2: 0.4})
    assert difference.value == pytest.approx(0.4)
    assert difference.seeds == 2
    assert difference.variance == pytest.approx(2 * 0.01**2), (
        "the seeds agree; what is left is due to the images"
    )
    apart = first - ErrorEstimate.of_mean(seed_mean([0.2, 0.1], [0.01] * 2, of_seeds=(7, 8)))
    assert apart.by_seed == {}
    assert apart.value == pytest.approx(2 / 3 - 0.15)


def test_the_mean_of_paired_differences_is_students() -> None:
    """Panels that share their seeds: one number per seed, the mean over the panels."""
    panels = np.array([[0.1, 0.3, 0.2], [0.4, 0.0, 0.3]])
    made = [ErrorEstimate.of_mean(seed_mean(row, [0.0] * 3, of_seeds=range(3))) for row in panels.tolist()]
    whole = average(made)
    expected = stats.ttest_1samp(panels.mean(axis=0), 0).confidence_interval(0.95)
    assert whole.interval() == pytest.approx((expected.low, expected.high))
    assert whole.seeds == 3


def test_p_values_agree_with_intervals() -> None:
    for estimate in (
        ErrorEstimate.of(mean=0.1, std=None, seeds=1, image_error=0.02),
        ErrorEstimate.of(mean=0.1, std=0.03, seeds=3, image_error=0.02),
    ):
        low, high = estimate.interval()
        assert estimate.p_above(low) == pytest.approx(0.025)
        assert 1 - estimate.p_above(high) == pytest.approx(0.025)
    exact = ErrorEstimate(value=0.1, seeds=3)
    assert [exact.p_above(bound) for bound in (0.0, 0.1, 0.2)] == [0.0, 1.0, 1.0]
