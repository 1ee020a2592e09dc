"""The gap at equal training accuracy: closed forms, pairing, and coverage of the interval."""

import numpy as np
import pytest
from scipy import stats

from freeat.errors import InputError
from freeat.evaluation.matched import (
    FEW_SEEDS,
    ImageOutcomes,
    LearningCurves,
    best_minus_last,
    matched_gap,
    mean_interval,
    paired_difference,
    robust_overfitting,
)


def curves(fit, gap, seeds: int = 1) -> LearningCurves:
    return LearningCurves(
        fit=np.tile(fit, (seeds, 1)).astype(float), gap=np.tile(gap, (seeds, 1)).astype(float)
    )


def test_curves_on_one_line_have_no_difference_at_equal_fit() -> None:
    """The gap is a function of the fit, whatever the speed at which an algorithm gets there."""
    quick, slow = np.array([0.1, 0.5, 0.9]), np.array([0.1, 0.2, 0.3, 0.6])
    found = matched_gap(curves(quick, 2 * quick), curves(slow, 2 * slow))
    assert found.level == pytest.approx(0.6)
    assert found.first == pytest.approx(1.2)
    assert found.difference.value == pytest.approx(0)
    assert found.difference.low is None


def test_the_gap_is_read_by_linear_interpolation_where_the_level_is_first_reached() -> None:
    found = matched_gap(curves([0.0, 1.0], [0.0, 4.0]), curves([0.0, 0.5, 0.5], [0.0, 1.0, 3.0]))
    assert found.first == pytest.approx(2.0)
    assert found.second == pytest.approx(1.0)


def test_a_curve_that_falls_is_made_monotone_first() -> None:
    found = matched_gap(curves([0.0, 0.6, 0.4], [0.0, 1.0, 2.0]), curves([0.0, 1.0], [0.0, 1.0]))
    assert found.level == pytest.approx(0.5)


@pytest.mark.parametrize("seeds", [3, 24])
def test_the_interval_covers_the_true_difference(seeds: int) -> None:
    """Nominal 95 %: seeds share their noise between the two algorithms, as paired runs do."""
    rng = np.random.default_rng(0)
    t = np.linspace(0, 1, 8)
    covered, repeats = 0, 120
    for _ in range(repeats):
        shared = rng.normal(0, 0.05, (seeds, 1))
        one = LearningCurves(fit=t * (0.9 + shared), gap=0.5 * t + shared + rng.normal(0, 0.02, (seeds, 1)))
        two = LearningCurves(fit=t * (0.9 + shared), gap=0.4 * t + shared + rng.normal(0, 0.02, (seeds, 1)))
        found = matched_gap(one, two).difference
        covered += found.low <= 0.1 <= found.high
    assert covered >= 0.88 * repeats


@pytest.mark.parametrize("seeds", [3, 24])
def test_with_outcomes_of_images_the_interval_covers_the_choice_of_test_images(seeds: int) -> None:
    """Two algorithms with the same risks, right on different images: all seeds share the 100 test images."""
    rng = np.random.default_rng(1)
    fits, times, n = np.linspace(0.3, 0.9, 5), 5, 100
    covered, narrow, repeats = 0, 0, 60
    for _ in range(repeats):
        both = []
        for _ in range(2):
            easy = rng.random((1, 1, n))  # how easy an image is for an algorithm, whatever the seed
            noise = rng.random((seeds, times, n))
            test = (0.9 * easy + 0.1 * noise < 0.5).astype(np.uint8)
            train = np.broadcast_to(np.arange(n) < fits[:, None] * n, (seeds, times, n)).astype(np.uint8)
            both.append((train, test))
        made = [
            LearningCurves(
                fit=train.mean(-1),
                gap=train.mean(-1) - test.mean(-1),
                outcomes=ImageOutcomes(train=train, test=test, all_train=True),
            )
            for train, test in both
        ]
        found = matched_gap(*made)
        bare = matched_gap(*(LearningCurves(fit=c.fit, gap=c.gap) for c in made)).difference
        covered += found.difference.low <= 0 <= found.difference.high
        narrow += bare.low is not None and bare.low <= 0 <= bare.high
        assert found.method.endswith("images")
    assert covered >= 0.88 * repeats
    assert narrow < 0.7 * repeats


def test_student_intervals_have_their_closed_form() -> None:
    found = mean_interval(np.array([1.0, 2.0, 3.0]))
    assert found.value == 2
    assert found.high - found.value == pytest.approx(4.302653 / 3**0.5)
    assert not paired_difference(np.array([1.0, 2.0]), np.array([1.0, 2.0])).excludes_zero


@pytest.mark.parametrize("values", [[0.4, 0.4, 0.4], [0.5 - 0.1, 0.7 - 0.3, 0.4], [0.0, 0.0]], ids=str)
def test_seeds_that_agree_exactly_decide_nothing(values: list[float]) -> None:
    found = mean_interval(np.array(values))
    assert found.value == pytest.approx(values[0])
    assert (found.low, found.high) == (None, None)
    assert not found.excludes_zero
    with_images = mean_interval(np.array(values), images=0.01)
    assert with_images.high == pytest.approx(found.value + 1.959964 * 0.1)


@pytest.mark.parametrize("seeds", [3, FEW_SEEDS])
def test_equal_curves_of_several_seeds_have_no_interval(seeds: int) -> None:
    found = matched_gap(curves([0.0, 1.0], [0.0, 4.0], seeds), curves([0.0, 0.5], [0.0, 1.0], seeds))
    assert found.difference.value == pytest.approx(1.0)
    assert found.difference.low is None
    assert found.method == f"none, as {seeds} seeds agree exactly"


