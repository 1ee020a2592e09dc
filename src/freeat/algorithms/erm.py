"""Empirical risk minimization: training without an adversary."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from freeat.algorithms.step import StepRecord
from freeat.compute import Cost
from freeat.learner import Learner
from freeat.objectives import CrossEntropy, Objective, check_objective


@dataclass(frozen=True, kw_only=True)
class Erm:
    """No adversary: one descent of w on the images themselves, Algorithm 1 with Δ = {0}.

    Args:
        objective: the loss that w descends.

    Raises:
        InputError: ``objective`` is no objective.

    Example:
        >>> import freeat
        >>> freeat.Erm().cost
        Cost(gradient_evaluations=1, forward_passes=0)
    """

    objective: Objective = CrossEntropy()
    updates_per_batch = 1
    name: ClassVar[str] = "erm"
    theorem: ClassVar[str] = "vanilla"  # at ε = 0

    def __post_init__(self) -> None:
        check_objective(self.objective)

    @property
    def cost(self) -> Cost:
        return Cost(gradient_evaluations=self.objective.loss_passes)

    def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord:
        learner.begin(x)

        def h(_: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return self.objective.loss(learner.logits, x, y, x)

        nothing = torch.zeros_like(x)
        losses = learner.weight_gradient(h, nothing, x, y)
        learner.descend()
        return StepRecord(losses=losses, delta=nothing)
