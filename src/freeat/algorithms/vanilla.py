"""Algorithm 1: vanilla adversarial training. With ``objective=Trades()`` it is TRADES."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from freeat.algorithms.step import StepRecord, check_loops, check_step_size, perturbed_loss
from freeat.attacks.pgd import Maximizer, last_iterate
from freeat.compute import Cost
from freeat.compute.frozen import Mode
from freeat.learner import Learner
from freeat.objectives import CrossEntropy, Objective, check_objective
from freeat.rng import StepRng
from freeat.threat import Ball, Start, check_ball


@dataclass(frozen=True, kw_only=True)
class Vanilla:
    """Algorithm 1, A_Vanilla: argmax_δ by PGD-m (or any ``maximizer``), then one descent of w.

    It is PGD adversarial training (Madry et al., 2018).

    Args:
        ball: the set Δ of perturbations.
        m: the steps of PGD.
        alpha: the length of a step in input units; by default ε/4, and ε when m = 1.
        start: where δ starts: ``uniform``, ``radius``, ``gaussian`` or ``zero``.
        objective: the loss that w descends, and the function that the attack ascends.
        attack_mode: the mode of the network during the attack, ``eval`` or ``train``.
        maximizer: solves line 4 instead of PGD-m.

    Raises:
        InputError: ``ball`` is no ball, ``objective`` no objective, m < 1, or α is not positive.

    Example:
        >>> import freeat
        >>> vanilla = freeat.Vanilla(ball=freeat.L2(0.5), m=10)
        >>> vanilla.step_size, vanilla.cost.gradient_evaluations
        (0.125, 11)
    """

    ball: Ball
    m: int = 10
    alpha: float | None = None
    start: Start = "uniform"
    objective: Objective = CrossEntropy()
    attack_mode: Mode = "eval"
    maximizer: Maximizer | None = None
    updates_per_batch = 1
    name: ClassVar[str] = "vanilla"
    theorem: ClassVar[str] = "vanilla"
    starts: ClassVar[Mapping[str, Start]] = {"trades": "gaussian", "mart": "gaussian"}  # where not uniform

    def __post_init__(self) -> None:
        check_ball(self.ball)
        check_loops("m", self.m)
        check_step_size(self.alpha)
        check_objective(self.objective)

    @property
    def one_step(self) -> bool:
        return self.m == 1

    @property
    def step_size(self) -> float:
        if self.alpha is not None:
            return self.alpha
        return self.ball.eps if self.m == 1 else self.ball.eps / 4

    @property
    def cost(self) -> Cost:
        """A ``maximizer`` is counted as PGD-m."""
        h = self.objective
        return Cost(gradient_evaluations=self.m + h.loss_passes, forward_passes=h.attack_forwards)

    def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord:
        h = perturbed_loss(self.objective, learner, self.ball)

        def argmax(x: Tensor, y: Tensor, rng: StepRng) -> Tensor:
            loss = self.objective.attack(learner.logits, x, y)
            if self.maximizer is not None:
                return self.maximizer(loss, x, y, self.ball, rng)
            return last_iterate(loss, x, self.ball, rng, steps=self.m, alpha=self.step_size, start=self.start)

        rng = learner.begin(x, self.ball.box)  # line 3
        delta = learner.perturb(argmax, x, y, rng, self.attack_mode)  # line 4
        losses = learner.weight_gradient(h, delta, x, y)  # line 5
        learner.descend()
        return StepRecord(losses=losses, delta=delta)
