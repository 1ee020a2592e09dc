"""The strength of a training attack: what is measured, and that measuring changes nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from freeat import Erm, Fast, Free, Vanilla, WarmUp
from freeat.algorithms import Algorithm
from freeat.algorithms.step import has_strength
from freeat.algorithms.strength import measure_strength
from freeat.compute.precision import Precision
from freeat.learner import Learner
from freeat.objectives import Trades
from freeat.threat import Ball, make_ball
from problems import BALLS, batch_norm_net, images, same_bits, weights

B = 6
MAKERS: dict[str, Callable[[Ball], Algorithm]] = {
    "vanilla": lambda ball: Vanilla(ball=ball, m=3),
    "fast": lambda ball: Fast(ball=ball),
    "free": lambda ball: Free(ball=ball, m=3),
    "free, carry": lambda ball: Free(ball=ball, m=3, carry=True),
    "free-trades": lambda ball: Free(ball=ball, m=3, objective=Trades()),
    "warm-up": lambda ball: WarmUp(algorithm=Vanilla(ball=ball, m=2), updates=50),
}


def learner_of(net: nn.Module, **changes: object) -> Learner:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return Learner(net, optimizer, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", MAKERS)
def test_measuring_leaves_the_training_as_it_is(name: str, precision: str) -> None:
    """The same bits with and without a measurement before every step, also when the budget is spent."""
    x, y = (t.to(torch.float32) if t.is_floating_point() else t for t in images(0, B))
    nets = [batch_norm_net().float().train() for _ in range(2)]
    algorithm = MAKERS[name](BALLS["l2"])
    for net, measures in zip(nets, (True, False), strict=True):
        budget = 2 * algorithm.updates_per_batch
        made = Precision(precision, torch.device("cpu"))
        learner = learner_of(net, total_updates=budget, precision=made)
        state = torch.random.get_rng_state()
        while learner.updates_left > 0:
            if measures:
                measure_strength(algorithm, learner, x, y, BALLS["l2"], total=B)
            algorithm.step(learner, x, y)
        if measures:
            found = measure_strength(algorithm, learner, x, y, BALLS["l2"], total=B)
            assert found.cost.gradient_evaluations >= 2 * B * algorithm.updates_per_batch
        assert torch.equal(state, torch.random.get_rng_state())
        assert learner.updates == budget
        assert learner.cost.gradient_evaluations == B * budget * algorithm.cost.gradient_evaluations
    assert same_bits(weights(nets[0]), weights(nets[1]))


class Line(nn.Module):
    """Two classes by the sign of a sum of the pixels, without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-1, 1, 12, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = x.flatten(-3) @ self.w
        return torch.stack([-z, z], -1)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_the_strength_of_a_linear_model_is_known(norm: str) -> None:
    """PGD reaches the maximum ε‖w‖_q, half the radius half of it, and a random start of Free's first pass none."""
    x = torch.rand(64, 3, 2, 2, dtype=torch.float64)
    y = torch.arange(64) % 2
    ball = make_ball(norm, 0.1, None)
    learner = learner_of(Line())

    def share(algorithm: Algorithm) -> float:
        return measure_strength(algorithm, learner, x, y, ball, total=64).margin_share

    assert share(Vanilla(ball=ball, m=20)) == pytest.approx(1, abs=1e-3)
    assert share(Vanilla(ball=ball.scaled(0.5), m=20)) == pytest.approx(0.5, abs=1e-3)
    assert abs(share(Free(ball=ball, m=1))) < 0.2
    assert 0.5 < share(Free(ball=ball, m=4)) < 0.95
    full = measure_strength(Vanilla(ball=ball, m=20), learner, x, y, ball, total=64)
    assert full.size == pytest.approx(1, abs=1e-3)
    assert full.loss_increase > 0


def test_micro_batches_measure_the_same() -> None:
    x, y = torch.rand(10, 3, 2, 2, dtype=torch.float64), torch.arange(10) % 2
    found = [
        measure_strength(
            Free(ball=BALLS["linf"], m=2), learner_of(Line(), micro_batch=part), x, y, BALLS["linf"], total=10
        )
        for part in (None, 4)
    ]
    for name in ("size", "loss_increase", "margin_share"):
        assert getattr(found[0], name) == pytest.approx(getattr(found[1], name))


def test_only_an_attack_has_a_strength() -> None:
    assert has_strength(Free(ball=BALLS["l2"]))
    assert has_strength(WarmUp(algorithm=Free(ball=BALLS["l2"]), updates=3))
    assert not has_strength(Erm())
