"""What is added to training whatever the algorithm: averages of the weights."""

import pytest
import torch
from torch import Tensor, nn

from freeat import Free
from freeat.errors import InputError
from freeat.learner import Learner
from freeat.learner.modifiers import WeightAverage
from problems import BALLS, batch_norm_net, images, same_bits, smooth_net, weights


def learner_of(net: nn.Module, **parts: object) -> Learner:
    return Learner(net, torch.optim.SGD(net.parameters(), lr=0.1), **parts)  # type: ignore[arg-type]


def states(net: nn.Module, learner: Learner, batches: int) -> list[list[Tensor]]:
    """Everything that training changes, after each update of a net."""
    seen = []
    for _ in range(batches):
        Free(ball=BALLS["l2"], m=1).step(learner, *images(0, 6))
        seen.append(weights(net))
    return seen


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.999])
def test_the_average_is_of_what_was_seen_weights_and_statistics_alike(decay: float) -> None:
    net = batch_norm_net(dtype=torch.float64).train()
    average = WeightAverage(net, decay)
    seen = states(net, learner_of(net, average=average), 5)
    shares = [decay ** (len(seen) - 1 - s) for s in range(len(seen))]
    for values, found in zip(zip(*seen, strict=True), average.model.state_dict().values(), strict=True):
        if found.is_floating_point():
            mean = sum(share * value for share, value in zip(shares, values, strict=True)) / sum(shares)
            torch.testing.assert_close(found, mean, rtol=1e-12, atol=1e-14)
        else:
            assert torch.equal(found, values[-1])
    assert average.count == 5
    assert not average.model.training


def test_the_average_is_the_debiased_recursion() -> None:
    """(w̄_t − β^t w₀)/(1 − β^t), with w̄ ← β w̄ + (1 − β) w from w̄₀ = w₀."""
    net, beta = smooth_net(), 0.8
    first = weights(net)
    recursion = first
    average = WeightAverage(net, beta)
    for state in states(net, learner_of(net, average=average), 4):
        recursion = [beta * r + (1 - beta) * w for r, w in zip(recursion, state, strict=True)]
    debiased = [(r - beta**4 * w) / (1 - beta**4) for r, w in zip(recursion, first, strict=True)]
    torch.testing.assert_close(weights(average.model), debiased, rtol=1e-12, atol=1e-14)


def test_after_one_update_the_average_is_the_weights() -> None:
    net = batch_norm_net(dtype=torch.float64).train()
    average = WeightAverage(net, 0.999)
    states(net, learner_of(net, average=average), 1)
    assert same_bits(weights(average.model), weights(net))


def test_a_decay_above_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"0\.999 is usual"):
        WeightAverage(smooth_net(), 1.1)
