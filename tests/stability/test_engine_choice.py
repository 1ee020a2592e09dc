"""The choice between stacked and separate runs is measured."""

import torch

from freeat.algorithms import Erm
from freeat.algorithms.step import StepRecord
from freeat.learner import Learner
from freeat.stability import choose_engine
from samples import learner_of, some_images, some_model


class _SlowWhen:
    """ERM that takes long on stacks, or on single models."""

    updates_per_batch = 1

    def __init__(self, *, stacked: bool) -> None:
        self.stacked = stacked

    def step(self, learner: Learner, x: torch.Tensor, y: torch.Tensor) -> StepRecord:
        if (x.ndim == 5) == self.stacked:
            for _ in range(40):
                learner.logits(x.repeat_interleave(20, dim=-4))
        return Erm().step(learner, x, y)


def test_the_faster_engine_is_taken() -> None:
    x, y = some_images(8).batch(torch.arange(8))
    for stacked, expected in ((True, "separate"), (False, "stacked")):
        choice = choose_engine(some_model(), 6, learner_of(9), _SlowWhen(stacked=stacked), x.double(), y)
        assert choice.engine == expected
        assert choice.reason is None
        assert set(choice.seconds_per_batch) == {"stacked", "separate"}


def test_a_budget_of_one_update_suffices() -> None:
    x, y = some_images(8).batch(torch.arange(8))
    assert (
        choose_engine(some_model(), 3, learner_of(1), Erm(), x.double(), y).seconds_per_batch["stacked"] > 0
    )


def test_batch_norm_leaves_no_choice_and_says_why() -> None:
    x, y = some_images(8).batch(torch.arange(8))
    choice = choose_engine(some_model("cnn-w4"), 3, learner_of(2), Erm(), x.double(), y)
    assert choice.engine == "separate"
    assert "running statistics" in str(choice.reason)
