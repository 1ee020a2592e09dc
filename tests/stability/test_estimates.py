"""Estimates of uniform stability: unbiased where a plug-in maximum is not, with intervals that cover."""

import numpy as np
import pytest

from freeat.errors import InputError
from freeat.stability import BootstrapEstimate, estimates, mean_estimate, mean_largest, uniform_stability


def noisy(signal: np.ndarray, seeds: int, rng: np.random.Generator, noise: float = 1.0) -> np.ndarray:
    return signal + noise * rng.standard_normal((seeds, *signal.shape))


def test_uniform_stability_without_noise_is_the_largest_absolute_mean() -> None:
    signal = np.array([[0.1, -0.7], [0.3, 0.2]])
    found = uniform_stability(np.broadcast_to(signal, (6, 2, 2)))
    assert found.value == pytest.approx(0.7)
    assert (found.low, found.high) == (pytest.approx(0.7), pytest.approx(0.7))


def test_uniform_stability_of_pure_noise_is_unbiased() -> None:
    """The plug-in maximum of 200 noisy means is far above 0; the split estimate is not."""
    rng = np.random.default_rng(0)
    found, plug_in = [], []
    for _ in range(60):
        draws = noisy(np.zeros((10, 20)), 10, rng)
        found.append(uniform_stability(draws).value)
        plug_in.append(np.abs(draws.mean(0)).max())
    assert abs(np.mean(found)) < 4 * np.std(found) / np.sqrt(60)
    assert np.mean(plug_in) > 0.7


def test_uniform_stability_of_a_clear_maximum_is_unbiased() -> None:
    rng = np.random.default_rng(1)
    signal = np.zeros((4, 5))
    signal[2, 3] = -2.0
    values = [uniform_stability(noisy(signal, 10, rng)).value for _ in range(60)]
    assert np.mean(values) == pytest.approx(2.0, abs=4 * np.std(values) / np.sqrt(60))


def test_mean_largest_is_at_least_uniform_stability() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        draws = noisy(rng.standard_normal((3, 4)), 8, rng)
        assert mean_largest(draws).value >= uniform_stability(draws).value


def test_bootstrap_interval_of_a_mean_covers_it() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(200):
        found = mean_estimate(rng.standard_normal(20) + 5)
        hits += found.low <= 5 <= found.high
    assert 170 <= hits <= 198


def test_equal_runs_have_zero_uniform_stability() -> None:
    assert uniform_stability(np.zeros((4, 2, 3))) == BootstrapEstimate(value=0.0, low=0.0, high=0.0)


def test_too_few_seeds_are_refused_or_give_no_interval() -> None:
    with pytest.raises(InputError, match="at least 2"):
        uniform_stability(np.zeros((1, 2, 2)))
    assert uniform_stability(np.zeros((3, 2, 2))).low is None
    with pytest.raises(InputError, match="none empty"):
        mean_largest(np.zeros((2, 0, 2)))


def test_chunks_of_resamples_do_not_change_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = noisy(np.zeros((5, 7)), 9, np.random.default_rng(3))
    few = uniform_stability(draws)
    monkeypatch.setattr(estimates, "AT_ONCE", estimates.RESAMPLES)
    assert uniform_stability(draws) == few
