"""max_δ h of coupled runs, against the closed form of a linear model."""

import pytest
import torch
from torch import nn

from freeat.data import Images
from freeat.errors import InputError
from freeat.models import build
from freeat.objectives import cross_entropy
from freeat.stability import ProbeAttack, make_runs, train_twins
from freeat.threat import L2, make_ball
from samples import (
    EPS,
    SHAPE,
    algorithm_of,
    learner_of,
    some_batches,
    some_images,
    some_model,
    some_runs,
    some_twins,
)


def test_probe_attack_finds_the_maximum_on_a_linear_model() -> None:
    model = build("linear", classes=2, shape=SHAPE).double()
    images = some_images(20)
    images = Images.of(images.x, images.y % 2)
    ball = L2(0.5, box=None)
    runs = make_runs("separate", model, 1, learner_of(1))
    found = ProbeAttack(ball=ball, steps=60)(runs, images)
    x, y = images.batch(torch.arange(20))
    head = model.head
    logits = model(x.double())
    margin = (logits[:, 1] - logits[:, 0]) * (1 - 2 * y)  # of the wrong class
    steepest = (head.weight[1] - head.weight[0]).norm() * ball.eps
    exact = nn.functional.softplus(margin + steepest)
    torch.testing.assert_close(found.cross_entropy[0], exact.detach(), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(
        found.bounded[0], torch.sigmoid(margin + steepest).detach(), rtol=1e-6, atol=1e-9
    )
    assert torch.equal(found.robust[0], margin + steepest < 0)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_stacked_and_separate_runs_have_the_same_probe_losses(norm: str) -> None:
    twins = some_twins()
    ball = make_ball(norm, EPS[norm])
    found = {}
    for engine in ("stacked", "separate"):
        runs = some_runs(engine, twins, updates=20)
        for _ in train_twins(runs, algorithm_of("fast", norm), twins, some_batches(twins)):
            pass
        found[engine] = ProbeAttack(ball=ball, steps=5, restarts=2)(runs, twins.both)
    torch.testing.assert_close(
        found["stacked"].cross_entropy, found["separate"].cross_entropy, rtol=1e-9, atol=1e-9
    )
    assert found["stacked"].robust_accuracy == found["separate"].robust_accuracy


def test_more_steps_and_restarts_never_find_smaller_losses() -> None:
    runs = make_runs("separate", some_model(), 1, learner_of(1))
    images = some_images(10)
    few, more, again = (
        ProbeAttack(ball=L2(1.0), steps=k, restarts=r)(runs, images).cross_entropy
        for k, r in ((1, 1), (4, 1), (4, 3))
    )
    assert bool((more >= few).all())
    assert bool((again >= more).all())
    x, y = images.batch(torch.arange(10))
    assert bool((few >= cross_entropy(some_model()(x.double()), y)).all())


def test_an_attack_of_no_steps_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        ProbeAttack(ball=L2(1.0), steps=0)
