"""Algorithm 2: free adversarial training. With ``objective=Trades()`` it is Algorithm 4, Free-TRADES."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from freeat.algorithms.step import StepRecord, check_loops, check_step_size, perturbed_loss
from freeat.compute import Cost
from freeat.learner import Learner
from freeat.objectives import CrossEntropy, Objective, check_objective
from freeat.threat import Ball, Start, check_ball, l2_norm


@dataclass(frozen=True, kw_only=True)
class Free:
    """Algorithm 2, A_Free: m simultaneous steps of w and δ on each batch.

    Both gradients come from one forward–backward pass. With ``objective=Trades()`` it is Algorithm 4, Free-TRADES.

    Args:
        ball: the set Δ of perturbations.
        m: the steps on a batch, each of which updates the weights.
        alpha: the length of a step of δ in input units; by default ε.
        start: where δ starts: ``uniform``, ``radius``, ``gaussian`` or ``zero``.
        objective: the loss that w descends and δ ascends.
        carry: start a batch with the perturbations that the batch before ended with, slot by slot, as the original
            Free AT does; each process keeps its own slots. The paper draws them anew.

    Raises:
        InputError: ``ball`` is no ball, ``objective`` no objective, m < 1, or α is not positive.

    Example:
        >>> import freeat, torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
        >>> learner = freeat.Learner(model, torch.optim.SGD(model.parameters(), lr=0.1))
        >>> free = freeat.Free(ball=freeat.Linf(8 / 255), m=4)
        >>> record = free.step(learner, torch.rand(5, 3, 2, 2), torch.tensor([0, 1, 2, 0, 1]))
        >>> learner.updates, learner.cost
        (4, Cost(gradient_evaluations=20, forward_passes=0))
    """

    ball: Ball
    m: int = 4
    alpha: float | None = None
    start: Start = "uniform"
    objective: Objective = CrossEntropy()
    carry: bool = False
    name: ClassVar[str] = "free"
    theorem: ClassVar[str] = "free"
    one_step: ClassVar[bool] = True  # each update is on perturbations of one more step

    def __post_init__(self) -> None:
        check_ball(self.ball)
        check_loops("m", self.m)
        check_step_size(self.alpha)
        check_objective(self.objective)

    @property
    def updates_per_batch(self) -> int:
        return self.m

    @property
    def step_size(self) -> float:
        return self.ball.eps if self.alpha is None else self.alpha

    @property
    def cost(self) -> Cost:
        return Cost(gradient_evaluations=self.objective.loss_passes)

    def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord:
        h = perturbed_loss(self.objective, learner, self.ball)
        norms = []
        rng = learner.begin(x, self.ball.box)  # line 3
        delta = self._with_carried(learner, self.ball.start(x, self.start, rng))  # line 4
        for i in range(min(self.m, learner.updates_left)):  # line 5, cut exactly at T
            losses, g_delta = learner.both_gradients(h, delta, x, y)  # lines 6-7: one pass, both gradients
            learner.descend()  # line 8
            delta = self.ball.ascend(delta, g_delta, self.step_size, rng.at(i))  # line 9
            norms.append(l2_norm(g_delta))
        self._keep(learner, delta)
        return StepRecord(losses=losses, delta=delta, g_norms=torch.stack(norms))

    def _with_carried(self, learner: Learner, delta: Tensor) -> Tensor:
        """The start, with what is carried over from the batch before in its first slots."""
        if self.carry and (kept := learner.carried) is not None:
            # written in place: norms are summed in the order of delta's layout, which a resumed run must share
            delta[..., : kept.shape[-4], :, :, :] = kept[..., : delta.shape[-4], :, :, :]
        return delta

    def _keep(self, learner: Learner, delta: Tensor) -> None:
        """Keep δ for the next batch; a batch shorter than the one before leaves the rest of its slots."""
        if self.carry:
            kept = learner.carried
            rest = None if kept is None else kept[..., delta.shape[-4] :, :, :, :]
            learner.carried = delta if rest is None else torch.cat([delta, rest], -4)
