"""The bounds derived in docs/theory.md: against 50-digit sums, and against twin runs over every order of batches."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from freeat.errors import InputError
from freeat.theory import (
    ApproximatelySmooth,
    Convex,
    Problem,
    Proximal,
    bound,
    bound_by_name,
    bound_document,
    bound_lines,
    recursion_bound,
    recursion_of,
    vanilla_bound,
)
from strategies import alphas, between, free_steps, problems, updates

Array = NDArray[np.float64]
CLOSE = 1e-11
GIVEN = {
    "beta": 2.0,
    "c": 0.1,
    "L_w": 1.0,
    "eps": 0.5,
    "b": 10,
    "n": 1000,
    "T": 1000,
    "step": 0.01,
    "rho": 10.0,
}


@pytest.fixture(autouse=True, scope="module")
def _fifty_digits():
    with mp.workdps(50):
        yield


def close(computed: float, exact: mp.mpf) -> bool:
    return abs(mp.mpf(computed) - exact) <= CLOSE * abs(exact)


def lemma_3(nu: mp.mpf, xi: mp.mpf, L_w: float, b: int, n: int, T: int) -> mp.mpf:
    return mp.mpf(b) / n * (1 + 1 / nu) * (L_w * xi * nu / b) ** (1 / (nu + 1)) * mp.mpf(T) ** (nu / (nu + 1))


@given(problems(), between(1e-3, 1e2), updates)
def test_approximate_smoothness_is_lemma_3_with_eta_in_place_of_2_beta_eps(
    p: Problem, eta: float, T: int
) -> None:
    found = ApproximatelySmooth(beta=p.beta, c=p.c, eta=eta, L_w=p.L_w, b=p.b, n=p.n).bound(T=T)
    beta, xi = mp.mpf(p.beta), (mp.mpf(eta) * p.n + 2 * mp.mpf(p.L_w)) / mp.mpf(p.beta)
    assert close(found.value, lemma_3(beta * p.c, xi, p.L_w, p.b, p.n, T))
    same = ApproximatelySmooth(beta=p.beta, c=p.c, eta=2 * p.beta * p.eps, L_w=p.L_w, b=p.b, n=p.n)
    theorem_2 = vanilla_bound(replace(p, L=p.L_w), T=T)
    assert same.bound(T=T).value == pytest.approx(theorem_2.value, rel=1e-12)


@given(problems(), between(1.001, 1e3), updates)
def test_proximal_steps_are_lemma_3_without_the_radius(p: Problem, ratio: float, T: int) -> None:
    rho = p.beta * ratio
    found = Proximal(c=p.c, rho=rho, ell=p.beta, L_w=p.L_w, b=p.b, n=p.n).bound(T=T)
    ell, r = mp.mpf(p.beta), mp.mpf(rho)
    nu, xi = p.c * r * ell / (r - ell), 2 * mp.mpf(p.L_w) / ell
    assert close(found.lam, nu)
    assert close(found.value, lemma_3(nu, xi, p.L_w, p.b, p.n, T))


@given(problems(), between(1e-3, 1), between(1e-6, 1), between(1e-3, 1e2), st.integers(1, 300), st.booleans())
def test_convex_bound_is_the_solution_of_its_recursion(
    p: Problem, share: float, split: float, eta: float, T: int, decays: bool
) -> None:
    """A ← √(q²A² + 2α²η²) and B ← qB + 2αL_w/n, iterated with 50 digits, and their means over t."""
    step = share / p.beta
    decay = (1 / step - p.beta) * split * 0.999 if decays and share < 1 else 0.0
    convex = Convex(beta=p.beta, eta=eta, step=step, decay=decay, L_w=p.L_w, b=p.b, n=p.n)
    q, a, e = 1 - mp.mpf(step) * mp.mpf(decay), mp.mpf(step), mp.mpf(eta)
    A, B, drifts, own = mp.mpf(0), mp.mpf(0), [], []
    for _ in range(T):
        A, B = mp.sqrt(q**2 * A**2 + 2 * a**2 * e**2), q * B + 2 * a * mp.mpf(p.L_w) / p.n
        drifts.append(A)
        own.append(B)
    met = min(mp.mpf(1), mp.mpf(p.b) * T / p.n)
    last = convex.bound(T=T)
    assert close(last.drift, p.L_w * met * A)
    assert close(last.own, p.L_w * B)
    mean = convex.bound(T=T, average=True)
    slack = 1 + 1e-12
    assert p.L_w * met * mp.fsum(drifts) / T <= mean.drift * slack <= last.drift * slack**2
    assert p.L_w * mp.fsum(own) / T <= mean.own * slack <= last.own * slack**2
    if decay == 0:
        assert close(mean.own, p.L_w * mp.fsum(own) / T)
        assert close(mean.value, mean.drift + last.own * (T + 1) / (2 * T))


def mean_of_lemma_2(p: Problem, nu: float, xi: float, T: int) -> float:
    """The least over whole t₀ of b t₀/n + L_w·(mean over t of E[d_t | d_{t₀} = 0]), the recursion iterated."""
    least = math.inf
    for t0 in range(T + 1):
        distance, total = 0.0, 0.0
        for t in range(t0 + 1, T + 1):
            distance = (1 + nu / t) * distance + nu * xi / (p.n * t)
            total += distance
        least = min(least, p.b * t0 / p.n + p.L_w * total / T)
    return least


@given(problems(), between(1e-2, 5), between(1e-2, 1e3), st.integers(1, 40))
def test_averaged_bound_holds_for_the_iterated_recursion(p: Problem, nu: float, xi: float, T: int) -> None:
    plain = recursion_bound(p, nu=nu, xi=xi, T=T)
    kappa = min(1.0, (1 + 1 / T) ** (nu + 1) / (nu + 1))
    averaged = recursion_bound(p, nu=nu, xi=xi * kappa, T=T)
    assert mean_of_lemma_2(p, nu, xi, T) <= averaged.value * (1 + 1e-9)
    assert averaged.value <= plain.value * (1 + 1e-12)


@given(st.sampled_from(["vanilla", "fast", "free"]), problems(), updates, alphas, free_steps)
def test_averaging_multiplies_xi_by_kappa(algorithm: str, p: Problem, T: int, alpha: float, m: int) -> None:
    at = bound(algorithm, p, T=T, alpha=alpha, m=m, average=True)
    plain = bound(algorithm, p, T=T, alpha=alpha, m=m)
    recursion = recursion_of(algorithm, p, alpha=alpha, m=m)
    if recursion.nu > 1e50:  # beyond what recursion_bound takes
        assert at == plain
        return
    steps = mp.mpf(T) / (m if algorithm == "free" else 1)
    nu = mp.mpf(recursion.nu)
    log_kappa = min(mp.mpf(0), (nu + 1) * mp.log1p(1 / steps) - mp.log1p(nu))
    expected = mp.mpf(plain.log_bound) + log_kappa / (nu + 1)
    assert abs(at.log_bound - expected) <= 1e-9 * (1 + abs(expected))
    assert at.value <= plain.value


class RobustLogistic:
    """log(1 + e^(−M)) with the robust margin M = y⟨w, x⟩ − ε‖w‖: convex, and smooth up to η = 2ε.

    The gradient is that of h(w, δ) = log(1 + e^(−y⟨w, x + δ⟩)) at the exact maximizer δ = −yεw/‖w‖. With
    ‖x‖ ≤ X it is at most L_w = X + ε long, and β = (X + ε)²/4.
    """

    def __init__(self, x: Array, y: Array, eps: float) -> None:
        self.x, self.y, self.eps = x, y, eps
        self.L_w = float(np.linalg.norm(x, axis=-1).max()) + eps
        self.beta, self.eta = self.L_w**2 / 4, 2 * eps

    def gradient(self, w: Array, i: NDArray[np.int64]) -> Array:
        """∇ of example i[k] at w[k], (runs, d)."""
        norm = np.linalg.norm(w, axis=-1, keepdims=True)
        unit = np.divide(w, norm, out=np.zeros_like(w), where=norm > 0)
        margin = self.y[i] * (w * self.x[i]).sum(-1) - self.eps * norm[:, 0]
        chance = 1 / (1 + np.exp(margin))
        gradient: Array = chance[:, None] * (self.eps * unit - self.y[i][:, None] * self.x[i])
        return gradient


def random_logistic(rng: np.random.Generator, n: int, d: int) -> RobustLogistic:
    x = rng.normal(size=(n, d)) * 10 ** rng.uniform(-1, 1)
    return RobustLogistic(x, rng.choice([-1.0, 1.0], size=n), eps=10 ** rng.uniform(-2, 0.5))


def worst_step(eta_factor: float) -> float:
    """The largest ratio of a step's distance to √(q²d² + 2α²η²) over random losses, weights and steps."""
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(300):
        loss = random_logistic(rng, 200, int(rng.integers(1, 4)))
        decay = loss.beta * 10 ** rng.uniform(-3, 1) * rng.integers(0, 2)
        step = rng.uniform(0.2, 1) / (loss.beta + decay)
        scale = 10 ** rng.uniform(-4, 1, size=(200, 1))
        w = rng.normal(size=loss.x.shape) * scale
        v = np.where(rng.random((200, 1)) < 0.5, -w, w + rng.normal(size=w.shape) * scale)
        i = np.arange(200)
        q = 1 - step * decay
        moved = np.linalg.norm(q * (w - v) - step * (loss.gradient(w, i) - loss.gradient(v, i)), axis=1)
        distance = np.linalg.norm(w - v, axis=1)
        limit = np.sqrt((q * distance) ** 2 + 2 * (step * eta_factor * loss.eta) ** 2)
        worst = max(worst, float((moved / limit).max()))
    return worst