@pytest.mark.parametrize("images", [0.0, 0.0004])
def test_p_values_agree_with_students_t_and_the_interval(images: float) -> None:
    values = np.array([0.02, 0.05, 0.11])
    found = mean_interval(values, images)
    if not images:
        assert found.p == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    at_zero = mean_interval(values - (found.value - (found.high - found.value)), images)
    assert at_zero.low == pytest.approx(0)
    assert at_zero.p == pytest.approx(0.05)
    assert mean_interval(values * 0 + 0.1).p is None


def test_a_bootstrap_that_excludes_zero_has_a_p_value_of_at_most_its_level() -> None:
    rng, t, seen = np.random.default_rng(3), np.linspace(0, 1, 5), []
    for shift in np.linspace(0, 0.05, 21):
        fit = np.tile(t, (24, 1))
        one, two = (
            LearningCurves(fit=fit, gap=(0.4 + s) * t + rng.normal(0, 0.03, (24, 1))) for s in (shift, 0)
        )
        found = matched_gap(one, two).difference
        assert found.excludes_zero == (found.p <= 0.05)
        seen.append(found.excludes_zero)
    assert {True, False} == set(seen)


def test_unpaired_or_misshapen_curves_are_refused() -> None:
    with pytest.raises(InputError, match="paired"):
        matched_gap(curves([0, 1], [0, 1], 2), curves([0, 1], [0, 1], 3))
    with pytest.raises(InputError, match="seeds, times"):
        LearningCurves(fit=np.zeros((2, 3)), gap=np.zeros((2, 4)))


def test_curves_that_begin_above_the_other_share_no_level() -> None:
    low, high = curves([0.1, 0.4], [0.0, 0.1]), curves([0.5, 0.9], [0.0, 0.3])
    assert matched_gap(low, high) is None
    assert matched_gap(high, low) is None
    assert matched_gap(low, curves([0.3, 0.9], [0.0, 0.3])) is not None


def outcomes(counts, n: int) -> np.ndarray:
    """Outcomes of n images of which the given numbers, (seeds, times, 2), are right in even and in odd rows."""
    counts = np.asarray(counts)
    right = np.zeros((*counts.shape[:2], n), np.uint8)
    for half in (0, 1):
        images = right[..., half::2]
        images[...] = np.arange(images.shape[-1]) < counts[..., half, None]
    return right


def test_best_checkpoint_is_chosen_on_one_half_and_evaluated_on_the_other() -> None:
    right = np.array([[[10, 20], [40, 25], [30, 45], [20, 25]]])
    found = robust_overfitting(outcomes(right, 100))
    # half 1 chooses the second checkpoint, 25 - 25 on half 2; half 2 chooses the third, 30 - 20 on half 1
    assert found.difference.value == pytest.approx((0 + 10) / 50 / 2)
    assert found.same_images == pytest.approx((75 - 45) / 100)
    assert found.difference.low is None
    assert (found.evaluations, found.n) == (4, 100)


def test_halves_of_an_odd_number_of_images_have_their_own_sizes() -> None:
    assert robust_overfitting(outcomes([[[3, 2], [0, 0]]], 5)).difference.value == 1.0


def test_last_checkpoint_is_chosen_among_equals() -> None:
    assert robust_overfitting(outcomes([[[5, 9], [5, 4], [5, 4]]], 20)).difference.value == 0.0


def test_cross_fitted_best_minus_last_is_near_zero_on_noise() -> None:
    """40 checkpoints of the same accuracy, 256 test images: chosen on the same images the best is points above."""
    rng = np.random.default_rng(0)
    found = robust_overfitting(rng.integers(0, 2, (400, 40, 256), np.uint8))
    assert abs(found.difference.value) < 0.006
    assert not found.difference.excludes_zero
    assert found.same_images > 0.05


def test_cross_fitted_best_minus_last_finds_what_is_there() -> None:
    rng = np.random.default_rng(1)
    truth = np.concatenate([np.linspace(0.3, 0.5, 20), np.linspace(0.5, 0.4, 20)])
    found = robust_overfitting((rng.random((100, 40, 1000)) < truth[:, None]).astype(np.uint8))
    assert found.difference.value == pytest.approx(0.1, abs=0.02)


def test_best_minus_last_covers_the_choice_of_test_images() -> None:
    """The last checkpoint is right on other images than the best one; all seeds share the 100 test images."""
    rng = np.random.default_rng(2)
    covered, narrow, repeats, n = 0, 0, 200, 100
    for _ in range(repeats):
        best, last = rng.random((2, 1, n)) < [[[0.8]], [[0.5]]]
        noise = rng.random((4, 2, n)) < 0.05
        right = np.stack([np.broadcast_to(best, (4, n)), np.broadcast_to(last, (4, n))], 1) ^ noise
        found = robust_overfitting(right.astype(np.uint8)).difference
        truth = 0.3 * 0.9
        counts = np.stack([right[..., 0::2].sum(-1), right[..., 1::2].sum(-1)], -1)
        bare = mean_interval(best_minus_last(counts, n))
        covered += found.low <= truth <= found.high
        narrow += bare.low <= truth <= bare.high
    assert covered >= 0.9 * repeats
    assert narrow < 0.7 * repeats


def test_outcomes_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(InputError, match="seeds, times, images"):
        robust_overfitting(np.zeros((3, 4), np.uint8))
    with pytest.raises(InputError, match="two images or more"):
        robust_overfitting(np.zeros((3, 4, 1), np.uint8))
