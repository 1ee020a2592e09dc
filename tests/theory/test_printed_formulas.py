"""Every printed formula, transcribed from the LaTeX and evaluated by mpmath with 50 digits."""

import mpmath as mp
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from freeat.theory import (
    Problem,
    eigendecomposition,
    expansivity,
    expansivity_power,
    fast_bound,
    fast_growth,
    fast_recursion,
    free_bound,
    free_growth,
    free_growth_as_printed,
    free_next,
    free_recursion,
    ratio_to_vanilla,
    recursion_bound,
    recursion_of,
    two_term_bound,
    vanilla_bound,
    vanilla_growth,
    vanilla_recursion,
)
from strategies import alphas, between, free_steps, problems, updates

CLOSE = 1e-12


@pytest.fixture(autouse=True, scope="module")
def _fifty_digits():
    with mp.workdps(50):
        yield


def close(computed: float, printed: mp.mpf) -> bool:
    return abs(mp.mpf(computed) - printed) <= CLOSE * abs(printed)


class Exact:
    """A problem's constants as 50-digit numbers, under the paper's letters."""

    def __init__(self, p: Problem) -> None:
        self.beta, self.c, self.L, self.Lw = mp.mpf(p.beta), mp.mpf(p.c), mp.mpf(p.L), mp.mpf(p.L_w)
        self.eps, self.psi, self.b, self.n = mp.mpf(p.eps), mp.mpf(p.psi), mp.mpf(p.b), mp.mpf(p.n)


@given(problems(), updates)
def test_theorem_2(p: Problem, T: int) -> None:
    x = Exact(p)
    lam = x.beta * x.c
    inner = 2 * x.Lw * x.c / x.b * (x.eps * x.beta * x.n + x.L)
    printed = x.b / x.n * (1 + 1 / lam) * inner ** (1 / (lam + 1)) * mp.mpf(T) ** (lam / (lam + 1))
    computed = vanilla_bound(p, T=T)
    assert close(computed.lam, lam)
    assert close(computed.value, printed)


@given(problems(), updates, alphas, free_steps)
def test_theorem_4(p: Problem, T: int, alpha: float, m: int) -> None:
    x = Exact(p)
    lam = x.beta * x.c * (1 + x.beta * x.c / m + mp.mpf(alpha) * x.eps * x.psi * x.beta) ** (m - 1)
    inner = 2 * x.L * x.Lw / (x.b * x.beta) * lam
    printed = x.b / x.n * (1 + 1 / lam) * inner ** (1 / (lam + 1)) * (mp.mpf(T) / m) ** (lam / (lam + 1))
    computed = free_bound(p, T=T, alpha=alpha, m=m)
    assert close(computed.lam, lam)
    assert close(computed.value, printed)


@given(problems(), updates, alphas)
def test_theorem_5(p: Problem, T: int, alpha: float) -> None:
    x = Exact(p)
    lam = x.beta * x.c * (1 + mp.mpf(alpha) * x.eps * x.psi * x.beta)
    inner = 2 * x.c * x.L * x.Lw / x.b
    printed = x.b / x.n * (1 + 1 / lam) * inner ** (1 / (lam + 1)) * mp.mpf(T) ** (lam / (lam + 1))
    computed = fast_bound(p, T=T, alpha=alpha)
    assert close(computed.lam, lam)
    assert close(computed.value, printed)


@given(problems(), between(1e-3, 1e3), between(1e-3, 1e3), between(1, 1e6))
def test_lemma_3_and_its_t0(p: Problem, nu: float, xi: float, T: float) -> None:
    x, v, k, steps = Exact(p), mp.mpf(nu), mp.mpf(xi), mp.mpf(T)
    printed = x.b / x.n * (1 + 1 / v) * (x.Lw * k * v / x.b) ** (1 / (v + 1)) * steps ** (v / (v + 1))
    t0 = (x.Lw * k * steps**v * v / x.b) ** (1 / (v + 1))
    computed = recursion_bound(p, nu=nu, xi=xi, T=T)
    assert close(computed.value, printed)
    assert close(computed.t0, t0)


@given(problems(), between(1, 1e4), alphas, free_steps, st.sampled_from(["vanilla", "fast", "free"]))
def test_the_two_terms_of_lemma_2(p: Problem, steps: float, alpha: float, m: int, algorithm: str) -> None:
    constants = recursion_of(algorithm, p, alpha=alpha, m=m)
    assume(constants.nu < 500)  # (T/t₀)^ν stays in the range of a float
    x, T = Exact(p), mp.mpf(steps)
    t0 = steps / 3
    printed = x.Lw * mp.mpf(constants.xi) / x.n * (T / mp.mpf(t0)) ** mp.mpf(constants.nu) + x.b * t0 / x.n
    assert close(two_term_bound(p, constants, t0=t0, steps=steps), printed)


@given(problems())
def test_the_constants_xi(p: Problem) -> None:
    x = Exact(p)
    assert close(vanilla_recursion(p).xi, 2 * x.eps * x.n + 2 * x.L / x.beta)
    assert close(
        fast_recursion(p, alpha=0.5).xi, 2 * x.L / (x.beta * (1 + mp.mpf(0.5) * x.eps * x.psi * x.beta))
    )
    assert close(free_recursion(p, alpha=0.5, m=3).xi, 2 * x.L / x.beta)


@given(problems(), between(1e-3, 1.0), between(1e-3, 1e3))
def test_lemmas_4_and_7(p: Problem, step: float, distance: float) -> None:
    x, a, d = Exact(p), mp.mpf(step), mp.mpf(distance)
    lemma_4 = (1 + a * x.beta) * d + a * x.beta / x.n * (2 * x.eps * x.n + 2 * x.L / x.beta)
    lemma_7 = (1 + a * x.beta * (1 + mp.mpf(0.3) * x.eps * x.psi * x.beta)) * d + 2 / x.n * a * x.L
    assert close(vanilla_growth(p, step=step).after(distance), lemma_4)
    assert close(fast_growth(p, step=step, alpha=0.3).after(distance), lemma_7)


