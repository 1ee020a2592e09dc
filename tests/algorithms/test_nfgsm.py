"""N-FGSM: its transcription, and the laws of its noise."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from freeat.algorithms.nfgsm import NFgsm
from freeat.algorithms.registry import make_algorithm, parse_algorithm
from freeat.errors import InputError
from freeat.learner import Learner
from freeat.rng import StepRng
from freeat.threat import L2, Ball, Linf
from problems import BALLS, batch_norm_net, images, weights


@pytest.mark.parametrize("norm", BALLS)
@pytest.mark.parametrize("alpha", [None, 0.05])
def test_n_fgsm_is_its_transcription(norm: str, alpha: float | None) -> None:
    """Noise in [−kε, kε], x + η cut to the box, one step in training mode, no projection, one descent."""
    ball, lr, x, y = BALLS[norm], 0.1, *images(0, 6)
    net, literal = (batch_norm_net(dtype=torch.float64).train() for _ in range(2))
    learner = Learner(net, torch.optim.SGD(net.parameters(), lr=lr))
    record = NFgsm(ball=ball, alpha=alpha, noise=1.5).step(learner, x, y)

    eta = (x + 1.5 * ball.start(x, "uniform", StepRng(0, (1,), 6, 0))).clamp(0, 1) - x
    probe = eta.clone().requires_grad_()
    g = torch.autograd.grad(F.cross_entropy(literal(x + probe), y, reduction="sum"), probe)[0]
    unit = g.sign() if norm == "linf" else g / g.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    delta = (x + eta + (ball.eps if alpha is None else alpha) * unit).clamp(0, 1) - x
    gradients = torch.autograd.grad(F.cross_entropy(literal(x + delta), y), list(literal.parameters()))
    with torch.no_grad():
        for p, gradient in zip(literal.parameters(), gradients, strict=True):
            p -= lr * gradient
    torch.testing.assert_close(record.delta, delta, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(weights(net), weights(literal), rtol=1e-9, atol=1e-11)


def delta_of(algorithm: NFgsm, x: Tensor, y: Tensor) -> Tensor:
    net = batch_norm_net(dtype=torch.float64).train()
    return algorithm.step(Learner(net, torch.optim.SGD(net.parameters(), lr=0.1)), x, y).delta


@given(st.sampled_from([L2, Linf]), st.floats(0.01, 0.5), st.floats(0, 4), st.integers(0, 1000))
def test_a_perturbation_is_at_most_noise_and_step_long_and_keeps_the_box(
    kind: type[Ball], eps: float, noise: float, seed: int
) -> None:
    x, y = images(seed, 4)
    delta = delta_of(NFgsm(ball=kind(eps), noise=noise), x, y)
    assert kind(eps).size(delta).max() <= (noise + 1) * eps * (1 + 1e-9)
    assert (x + delta).min() >= -1e-12
    assert (x + delta).max() <= 1 + 1e-12


@given(st.sampled_from([L2, Linf]), st.floats(0.1, 4), st.integers(0, 1000))
def test_noise_of_a_radius_is_a_multiple_of_uniform_noise(kind: type[Ball], noise: float, seed: int) -> None:
    """Without a box and step, δ is k times the start that Fast would draw."""
    x, y = images(seed, 4)
    ball = kind(0.1, None)
    delta = delta_of(NFgsm(ball=ball, alpha=1e-12, noise=noise), x, y)
    start = ball.start(x, "uniform", StepRng(0, (1,), 4, 0))
    torch.testing.assert_close(delta, noise * start, rtol=1e-6, atol=1e-10)


def test_default_noise_has_the_same_relative_root_mean_square_in_both_norms() -> None:
    x = torch.zeros(64, 3, 16, 16, dtype=torch.float64)
    sizes = {}
    for ball in (Linf(0.1, None), L2(0.1, None)):
        eta = NFgsm(ball=ball).noise_radii * ball.start(x, "uniform", StepRng(0, (1,), 64, 0))
        sizes[ball.norm] = eta.square().mean().sqrt() * (math.sqrt(x[0].numel()) if ball.norm == "l2" else 1)
    assert sizes["l2"] == pytest.approx(float(sizes["linf"]), rel=0.01)


def test_its_name_has_a_hyphen_and_may_name_an_objective() -> None:
    assert str(parse_algorithm("N_FGSM")) == "n-fgsm"
    assert str(parse_algorithm("n-fgsm-trades")) == "n-fgsm-trades"
    assert make_algorithm("n-fgsm", Linf("8/255"), noise=3.0).noise == 3.0  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="does not take it"):
        make_algorithm("fast", Linf("8/255"), noise=3.0)
    with pytest.raises(InputError, match="takes no number of steps"):
        parse_algorithm("n-fgsm-4")
    with pytest.raises(InputError, match="2 is usual"):
        NFgsm(ball=Linf("8/255"), noise=-1.0)
