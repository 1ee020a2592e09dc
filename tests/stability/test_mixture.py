"""Closed-form robust risks of the Gaussian mixture, against draws, and the constants of its truncated instance."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm as gaussian

from freeat.errors import InputError
from freeat.objectives import BoundedLoss
from freeat.stability.instances import affine_maximum
from freeat.stability.mixture import (
    Linear,
    LinearConstants,
    Mixture,
    TanhNet,
    attacked_risk,
    gaussian_mean,
    linear_population_risk,
    linear_training_risk,
    logistic,
    make_model,
    signs,
)
from freeat.threat import L2, Linf

DRAWS = 1_000_000
BALLS = [L2(0.4, box=None), Linf(0.08, box=None)]


@pytest.mark.parametrize("ball", BALLS, ids=["l2", "linf"])
@pytest.mark.parametrize("surrogate", ["probit", "logistic"])
def test_closed_form_risks_agree_with_a_million_draws(ball, surrogate) -> None:
    mixture = Mixture(d=7, distance=1.3, sigma=0.8)
    g = torch.Generator().manual_seed(1)
    w = mixture.mu + 0.5 * torch.randn(3, 7, generator=g, dtype=torch.float64)
    x, y = mixture.draw(DRAWS, 0, "test")
    exact = linear_population_risk(w, mixture, ball, surrogate)
    drawn = linear_training_risk(w, x.expand(3, *x.shape), y.expand(3, -1), ball, surrogate)
    torch.testing.assert_close(drawn.zero_one, exact.zero_one, atol=2e-3, rtol=0)
    torch.testing.assert_close(drawn.surrogate, exact.surrogate, atol=2e-3, rtol=0)


def test_without_signal_the_l2_risk_is_the_same_for_every_classifier_and_not_a_half() -> None:
    mixture = Mixture(d=5, distance=0.0, sigma=0.7)
    w = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    risk = linear_population_risk(w, mixture, L2(0.3, box=None), "probit").zero_one
    torch.testing.assert_close(risk, torch.full((4,), float(gaussian.cdf(0.3 / 0.7)), dtype=torch.float64))


@settings(max_examples=40, deadline=None)
@given(st.floats(-8, 8), st.floats(1e-3, 40))
def test_the_mean_of_the_logistic_loss_agrees_with_adaptive_quadrature(mean: float, deviation: float) -> None:
    found = gaussian_mean(
        logistic, torch.tensor([mean], dtype=torch.float64), torch.tensor([deviation], dtype=torch.float64)
    )

    def integrand(z: float) -> float:
        return float(expit(-(mean + deviation * z)) * gaussian.pdf(z))

    step = -mean / deviation
    expected, _ = quad(integrand, -10, 10, points=[step] if abs(step) < 10 else None, limit=400)
    assert float(found) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("ball", BALLS, ids=["l2", "linf"])
def test_a_linear_model_attacked_by_pgd_has_its_exact_training_risk(ball) -> None:
    mixture = Mixture(d=6, distance=1.0)
    x, y = mixture.draw(200, 0, "sample")
    model = Linear(6)
    w = mixture.mu + 0.3
    with torch.no_grad():
        model.w.copy_(w)
    exact = linear_training_risk(w[None], x[None], y[None], ball, "probit")
    attacked = attacked_risk(model, x[None], y[None], ball, "probit", steps=40, seed=0)
    torch.testing.assert_close(attacked.surrogate, exact.surrogate, atol=1e-6, rtol=0)


def test_a_net_without_a_perturbation_has_the_risk_of_its_margins() -> None:
    model = TanhNet(4, 3)
    with torch.no_grad():
        model.W.copy_(torch.randn(3, 4, generator=torch.Generator().manual_seed(0)))
        model.v.fill_(1.0)
    x, y = Mixture(d=4, distance=1.0).draw(50, 0, "sample")
    found = attacked_risk(model, x[None], y[None], L2(1e-12, box=None), "logistic", steps=2, seed=0)
    expected = BoundedLoss().loss(model, x, y, x).mean()
    torch.testing.assert_close(found.surrogate[0], expected)
    assert 0 < found.error < 0.1


@pytest.mark.parametrize("d", [2, 30])
def test_truncated_inputs_are_bounded(d: int) -> None:
    mixture = Mixture(d=d, distance=0.5, sigma=0.1, truncated=True)
    x, y = mixture.draw(2000, 0, "sample")
    assert float(x.flatten(1).norm(dim=1).max()) <= mixture.reach
    assert signs(y).abs().eq(1).all()


def _constants(**changes) -> LinearConstants:
    values = {"reach": 1.0, "initial": 1.0, "eps": 0.2, "c": 0.1, "T": 100, "b": 5, "n": 50}
    return LinearConstants(**{**values, **changes})


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_constants_bound_gradients_and_their_changes_on_the_shell(seed: int) -> None:
    """Lipschitz, smoothness and the lower bound on the gradient in δ, at random points of the shell."""
    constants = _constants()
    p, d = constants.problem(), 3
    g = torch.Generator().manual_seed(seed)

    def point() -> tuple[torch.Tensor, torch.Tensor]:
        w, delta = (torch.randn(d, generator=g, dtype=torch.float64) for _ in range(2))
        scale = constants.smallest + (constants.largest - constants.smallest) * float(
            torch.rand((), generator=g)
        )
        return w / w.norm() * scale, delta / delta.norm() * constants.eps * float(torch.rand((), generator=g))

    x = torch.randn(d, generator=g, dtype=torch.float64)
    x = x / x.norm() * constants.reach

    def gradient(w: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
        w, delta = w.clone().requires_grad_(), delta.clone().requires_grad_()
        h = torch.sigmoid(-(w @ (x + delta)))
        return torch.cat(torch.autograd.grad(h, (w, delta)))

    (w, a), (v, b) = point(), point()
    first, second = gradient(w, a), gradient(v, b)
    distance = torch.cat([w - v, a - b]).norm()
    assert first.norm() <= p.L + 1e-12
    assert first[:d].norm() <= p.L_w + 1e-12
    assert (first - second).norm() <= p.beta * distance + 1e-12
    assert first[d:].norm() >= 1 / p.psi - 1e-12


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_exact_maximizer_is_lipschitz_in_the_weights(seed: int) -> None:
    """‖δ*(w) − δ*(w′)‖ ≤ (ε/r)‖w − w′‖ for ‖w‖, ‖w′‖ ≥ r: what the sharper bound rests on."""
    g = torch.Generator().manual_seed(seed)
    ball, r = L2(0.3, box=None), 0.5
    found = []
    for _ in range(2):
        model = make_model("linear", 4, 1)
        w = torch.randn(4, generator=g, dtype=torch.float64)
        with torch.no_grad():
            model.w.copy_(w / w.norm() * (r + float(torch.rand((), generator=g))))
        x, y = Mixture(d=4, distance=1.0).draw(1, seed, "sample")

        def loss(x_adv: torch.Tensor, model=model, y=y) -> torch.Tensor:
            return BoundedLoss().loss(model, x_adv, y, x_adv)

        found.append((model.w.detach(), affine_maximum(loss, x, y, ball, None).flatten()))
    (w, one), (v, two) = found
    assert (one - two).norm() <= ball.eps / r * (w - v).norm() + 1e-9


def test_the_sharper_recursion_falls_like_one_over_n_where_theorem_2_does_not() -> None:
    from freeat.theory import bound, recursion_bound

    def both(n: int) -> tuple[float, float]:
        constants = _constants(reach=1.2, initial=0.5, eps=0.1, T=2000, b=10, n=n)
        nu, xi = constants.sharper_vanilla()
        problem = constants.problem()
        return recursion_bound(problem, nu=nu, xi=xi, T=2000).value, bound("vanilla", problem, T=2000).value

    (sharp, printed), (sharp_10, printed_10) = both(2000), both(20_000)
    assert sharp_10 == pytest.approx(sharp / 10)
    assert printed_10 > printed / 5
    assert sharp < printed


def test_weights_that_could_reach_zero_are_refused() -> None:
    with pytest.raises(InputError, match="must exceed"):
        _constants(initial=0.01)


def test_bad_mixtures_are_refused() -> None:
    with pytest.raises(InputError, match="σ > 0"):
        Mixture(d=2, distance=1.0, sigma=0.0)
    with pytest.raises(InputError, match="model"):
        make_model("forest", 2, 2)  # type: ignore[arg-type]
    assert math.isfinite(Mixture(d=2, distance=1.0).reach)
