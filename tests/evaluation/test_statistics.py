"""Intervals: closed forms, published examples, other implementations, and coverage by simulation."""

import math
import statistics
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, multinomial

from freeat.compute import Cost
from freeat.errors import InputError
from freeat.evaluation.evaluate import Gap, Summary, gap
from freeat.evaluation.statistics import (
    betting_lower_bound,
    chance,
    class_text,
    difference,
    holm,
    mean_std,
    paired,
    sampled,
    wilson,
)
from made_records import make_classes

Z = 1.959963984540054


@given(n=st.integers(1, 5000), data=st.data())
def test_wilson_equals_scipy(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    expected = binomtest(k, n).proportion_ci(0.95, method="wilson")
    assert wilson(k, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(n=st.integers(2, 5000), data=st.data())
def test_wilson_inverts_the_score_test(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n - 1))
    for end in wilson(k, n):
        assert abs(k / n - end) == pytest.approx(Z * math.sqrt(end * (1 - end) / n), rel=1e-6)


def test_wilson_without_data_is_the_unit_interval() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_difference_equals_newcombes_published_example() -> None:
    """Newcombe (1998), Statistics in Medicine 17, Table II (a), method 10: 56/70 − 48/80."""
    low, high = difference(56 / 70, wilson(56, 70), 48 / 80, wilson(48, 80))
    assert (low, high) == pytest.approx((0.0524, 0.3339), abs=5e-5)


@given(n=st.integers(1, 1000), data=st.data())
def test_paired_interval_is_antisymmetric_and_holds_the_difference(n: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, n))
    second = data.draw(st.integers(0, n - first))
    low, high = paired(first, second, n)
    assert paired(second, first, n) == pytest.approx((-high, -low))
    assert -1 <= low <= (first - second) / n + 1e-12
    assert (first - second) / n - 1e-12 <= high <= 1


@pytest.mark.parametrize(("p", "q"), [(0.05, 0.05), (0.2, 0.05), (0.4, 0.1), (0.02, 0.3)])
def test_paired_interval_has_its_nominal_coverage(p: float, q: float) -> None:
    """Exactly, over every outcome of 40 pairs."""
    n = 40
    outcomes = [(a, b) for a in range(n + 1) for b in range(n + 1 - a)]
    chance = multinomial.pmf([(a, b, n - a - b) for a, b in outcomes], n, (p, q, 1 - p - q))
    covered = [low <= p - q <= high for low, high in (paired(a, b, n) for a, b in outcomes)]
    assert 0.94 <= float(np.dot(chance, covered)) <= 0.99


@given(population=st.integers(2, 1000), data=st.data())
def test_interval_of_a_finite_population_shrinks_to_a_point(population: int, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, population))
    k = data.draw(st.integers(0, n))
    low, high = sampled(k, n, population)
    outer = wilson(k, n)
    assert outer[0] - 1e-12 <= low <= k / n + 1e-12
    assert k / n - 1e-12 <= high <= outer[1] + 1e-12
    if n == population:
        assert low == high == k / n


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=20))
def test_mean_and_standard_deviation(values: list[float]) -> None:
    mean, std = mean_std(values)
    assert mean == pytest.approx(statistics.fmean(values), abs=1e-9)
    assert std == pytest.approx(statistics.stdev(values), abs=1e-9)


def test_chance_is_the_share_of_the_largest_class() -> None:
    assert chance([10] * 10) == 0.1
    assert chance([90, 10]) == 0.9


def test_one_value_has_no_standard_deviation() -> None:
    assert mean_std([0.25]) == (0.25, None)


