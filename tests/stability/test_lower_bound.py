"""Theorem 3's instance: the closed form of Vanilla's distance, and its two exponents."""

import math

import pytest
import torch

from freeat.errors import InputError
from freeat.rng import StepRng
from freeat.stability.estimates import fitted_exponent
from freeat.stability.instances import KindLoss, LowerBoundInstance, TwoKinds, lower_bound_maximum
from freeat.theory import Convex

SEEDS = range(6)


def _growth_exponent(T: torch.Tensor, distance: torch.Tensor) -> float:
    """The a of distance ∝ T^a."""
    found = fitted_exponent(T.double().numpy(), distance.double().numpy()[None])
    assert found is not None
    return -found.value


def _net(w: torch.Tensor, instance: LowerBoundInstance) -> TwoKinds:
    net = TwoKinds(len(w), instance.eps, instance.gamma)
    with torch.no_grad():
        net.w.copy_(w)
    return net.requires_grad_(False)


def test_the_inner_maximum_is_exact() -> None:
    instance = LowerBoundInstance(n=3, T=4, d=16)
    g = torch.Generator().manual_seed(0)
    x = torch.zeros(2, 1, 1, 16, dtype=torch.float64)
    y = torch.tensor([0, 1])
    for k in range(20):
        w = 0.1 * torch.randn(16, generator=g, dtype=torch.float64) - (0.4 if k % 2 else 0.0)
        h = KindLoss().attack(_net(w, instance), x, y)
        delta = lower_bound_maximum(h, x, y, instance.ball, StepRng(0))
        assert float(h(delta)[0]) == pytest.approx(max(0.0, float(w.max()) - instance.gamma), abs=1e-15)
        assert float(h(delta)[1]) == pytest.approx(-float(w.sum()) / 4)
        others = instance.ball.project(torch.randn(300, 1, 1, 16, generator=g, dtype=torch.float64))
        values = KindLoss().attack(_net(w, instance), others, torch.zeros(300, dtype=torch.long))(others)
        assert float(values.max()) <= float(h(delta)[0]) + 1e-12


@pytest.mark.parametrize(("n", "T"), [(60, 720), (2, 300)])
def test_vanilla_follows_the_closed_form_for_every_seed(n: int, T: int) -> None:
    instance = LowerBoundInstance(n=n, T=T, d=4 * T)
    visits = torch.stack([instance.visits(seed) for seed in SEEDS])
    expected = instance.closed_form(visits)
    reached = None
    for t, w in enumerate(instance.run("vanilla", torch.cat([torch.zeros(1, T), visits]).long())):
        assert bool((w[0] == 0).all()), "on S Vanilla never moves"
        assert torch.allclose(w[1:].norm(dim=1), expected[:, t], rtol=0, atol=1e-10)
        reached = w if reached is None else torch.maximum(reached, w.abs())
    assert instance.eta <= 1 / instance.beta(reached)
    mean = expected.mean(0)
    first, last, exponent = (5 * n, n * n // 5, 0.5) if n > 25 else (20 * n * n, T, 1.0)
    times = torch.arange(first, last + 1)
    assert _growth_exponent(times, mean[times - 1]) == pytest.approx(exponent, abs=0.1)
    assert bool((mean[times - 1] >= 0.3 * instance.eta * (times.sqrt() + times / n) / 2).all())


def test_lower_bound_instance_attains_the_order_of_the_convex_bound() -> None:
    """docs/theory.md: the instance is convex in w with η = √2 and L_w = 1, so its √T + T/n has the right order."""
    n, T = 60, 720
    instance = LowerBoundInstance(n=n, T=T, d=4 * T)
    convex = Convex(beta=1.0, eta=math.sqrt(2), step=instance.eta, L_w=1.0, b=1, n=n)
    visits = torch.stack([instance.visits(seed) for seed in range(16)])
    distances = instance.closed_form(visits)
    for t in range(n, T + 1):
        at = convex.bound(T=t)
        assert at.value == pytest.approx(2 * instance.eta * (math.sqrt(t) + t / n))
        on_paths = at.drift + 2 * instance.eta * visits[:, :t].sum(1)
        assert bool((distances[:, t - 1] <= on_paths).all())
        ratio = float(distances[:, t - 1].mean()) / at.value
        assert ratio <= 1
        assert ratio >= 0.25 or t < 5 * n


@pytest.mark.parametrize("name", ["fast", "free"])
def test_fast_and_free_run_on_the_same_instance_with_the_same_draws(name: str) -> None:
    instance = LowerBoundInstance(n=20, T=80, d=320)
    vanilla, other = (instance.distances(which, SEEDS) for which in ("vanilla", name))
    batches = 80 if name == "fast" else 20
    assert other.shape == (6, batches)
    for seed in SEEDS:
        met = instance.visits(seed)[:batches].cumsum(0) > 0
        assert torch.equal(other[seed] > 0, met)
        assert torch.equal(vanilla[seed, :batches] > 0, met)


@pytest.mark.parametrize(
    ("name", "early", "late", "distance"),
    [("vanilla", 0.56, 0.98, 2.24), ("fast", 1.51, 0.99, 8.47), ("free", 1.10, 1.01, 3.01)],
)
def test_growth_exponents_match_the_docs(name: str, early: float, late: float, distance: float) -> None:
    """docs/stability.md: the exponents before and after n², over 16 seeds."""
    found = []
    for n, T, first in ((60, 720, 300), (2, 300, 80)):
        apart = LowerBoundInstance(n=n, T=T, d=4 * T).distances(name, range(16)).mean(0)
        times = torch.arange(1, len(apart) + 1) * (T // len(apart))
        chosen = times >= first
        found.append((_growth_exponent(times[chosen], apart[chosen]), float(apart[-1])))
    assert (found[0][0], found[1][0]) == pytest.approx((early, late), abs=0.006)
    assert found[0][1] == pytest.approx(distance, abs=0.006)


def test_growth_exponent_of_a_power_is_exact() -> None:
    T = torch.arange(1, 50)
    assert _growth_exponent(T, 3 * T.double() ** 0.7) == pytest.approx(0.7)
    assert math.isfinite(LowerBoundInstance(n=2, T=3, d=12).gamma)


def test_too_few_dimensions_are_refused() -> None:
    with pytest.raises(InputError, match="at least 4T = 40"):
        LowerBoundInstance(n=2, T=10, d=39)
