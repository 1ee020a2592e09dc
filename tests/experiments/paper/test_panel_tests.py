"""The tests of a panel: errors of the equivalence test and of the smallest of several differences, in closed form."""

import math

import numpy as np
import pytest
from scipy import stats

from freeat.experiments.paper.estimate import ErrorEstimate
from freeat.experiments.paper.evidence import COMPARABLE, PanelTest, over_panels

LEVEL = 0.025


def equivalence(value: float, error: float) -> PanelTest:
    difference = ErrorEstimate.of(mean=value, std=None, seeds=1, image_error=error)
    return PanelTest(panel="", detail="", differences=(difference,), margin=COMPARABLE)


@pytest.mark.parametrize("error", [0.002, 0.005, 0.01])
def test_equivalence_is_confirmed_within_the_margin_less_its_error(error: float) -> None:
    """Confirmed where |d| < m − zσ, refuted where |d| > m + zσ: z is the 97.5 % quantile."""
    half = stats.norm.ppf(1 - LEVEL) * error
    for sign in (-1, 1):
        for shift, confirmed, refuted in ((-half, True, False), (0.0, False, False), (half, False, True)):
            inner, outer = (equivalence(sign * (COMPARABLE + shift * f), error) for f in (1.001, 0.999))
            assert (inner.p_true() <= LEVEL) == confirmed
            assert (inner.p_false() <= LEVEL) == refuted
            assert outer.p_true() > LEVEL
            assert outer.p_false() > LEVEL


@pytest.mark.parametrize("error", [0.001, 0.005, 0.0102])
def test_a_difference_at_the_margin_is_called_equivalent_with_the_chance_of_the_level(error: float) -> None:
    """At d = m it is P(|X| < m − zσ) = Φ(−z) − Φ(z − 2m/σ), at most 2.5 %; 0 where zσ > m."""
    z = stats.norm.ppf(1 - LEVEL)
    exact = max(0.0, stats.norm.cdf(-z) - stats.norm.cdf(z - 2 * COMPARABLE / error))
    assert exact <= LEVEL
    grid = COMPARABLE + error * stats.norm.ppf((np.arange(4000) + 0.5) / 4000)
    found = np.mean([equivalence(float(value), error).p_true() <= LEVEL for value in grid])
    assert found == pytest.approx(exact, abs=1e-3)


def test_equivalence_with_few_seeds_uses_students_quantile() -> None:
    values = [0.001, 0.003, -0.001]
    by_seed = dict(enumerate(values))
    difference = ErrorEstimate(value=float(np.mean(values)), seeds=3, by_seed=by_seed)
    test = PanelTest(panel="", detail="", differences=(difference,), margin=COMPARABLE)
    sides = (
        stats.ttest_1samp(values, s * COMPARABLE, alternative=a) for s, a in ((-1, "greater"), (1, "less"))
    )
    assert test.p_true() == pytest.approx(max(side.pvalue for side in sides))


def test_all_differences_must_be_positive() -> None:
    """Confirmed by the largest p-value; refuted by the smallest, times the number of differences."""
    parts = tuple(ErrorEstimate.of(mean=m, std=None, seeds=1, image_error=0.01) for m in (0.03, -0.02, 0.0))
    test = PanelTest(panel="", detail="", differences=parts)
    assert test.p_true() == pytest.approx(stats.norm.sf(-2))
    assert test.p_false() == pytest.approx(3 * stats.norm.cdf(-2))
    found = test.finding()
    assert found.statistic == -0.02
    assert found.low == pytest.approx(-0.02 - 0.01 * stats.norm.ppf(0.975))
    assert found.high == pytest.approx(-0.02 + 0.01 * stats.norm.ppf(1 - LEVEL / 3))


def test_opposite_deviations_do_not_cancel_over_panels() -> None:
    """Every panel must be within the margin: refuted by ±d beyond it, with Bonferroni's interval."""
    error, beyond = 0.005, 0.1
    found = over_panels([equivalence(sign * beyond, error) for sign in (1, -1)])
    assert (found.panel, found.statistic) == ("all of 2 panels", pytest.approx(COMPARABLE - beyond))
    assert found.low == pytest.approx(COMPARABLE - beyond - error * stats.norm.ppf(1 - LEVEL))
    assert found.high == pytest.approx(COMPARABLE - beyond + error * stats.norm.ppf(1 - LEVEL / 2))


@pytest.mark.parametrize("signs", [(1, 1, 1), (1, -1, 1)])
def test_small_deviations_in_all_panels_are_equivalent(signs: tuple[int, ...]) -> None:
    """Confirmed by the largest of the panels' p-values, refuted by the smallest times their number."""
    panels = [equivalence(sign * d, 0.002) for sign, d in zip(signs, (0.001, 0.01, 0.012), strict=True)]
    found = over_panels(panels)
    assert found.statistic == pytest.approx(COMPARABLE - 0.012)
    assert found.low == pytest.approx(COMPARABLE - 0.012 - 0.002 * stats.norm.ppf(1 - LEVEL))
    whole = PanelTest(
        panel="", detail="", differences=tuple(p.differences[0] for p in panels), margin=COMPARABLE
    )
    assert whole.p_true() == max(p.p_true() for p in panels) <= LEVEL
    assert whole.p_false() == min(1.0, 3 * min(p.p_false() for p in panels))


def test_equivalence_in_all_panels_is_wrongly_decided_with_the_chance_of_the_level() -> None:
    """Three panels with Gaussian errors: at the margin confirmed, and inside it refuted, at most at the level."""
    rng, error, wrong = np.random.default_rng(1), 0.005, {"confirmed": 0, "refuted": 0}
    for values in rng.normal(0, error, (2000, 3)):
        outside, inside = (
            over_panels([equivalence(float(v), error) for v in values + truth])
            for truth in (np.array([COMPARABLE, 0.0, 0.0]), np.array([COMPARABLE, -COMPARABLE, COMPARABLE]))
        )
        assert outside.low is not None
        assert inside.high is not None
        wrong["confirmed"] += outside.low > 0
        wrong["refuted"] += inside.high < 0
    limit = LEVEL + 2 * math.sqrt(LEVEL * (1 - LEVEL) / 2000)
    assert all(0 < count / 2000 <= limit for count in wrong.values())


def test_the_mean_over_panels_of_the_smallest_differences_covers_the_truth() -> None:
    """Two panels of three points each; panels that share their errors are the worst case."""
    rng, error, truths = np.random.default_rng(0), 0.02, np.array([[0.05, 0.06, 0.3], [0.1, 0.1, 0.1]])
    truth, held = truths.min(axis=1).mean(), 0
    for k in range(1000):
        noise = rng.normal(0, error, (1, 3)).repeat(2, axis=0) if k % 2 else rng.normal(0, error, (2, 3))
        tests = [
            PanelTest(
                panel="",
                detail="",
                differences=tuple(
                    ErrorEstimate.of(mean=float(v), std=None, seeds=1, image_error=error) for v in row
                ),
            )
            for row in truths + noise
        ]
        found = over_panels(tests)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    assert held / 1000 >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / 1000)
