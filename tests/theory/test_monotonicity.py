"""Monotonicity of the bounds in each constant: where it holds, and counterexamples where it does not."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from freeat.theory import (
    Bound,
    Problem,
    bound,
    fast_bound,
    fast_recursion,
    free_bound,
    free_recursion,
    recursion_of,
    two_term_bound,
)
from strategies import alphas, enlargements, free_steps, problems, updates

ALGORITHMS = st.sampled_from(["vanilla", "fast", "free"])
ROUNDING = 1e-12  # of a logarithm


def grown(p: Problem, alpha: float, name: str, factor: float) -> tuple[Problem, float]:
    if name == "alpha":
        return p, alpha * factor
    return replace(p, **{name: getattr(p, name) * factor}), alpha


@given(problems(), alphas, free_steps, st.sampled_from(["alpha", "eps", "psi"]), enlargements)
def test_lambda_increases_in_alpha_eps_psi(
    p: Problem, alpha: float, m: int, name: str, factor: float
) -> None:
    q, more = grown(p, alpha, name, factor)
    assert fast_recursion(q, alpha=more).log_nu > fast_recursion(p, alpha=alpha).log_nu
    before, after = free_recursion(p, alpha=alpha, m=m).log_nu, free_recursion(q, alpha=more, m=m).log_nu
    assert after == before if m == 1 else after > before


@given(problems(), alphas, free_steps, updates, st.sampled_from(["alpha", "eps", "psi"]), enlargements)
def test_the_bound_of_free_increases_where_t0_is_inside(
    p: Problem, alpha: float, m: int, T: int, name: str, factor: float
) -> None:
    q, more = grown(p, alpha, name, factor)
    after = free_bound(q, T=T, alpha=more, m=m)
    assume(not after.t0_above)
    assert after.log_bound >= free_bound(p, T=T, alpha=alpha, m=m).log_bound - ROUNDING


@given(problems(), alphas, updates, st.sampled_from(["alpha", "eps", "psi"]), enlargements)
def test_the_bound_of_fast_increases_where_t0_is_well_inside(
    p: Problem, alpha: float, T: int, name: str, factor: float
) -> None:
    """ξ of Fast falls as λ grows, so t₀ ≤ T is not enough: the sign of the slope is that of T·e^(−1/λ) − t₀."""
    before = fast_bound(p, T=T, alpha=alpha)
    assume(before.log_t0 <= math.log(T) - 1 / before.lam)
    q, more = grown(p, alpha, name, factor)
    assert fast_bound(q, T=T, alpha=more).log_bound >= before.log_bound - ROUNDING


def test_fast_can_fall_with_alpha_while_t0_is_inside() -> None:
    p = Problem(beta=1.0, c=1.0, L=0.5, L_w=1.0, eps=1.0, psi=1.0, b=1, n=1000)
    less, more = fast_bound(p, T=2, alpha=0.5), fast_bound(p, T=2, alpha=1.0)
    assert not less.t0_outside
    assert not more.t0_outside
    assert more.lam > less.lam
    assert more.value < 0.95 * less.value


@pytest.mark.parametrize("name", ["alpha", "eps", "psi"])
def test_free_falls_with_alpha_eps_psi_where_t0_is_outside(name: str) -> None:
    p = Problem(beta=1.0, c=1.0, L=10.0, L_w=10.0, eps=1.0, psi=1.0, b=1, n=1000)
    q, more = grown(p, 0.5, name, 3.0)
    before, after = free_bound(p, T=8, alpha=0.5, m=4), free_bound(q, T=8, alpha=more, m=4)
    assert before.t0_above
    assert after.value < before.value


@given(ALGORITHMS, problems(), alphas, free_steps, updates, st.sampled_from(["L", "L_w"]), enlargements)
def test_every_bound_increases_in_the_lipschitz_constants(
    algorithm: str, p: Problem, alpha: float, m: int, T: int, name: str, factor: float
) -> None:
    q, _ = grown(p, alpha, name, factor)
    before, after = (bound(algorithm, x, T=T, alpha=alpha, m=m).log_bound for x in (p, q))
    assert after >= before - ROUNDING
    if bound(algorithm, p, T=T, alpha=alpha, m=m).lam < 100 and (name == "L_w" or p.eps * p.beta * p.n < p.L):
        assert after > before


@given(ALGORITHMS, problems(), alphas, free_steps, updates, st.integers(min_value=2, max_value=50))
def test_every_bound_increases_in_T_and_falls_in_n(
    algorithm: str, p: Problem, alpha: float, m: int, T: int, factor: int
) -> None:
    before = bound(algorithm, p, T=T, alpha=alpha, m=m).log_bound
    assert bound(algorithm, p, T=factor * T, alpha=alpha, m=m).log_bound > before
    assert bound(algorithm, replace(p, n=factor * p.n), T=T, alpha=alpha, m=m).log_bound < before


@given(problems(), updates, enlargements)
def test_vanilla_increases_in_eps_everywhere(p: Problem, T: int, factor: float) -> None:
    q = replace(p, eps=factor * p.eps)
    assert bound("vanilla", q, T=T).log_bound >= bound("vanilla", p, T=T).log_bound - ROUNDING


def _over(name: str, values: tuple[float, ...], algorithm: str) -> list[Bound]:
    p = Problem(beta=1.0, c=0.1, L=1.0, L_w=1.0, eps=0.5, psi=4.0, b=10, n=1000)
    if name == "m":
        return [bound(algorithm, p, T=1000, alpha=0.2, m=m) for m in values]
    return [bound(algorithm, replace(p, **{name: v}), T=1000, alpha=0.2, m=4) for v in values]


@pytest.mark.parametrize("algorithm", ["vanilla", "fast", "free"])
def test_no_bound_is_monotone_in_beta(algorithm: str) -> None:
    low, middle, high = _over("beta", (0.01, 0.1, 5.0), algorithm)
    assert low.value > 1.05 * middle.value
    assert high.value > 1.05 * middle.value


def test_the_bound_of_free_is_not_monotone_in_m() -> None:
    one, fifteen, hundred = _over("m", (1, 15, 100), "free")
    assert fifteen.value > 50 * one.value
    assert fifteen.value > 5 * hundred.value


def test_a_greater_m_can_also_lower_the_bound_from_the_start() -> None:
    p = Problem(beta=20.0, c=1.0, L=1.0, L_w=1.0, eps=0.5, psi=1.0, b=10, n=1000)
    one, two = (free_bound(p, T=1000, alpha=0.2, m=m) for m in (1, 2))
    assert two.lam > one.lam
    assert two.value < one.value


@given(ALGORITHMS, problems(), alphas, free_steps, updates, st.floats(min_value=0.1, max_value=0.9))
def test_t0_minimizes_the_two_terms_of_lemma_2(
    algorithm: str, p: Problem, alpha: float, m: int, T: int, part: float
) -> None:
    at = bound(algorithm, p, T=T, alpha=alpha, m=m)
    assume(at.lam < 1e3)
    constants = recursion_of(algorithm, p, alpha=alpha, m=m)
    least = two_term_bound(p, constants, t0=at.t0, steps=at.steps)
    assert least == pytest.approx(at.value, rel=1e-9)
    for t0 in (part * at.t0, at.t0 / part):
        assert two_term_bound(p, constants, t0=t0, steps=at.steps) > least


@given(problems(), st.integers(min_value=1, max_value=2000))
def test_nothing_overflows_for_many_free_steps(p: Problem, m: int) -> None:
    at = free_bound(replace(p, beta=100.0, psi=1000.0), T=10**6, alpha=1.0, m=m)
    assert math.isfinite(at.log_bound)
    assert math.isfinite(at.log_lam)
    # as λ grows without end the bound tends to that of never meeting the replaced example, b·steps/n
    if at.log_lam > 200:
        assert at.value == pytest.approx(p.b * at.steps / p.n, rel=1e-9)


def test_ten_free_steps_with_psi_1000_stay_finite() -> None:
    p = Problem(beta=100.0, c=1.0, L=1.0, L_w=1.0, eps=0.5, psi=1000.0, b=128, n=50_000)
    ten, many = (free_bound(p, T=78_200, alpha=1.0, m=m) for m in (10, 100))
    assert 1e40 < ten.lam < 1e45
    assert ten.value == pytest.approx(128 * 7820 / 50_000, rel=1e-12)
    assert many.lam == math.inf
    assert many.value == pytest.approx(128 * 782 / 50_000, rel=1e-12)
