"""Arguments of a user's own training loop and evaluation: wrong types are refused with a remedy."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import freeat
from freeat.algorithms.nfgsm import NFgsm
from freeat.objectives import cross_entropy


def net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def learner() -> freeat.Learner:
    model = net()
    return freeat.Learner(model, torch.optim.SGD(model.parameters(), lr=0.1))


def images(low: float = 0.0, high: float = 1.0) -> Tensor:
    return torch.linspace(low, high, 4 * 64).view(4, 1, 8, 8)


LABELS = torch.arange(4)
ALGORITHMS = ["fast", "free-2", "vanilla-2", "friendly-2", "free-trades-2"]


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize(
    "x", [images(0, 255), images(-2, 2), images().log()], ids=["bytes", "normalized", "infinite"]
)
def test_pixels_outside_the_box_are_refused(name: str, x: Tensor) -> None:
    algorithm = freeat.make_algorithm(name, freeat.Linf(8 / 255))
    one = learner()
    before = [p.clone() for p in one.model.parameters()]
    with pytest.raises(freeat.InputError, match=r"the ball's box is \[0, 1\]: scale the images"):
        algorithm.step(one, x, LABELS)
    assert all(torch.equal(p, q) for p, q in zip(before, one.model.parameters(), strict=True))
    assert one.batches == 0


@pytest.mark.parametrize("name", [*ALGORITHMS, "erm"])
def test_what_is_no_batch_of_images_is_refused(name: str) -> None:
    algorithm = freeat.make_algorithm(name, freeat.Linf(8 / 255))
    for x in (images()[0], (255 * images()).byte()):
        with pytest.raises(freeat.InputError, match=r"give images \(b, C, H, W\) as floats"):
            algorithm.step(learner(), x, LABELS)


def test_without_a_box_pixels_may_be_anywhere() -> None:
    freeat.Free(ball=freeat.L2(0.5, box=None)).step(learner(), images(-2, 2), LABELS)
    freeat.Erm().step(learner(), images(-2, 2), LABELS)


def test_a_learner_needs_a_model_and_an_optimizer() -> None:
    sgd = torch.optim.SGD(net().parameters(), lr=0.1)
    for model, optimizer, message in (
        ("cnn", sgd, "model is 'cnn', a str"),
        (nn.Flatten(), sgd, "there is nothing to train"),
        (net(), torch.optim.SGD, "pass a torch optimizer"),
        (net(), 0.1, "optimizer is 0.1, a float"),
    ):
        with pytest.raises(freeat.InputError, match=message):
            freeat.Learner(model, optimizer)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [freeat.Fast, freeat.Free, freeat.Friendly, freeat.Vanilla])
def test_an_algorithm_needs_a_ball(kind: type[Any]) -> None:
    for ball in (0.5, "linf", freeat.L2):
        with pytest.raises(freeat.InputError, match="pass a ball with its radius"):
            kind(ball=ball)


@pytest.mark.parametrize(
    "kind", [freeat.Erm, freeat.Fast, freeat.Free, freeat.Friendly, freeat.Vanilla, NFgsm]
)
def test_an_algorithm_needs_an_objective(kind: type[Any]) -> None:
    ball = {} if kind is freeat.Erm else {"ball": freeat.L2(0.3)}
    for objective in ("trades", freeat.Trades, cross_entropy):
        with pytest.raises(
            freeat.InputError, match=r"objective is .*pass an objective such as freeat.Trades\(\)"
        ):
            kind(**ball, objective=objective)


def test_an_evaluation_needs_images_an_attack_and_a_ball() -> None:
    data = freeat.load_data("digits")
    for given, message in (
        ((data, freeat.Pgd(), freeat.L2(0.3)), "images is a DataSet: pass a split"),
        ((data.test, "pgd-10", freeat.L2(0.3)), "attack is 'pgd-10', a str"),
        ((data.test, freeat.Pgd, freeat.L2(0.3)), "pass an attack, such as"),
        ((data.test, freeat.Pgd(), 0.3), "pass a ball with its radius"),
    ):
        with pytest.raises(freeat.InputError, match=message):
            freeat.evaluate(net(), *given, classes=10)  # type: ignore[arg-type]
