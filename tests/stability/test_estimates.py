"""Uniform stability: unbiased where a plug-in maximum is not, with confidence bounds that cover."""

from collections.abc import Callable

import numpy as np
import pytest

from freeat.errors import InputError
from freeat.stability import UniformStability, estimates, mean_largest, uniform_stability

Draw = Callable[[np.random.Generator, int], np.ndarray]


def noisy(signal: np.ndarray, seeds: int, rng: np.random.Generator, noise: float = 0.1) -> np.ndarray:
    return signal + noise * rng.standard_normal((seeds, *signal.shape))


def two_valued(low: float, high: float, chance: float, shape: tuple[int, int]) -> Draw:
    """Differences that are ``high`` with a chance and ``low`` otherwise."""
    return lambda rng, seeds: np.where(rng.random((seeds, *shape)) < chance, high, low)


def one_bimodal_among_noise(rng: np.random.Generator, seeds: int) -> np.ndarray:
    draws = noisy(np.zeros((3, 8)), seeds, rng, noise=0.2).clip(-1, 1)
    draws[:, 1, 2] = np.where(rng.random(seeds) < 0.9, -0.8, 0.0)
    return draws


COVERAGE = {
    "bimodal, one pair": (two_valued(0.0, 0.8, 0.9, (1, 1)), 0.72),
    "bimodal, 24 pairs": (two_valued(0.0, 0.8, 0.9, (3, 8)), 0.72),
    "bimodal, one pair of 24": (one_bimodal_among_noise, 0.72),
    "rare, 24 pairs": (two_valued(0.0, 0.8, 0.1, (3, 8)), 0.08),
    "either sign, 24 pairs": (two_valued(-0.8, 0.8, 0.5, (3, 8)), 0.0),
    "Gaussian, 24 pairs": (lambda rng, seeds: noisy(np.zeros((3, 8)), seeds, rng), 0.0),
}
"""Differences of (seeds, neighbours, probes), and the largest absolute expectation."""


@pytest.mark.parametrize("seeds", [4, 8, 12, 20, 40])
@pytest.mark.parametrize("case", COVERAGE)
def test_bounds_of_uniform_stability_have_their_coverage(case: str, seeds: int) -> None:
    """The lower bound for any number of seeds, the upper limit wherever it is given: from 12 seeds on."""
    draw, truth = COVERAGE[case]
    rng = np.random.default_rng(seeds)
    found = [uniform_stability(draw(rng, seeds)) for _ in range(200)]
    assert np.mean([one.guaranteed_lower_bound <= truth for one in found]) >= 0.95
    if seeds >= 12:
        assert np.mean([one.upper_limit >= truth for one in found]) >= 0.95


def test_forty_seeds_guarantee_a_large_part_of_a_bimodal_difference() -> None:
    draw, truth = COVERAGE["bimodal, one pair of 24"]
    rng = np.random.default_rng(0)
    bounds = [uniform_stability(draw(rng, 40)).guaranteed_lower_bound for _ in range(50)]
    assert np.mean(bounds) > truth / 3


def test_bounds_are_given_from_their_number_of_seeds_on() -> None:
    signal = np.array([[0.1, -0.4]])
    for seeds, student, upper in ((11, False, False), (12, False, True), (39, False, True), (40, True, True)):
        nearly_equal = signal + 1e-6 * np.random.default_rng(seeds).normal(size=(seeds, 1, 2))
        found = uniform_stability(nearly_equal)
        assert (found.approximate_lower_bound is not None) is student
        assert (found.upper_limit is not None) is upper
    assert found.approximate_lower_bound == pytest.approx(0.4, abs=1e-5)
    assert found.upper_limit == pytest.approx(0.4, abs=1e-5)
    assert uniform_stability(np.broadcast_to(signal, (40, 1, 2))).approximate_lower_bound == 0.0


def test_approximate_lower_bound_covers_gaussian_differences() -> None:
    rng = np.random.default_rng(5)
    signal = np.zeros((3, 8))
    signal[1, 2] = 0.3
    bounds = [uniform_stability(noisy(signal, 40, rng)).approximate_lower_bound for _ in range(100)]
    assert np.mean([bound <= 0.3 for bound in bounds]) >= 0.93
    assert np.mean(bounds) > 0.2


