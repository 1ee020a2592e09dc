"""The one loop of projected ascent: closed-form optima of linear models, stop rules, stacks, gradients."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from freeat.attacks.pgd import Pgd, delta_gradient, last_iterate, projected_ascent
from freeat.objectives import cross_entropy
from freeat.rng import ImageRng, StepRng
from freeat.threat import L2, STARTS, Ball, Linf, Start
from problems import BALLS, images, random, smooth_net

B, SHAPE = 5, (2, 3, 4)


class Binary(nn.Module):
    """Logits ±⟨w, x⟩/2, so the margin is ⟨w, x⟩: its least value in a ball is ⟨w, x⟩ − ε‖w‖_*."""

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.w = w

    def forward(self, x: Tensor) -> Tensor:
        score = (x * self.w).sum((-3, -2, -1)) / 2
        return torch.stack([-score, score], -1)


def optimum(ball: Ball, w: Tensor) -> float:
    dual = w.norm() if isinstance(ball, L2) else w.abs().sum()
    return ball.eps * float(dual)


def problem(ball: Ball) -> tuple[Binary, Tensor, Tensor, Ball]:
    """Far from the box's walls, so that only the ball matters; both labels."""
    y = torch.arange(B) % 2
    return Binary(random(1, *SHAPE)), random(2, B, *SHAPE), y, type(ball)(ball.eps, None)


