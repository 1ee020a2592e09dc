"""The perturbation of every attack is in the ball and the box, whatever the images; and the verdict is true."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from freeat.attacks.names import parse_attack
from freeat.attacks.verdict import Attack
from freeat.streams import ImageCoins
from freeat.threat import L2, Ball, Linf
from problems import random

OWN = ("fgsm", "pgd-3", "pgd-margin-2-2", "pgd-dlr-3", "square-15")
PEERS = ("apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t", "autoattack-square")
SHAPES = ((1, 8, 8), (3, 8, 8), (2, 5, 4), (1, 1, 1), (3, 2, 7))


def net_for(shape: tuple[int, int, int], classes: int, seed: int) -> nn.Module:
    linear = nn.Linear(torch.Size(shape).numel(), classes).requires_grad_(False)
    linear.weight.copy_(random(seed, *linear.weight.shape))
    linear.bias.copy_(-linear.weight.sum(-1) / 2)
    return nn.Sequential(nn.Flatten(), linear).eval()


def check(attack: Attack, net: nn.Module, x: Tensor, y: Tensor, ball: Ball) -> None:
    attacked = attack(net, x, y, ball, ImageCoins(0, range(len(x))))
    assert attacked.delta.shape == x.shape
    assert attacked.delta.isfinite().all()
    assert (ball.size(attacked.delta) <= ball.eps * (1 + 1e-6) + 1e-7).all()
    assert (x + attacked.delta).amin() >= -1e-6
    assert (x + attacked.delta).amax() <= 1 + 1e-6
    shown = net(ball.apply(x, attacked.delta))
    certain = (shown.topk(2).values[:, 0] - shown.topk(2).values[:, 1]) > 1e-4
    assert torch.equal((shown.argmax(-1) != y)[certain], attacked.fooled[certain])


@st.composite
def cases(draw: st.DrawFn) -> tuple[nn.Module, Tensor, Tensor, Ball]:
    shape = draw(st.sampled_from(SHAPES))
    classes = draw(st.sampled_from((2, 3, 4, 10)))
    n = draw(st.integers(1, 4))
    seed = draw(st.integers(0, 1000))
    kind = draw(st.sampled_from(("grey", "black", "white", "both", "random")))
    x = {
        "grey": torch.full((n, *shape), 0.5),
        "black": torch.zeros(n, *shape),
        "white": torch.ones(n, *shape),
        "both": (random(seed, n, *shape, dtype=torch.float32) > 0).float(),
        "random": torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed)),
    }[kind]
    net = net_for(shape, classes, seed)
    right = draw(st.booleans())
    y = net(x).argmax(-1) if right else torch.arange(n) % classes
    eps = draw(st.sampled_from((0.0, 1e-4, 8 / 255, 0.5, 1.0)))
    return net, x, y, draw(st.sampled_from((L2, Linf)))(eps)


@pytest.mark.parametrize("name", OWN)
@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_in_the_ball_and_the_box(name: str, case: tuple[nn.Module, Tensor, Tensor, Ball]) -> None:
    check(parse_attack(name), *case)


@pytest.mark.parametrize("name", OWN)
def test_large_images(name: str) -> None:
    net = net_for((3, 64, 64), 4, 0)
    x = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    for ball in (L2(1.0), Linf(8 / 255)):
        check(parse_attack(name), net, x, net(x).argmax(-1), ball)


@pytest.mark.peer
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("ball", [L2(0.5), Linf(0.05), Linf(0.0)], ids=str)
@pytest.mark.parametrize("name", PEERS)
def test_autoattack_too(name: str, ball: Ball, classes: int) -> None:
    pytest.importorskip("pyautoattack")
    net = net_for((1, 8, 8), classes, 0)
    x = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    check(parse_attack(name), net, x, net(x).argmax(-1), ball)
