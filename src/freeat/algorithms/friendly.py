"""Friendly adversarial training: PGD that stops, image by image, soon after the image is misclassified."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from freeat.algorithms.step import StepRecord, check_loops, check_step_size, perturbed_loss
from freeat.attacks.pgd import projected_ascent
from freeat.attacks.result import misclassified
from freeat.compute import Cost
from freeat.compute.frozen import Mode
from freeat.errors import InputError
from freeat.learner import Learner
from freeat.objectives import CrossEntropy, Objective, check_objective, cross_entropy
from freeat.rng import StepRng
from freeat.threat import Ball, Start, check_ball


@dataclass(frozen=True, kw_only=True)
class Friendly:
    """Friendly AT: PGD-m in which an image takes ``tau`` more steps once misclassified.

    The attack ascends cross-entropy. With τ = m and ω = 0 it is PGD-m.

    Args:
        ball: the set Δ of perturbations in training, of radius ε_train.
        m: the most steps of PGD.
        tau: the steps τ that an image still takes once it is misclassified.
        omega: the standard deviation ω of Gaussian noise that is added to each step.
        dynamic: let τ grow as 0, 1, …, ``tau`` over the training.
        alpha: the length of a step in input units; by default ε_train/4.
        start: where δ starts: ``uniform``, ``radius``, ``gaussian`` or ``zero``.
        objective: the loss that w descends.
        attack_mode: the mode of the network during the attack, ``eval`` or ``train``.

    Raises:
        InputError: ``ball`` is no ball, ``objective`` no objective, m < 1, α is not positive, or τ or ω is negative.

    Example:
        >>> import freeat
        >>> freeat.Friendly(ball=freeat.L2(1.0), tau=3, alpha=0.125).step_size
        0.125
    """

    ball: Ball
    m: int = 10
    tau: int = 3
    omega: float = 0.0
    dynamic: bool = False
    alpha: float | None = None
    start: Start = "uniform"
    objective: Objective = CrossEntropy()
    attack_mode: Mode = "eval"
    updates_per_batch = 1
    name: ClassVar[str] = "friendly"

    def __post_init__(self) -> None:
        check_ball(self.ball)
        check_loops("m", self.m)
        check_step_size(self.alpha)
        check_objective(self.objective)
        if self.tau < 0 or self.omega < 0:
            raise InputError(
                f"τ = {self.tau} and ω = {self.omega:g} must not be negative; the paper uses 3 and 0"
            )

    @property
    def one_step(self) -> bool:
        return self.m == 1

    @property
    def step_size(self) -> float:
        return self.ball.eps / 4 if self.alpha is None else self.alpha

    @staticmethod
    def alpha_at(eval_eps: float) -> float:
        """The default step where the model is evaluated at another radius than it is trained at."""
        return eval_eps / 4

    @property
    def cost(self) -> Cost:
        """As if no image stopped early."""
        return Cost(gradient_evaluations=self.m + self.objective.loss_passes)

    def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord:
        h = perturbed_loss(self.objective, learner, self.ball)
        tau = min(int(learner.progress * (self.tau + 1)), self.tau) if self.dynamic else self.tau

        def friendly_attack(x: Tensor, y: Tensor, rng: StepRng) -> Tensor:
            def evaluate(x_adv: Tensor, delta: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
                logits = learner.logits(x_adv)
                return cross_entropy(logits, y), misclassified(logits, y)

            return projected_ascent(
                evaluate,
                x,
                self.ball,
                rng,
                steps=self.m,
                alpha=self.step_size,
                start=self.start,
                noise=self.omega,
                patience=tau,
            )

        rng = learner.begin(x, self.ball.box)
        delta = learner.perturb(friendly_attack, x, y, rng, self.attack_mode)
        losses = learner.weight_gradient(h, delta, x, y)
        learner.descend()
        return StepRecord(losses=losses, delta=delta)
