"""On linear models every attack is compared with the closed-form optimum.

For logits Wx + b the image x is lost in the ball exactly when some class k has
z_k − z_y + ε‖w_k − w_y‖_* ≥ 0, with the dual norm, as long as the box does not cut the ball.
"""

import pytest
import torch
from torch import Tensor, nn

from freeat.attacks.registry import parse_attack
from freeat.rng import ImageRng
from freeat.threat import L2, Ball, Linf
from problems import random

SHAPE, N = (1, 6, 6), 60
BALLS = {"l2": L2(0.06), "linf": Linf(0.012)}
# The part of ε up to which every image must fall, with two classes and with more: with more than two classes an
# untargeted ascent may climb towards a class that is not the nearest. Square's windows in L2 are 3×3 and larger.
OWN = {
    "pgd-40": (0.99, 0.8),
    "pgd-margin-40": (0.99, 0.9),
    "pgd-dlr-40": (0.99, 0.9),
    "square-1000": (0.6, 0.6),
    "apgd-ce": (0.999, 0.7),
    "apgd-dlr": (0.999, 0.6),
    "apgd-t": (0.999, 0.999),
}
PEERS = {
    "fab": (0.99, 0.99),
    "fab-t": (0.99, 0.99),
    "pyautoattack-apgd-ce": (0.99, 0.7),
}


def problem(classes: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Grey images far from the box's walls, labelled by the model, whose margins spread around the optimum."""
    x = 0.5 + 0.05 * random(1, N, *SHAPE, dtype=torch.float32).clamp(-2, 2)
    linear = nn.Linear(36, classes).requires_grad_(False)
    linear.weight.copy_(random(2, classes, 36))
    linear.bias.copy_(-linear.weight.sum(-1) / 2 + 0.3 * random(3, classes))
    net = nn.Sequential(nn.Flatten(), linear).eval()
    return net, x, net(x).argmax(-1)


def reach(net: nn.Module, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
    """The part of ε at which each image is first lost: below 1 it is lost in the ball."""
    w, z = net[1].weight, net(x)  # type: ignore[index]
    gaps = w[None] - w[y][:, None]
    dual = gaps.norm(dim=-1) if isinstance(ball, L2) else gaps.abs().sum(-1)
    needed = (z.gather(1, y[:, None]) - z) / (ball.eps * dual)
    return needed.scatter(1, y[:, None], torch.inf).amin(1)


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("ball", BALLS.values(), ids=BALLS)
@pytest.mark.parametrize("name", [*OWN, *(pytest.param(name, marks=pytest.mark.peer) for name in PEERS)])
def test_fooled_exactly_where_the_optimum_reaches(name: str, ball: Ball, classes: int) -> None:
    if name in PEERS:
        pytest.importorskip("pyautoattack")
    strength = (OWN | PEERS)[name][classes > 2]
    net, x, y = problem(classes)
    needed = reach(net, x, y, ball)
    assert (needed < strength).sum() > 5
    assert (needed > 1).sum() > 5, "images on both sides, or the test shows nothing"
    attacked = parse_attack(name)(net, x, y, ball, ImageRng(0, range(N)))
    assert not attacked.fooled[needed > 1 + 1e-4].any(), "no attack can do what is impossible"
    assert attacked.fooled[needed < strength].all()


@pytest.mark.parametrize("ball", BALLS.values(), ids=BALLS)
def test_one_step_is_optimal_for_two_classes(ball: Ball) -> None:
    """FGSM on a linear model is the optimum itself, in length and direction."""
    net, x, y = problem(2)
    delta = parse_attack("fgsm", iterate="last")(net, x, y, ball, ImageRng(0, range(N))).delta
    w = net[1].weight  # type: ignore[index]
    gained = (delta.flatten(1) * (w[1 - y] - w[y])).sum(-1)
    dual = (w[1 - y] - w[y]).norm(dim=-1) if isinstance(ball, L2) else (w[1 - y] - w[y]).abs().sum(-1)
    torch.testing.assert_close(gained, ball.eps * dual, rtol=1e-4, atol=0)
    torch.testing.assert_close(ball.size(delta), torch.full_like(ball.size(delta), ball.eps))
