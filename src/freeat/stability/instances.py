"""Instances where all is known in closed form: the constants, the inner maximum, the distance of twin runs.

``TiltedInstance`` has every constant of Theorems 2, 4 and 5 as a formula. ``LowerBoundInstance`` is the construction of
Theorem 3. Both run through the built-in algorithms; Vanilla takes the exact inner maximum (docs/stability.md).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from freeat.algorithms import Algorithm
from freeat.algorithms.registry import FAMILIES, declared
from freeat.attacks.pgd import ImageLoss, Maximizer, delta_gradient
from freeat.data.batches import Batches
from freeat.errors import InputError
from freeat.learner import Learner
from freeat.learner.schedules import Constant, Vanishing
from freeat.objectives import Model, Objective
from freeat.rng import Rng
from freeat.stability.twins import Stack
from freeat.theory import Problem, absolute_step
from freeat.threat import L2, Ball


class _OwnLoss(ABC):
    """An objective whose attacks ascend the loss itself."""

    loss_passes: ClassVar[int] = 1
    attack_forwards: ClassVar[int] = 0

    @abstractmethod
    def loss(self, f: Model, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor: ...

    def attack(self, f: Model, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x_adv: self.loss(f, x, y, x_adv)


def _algorithm(
    name: str, ball: Ball, objective: Objective, maximizer: Maximizer, *, alpha: float | None, m: int
) -> Algorithm:
    """A built-in algorithm with those of the settings that its class declares."""
    cls = FAMILIES[name]
    settings = {"ball": ball, "objective": objective, "maximizer": maximizer, "alpha": alpha, "m": m}
    return cls(**{field: value for field, value in settings.items() if field in declared(cls)})


STEEPEST, MOST_CURVED = 1 / 4, 1 / (6 * math.sqrt(3))
"""max σ′ and max |σ″|."""


class InnerProduct(nn.Module):
    """f_w(x) = ⟨w, x⟩ as one logit, of images (b, 1, 1, d)."""

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(w.clone())

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(-3) @ self.w.unsqueeze(-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class TiltedSigmoid(_OwnLoss):
    """h(w, δ; x, y) = σ(s⟨w, x + δ⟩ + ⟨u, δ⟩) in (0, 1), with s = 1 for y = 0 and −1 for y = 1.

    The fixed tilt u outweighs every w that the training can reach, so ∇_δ h never vanishes.
    """

    u: Tensor

    def loss(self, f: Model, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor:
        tilt = ((x_adv - x).flatten(-3) * self.u).sum(-1)
        return ((1 - 2 * y) * f(x_adv).squeeze(-1) + tilt).sigmoid()


def affine_maximum(loss: ImageLoss, x: Tensor, y: Tensor, ball: Ball, rng: Rng) -> Tensor:
    """argmax_{δ ∈ Δ} of a loss that grows with an affine function of δ: the extreme point along its gradient."""
    start = torch.zeros_like(x).requires_grad_()
    with torch.enable_grad():
        total = loss(x + start).sum()
    return ball.extreme(torch.autograd.grad(total, start)[0], rng)


@dataclass(frozen=True, kw_only=True, eq=False)
class TiltedInstance:
    """Data of norm at most X, initial weights w₀, tilt u, and the runs they are for.

    ``radius`` R = ‖w₀‖ + L_w·c·(1 + ln T) holds every w that T updates with steps c/t (Free c/(mt)) can reach.
    """

    x: Tensor
    y: Tensor
    w0: Tensor
    u: Tensor
    eps: float
    c: float
    T: int
    b: int
    alpha: float
    m: int = 3

    def __post_init__(self) -> None:
        if not self.tilt > self.radius:
            raise InputError(
                f"tilt ‖u‖ = {self.tilt:g} must exceed R = {self.radius:g}, or ∇_δ h may vanish: take a longer u, or "
                "a smaller c or w₀"
            )

    @property
    def tilt(self) -> float:
        return float(self.u.norm())

    @property
    def reach(self) -> float:
        """X + ε ≥ ‖x + δ‖."""
        return float(self.x.flatten(1).norm(dim=1).max()) + self.eps

    @property
    def L_w(self) -> float:
        """max σ′ · (X + ε)."""
        return STEEPEST * self.reach

    @property
    def radius(self) -> float:
        return float(self.w0.norm()) + self.L_w * self.c * (1 + math.log(self.T))

    @property
    def psi(self) -> float:
        """1/(σ′_min (‖u‖ − R)), σ′_min at the largest |argument| R(X + ε) + ‖u‖ε."""
        largest = self.radius * self.reach + self.tilt * self.eps
        slope = 1 / (2 + 2 * math.cosh(largest))
        return 1 / (slope * (self.tilt - self.radius))

    def problem(self, *, beta_factor: float = 1.0) -> Problem:
        """The theorems' constants in closed form; ``beta_factor`` scales β, to see a false claim fail."""
        both = self.reach**2 + (self.radius + self.tilt) ** 2
        return Problem(
            beta=beta_factor * (MOST_CURVED * both + STEEPEST),
            c=self.c,
            L=STEEPEST * math.sqrt(both),
            L_w=self.L_w,
            eps=self.eps,
            psi=self.psi,
            b=self.b,
            n=len(self.x),
        )

    @property
    def ball(self) -> Ball:
        return L2(self.eps, box=None)

    @property
    def objective(self) -> TiltedSigmoid:
        return TiltedSigmoid(u=self.u)

    def algorithm(self, name: str) -> Algorithm:
        """Algorithm 1 with its exact maximum, 3 or 2, with the relative step ``alpha``."""
        step = absolute_step(self.alpha, self.eps)
        return _algorithm(name, self.ball, self.objective, affine_maximum, alpha=step, m=self.m)

    def learner(self, model: nn.Module, name: str, *, seed: int = 0, batch: int = 1) -> Learner:
        """Plain SGD with the theorem's vanishing step, about to take batch number ``batch``."""
        m = self.algorithm(name).updates_per_batch
        learner = Learner(
            model,
            torch.optim.SGD(model.parameters(), lr=self.c),
            seed=seed,
            schedule=Vanishing(c=self.c, m=m),
        )
        learner.batches, learner.updates = batch - 1, (batch - 1) * m
        return learner

    def advance(
        self, name: str, w: Tensor, x: Tensor, y: Tensor, *, t: int, seed: int = 0, updates: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Batch t of runs with weights w (K, d) on x (K, b, …), all with the same starts: new weights, and δ.

        ``updates`` cuts Free's loop short, which shows what happens inside it.
        """
        stack = Stack(InnerProduct(w[0]), len(w))
        with torch.no_grad():
            next(stack.parameters()).copy_(w)
        learner = self.learner(stack, name, seed=seed, batch=t)
        if updates is not None:
            learner.total_updates = learner.updates + updates
        record = self.algorithm(name).step(learner, x, y)
        return stack.flat(), record.delta

    def h_max(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """max_δ h of every w (…, d) at every example: σ(s⟨w, x⟩ + ε‖sw + u‖), shape (…, examples)."""
        s = (1 - 2 * y).to(w.dtype)
        signed = s.unsqueeze(-1) * w.unsqueeze(-2)
        height: Tensor = s * (w @ x.flatten(1).T) + self.eps * (signed + self.u).norm(dim=-1)
        return height.sigmoid()


class TwoKinds(nn.Module):
    """The losses of both kinds of examples at δ, as two outputs of f_w(δ): the images themselves are 0.

    h(w, δ; 0) = ε⁻² Σ_i δ_i² (w_i − γ) and h(w, δ; 1) = −⟨1, w⟩/√d: linear in w, with a known maximum over the L2 ball.
    """

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
class KindLoss(_OwnLoss):
    """h(w, δ; y): the output of the example's kind."""

    def loss(self, f: Model, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor:
        return f(x_adv).gather(-1, y.unsqueeze(-1)).squeeze(-1)


def lower_bound_maximum(loss: ImageLoss, x: Tensor, y: Tensor, ball: Ball, rng: Rng) -> Tensor:
    """argmax_{‖δ‖ ≤ ε} h: ε e_i with i = argmax w where max_i w_i > γ, else 0.

    For kind 0 the gradient at δ = (1, …, 1) is 2ε⁻²(w − γ): it shows the sign and the index of the largest w_i. For
    kind 1, h does not depend on δ.
    """
    slopes = delta_gradient(loss, x, torch.ones_like(x), ball).flatten(-3)
    largest, at = slopes.max(-1, keepdim=True)
    height = torch.where(largest > 0, ball.eps, 0.0).to(x.dtype)
    return torch.zeros_like(slopes).scatter(-1, at, height).view_as(x)


@dataclass(frozen=True, kw_only=True)
class LowerBoundInstance:
    """Theorem 3: Vanilla's weights on S and S′ part like √T + T/n.

    n examples in d ≥ 4T dimensions, b = 1, w₀ = 0, constant steps η, 0 < γ < η/√d. S holds kind 0 only, S′ one example
    of kind 1. Theorem 3 needs η ≤ 1/β, with β on the weights that the runs reach.
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
        return _algorithm(name, self.ball, KindLoss(), lower_bound_maximum, alpha=None, m=self.m)

    def visits(self, seed: int) -> Tensor:
        """Whether each batch t = 1, …, T draws the replaced example, number 0."""
        batches = Batches(n=self.n, size=1, seed=seed, sampling="independent")
        return torch.tensor([int(batches(t)) == 0 for t in range(1, self.T + 1)])

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
