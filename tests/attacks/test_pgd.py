"""PGD as an evaluation: outcomes, losses, active sets, company."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from freeat import Erm
from freeat.attacks.pgd import Pgd, last_iterate
from freeat.attacks.result import AttackResult
from freeat.errors import InputError
from freeat.learner import Learner
from freeat.objectives import cross_entropy
from freeat.rng import ImageRng
from freeat.threat import Ball
from problems import BALLS, images, smooth_net

B = 40
BOTH_NORMS = pytest.mark.parametrize("ball", [b.scaled(0.35) for b in BALLS.values()], ids=BALLS)


@pytest.fixture(scope="module")
def net() -> nn.Module:
    """Half trained: some images are wrong, some fall at some step, some stand."""
    net = smooth_net(seed=2)
    learner = Learner(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for t in range(60):
        Erm().step(learner, *images(t, B))
    return net.eval().requires_grad_(False)


def attack(
    net: Callable[[Tensor], Tensor], ball: Ball, rows: list[int] | None = None, **how: object
) -> AttackResult:
    x, y = images(100, B)
    rows = list(range(B)) if rows is None else rows
    with_loss = bool(how.pop("with_loss", False))
    pgd = Pgd(**({"steps": 6} | how))  # type: ignore[arg-type]
    return pgd(net, x[rows], y[rows], ball, ImageRng(3, rows), with_loss=with_loss)


@BOTH_NORMS
@pytest.mark.parametrize("iterate", ["last", "worst"])
def test_the_perturbation_is_feasible_and_reproduces_the_outcome(
    net: nn.Module, ball: Ball, iterate: str
) -> None:
    x, y = images(100, B)
    found = attack(net, ball, iterate=iterate)
    assert (ball.size(found.delta) <= ball.eps * (1 + 1e-12)).all()
    assert torch.equal(net(ball.apply(x, found.delta)).argmax(-1) != y, found.fooled)
    torch.testing.assert_close(ball.apply(x, found.delta), x + found.delta, rtol=0, atol=1e-15)
    assert found.loss is None
    assert not found.delta.requires_grad
    assert 0.1 < found.fooled.double().mean() < 0.9, "the example must hold both kinds"


@BOTH_NORMS
@pytest.mark.parametrize("share", [0.25, 1.9], ids=["small-steps", "overshooting"])
def test_last_evaluates_the_last_iterate_of_the_training_attack(
    net: nn.Module, ball: Ball, share: float
) -> None:
    x, y = images(100, B)
    rng = ImageRng(3, range(B)).at("restart", 0)
    alpha = share * ball.eps
    delta = last_iterate(lambda z: cross_entropy(net(z), y), x, ball, rng, steps=6, alpha=alpha)
    for with_loss in (False, True):
        found = attack(net, ball, iterate="last", alpha=alpha, with_loss=with_loss)
        assert torch.equal(found.delta, delta)


@BOTH_NORMS
def test_worst_is_at_least_as_strong_as_last_and_as_no_attack(net: nn.Module, ball: Ball) -> None:
    x, y = images(100, B)
    worst, last = attack(net, ball, iterate="worst").fooled, attack(net, ball, iterate="last").fooled
    assert (worst | ~last).all()
    clean = net(x).argmax(-1) != y
    assert (worst | ~clean).all()
    unharmed = attack(net, ball).delta[clean]
    assert (unharmed == 0).all(), "an image that is wrong by itself needs no perturbation"


@BOTH_NORMS
@pytest.mark.parametrize("restarts", [1, 3])
def test_the_loss_is_the_largest_along_the_way(net: nn.Module, ball: Ball, restarts: int) -> None:
    _, y = images(100, B)
    iterates: list[Tensor] = []

    def spy(x: Tensor) -> Tensor:
        logits: Tensor = net(x)
        iterates.append(cross_entropy(logits.detach(), y))
        return logits

    for iterate, first in (("worst", 1), ("last", 0)):
        iterates.clear()
        found = attack(spy, ball, iterate=iterate, restarts=restarts, with_loss=True)
        assert len(iterates) == first + 7 * restarts, "every image runs every step"
        assert found.loss is not None
        assert torch.equal(found.loss, torch.stack(iterates).amax(0))


@BOTH_NORMS
def test_with_loss_does_not_change_the_outcome(net: nn.Module, ball: Ball) -> None:
    plain, with_loss = attack(net, ball), attack(net, ball, with_loss=True)
    assert torch.equal(plain.fooled, with_loss.fooled)
    torch.testing.assert_close(plain.delta, with_loss.delta, rtol=1e-9, atol=1e-12)


@BOTH_NORMS
@pytest.mark.parametrize("iterate", ["last", "worst"])
def test_outcomes_do_not_depend_on_the_batch(net: nn.Module, ball: Ball, iterate: str) -> None:
    whole = attack(net, ball, iterate=iterate, restarts=2)
    for rows in ([7], [30, 3, 12, 9], list(range(0, B, 3))):
        some = attack(net, ball, rows, iterate=iterate, restarts=2)
        assert torch.equal(some.fooled, whole.fooled[rows])
        torch.testing.assert_close(some.delta, whole.delta[rows], rtol=1e-7, atol=1e-10)


@BOTH_NORMS
def test_the_active_set_shrinks_and_the_cost_is_counted(net: nn.Module, ball: Ball) -> None:
    for how in ({"iterate": "worst"}, {"iterate": "worst", "restarts": 2}, {"iterate": "last"}):
        sizes: list[tuple[int, bool]] = []

        def spy(x: Tensor, sizes: list[tuple[int, bool]] = sizes) -> Tensor:
            sizes.append((len(x), torch.is_grad_enabled()))
            return net(x)  # type: ignore[no-any-return]

        found = attack(spy, ball, **how)
        counts = [n for n, _ in sizes]
        assert counts == sorted(counts, reverse=True)
        assert (counts[-1] < B) == (how["iterate"] == "worst")
        assert found.cost.gradient_evaluations == sum(n for n, grad in sizes if grad)
        assert found.cost.forward_passes == sum(n for n, grad in sizes if not grad)


@BOTH_NORMS
def test_more_restarts_fool_no_fewer_images(net: nn.Module, ball: Ball) -> None:
    one, many = (attack(net, ball, restarts=r, steps=2).fooled for r in (1, 8))
    assert (many | ~one).all()
    assert many.sum() > one.sum()


def test_a_model_that_is_never_right_needs_no_step() -> None:
    def wrong(x: Tensor) -> Tensor:
        return nn.functional.one_hot((images(100, B)[1] + 1) % 3, 3).double() + 0 * x.sum()

    found = attack(wrong, BALLS["l2"])
    assert found.fooled.all()
    assert (found.cost.gradient_evaluations, found.cost.forward_passes) == (0, B)


def test_an_empty_batch_gives_an_empty_result() -> None:
    found = attack(smooth_net(), BALLS["l2"], [])
    assert found.fooled.shape == (0,)


def test_names_and_refusals() -> None:
    assert Pgd().name == "pgd-10"
    assert Pgd(steps=50, restarts=10).name == "pgd-50-10"
    for how in ({"steps": 0}, {"restarts": 0}):
        with pytest.raises(InputError, match="at least 1"):
            Pgd(**how)
    with pytest.raises(InputError, match="did you mean 'worst'"):
        Pgd(iterate="worts")  # type: ignore[arg-type]