@pytest.mark.parametrize("ball", [L2(0.7), Linf(0.12), L2(3.0), Linf(1.0)], ids=str)
@pytest.mark.parametrize("start", STARTS)
class TestLinearModels:
    def test_training_ascent_reaches_the_optimum(self, ball: Ball, start: Start) -> None:
        net, x, y, ball = problem(ball)
        delta = last_iterate(
            lambda z: cross_entropy(net(z), y), x, ball, StepRng(0), steps=80, alpha=ball.eps / 4, start=start
        )
        lost = torch.where(y == 1, -1.0, 1.0) * (delta * net.w).sum((-3, -2, -1))
        torch.testing.assert_close(lost, torch.full_like(lost, optimum(ball, net.w)), rtol=1e-6, atol=0)

    @pytest.mark.parametrize("iterate", ["last", "worst"])
    def test_evaluation_finds_the_largest_loss_and_the_right_outcome(
        self, ball: Ball, start: Start, iterate: str
    ) -> None:
        """Fooled exactly when the ball reaches over the boundary; the loss is log(1 + exp(ε‖w‖ − margin))."""
        net, _, y, ball = problem(ball)
        margin = optimum(ball, net.w) * torch.tensor([0.5, 0.9, 1.1, 2.0, -0.3], dtype=torch.float64)
        direction = (net.w / net.w.square().sum()) * torch.where(y == 1, 1.0, -1.0)[:, None, None, None]
        x = margin[:, None, None, None] * direction
        pgd = Pgd(steps=80, start=start, iterate=iterate)  # type: ignore[arg-type]
        found = pgd(net, x, y, ball, ImageRng(0, range(B)), with_loss=True)
        assert found.fooled.tolist() == [True, True, False, False, True]
        assert found.loss is not None
        expected = torch.log1p((optimum(ball, net.w) - margin).exp())
        torch.testing.assert_close(found.loss, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("norm", BALLS)
def test_the_box_is_part_of_the_constraint(norm: str) -> None:
    """Linf in the box: each pixel goes to its own wall or to ±ε, which is the exact optimum."""
    w = random(1, *SHAPE)
    x = random(3, B, *SHAPE).sigmoid()
    y, net, ball = torch.ones(B, dtype=torch.long), Binary(w), BALLS[norm]
    delta = last_iterate(
        lambda z: cross_entropy(net(z), y), x, ball, StepRng(0), steps=60, alpha=ball.eps / 4
    )
    assert ((x + delta) >= -1e-15).all()
    assert ((x + delta) <= 1 + 1e-15).all()
    if norm == "linf":
        best = (-ball.eps * w.sign()).expand_as(x).clamp(0 - x, 1 - x)
        torch.testing.assert_close(delta, best, rtol=0, atol=1e-12)


def test_gradients_are_each_images_own() -> None:
    x, y = images(0, 6)
    net, ball = smooth_net(), BALLS["l2"]
    delta = 0.05 * random(1, *x.shape)
    whole = delta_gradient(lambda x_adv: cross_entropy(net(x_adv), y), x, delta, ball)
    for j in range(6):
        single = delta_gradient(
            lambda x_adv, j=j: cross_entropy(net(x_adv), y[[j]]), x[[j]], delta[[j]], ball
        )
        torch.testing.assert_close(whole[[j]], single, rtol=1e-11, atol=1e-14)
    with torch.no_grad():
        again = delta_gradient(lambda x_adv: cross_entropy(net(x_adv), y), x, delta, ball)
    assert torch.equal(again, whole), "a caller's no_grad does not matter"
    assert not delta.requires_grad


def test_a_saturated_net_is_still_attacked() -> None:
    """Gradients of 1e-30 have a direction; a start at a flat point leaves it."""
    w = random(1, *SHAPE)
    ball = L2(0.5, None)
    x = torch.zeros(1, *SHAPE, dtype=torch.float64)

    def faint(x_adv: Tensor) -> Tensor:
        return -1e-30 * (x_adv * w).sum((-3, -2, -1))

    delta = last_iterate(faint, x, ball, StepRng(0), steps=30, alpha=0.2)
    assert math.isclose(float(-(delta * w).sum()), optimum(ball, w), rel_tol=1e-6)

    def flat_at_zero(x_adv: Tensor) -> Tensor:
        return x_adv.square().sum((-3, -2, -1))

    delta = last_iterate(flat_at_zero, x, ball, StepRng(0), steps=3, alpha=0.2, start="zero")
    assert float(delta.norm()) == pytest.approx(0.5)


def ascended(
    net: nn.Module, x: Tensor, y: Tensor, ball: Ball, rng: StepRng, **how: Any
) -> tuple[Tensor, list[Tensor]]:
    """The last iterate, and the rows that each evaluation received."""
    seen: list[Tensor] = []

    def evaluate(x_adv: Tensor, delta: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(rows)
        logits, labels = net(x_adv), y[..., rows]
        return cross_entropy(logits, labels), logits.argmax(-1) != labels

    delta = projected_ascent(evaluate, x, ball, rng, alpha=ball.eps / 4, finish=evaluate, **how)
    return delta, seen


@pytest.mark.parametrize("norm", BALLS)
def test_images_that_leave_the_batch_do_not_change_the_others(norm: str) -> None:
    x, y = images(0, 30)
    net, ball = smooth_net(seed=2), BALLS[norm].scaled(0.3)
    how: dict[str, Any] = {"steps": 6, "patience": 1}
    whole, everyone = ascended(net, x, y, ball, StepRng(0), **how)
    some, seen = ascended(net, x, y, ball, StepRng(0), shrink=True, **how)
    assert [len(rows) for rows in everyone] == [30] * 7
    assert 0 < len(seen[-1]) < 30
    torch.testing.assert_close(some, whole[seen[-1]], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("norm", BALLS)
@pytest.mark.parametrize("patience", [None, 0, 2])
def test_a_stack_of_batches_is_ascended_member_by_member(norm: str, patience: int | None) -> None:
    x, y = images(1, 6, stack=(3,))
    net, ball = smooth_net(seed=2), BALLS[norm]

    class Stacked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([net(part) for part in x])

    how: dict[str, Any] = {"steps": 3, "patience": patience, "noise": 0.01}
    whole, _ = ascended(Stacked(), x, y, ball, StepRng(4), **how)
    for k in range(3):
        assert torch.equal(whole[k], ascended(net, x[k], y[k], ball, StepRng(4), **how)[0])


def test_the_last_iterate_is_evaluated_without_gradients_where_asked_for() -> None:
    x, y = images(0, 4)
    net, enabled = smooth_net(), []

    def evaluate(x_adv: Tensor, delta: Tensor, rows: Tensor) -> tuple[Tensor, None]:
        enabled.append(torch.is_grad_enabled())
        return cross_entropy(net(x_adv), y), None

    for finish in (None, evaluate):
        enabled.clear()
        projected_ascent(evaluate, x, BALLS["l2"], StepRng(0), steps=2, alpha=0.1, finish=finish)
        assert enabled == [True, True, *([] if finish is None else [False])]


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_bounds_are_computed_once_for_an_attack(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ball = BALLS[norm]
    computed = []
    original = type(ball).feasible
    monkeypatch.setattr(type(ball), "feasible", lambda *args: computed.append(1) or original(*args))
    monkeypatch.setattr(type(ball), "confine", lambda ball, x, delta: delta)  # of the start only
    x, y = images(0, 4)
    net = smooth_net()
    last_iterate(lambda z: cross_entropy(net(z), y), x, ball, StepRng(0), steps=7, alpha=0.1)
    assert len(computed) == 1
