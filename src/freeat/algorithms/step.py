"""What the algorithms have in common: the shape of a step, and of what it reports."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from freeat.errors import InputError
from freeat.learner import Learner, Loss
from freeat.objectives import Objective
from freeat.threat import Ball


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """What a step on one batch saw, detached from every graph.

    ``losses``: of each image, before the (last) update; ``delta``: the (last) perturbation; ``g_norms``:
    ‖∇_δ h‖₂ of each image and ascent, shape (ascents, ..., b), where the algorithm's own passes show it.
    """

    losses: Tensor
    delta: Tensor
    g_norms: Tensor | None = None


class Algorithm(Protocol):
    """A way to train: one step on one batch, which may update the weights several times."""

    @property
    def updates_per_batch(self) -> int: ...

    def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord: ...


def perturbed_loss(objective: Objective, learner: Learner, ball: Ball) -> Loss:
    """h(w, δ; x, y) as a function of (δ, x, y), with x + δ cut to the box in the forward pass."""

    def h(delta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return objective.loss(learner.logits, x, y, ball.apply(x, delta))

    return h


def threat_of(algorithm: Algorithm) -> Ball | None:
    """The ball an algorithm trains against; None for one that knows no adversary."""
    ball = getattr(
        getattr(algorithm, "algorithm", algorithm), "ball", None
    )  # a warm-up holds another algorithm
    return ball if isinstance(ball, Ball) else None


def check_loops(name: str, value: int) -> None:
    """Refuse a count of inner steps below 1."""
    if value < 1:
        raise InputError(f"{name} = {value} must be at least 1")


def check_step_size(alpha: float | None) -> None:
    """Refuse a step that does not move; None stands for the default that follows from (norm, ε)."""
    if alpha is not None and not alpha > 0:
        raise InputError(f"attack step α = {alpha:g} must be positive, in input units such as 2/255")
