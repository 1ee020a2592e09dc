"""Exponents, the comparison with Vanilla, and what Remark 3 says and what Theorem 4 supports."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeat.errors import InputError
from freeat.theory import (
    Problem,
    bound,
    comparison,
    free_bound,
    free_lambda_ceiling,
    free_recursion,
    free_steps,
    m_scale,
    printed_m_scale,
    rate,
    ratio_to_vanilla,
    vanilla_bound,
    vanilla_exponent,
)
from strategies import alphas, between, problems

P = Problem(beta=2.0, c=0.1, L=1.0, L_w=1.0, eps=0.5, psi=4.0, b=10, n=1000)


@pytest.mark.parametrize("algorithm", ["vanilla", "fast", "free"])
def test_rates_are_the_slopes_of_the_bounds(algorithm: str) -> None:
    p = replace(P, n=10**12)
    at = bound(algorithm, p, T=10**6, alpha=0.2, m=4)
    order = rate(algorithm, at.lam)
    more_T = bound(algorithm, p, T=10**7, alpha=0.2, m=4)
    more_n = bound(algorithm, replace(p, n=10**13), T=10**6, alpha=0.2, m=4)
    assert (more_T.log_bound - at.log_bound) / math.log(10) == pytest.approx(order.T, rel=1e-9)
    assert (more_n.log_bound - at.log_bound) / math.log(10) == pytest.approx(order.n, rel=1e-9)


def test_more_data_help_free_and_fast_but_not_vanilla_when_T_follows_n() -> None:
    assert rate("vanilla", 0.7).along_n == 0
    assert rate("free", 1.5).along_n == pytest.approx(-1 / 2.5)
    assert rate("fast", 0.7).along_n == pytest.approx(-1 / 1.7)
    assert rate("free", math.inf).along_n == 0


@given(problems())
def test_the_exponent_of_vanilla_at_a_finite_n(p: Problem) -> None:
    h = 10**6
    big = replace(p, n=p.n * h)
    up, down = replace(big, n=big.n + p.n), replace(big, n=big.n - p.n)
    slope = (vanilla_bound(up, T=1000).log_bound - vanilla_bound(down, T=1000).log_bound) / math.log(
        up.n / down.n
    )
    assert vanilla_exponent(big) == pytest.approx(slope, abs=1e-6)
    assert -1 <= vanilla_exponent(p) <= rate("vanilla", p.beta * p.c).n + 1e-12
    assert vanilla_exponent(replace(p, eps=0.0)) == -1


@given(between(1e-2, 1e2), between(1e-2, 1e2), st.integers(2, 10**6), st.integers(1, 10))
def test_the_ratio_is_of_the_order_that_the_paper_names(
    lam: float, vanilla: float, n: int, each: int
) -> None:
    T = each * n
    constant = each ** (1 / (vanilla + 1))
    ratio = ratio_to_vanilla(lam, lam_vanilla=vanilla, T=T, n=n)
    assert ratio == pytest.approx(constant * T ** (-1 / (lam + 1)), rel=1e-9)


def test_the_comparison_tends_to_the_ratio_of_orders() -> None:
    rows = comparison(P, ns=[10**8, 10**9], updates_per_example=3, alpha=0.2, m=4)
    assert [(row.n, row.updates) for row in rows] == [(10**8, 3 * 10**8), (10**9, 3 * 10**9)]
    for name in ("fast", "free"):
        measured = getattr(rows[1], f"log10_{name}_over_vanilla") - getattr(
            rows[0], f"log10_{name}_over_vanilla"
        )
        first, second = (math.log10(getattr(row, f"order_{name}_over_vanilla")) for row in rows)
        assert measured == pytest.approx(second - first, rel=1e-6)
        assert measured < -0.3
        for row in rows:
            assert (
                getattr(row, f"log10_{name}_over_vanilla")
                == getattr(row, f"log10_{name}") - row.log10_vanilla
            )


@given(problems(), alphas, between(0.1, 5.0), st.integers(1, 1000))
def test_lambda_stays_below_its_ceiling_for_m_up_to_the_scale(
    p: Problem, alpha: float, multiple: float, m: int
) -> None:
    small = replace(p, psi=p.c * multiple / (m * alpha * p.eps))  # so that m = multiple · c/(α_δεψ)
    assert m == pytest.approx(multiple * m_scale(small, alpha=alpha), rel=1e-9)
    log_ceiling = math.log(p.beta * p.c) + (1 + multiple) * p.beta * p.c
    assert free_recursion(small, alpha=alpha, m=m).log_nu <= log_ceiling + 1e-9
    if log_ceiling < 700:
        ceiling = free_lambda_ceiling(p, multiple=multiple)
        assert ceiling == pytest.approx(math.exp(log_ceiling), rel=1e-9)


def test_remark_3_as_printed_is_not_what_theorem_4_says() -> None:
    """Up to m = α_δεψ/c the bound grows more than twentyfold; up to c/(α_δεψ) it stays within a factor 1.5."""
    assert printed_m_scale(P, alpha=0.2) == pytest.approx(4.0)
    rows = free_steps(P, ms=[1, 2, 4], T=1000, alpha=0.2)
    assert all(row.below_printed_scale for row in rows)
    assert rows[-1].log10_over_m1 > math.log10(20)

    assert m_scale(P, alpha=0.005) == pytest.approx(10.0)
    rows = free_steps(P, ms=range(1, 10), T=1000, alpha=0.005)
    assert all(row.below_scale for row in rows)
    assert all(abs(row.log10_over_m1) < math.log10(1.5) for row in rows)
    assert rows[-1].log10_bound == pytest.approx(math.log10(free_bound(P, T=1000, alpha=0.005, m=9).value))


def test_without_an_attack_step_every_m_is_below_the_scale() -> None:
    assert m_scale(P, alpha=0.0) == math.inf
    assert printed_m_scale(P, alpha=0.0) == 0


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'vanilla'"):
        rate("vanila", 1.0)
    with pytest.raises(InputError, match="lam = 0"):
        rate("free", 0.0)
    with pytest.raises(InputError, match="lam"):
        ratio_to_vanilla(-1.0, lam_vanilla=1.0, T=10, n=10)
