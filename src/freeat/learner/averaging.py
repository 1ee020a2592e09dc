"""An exponential average of the weights, kept beside them."""

import copy

import torch
from torch import nn

from freeat.errors import InputError


class WeightAverage:
    """w̄ ← decay · w̄ + (1 − decay) · w after every update; running statistics are copied."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise InputError(f"the decay {decay:g} of the weight average must lie in [0, 1); 0.999 is usual")
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False).eval()

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        averaged = [p.detach() for p in self.model.parameters()]
        torch._foreach_lerp_(averaged, [p.detach() for p in model.parameters()], 1 - self.decay)
        for kept, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            kept.copy_(buffer)
