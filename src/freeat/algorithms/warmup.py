"""A gradual warm-up of ε: what rescues Free from chance on data such as SVHN."""

from dataclasses import dataclass, replace

from torch import Tensor

from freeat.algorithms.fast import Fast
from freeat.algorithms.free import Free
from freeat.algorithms.friendly import Friendly
from freeat.algorithms.step import StepRecord, check_loops
from freeat.algorithms.vanilla import Vanilla
from freeat.learner import Learner


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """Another algorithm, whose radius and step grow linearly from 0 over the first ``updates`` weight updates."""

    algorithm: Vanilla | Fast | Free | Friendly
    updates: int

    def __post_init__(self) -> None:
        check_loops("warm-up updates", self.updates)

    @property
    def updates_per_batch(self) -> int:
        return self.algorithm.updates_per_batch

    def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord:
        share = min(1.0, (learner.updates + 1) / self.updates)
        ball, alpha = self.algorithm.ball.scaled(share), self.algorithm.alpha
        # a step left to its default follows the radius by itself
        alpha = None if alpha is None else share * alpha
        return replace(self.algorithm, ball=ball, alpha=alpha).step(learner, x, y)
