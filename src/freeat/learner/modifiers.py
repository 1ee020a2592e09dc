"""What is added to the training of a model, whatever the algorithm: averages of its weights."""

import copy

import torch
from torch import Tensor, nn

from freeat.errors import InputError


class WeightAverage:
    """The exponential moving average of the weights seen so far, from the first update on.

    After update t it is w̄_t = Σ_{s ≤ t} β^{t−s} w_s / Σ_{s ≤ t} β^{t−s}: the initial weights have no part in it.
    Running statistics are averaged with the same weights; counters are copied.

    Args:
        model: the model whose weights are averaged.
        decay: β in [0, 1).

    Raises:
        InputError: β lies outside [0, 1).
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise InputError(f"the decay {decay:g} of the weight average must lie in [0, 1); 0.999 is usual")
        self.decay = decay
        self.count = 0
        self.model = copy.deepcopy(model).requires_grad_(False).eval()

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take the current weights into the average: w̄ ← w̄ + (w − w̄)·(1 − β)/(1 − β^t)."""
        self.count += 1
        share = (1 - self.decay) / (1 - self.decay**self.count)
        own: list[Tensor] = [*self.model.parameters()]
        current: list[Tensor] = [*model.parameters()]
        for kept, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            if buffer.is_floating_point():
                own.append(kept)
                current.append(buffer)
            else:
                kept.copy_(buffer)
        torch._foreach_lerp_(own, current, share)
