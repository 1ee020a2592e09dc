"""An instance where L, L_w, β, ψ and the inner maximum are known: a tilted sigmoid (docs/stability.md).

h(w, δ; x, y) = σ(s⟨w, x + δ⟩ + ⟨u, δ⟩) with s = 1 for y = 0 and −1 for y = 1, and a fixed tilt u that outweighs
every w the training can reach.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from freeat.algorithms import Algorithm, Fast, Free, Vanilla
from freeat.attacks.pgd import ImageLoss
from freeat.errors import InputError
from freeat.learner import Learner
from freeat.learner.schedules import Vanishing
from freeat.objectives import Model
from freeat.rng import Rng
from freeat.stability.twins import Stack
from freeat.theory import Problem, absolute_step
from freeat.threat import L2, Ball

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
class TiltedSigmoid:
    """The instance's loss as an objective; its value lies in (0, 1)."""

    u: Tensor
    loss_passes: ClassVar[int] = 1
    attack_forwards: ClassVar[int] = 0

    def loss(self, f: Model, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor:
        tilt = ((x_adv - x).flatten(-3) * self.u).sum(-1)
        return ((1 - 2 * y) * f(x_adv).squeeze(-1) + tilt).sigmoid()

    def attack(self, f: Model, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x_adv: self.loss(f, x, y, x_adv)


def exact_maximum(loss: ImageLoss, x: Tensor, y: Tensor, ball: Ball, rng: Rng) -> Tensor:
    """argmax_{δ ∈ Δ} h: h grows with an affine function of δ, so it is the extreme point along its gradient."""
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
        match name:
            case "vanilla":
                return Vanilla(ball=self.ball, objective=self.objective, maximizer=exact_maximum)
            case "fast":
                return Fast(ball=self.ball, objective=self.objective, alpha=step)
            case _:
                return Free(ball=self.ball, objective=self.objective, alpha=step, m=self.m)

    def learner(self, model: nn.Module, name: str, *, seed: int = 0, batch: int = 1) -> Learner:
        """Plain SGD with the theorem's vanishing step, about to take batch number ``batch``."""
        m = self.m if name == "free" else 1
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
