"""N-FGSM: one step on δ from strong noise, without a projection."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from freeat.algorithms.step import StepRecord, check_step_size, perturbed_loss
from freeat.attacks.pgd import delta_gradient
from freeat.compute import Cost
from freeat.compute.frozen import Mode
from freeat.errors import InputError
from freeat.learner import Learner
from freeat.objectives import CrossEntropy, Objective, check_objective
from freeat.rng import StepRng
from freeat.threat import Ball, Linf, check_ball, l2_norm


@dataclass(frozen=True, kw_only=True)
class NFgsm:
    """N-FGSM: one step on δ from noise in a ball of radius kε, not projected onto Δ, then one descent of w.

    The perturbations of the training may be as long as (k + 1)ε; a model is evaluated in the ball of radius ε. Linf is
    that of the authors. L2 is an extension: its noise is as long as that of Linf, relative to ε, in root mean square.

    Args:
        ball: the set Δ of perturbations.
        alpha: the length of the step in input units; by default ε. In a ball of radius 0 there is no step.
        noise: k, the radius of the noise in units of ε; by default 2 for Linf and 2/√3 for L2.
        objective: the loss that w descends, and the function that the attack ascends.
        attack_mode: the mode of the network during the attack, ``train`` or ``eval``.

    Raises:
        InputError: ``ball`` is no ball, ``objective`` no objective, α is not positive, or k is negative.

    Example:
        >>> import freeat
        >>> n_fgsm = freeat.make_algorithm("n-fgsm", freeat.Linf("8/255"), noise=3)
        >>> n_fgsm.noise_radii, n_fgsm.cost.gradient_evaluations
        (3, 2)
    """

    ball: Ball
    alpha: float | None = None
    noise: float | None = None
    objective: Objective = CrossEntropy()
    attack_mode: Mode = "train"
    updates_per_batch = 1
    name: ClassVar[str] = "n-fgsm"
    one_step: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_ball(self.ball)
        check_step_size(self.alpha)
        check_objective(self.objective)
        if self.noise is not None and not 0 <= self.noise < math.inf:
            raise InputError(f"noise k = {self.noise:g} must be at least 0 and finite, in radii; 2 is usual")

    @property
    def step_size(self) -> float:
        return self.ball.eps if self.alpha is None else self.alpha

    @property
    def noise_radii(self) -> float:
        """k."""
        if self.noise is not None:
            return self.noise
        return 2.0 if isinstance(self.ball, Linf) else 2 / math.sqrt(3)

    @property
    def cost(self) -> Cost:
        return Cost(
            gradient_evaluations=1 + self.objective.loss_passes, forward_passes=self.objective.attack_forwards
        )

    def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord:
        ball = self.ball
        h = perturbed_loss(self.objective, learner, ball)

        def one_step(x: Tensor, y: Tensor, rng: StepRng) -> Tensor:
            eta = ball.confine(x, self.noise_radii * ball.start(x, "uniform", rng))
            g_delta = delta_gradient(self.objective.attack(learner.logits, x, y), x, eta, ball)
            norms.append(l2_norm(g_delta))
            step = ball.extreme(g_delta, rng.at(0))
            if self.alpha is not None and ball.eps > 0:
                step = step * (self.alpha / ball.eps)
            return ball.confine(x, eta + step)

        rng = learner.begin(x, ball.box)
        norms = [l2_norm(x[..., :0, :, :, :])]  # a process may have no image of a batch
        delta = learner.perturb(one_step, x, y, rng, self.attack_mode)
        losses = learner.weight_gradient(h, delta, x, y)
        learner.descend()
        return StepRecord(losses=losses, delta=delta, g_norms=torch.cat(norms, -1)[None])