def _summary(correct: int, n: int, population: int) -> Summary:
    return Summary(
        n=n,
        population=population,
        classes=2,
        clean_accuracy=1.0,
        clean_interval=(1.0, 1.0),
        robust_accuracy=correct / n,
        robust_interval=wilson(correct, n),
        balanced_robust_accuracy=correct / n,
        worst_class_robust_accuracy=correct / n,
        per_class=make_classes(n - n // 2, n // 2),
        cost=Cost(),
    )


@pytest.mark.parametrize(
    ("n_train", "seen", "n_test", "p", "q"),
    [(400, 400, 300, 0.95, 0.6), (2000, 300, 300, 0.9, 0.7), (600, 100, 2000, 0.99, 0.97)],
)
def test_gap_interval_has_its_nominal_coverage(
    n_train: int, seen: int, n_test: int, p: float, q: float
) -> None:
    """True gap: accuracy on the very training set, minus the probability on unseen images."""
    rng = np.random.default_rng(0)
    rounds = 4000
    right = round(p * n_train)
    on_train = rng.hypergeometric(right, n_train - right, seen, rounds)
    on_test = rng.binomial(n_test, q, rounds)
    truth = right / n_train - q
    intervals = [
        gap(_summary(int(a), seen, n_train), _summary(int(b), n_test, n_test))
        for a, b in zip(on_train, on_test, strict=True)
    ]
    covered = sum(row.low <= truth <= row.high for row in intervals) / rounds
    assert 0.93 < covered < 0.985
    assert all(row.low <= row.value <= row.high for row in intervals)


def test_a_whole_training_set_adds_no_width_to_the_gap() -> None:
    low, high = wilson(70, 100)
    whole = gap(_summary(50, 50, 50), _summary(70, 100, 100))
    assert (whole.value, whole.low, whole.high) == pytest.approx((0.3, 1 - high, 1 - low))
    part = gap(_summary(45, 50, 1000), _summary(70, 100, 100))
    assert part.high - part.low > whole.high - whole.low


def test_betting_lower_bound_of_equal_values_is_its_closed_form() -> None:
    """Every bet is cut at 3/4 of the capital: ten values 1 reach 40 where (1/4 + 3/(4m))^10 = 40."""
    m = 0.75 / (40**0.1 - 0.25)
    assert betting_lower_bound([1.0] * 10, 0.975) == pytest.approx(2 * m - 1, abs=1e-8)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_betting_lower_bound_inverts_the_capital_process(values: list[float]) -> None:
    """Recomputed from the printed definitions: mean and variance before each value, the largest capital over time."""
    y, n = (1 + np.array(values)) / 2, len(values)
    means = np.array([(0.5 + y[:t].sum()) / (t + 1) for t in range(1, n + 1)])
    variances = [(0.25 + ((y[:t] - means[:t]) ** 2).sum()) / (t + 1) for t in range(n)]
    bets = np.sqrt(2 * math.log(20) / (n * np.array(variances)))
    bound = (1 + betting_lower_bound(values)) / 2
    for m in (bound - 1e-6, bound + 1e-6):
        if 0 < m < 1:
            capital = np.cumprod(1 + np.minimum(bets, 0.75 / m) * (y - m)).max()
            assert (capital >= 20 * (1 - 1e-9)) == (m < bound)


@pytest.mark.parametrize("chance", [0.02, 0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize(("low", "high"), [(0.0, 0.8), (-1.0, 1.0), (-0.1, 1.0)])
def test_betting_lower_bound_has_its_coverage_exactly(low: float, high: float, chance: float) -> None:
    """Over every order of eight values that are low or high; at a level of one half, where it is not trivial."""
    mean = low + chance * (high - low)
    covered = 0.0
    for outcome in product((0, 1), repeat=8):
        if betting_lower_bound([(low, high)[k] for k in outcome], 0.5) <= mean:
            covered += chance ** sum(outcome) * (1 - chance) ** (8 - sum(outcome))
    assert covered >= 0.5


def test_betting_lower_bound_refuses_values_out_of_range() -> None:
    for values in ([0.2, 1.1], [math.nan]):
        with pytest.raises(InputError, match="must lie in"):
            betting_lower_bound(values)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cat", "class 2 (cat)"),
        ("2", "class 2"),
        (None, "class 2"),
        ("c\x1b[2Jat\nnap", "class 2 (c[2Jat nap)"),
    ],
)
def test_a_class_is_named_where_its_name_says_more_than_its_number(name: str | None, text: str) -> None:
    assert class_text(2, name) == text


def test_a_gap_reads_in_points() -> None:
    assert str(Gap(value=0.041, low=0.008, high=0.0774)) == "4.1 [0.8, 7.7] points"


def test_holm_stops_at_the_first_p_value_above_its_level() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005], 0.05) == [True, False, False, True]
    assert holm([0.01, 0.02, 0.03], 0.05) == [True, True, True]
    assert holm([], 0.05) == []


@pytest.mark.parametrize(("true", "false"), [(1, 0), (5, 0), (3, 2), (40, 0)])
def test_holm_keeps_the_chance_of_any_wrong_rejection(true: int, false: int) -> None:
    """False hypotheses are rejected at once; m true ones, independent, any of them with chance 1 − (1 − α/m)^m."""
    level, rng = 0.05, np.random.default_rng(true)
    draws = rng.random((4000, true))
    wrong = [any(holm([*p, *[0.0] * false], level)[:true]) for p in draws.tolist()]
    assert wrong == (draws.min(axis=1) <= level / true).tolist()
    exact = 1 - (1 - level / true) ** true
    assert exact <= level + 1e-12
    assert float(np.mean(wrong)) == pytest.approx(exact, abs=4 * math.sqrt(exact / 4000))
