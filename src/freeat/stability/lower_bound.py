"""Theorem 3 as a runnable instance: Vanilla's weights on S and S′ part like √T + T/n.

Examples of two kinds: h(w, δ; 0) = ε⁻² Σ_i δ_i² (w_i − γ) and h(w, δ; 1) = −⟨1, w⟩/√d. S holds kind 0 only, S′ one
example of kind 1. h is linear in w, and its maximum over the L2 ball is known, so `Vanilla` runs with the exact
inner maximizer; `Fast` and `Free` run on the same instance with the same draws.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from freeat.algorithms import Algorithm, Fast, Free, Vanilla
from freeat.attacks.pgd import ImageLoss, delta_gradient
from freeat.errors import InputError
from freeat.learner import Learner
from freeat.learner.schedules import Constant
from freeat.objectives import Model
from freeat.rng import Rng, permutation
from freeat.stability.twins import Stack
from freeat.threat import L2, Ball


class TwoKinds(nn.Module):
    """The losses of both kinds at δ, as two outputs of f_w(δ): the images themselves are 0."""

    def __init__(self, d: int, eps: float, gamma: float) -> None:
        super().__init__()
        self.eps, self.gamma = eps, gamma
        self.w = nn.Parameter(torch.zeros(d, dtype=torch.float64))

    def forward(self, delta: Tensor) -> Tensor:
        squares = delta.flatten(-3).square() / self.eps**2
        kind_0 = squares @ (self.w - self.gamma)
        kind_1 = (-self.w.sum() / math.sqrt(len(self.w))).expand_as(kind_0)
        return torch.stack([kind_0, kind_1], dim=-1)


@dataclass(frozen=True, kw_only=True)
class OwnKind:
    """h(w, δ; y): the output of the example's kind."""

    loss_passes: ClassVar[int] = 1
    attack_forwards: ClassVar[int] = 0

    def loss(self, f: Model, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor:
        return f(x_adv).gather(-1, y.unsqueeze(-1)).squeeze(-1)

    def attack(self, f: Model, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x_adv: self.loss(f, x, y, x_adv)


def exact_maximum(loss: ImageLoss, x: Tensor, y: Tensor, ball: Ball, rng: Rng) -> Tensor:
    """argmax_{‖δ‖ ≤ ε} h: ε e_i with i = argmax w where max_i w_i > γ, else 0.

    For kind 0 the gradient at δ = (1, …, 1) is 2ε⁻²(w − γ): it shows the sign and the place of the largest w_i. For
    kind 1, h does not depend on δ.
    """
    slopes = delta_gradient(loss, x, torch.ones_like(x), ball).flatten(-3)
    largest, at = slopes.max(-1, keepdim=True)
    height = torch.where(largest > 0, ball.eps, 0.0).to(x.dtype)
    return torch.zeros_like(slopes).scatter(-1, at, height).view_as(x)


@dataclass(frozen=True, kw_only=True)
class LowerBoundInstance:
    """n examples in d ≥ 4T dimensions, b = 1, w₀ = 0, constant steps η, 0 < γ < η/√d.

    Theorem 3 asks for η ≤ 1/β, with β on the weights that the runs reach.
    """

    n: int
    T: int
    d: int
    eps: float = 1.0
    eta: float = 0.1
    m: int = 4

    def __post_init__(self) -> None:
        if self.d < 4 * self.T:
            raise InputError(f"d = {self.d} must be at least 4T = {4 * self.T}: take more dimensions")

    @property
    def gamma(self) -> float:
        return self.eta / math.sqrt(self.d) / 2

    def beta(self, reached: Tensor) -> float:
        """2/ε + 2·max|w_i − γ|/ε², which bounds the curvature of h on the weights ``reached``."""
        return 2 / self.eps + 2 * float((reached - self.gamma).abs().max()) / self.eps**2

    @property
    def ball(self) -> Ball:
        return L2(self.eps, box=None)

    def algorithm(self, name: str) -> Algorithm:
        """Algorithm 1 with the exact maximum, 3 or 2, all with the same objective."""
        match name:
            case "vanilla":
                return Vanilla(ball=self.ball, objective=OwnKind(), maximizer=exact_maximum)
            case "fast":
                return Fast(ball=self.ball, objective=OwnKind())
            case _:
                return Free(ball=self.ball, objective=OwnKind(), m=self.m)

    def visits(self, seed: int) -> Tensor:
        """Whether each batch t = 1, …, T draws the replaced example, number 0."""
        return torch.tensor(
            [int(permutation(self.n, seed, "batch", t)[0]) == 0 for t in range(1, self.T + 1)]
        )

    def run(self, name: str, kinds: Tensor) -> Iterator[Tensor]:
        """The weights (runs, d) after each batch; ``kinds`` (runs, batches) says which kind each batch is of."""
        stack = Stack(TwoKinds(self.d, self.eps, self.gamma), len(kinds))
        learner = Learner(
            stack,
            torch.optim.SGD(stack.parameters(), lr=self.eta),
            total_updates=self.T,
            schedule=Constant(lr=self.eta),
        )
        algorithm = self.algorithm(name)
        nothing = torch.zeros(len(kinds), 1, 1, 1, self.d, dtype=torch.float64)
        while learner.updates_left > 0:
            algorithm.step(learner, nothing, kinds[:, learner.batches, None])
            yield stack.flat()

    def distances(self, name: str, seeds: range) -> Tensor:
        """‖w_t − w_t′‖ of every seed after each batch, (seeds, batches)."""
        on_neighbour = torch.stack([self.visits(seed) for seed in seeds]).long()
        on_sample = torch.zeros_like(on_neighbour[:1])
        both = torch.cat([on_sample, on_neighbour])
        return torch.stack([(w[1:] - w[:1]).norm(dim=1) for w in self.run(name, both)], dim=1)

    def closed_form(self, visits: Tensor) -> Tensor:
        """‖w_t′‖ of Vanilla: η √(v²(1 − k/d) + k(1 − v/√d)²) after v visits, k batches of kind 0 since the first."""
        v = visits.cumsum(-1).double()
        k = ((v > 0) & ~visits).cumsum(-1).double()
        inside = v.square() * (1 - k / self.d) + k * (1 - v / math.sqrt(self.d)).square()
        return self.eta * inside.sqrt()


def growth_exponent(T: Tensor, distance: Tensor) -> float:
    """The slope of log distance against log T, by least squares."""
    x, y = T.double().log(), distance.double().log()
    x = x - x.mean()
    return float((x * (y - y.mean())).sum() / x.square().sum())