@given(problems(), between(1e-3, 1.0), alphas, st.booleans())
def test_lemma_5(p: Problem, step: float, alpha: float, met: bool) -> None:
    x, a, ad = Exact(p), mp.mpf(step), mp.mpf(alpha)
    eta = [[1 + a * x.beta, a * x.beta], [ad * x.eps * x.psi * x.beta, 1 + ad * x.eps * x.psi * x.beta]]
    computed = expansivity(p, step=step, alpha=alpha)
    assert all(close(computed[i][j], eta[i][j]) for i in range(2) for j in range(2))
    own = [2 / x.b * a * x.L, 2 / x.b * ad * x.eps * x.psi * x.L] if met else [0, 0]
    after = free_next(p, step=step, alpha=alpha, d_w=0.7, d_delta=0.2, met=met)
    for i in range(2):
        assert close(after[i], eta[i][0] * mp.mpf(0.7) + eta[i][1] * mp.mpf(0.2) + own[i])


@given(problems(), between(1e-3, 1.0), alphas, free_steps)
def test_lemma_6_power(p: Problem, step: float, alpha: float, m: int) -> None:
    """The printed decomposition gives back η; its power, the closed form and repeated multiplication agree."""
    x, aw = Exact(p), mp.mpf(step)
    a, r = aw * x.beta, mp.mpf(alpha) * x.eps * x.psi / aw
    eta = mp.matrix([[1 + a, a], [a * r, 1 + a * r]])
    vectors = mp.matrix([[1 / r, -1], [1, 1]])
    inverse = mp.matrix([[r / (r + 1), r / (r + 1)], [-r / (r + 1), 1 / (r + 1)]])
    top = 1 + a * (r + 1)
    assert mp.mnorm(vectors * mp.diag([top, 1]) * inverse - eta) <= mp.mpf(10) ** -40 * mp.mnorm(eta)

    repeated = mp.eye(2)
    for _ in range(m):
        repeated = eta * repeated
    by_eigenvalues = vectors * mp.diag([top**m, 1]) * inverse
    first_column = [(r + top**m) / (r + 1), r * (top**m - 1) / (r + 1)]
    computed = expansivity_power(p, step=step, alpha=alpha, m=m)
    for i in range(2):
        assert abs(by_eigenvalues[i, 0] - repeated[i, 0]) <= mp.mpf(10) ** -35 * repeated[i, 0]
        assert close(computed[i][0], first_column[i])
        for j in range(2):
            assert close(computed[i][j], repeated[i, j])

    decomposition = eigendecomposition(p, step=step, alpha=alpha)
    assert close(decomposition.values[0], top)
    assert decomposition.values[1] == 1
    for i in range(2):
        for j in range(2):
            assert close(decomposition.vectors[i][j], vectors[i, j])
            assert close(decomposition.inverse[i][j], inverse[i, j])


@given(problems(), st.integers(min_value=1, max_value=10**4), alphas, free_steps)
def test_lemma_6_growth(p: Problem, t: int, alpha: float, m: int) -> None:
    x = Exact(p)
    aw = x.c / (m * t)
    a, r = aw * x.beta, mp.mpf(alpha) * x.eps * x.psi / aw
    exact = (r + (1 + a * (r + 1)) ** m) / (r + 1)
    by_sum = 1 + a * mp.fsum((1 + a * (r + 1)) ** j for j in range(m))
    printed = 1 + x.beta * x.c / t * (1 + aw * x.beta + mp.mpf(alpha) * x.eps * x.psi * x.beta) ** (m - 1)
    unit = 2 * x.L / (x.n * x.beta)
    computed = free_growth(p, step=p.c / (m * t), alpha=alpha, m=m)
    ceiling = free_growth_as_printed(p, t=t, alpha=alpha, m=m)
    assert close(computed.factor, exact)
    assert close(computed.factor, by_sum)
    assert close(ceiling.factor, printed)
    # the lemma bounds E[d] + 2L/(nβ): growing from d = 0.3 both sides must agree
    assert close(ceiling.after(0.3), printed * (mp.mpf(0.3) + unit) - unit)
    assert close(computed.after(0.3), exact * (mp.mpf(0.3) + unit) - unit)
    assert computed.log_rate <= ceiling.log_rate + CLOSE


@given(between(1e-2, 1e2), between(1e-2, 1e2), between(1, 1e6), between(1, 1e6))
def test_ratio_of_orders(lam: float, vanilla: float, T: float, n: float) -> None:
    x, v, t, size = mp.mpf(lam), mp.mpf(vanilla), mp.mpf(T), mp.mpf(n)
    orders = (t ** (x / (x + 1)) / size) / (t ** (v / (v + 1)) / size ** (v / (v + 1)))
    assert close(ratio_to_vanilla(lam, lam_vanilla=vanilla, T=T, n=n), orders)


def test_t0_is_a_function_of_the_recursion() -> None:
    p = Problem(beta=2.0, c=0.1, L=1.0, L_w=1.0, eps=0.5, b=10, n=1000, psi=4.0)
    recursion = free_recursion(p, alpha=0.2, m=4)
    by_lemma_3 = recursion_bound(p, nu=recursion.nu, xi=recursion.xi, T=250)
    assert by_lemma_3.t0 == pytest.approx(free_bound(p, T=1000, alpha=0.2, m=4).t0, rel=1e-12)
