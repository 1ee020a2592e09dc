"""What the algorithms have in common: the shape of a step and of what it reports, and the warm-up of ε."""

from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Protocol

from torch import Tensor

from freeat.compute.cost import Cost
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
    """A way to train: one step on one batch, which may update the weights several times.

    A class declares what it takes by its fields. ``ball`` (which makes a warm-up possible), ``m``, ``alpha``,
    ``start`` and ``objective`` are given by a name and the settings of a run; all other fields are options of its
    own (``--algorithm-args``). A setting that has no field is refused.
    """

    @property
    def updates_per_batch(self) -> int:
        """Weight updates of a step."""
        ...

    @property
    def cost(self) -> Cost:
        """Forward–backward passes and forward-only passes of one weight update, per image."""
        ...

    def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord: ...


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """Another algorithm, whose radius and step grow linearly from 0 over the first ``updates`` weight updates.

    It rescues Free from chance on data such as SVHN. A step left to its default follows the radius by itself.
    """

    algorithm: Algorithm
    updates: int

    def __post_init__(self) -> None:
        check_loops("warm-up updates", self.updates)
        if threat_of(self.algorithm) is None or not is_dataclass(self.algorithm):
            raise InputError(
                f"{type(self.algorithm).__name__} has no ball whose radius could grow: train it without a warm-up"
            )

    @property
    def updates_per_batch(self) -> int:
        return self.algorithm.updates_per_batch

    @property
    def cost(self) -> Cost:
        return self.algorithm.cost

    def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord:
        share = min(1.0, (learner.updates + 1) / self.updates)
        inner: Any = self.algorithm
        grown = {"ball": inner.ball.scaled(share)}
        if getattr(inner, "alpha", None) is not None:
            grown["alpha"] = share * inner.alpha
        record: StepRecord = replace(inner, **grown).step(learner, x, y)
        return record


def perturbed_loss(objective: Objective, learner: Learner, ball: Ball) -> Loss:
    """h(w, δ; x, y) as a function of (δ, x, y), with x + δ cut to the box in the forward pass."""

    def h(delta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return objective.loss(learner.logits, x, y, ball.apply(x, delta))

    return h


def without_warm_up(algorithm: Algorithm) -> Algorithm:
    """The algorithm itself, which a warm-up may hold."""
    return algorithm.algorithm if isinstance(algorithm, WarmUp) else algorithm


def threat_of(algorithm: Algorithm) -> Ball | None:
    """The ball an algorithm trains against; None for one that knows no adversary."""
    ball = getattr(without_warm_up(algorithm), "ball", None)
    return ball if isinstance(ball, Ball) else None


def check_loops(name: str, value: int) -> None:
    """Refuse a count of inner steps below 1."""
    if value < 1:
        raise InputError(f"{name} = {value} must be at least 1")


def check_step_size(alpha: float | None) -> None:
    """Refuse a step that does not move; None stands for the default that follows from (norm, ε)."""
    if alpha is not None and not alpha > 0:
        raise InputError(f"attack step α = {alpha:g} must be positive, in input units such as 2/255")
