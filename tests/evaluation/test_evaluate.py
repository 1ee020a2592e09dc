"""Evaluation: right numbers, the same in any batch size, and nothing disturbed."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from freeat.attacks.pgd import Pgd
from freeat.compute.passes import Passes
from freeat.data import CropFlip, Images, load
from freeat.evaluation.evaluate import ClassSummary, Evaluation, evaluate
from freeat.evaluation.statistics import wilson
from freeat.threat import L2
from problems import same_bits, weights

BALL = L2(0.4)
ATTACK = Pgd(steps=3)


@pytest.fixture(scope="module")
def digits() -> Images:
    return load("digits").test.take(torch.arange(70))


@pytest.fixture(scope="module")
def net() -> nn.Module:
    """A net with batch norm that has seen some digits, in the mode of training."""
    data = load("digits").train
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
        )
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for t in range(30):
        x, y = data.batch(torch.arange(t * 40, t * 40 + 40))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()
    return net


def columns(outcome: Evaluation) -> list[torch.Tensor]:
    assert outcome.clean_loss is not None
    assert outcome.robust_loss is not None
    return [outcome.clean_correct, outcome.clean_loss, outcome.robust_correct, outcome.robust_loss]


def test_the_numbers_are_those_of_a_plain_loop(net: nn.Module, digits: Images) -> None:
    outcome = evaluate(net, digits, ATTACK, BALL, classes=10, with_loss=True)
    x, y = digits.batch(torch.arange(len(digits)))
    net.eval()
    with torch.no_grad():
        logits = net(x)
    net.train()
    summary = outcome.summary()
    assert summary.clean_accuracy == pytest.approx(float((logits.argmax(1) == y).double().mean()))
    assert summary.clean_loss == pytest.approx(float(nn.functional.cross_entropy(logits, y)), rel=1e-5)
    assert summary.robust_accuracy < summary.clean_accuracy
    assert summary.robust_loss is not None
    assert summary.robust_loss > summary.clean_loss
    assert outcome.robust_loss is not None
    assert outcome.clean_loss is not None
    assert not (outcome.robust_correct & ~outcome.clean_correct).any()
    assert bool((outcome.robust_loss >= outcome.clean_loss - 1e-6).all())


@pytest.mark.parametrize("augment", [None, CropFlip(pad=1)], ids=["plain", "augmented"])
def test_draws_follow_the_image_not_the_batch(
    net: nn.Module, digits: Images, augment: CropFlip | None
) -> None:
    def judged(images: Images, batch_size: int) -> list[torch.Tensor]:
        return columns(
            evaluate(
                net,
                images,
                ATTACK,
                BALL,
                classes=10,
                augment=augment,
                batch_size=batch_size,
                with_loss=True,
            )
        )

    whole, parts = judged(digits, 256), judged(digits, 16)
    order = torch.arange(len(digits)).flip(0)
    reversed_ = judged(digits.take(order), 256)
    for one, two, three in zip(whole, parts, reversed_, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(one, three[order], rtol=1e-4, atol=1e-4)


def test_another_seed_gives_other_draws(net: nn.Module, digits: Images) -> None:
    one, two = (
        evaluate(net, digits, ATTACK, BALL, classes=10, seed=s, with_loss=True).robust_loss for s in (0, 1)
    )
    assert one is not None
    assert two is not None
    assert not torch.equal(one, two)


def test_nothing_is_disturbed(net: nn.Module, digits: Images) -> None:
    net.train()
    net[1].eval()
    before, state = weights(net), torch.get_rng_state()
    evaluate(net, digits, ATTACK, BALL, classes=10)
    assert same_bits(before, weights(net))
    assert torch.equal(state, torch.get_rng_state())
    assert [module.training for module in net] == [True, False, True, True, True]
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    net.train()


def test_passes_are_those_the_network_saw(net: nn.Module, digits: Images) -> None:
    seen = 0

    def count(module: nn.Module, args: tuple[torch.Tensor], output: torch.Tensor) -> None:
        nonlocal seen
        seen += len(output)

    handle = net.register_forward_hook(count)
    attack = Pgd(steps=4, restarts=2)
    passes = evaluate(net, digits, attack, BALL, classes=10, batch_size=32, with_loss=True).passes
    handle.remove()
    assert passes.gradient == 4 * 2 * len(digits)
    assert passes.gradient + passes.forward == seen


def test_a_summary_by_class() -> None:
    flags = torch.tensor
    outcome = Evaluation(
        index=torch.arange(6),
        y=flags([0, 0, 0, 0, 2, 2]),
        clean_correct=flags([True, True, True, True, True, False]),
        clean_loss=torch.arange(6.0),
        robust_correct=flags([True, True, True, False, True, False]),
        robust_loss=torch.arange(6.0) + 1,
        classes=4,
        population=50,
        passes=Passes(gradient=3, forward=2),
        seconds=1.0,
    )
    summary = outcome.summary()
    assert summary.robust_accuracy == pytest.approx(4 / 6)
    assert summary.balanced_robust_accuracy == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert summary.worst_class_robust_accuracy == 0.5
    assert [row.label for row in summary.per_class] == [0, 2]
    assert summary.per_class[1] == ClassSummary(
        label=2,
        n=2,
        clean_accuracy=0.5,
        clean_interval=wilson(1, 2),
        robust_accuracy=0.5,
        robust_interval=wilson(1, 2),
    )
    assert (summary.n, summary.population) == (6, 50)
    assert summary.robust_loss == 3.5
    assert replace(outcome, population=6).summary().population == 6
