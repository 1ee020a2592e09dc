"""The growth lemmas: pathwise against in expectation, solved for every t, and against the theorems."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeat.errors import InputError
from freeat.theory import (
    Problem,
    bound,
    eigendecomposition,
    expansivity,
    expansivity_power,
    fast_growth,
    fast_next,
    free_growth,
    free_growth_as_printed,
    free_next,
    growths,
    meeting_bound,
    sharpest_bound,
    solved_recursion,
    vanilla_growth,
    vanilla_next,
    weight_step,
)
from strategies import alphas, between, free_steps, problems

ALGORITHMS = st.sampled_from(["vanilla", "fast", "free"])
P = Problem(beta=2.0, c=0.1, L=1.0, L_w=1.0, eps=0.5, psi=4.0, b=10, n=1000)
SLACK = 1 + 1e-9


def expected(p: Problem, met: float, unmet: float) -> float:
    """The mean over a uniform batch, which holds the replaced example with chance b/n."""
    return p.b / p.n * met + (1 - p.b / p.n) * unmet


@given(problems(), between(1e-3, 1.0), between(1e-3, 1e2))
def test_vanilla_in_expectation_is_the_mean_of_its_paths(p: Problem, step: float, d: float) -> None:
    met, unmet = (vanilla_next(p, step=step, d_w=d, met=x) for x in (True, False))
    mean, lemma = expected(p, met, unmet), vanilla_growth(p, step=step).after(d)
    assert mean <= lemma * SLACK
    # all the lemma drops is that the replaced example contributes no βd and no 2εβ of its own
    dropped = step * p.beta * (d + 2 * p.eps) / p.n
    assert lemma - mean == pytest.approx(dropped, rel=1e-6, abs=1e-9 * lemma)


@given(problems(), between(1e-3, 1.0), alphas, between(1e-3, 1e2))
def test_fast_in_expectation_is_the_mean_of_its_paths(
    p: Problem, step: float, alpha: float, d: float
) -> None:
    met, unmet = (fast_next(p, step=step, alpha=alpha, d_w=d, met=x) for x in (True, False))
    assert expected(p, met, unmet) == pytest.approx(fast_growth(p, step=step, alpha=alpha).after(d), rel=1e-9)


@given(problems(), between(1e-3, 1.0), alphas, free_steps, between(1e-3, 1e2))
def test_free_in_expectation_is_m_iterations_of_its_paths(
    p: Problem, step: float, alpha: float, m: int, d: float
) -> None:
    ends = []
    for met in (True, False):
        d_w, d_delta = d, 0.0
        for _ in range(m):
            d_w, d_delta = free_next(p, step=step, alpha=alpha, d_w=d_w, d_delta=d_delta, met=met)
        ends.append(d_w)
    lemma = free_growth(p, step=step, alpha=alpha, m=m).after(d)
    assert expected(p, *ends) == pytest.approx(lemma, rel=1e-9)


@given(
    ALGORITHMS,
    problems(),
    alphas,
    free_steps,
    st.integers(min_value=1, max_value=60),
    st.integers(0, 60),
)
def test_solved_recursion_equals_the_iterated_growth(
    algorithm: str, p: Problem, alpha: float, m: int, T: int, start: int
) -> None:
    steps = list(growths(algorithm, p, T=T, alpha=alpha, m=m))
    t0 = min(start, len(steps))
    solved = solved_recursion(algorithm, p, T=T, t0=t0, alpha=alpha, m=m)
    assert len(solved) == len(steps) - t0 + 1
    distance = 0.0
    for growth, computed in zip(steps[t0:], solved[1:], strict=True):
        distance = growth.after(distance)
        assert computed == pytest.approx(distance, rel=1e-8)


def test_free_takes_one_growth_per_batch_and_cuts_the_last_loop() -> None:
    steps = list(growths("free", P, T=10, alpha=0.2, m=4))
    assert len(steps) == 3
    assert steps[1] == free_growth(P, step=weight_step(P.c, 2, 4), alpha=0.2, m=4)
    assert steps[2] == free_growth(P, step=weight_step(P.c, 3, 4), alpha=0.2, m=2)


def test_a_growth_beyond_every_float_is_infinite_not_an_error() -> None:
    p = replace(P, beta=100.0, psi=1000.0)
    growth = free_growth(p, step=0.1, alpha=1.0, m=300)
    assert growth.factor == math.inf
    assert growth.after(0.0) == math.inf
    assert solved_recursion("free", p, T=600, alpha=1.0, m=300)[-1] == math.inf
    assert expansivity_power(replace(p, eps=0.0), step=100.0, alpha=1.0, m=300)[1] == (0.0, 1.0)


@given(problems(), alphas, free_steps, st.integers(min_value=1, max_value=1000))
def test_lemma_6_as_printed_is_the_looser_one(p: Problem, alpha: float, m: int, t: int) -> None:
    exact = free_growth(p, step=weight_step(p.c, t, m), alpha=alpha, m=m)
    printed = free_growth_as_printed(p, t=t, alpha=alpha, m=m)
    assert exact.log_rate <= printed.log_rate + 1e-12
    assert exact.xi == printed.xi


@given(ALGORITHMS, problems(), alphas, free_steps, st.integers(min_value=1, max_value=400))
def test_sharpest_bound_never_exceeds_the_theorem(
    algorithm: str, p: Problem, alpha: float, m: int, T: int
) -> None:
    # Theorem 4 counts whole loops; one that is cut at T is bounded as a whole one
    whole = m * -(-T // m) if algorithm == "free" else T
    sharpest = sharpest_bound(algorithm, p, T=T, alpha=alpha, m=m)
    assert sharpest.value <= bound(algorithm, p, T=whole, alpha=alpha, m=m).value * SLACK


def test_a_cut_last_loop_can_exceed_theorem_4_at_a_fraction_of_a_loop() -> None:
    """A last batch that is cut short meets the replaced example as surely as a whole one."""
    p = Problem(beta=100.0, c=10.0, L=0.01, L_w=100.0, eps=0.01, psi=0.1, b=1, n=2)
    sharpest = sharpest_bound("free", p, T=1, alpha=0.01, m=2).value
    assert (
        bound("free", p, T=1, alpha=0.01, m=2).value
        < sharpest
        <= bound("free", p, T=2, alpha=0.01, m=2).value
    )


@pytest.mark.parametrize("algorithm", ["vanilla", "fast", "free"])
@pytest.mark.parametrize("n", [20, 1000])
def test_the_sharpest_bound_is_the_least_over_all_t0(algorithm: str, n: int) -> None:
    p, T = replace(P, n=n), 203
    count = len(list(growths(algorithm, p, T=T, alpha=0.2, m=4)))
    every = [
        meeting_bound(p, t0=t0, distance=solved_recursion(algorithm, p, T=T, t0=t0, alpha=0.2, m=4)[-1])
        for t0 in range(count + 1)
    ]
    sharpest = sharpest_bound(algorithm, p, T=T, alpha=0.2, m=4)
    assert sharpest.value == pytest.approx(min(every), rel=1e-12)
    assert every[sharpest.t0] == pytest.approx(min(every), rel=1e-12)
    # the search stops at the first rise, which is right because the slopes increase
    slopes = [b - a for a, b in pairwise(every)]
    assert all(later >= earlier - 1e-12 for earlier, later in pairwise(slopes))


def test_without_a_perturbation_the_matrix_is_triangular_and_its_power_exact() -> None:
    p = replace(P, eps=0.0)
    assert expansivity(p, step=0.5, alpha=1.0) == ((2.0, 1.0), (0.0, 1.0))
    (ww, wd), below = expansivity_power(p, step=0.5, alpha=1.0, m=5)
    assert (ww, wd) == (pytest.approx(32.0, rel=1e-14), pytest.approx(31.0, rel=1e-14))
    assert below == (0.0, 1.0)
    with pytest.raises(InputError, match="expansivity_power"):
        eigendecomposition(p, step=0.5, alpha=1.0)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match=r"t0 = 9 must lie in \[0, 5\]"):
        solved_recursion("fast", P, T=5, t0=9, alpha=0.2)
    with pytest.raises(InputError, match="did you mean 'free'"):
        growths("fre", P, T=5)
    with pytest.raises(InputError, match="alpha is missing"):
        growths("fast", P, T=5)
    with pytest.raises(InputError, match="distance"):
        meeting_bound(P, t0=1, distance=math.nan)
    with pytest.raises(InputError, match="d_w"):
        vanilla_next(P, step=0.1, d_w=-1.0, met=False)
