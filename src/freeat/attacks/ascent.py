"""Projected gradient ascent on δ: the inner maximization of training."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from freeat.rng import Rng
from freeat.threat import Ball, Start

ImageLoss = Callable[[Tensor], Tensor]  # perturbed images to one value each


class Maximizer(Protocol):
    """argmax_{δ ∈ Δ} of a loss, exactly or nearly: line 4 of Algorithm 1."""

    def __call__(self, loss: ImageLoss, x: Tensor, y: Tensor, ball: Ball, rng: Rng) -> Tensor: ...


def delta_gradient(loss: ImageLoss, x: Tensor, delta: Tensor, ball: Ball) -> Tensor:
    """[∇_δ loss_j]_j, each image's own gradient (of the sum, never divided by the batch size)."""
    delta = delta.detach().requires_grad_()
    with torch.enable_grad():
        total = loss(ball.apply(x, delta)).sum()
    return torch.autograd.grad(total, delta)[0]


@dataclass(frozen=True, kw_only=True)
class Ascent:
    """PGD: ``steps`` projected steps of length ``alpha`` from a random start; returns the last iterate."""

    steps: int
    alpha: float
    start: Start = "uniform"

    def __call__(self, loss: ImageLoss, x: Tensor, y: Tensor, ball: Ball, rng: Rng) -> Tensor:
        delta = ball.confine(x, ball.start(x, self.start, rng))
        for k in range(self.steps):
            g_delta = delta_gradient(loss, x, delta, ball)
            delta = ball.confine(x, ball.ascend(delta, g_delta, self.alpha, rng.at(k)))
        return delta