def test_one_convex_step_expands_by_at_most_what_is_proved() -> None:
    assert worst_step(1.0) <= 1 + 1e-9
    assert worst_step(0.2) > 1.05  # the check can fail


def twin_weights(
    update: Callable[[Array, int, NDArray[np.int64]], Array], n: int, T: int, d: int, start: float = 0.0
) -> list[Array]:
    """The weights after t = 1, …, T batches of one example, for all n^T orders of batches."""
    orders = np.array(list(itertools.product(range(n), repeat=T)))
    w, all_weights = np.full((len(orders), d), start), []
    for t in range(T):
        w = update(w, t + 1, orders[:, t])
        all_weights.append(w)
    return all_weights


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_convex_twin_runs_stay_within_the_bound_over_all_orders(decay: float) -> None:
    n, T, d = 4, 6, 2
    rng = np.random.default_rng(1)
    largest = 0.0
    for _ in range(12):
        loss = random_logistic(rng, n + 1, d)
        step = 1 / (loss.beta + decay)
        convex = Convex(beta=loss.beta, eta=loss.eta, step=step, decay=decay, L_w=loss.L_w, b=1, n=n)

        def update(w: Array, t: int, i: NDArray[np.int64], loss=loss, step=step) -> Array:  # type: ignore[no-untyped-def]
            return (1 - step * decay) * w - step * loss.gradient(w, i)

        ours = twin_weights(update, n, T, d)
        theirs = twin_weights(lambda w, t, i, f=update: f(w, t, np.where(i == 0, n, i)), n, T, d)
        for t, (w, v) in enumerate(zip(ours, theirs, strict=True), start=1):
            ratio = np.linalg.norm(w - v, axis=1).mean() * loss.L_w / convex.bound(T=t).value
            largest = max(largest, ratio)
        means = [np.mean(side, axis=0) for side in (ours, theirs)]
        averaged = np.linalg.norm(means[0] - means[1], axis=1).mean() * loss.L_w
        assert averaged <= convex.bound(T=T, average=True).value
    assert 0.2 < largest <= 1