def test_differences_beyond_one_are_refused() -> None:
    for value in (1.2, np.nan):
        with pytest.raises(InputError, match="beyond"):
            uniform_stability(np.full((4, 1, 1), value))


def test_uniform_stability_without_noise_is_the_largest_absolute_mean() -> None:
    signal = np.array([[0.1, -0.7], [0.3, 0.2]])
    found = uniform_stability(np.broadcast_to(signal, (6, 2, 2)))
    assert found.value == pytest.approx(0.7)


def test_uniform_stability_of_pure_noise_is_unbiased() -> None:
    """The plug-in maximum of 200 noisy means is far above 0; the split estimate is not."""
    rng = np.random.default_rng(0)
    found, plug_in = [], []
    for _ in range(60):
        draws = noisy(np.zeros((10, 20)), 10, rng)
        found.append(uniform_stability(draws).value)
        plug_in.append(np.abs(draws.mean(0)).max())
    assert abs(np.mean(found)) < 4 * np.std(found) / np.sqrt(60)
    assert np.mean(plug_in) > 0.07


def test_uniform_stability_of_a_clear_maximum_is_unbiased() -> None:
    rng = np.random.default_rng(1)
    signal = np.zeros((4, 5))
    signal[2, 3] = -0.2
    values = [uniform_stability(noisy(signal, 10, rng)).value for _ in range(60)]
    assert np.mean(values) == pytest.approx(0.2, abs=4 * np.std(values) / np.sqrt(60))


def test_mean_largest_is_at_least_uniform_stability() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        draws = noisy(rng.standard_normal((3, 4)), 8, rng).clip(-1, 1)
        assert mean_largest(draws).value >= uniform_stability(draws).value


@pytest.mark.parametrize("seeds", [3, 20])
def test_the_interval_of_a_mean_over_seeds_covers_it(seeds: int) -> None:
    """A percentile bootstrap of three seeds is their range, and covers 75 %."""
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(300):
        found = mean_largest(0.5 + 0.1 * rng.standard_normal((seeds, 1, 1)))
        hits += found.low <= 0.5 <= found.high
    assert 276 <= hits <= 296


@pytest.mark.parametrize("seeds", [3, 24])
def test_the_interval_of_an_exponent_covers_it(seeds: int) -> None:
    rng, sizes = np.random.default_rng(4), np.array([100.0, 200.0, 400.0])
    hits = 0
    for _ in range(200):
        values = sizes**-0.8 * (1 + 0.1 * rng.standard_normal((seeds, 3)))
        found = estimates.fitted_exponent(sizes, values)
        assert found is not None
        hits += found.low <= 0.8 <= found.high
    assert hits >= 180


@pytest.mark.parametrize("seeds", [3, 24])
def test_equal_seeds_have_no_interval_of_an_exponent(seeds: int) -> None:
    sizes = np.array([100.0, 200.0, 400.0])
    found = estimates.fitted_exponent(sizes, np.tile(sizes**-0.8, (seeds, 1)))
    assert found is not None
    assert found.value == pytest.approx(0.8)
    assert (found.low, found.high) == (None, None)


def test_equal_runs_have_zero_uniform_stability() -> None:
    assert uniform_stability(np.zeros((12, 2, 3))) == UniformStability(
        value=0.0, guaranteed_lower_bound=0.0, upper_limit=0.0
    )


def test_too_few_seeds_are_refused() -> None:
    with pytest.raises(InputError, match="at least 2"):
        uniform_stability(np.zeros((1, 2, 2)))
    with pytest.raises(InputError, match="none empty"):
        mean_largest(np.zeros((2, 0, 2)))


def test_chunks_of_resamples_do_not_change_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = noisy(np.zeros((5, 7)), 13, np.random.default_rng(3))
    few = uniform_stability(draws)
    monkeypatch.setattr(estimates, "AT_ONCE", estimates.RESAMPLES)
    assert uniform_stability(draws) == few
