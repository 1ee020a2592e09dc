"""Algorithm 3: fast adversarial training."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from freeat.algorithms.step import StepRecord, check_step_size, perturbed_loss
from freeat.attacks.pgd import delta_gradient
from freeat.compute import Cost
from freeat.compute.frozen import Mode
from freeat.learner import Learner
from freeat.objectives import CrossEntropy, Objective, check_objective
from freeat.rng import StepRng
from freeat.threat import Ball, Linf, Start, check_ball, l2_norm


@dataclass(frozen=True, kw_only=True)
class Fast:
    """Algorithm 3, A_Fast: one projected step on δ from a random start, then one descent of w.

    Args:
        ball: the set Δ of perturbations.
        alpha: the length of the step in input units; by default 7ε/8 for Linf and ε/2 for L2 (7/255 and 64/255 in
            the paper).
        start: where δ starts: ``uniform``, ``radius``, ``gaussian`` or ``zero``.
        objective: the loss that w descends, and the function that the attack ascends.
        attack_mode: the mode of the network during the attack, ``eval`` or ``train``.

    Raises:
        InputError: ``ball`` is no ball, ``objective`` no objective, or α is not positive.

    Example:
        >>> import freeat
        >>> fast = freeat.Fast(ball=freeat.L2(0.5))
        >>> fast.step_size, fast.cost.gradient_evaluations
        (0.25, 2)
    """

    ball: Ball
    alpha: float | None = None
    start: Start = "uniform"
    objective: Objective = CrossEntropy()
    attack_mode: Mode = "eval"
    updates_per_batch = 1
    name: ClassVar[str] = "fast"
    theorem: ClassVar[str] = "fast"
    one_step: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_ball(self.ball)
        check_step_size(self.alpha)
        check_objective(self.objective)

    @property
    def step_size(self) -> float:
        if self.alpha is not None:
            return self.alpha
        return self.ball.eps * (7 / 8 if isinstance(self.ball, Linf) else 1 / 2)

    @property
    def cost(self) -> Cost:
        return Cost(
            gradient_evaluations=1 + self.objective.loss_passes, forward_passes=self.objective.attack_forwards
        )

    def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord:
        ball = self.ball
        h = perturbed_loss(self.objective, learner, ball)

        def one_step(x: Tensor, y: Tensor, rng: StepRng) -> Tensor:
            feasible = ball.feasible(x)
            delta = feasible.confine(ball.start(x, self.start, rng))  # line 5
            g_delta = delta_gradient(self.objective.attack(learner.logits, x, y), x, delta, ball)  # line 6
            norms.append(l2_norm(g_delta))
            return ball.ascend(delta, g_delta, self.step_size, rng.at(0), feasible)  # line 7

        rng = learner.begin(x, ball.box)  # line 3
        norms = [l2_norm(x[..., :0, :, :, :])]  # a process may have no image of a batch
        delta = learner.perturb(one_step, x, y, rng, self.attack_mode)  # line 4
        losses = learner.weight_gradient(h, delta, x, y)  # line 8
        learner.descend()
        return StepRecord(losses=losses, delta=delta, g_norms=torch.cat(norms, -1)[None])