def proximal_points(a: Array, u: Array, rho: float) -> Array:
    """argmin over w of |w² − a| + (ρ/2)(w − u)², ρ > 2: the best of its kinks and stationary points."""
    root = np.sqrt(a)
    candidates = np.stack([root, -root, rho * u / (rho + 2), rho * u / (rho - 2)])
    values = np.abs(candidates**2 - a) + rho / 2 * (candidates - u) ** 2
    return np.take_along_axis(candidates, values.argmin(0)[None], 0)[0]


def test_proximal_twin_runs_stay_within_the_recursion_over_all_orders() -> None:
    """h(w, δ; a) = |w² − a + δ| for |δ| ≤ ε: max_δ h = |w² − a| + ε is 2-weakly convex and not smooth."""
    n, T = 4, 6
    rng = np.random.default_rng(2)
    largest = 0.0
    for _ in range(40):
        a = rng.uniform(0.01, 2, size=n + 1)
        rho, c = rng.uniform(2.2, 8), rng.uniform(0.05, 1)
        reached = [np.zeros(1)]

        def update(u: Array, t: int, i: NDArray[np.int64], a=a, rho=rho, c=c, seen=reached) -> Array:  # type: ignore[no-untyped-def]
            w = proximal_points(a[i], u[:, 0], rho)[:, None]
            seen[0] = np.maximum(seen[0], np.abs(w).max())
            return u + min(c / t, 1 / rho) * rho * (w - u)

        ours = twin_weights(update, n, T, 1, start=0.7)
        theirs = twin_weights(lambda u, t, i, f=update: f(u, t, np.where(i == 0, n, i)), n, T, 1, start=0.7)
        L_w = 2 * float(reached[0].max())
        recursion = Proximal(c=c, rho=rho, ell=2.0, L_w=L_w, b=1, n=n).recursion
        limit = 0.0
        for t, (w, v) in enumerate(zip(ours, theirs, strict=True), start=1):
            limit = (1 + recursion.nu / t) * limit + recursion.nu * recursion.xi / (n * t)
            largest = max(largest, float(np.abs(w - v).mean()) / limit)
    assert 0.2 < largest <= 1


def test_constants_of_the_proximal_recursion_are_attained() -> None:
    """h = a·w − (ℓ/2)w² with opposite slopes a of the replaced example: every step reaches the recursion."""
    ell, rho, slope, c, n = 0.8, 2.0, 1.5, 0.3, 5
    recursion = Proximal(c=c, rho=rho, ell=ell, L_w=slope, b=1, n=n).recursion

    def step(u: float, a: float, t: int) -> float:
        return u + c / t * rho * ((rho * u - a) / (rho - ell) - u)

    for t, u, v in ((1, 0.4, -0.1), (2, 1.0, 0.0), (19, 0.3, 0.3)):
        met = step(u, -slope, t) - step(v, slope, t)
        unmet = step(u, slope, t) - step(v, slope, t)
        limit = (1 + recursion.nu / t) * (u - v) + recursion.nu * recursion.xi / (n * t)
        assert met / n + unmet * (1 - 1 / n) == pytest.approx(limit, rel=1e-12)


def test_bounds_by_name_take_defaults_and_name_their_source() -> None:
    assert bound_by_name("convex", GIVEN) == Convex(
        beta=2.0, eta=2.0, step=0.01, L_w=1.0, b=10, n=1000
    ).bound(T=1000)
    assert bound_by_name("proximal", GIVEN) == Proximal(
        c=0.1, rho=10.0, ell=2.0, L_w=1.0, b=10, n=1000
    ).bound(T=1000)
    document = bound_document("convex", GIVEN)
    assert document.source == "derived here"
    assert document.parameters["eta"] == 2.0
    assert "eps" in document.parameters
    assert (document.lam, document.log10_lam, document.t0, document.vacuous) == (None, None, None, False)
    text = "\n".join(bound_lines(document))
    assert "lambda" not in text
    assert "derived here" in text
    assert {h.key for h in document.hypotheses} >= {"convex", "constant_step", "approximately_smooth"}
    averaged = bound_document("vanilla", GIVEN | {"L": 1.0}, average=True)
    assert averaged.source == "Theorem 2, averaged here"
    assert averaged.notes[0].startswith("averaged")
    assert "eps" in bound_document("convex", GIVEN | {"eta": 0.5}).unused


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match=r"step = 0.6 exceeds 1/\(beta \+ decay\) = 0.4"):
        bound_by_name("convex", GIVEN | {"step": 0.6, "decay": 0.5})
    with pytest.raises(InputError, match="rho = 2 must exceed ell = 2"):
        bound_by_name("proximal", GIVEN | {"rho": 2.0})
    with pytest.raises(InputError, match="b = 10 exceeds n = 5"):
        bound_by_name("approximate", GIVEN | {"n": 5})
    with pytest.raises(InputError, match="step is missing: the bound of convex"):
        bound_by_name("convex", GIVEN | {"step": None})
    with pytest.raises(InputError, match="did you mean 'proximal'"):
        bound_by_name("proximl", GIVEN)
