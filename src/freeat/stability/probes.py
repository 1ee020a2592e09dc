"""max_δ h of coupled runs on probe images, by a strong PGD that keeps the largest loss along its way."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from freeat.attacks.pgd import projected_ascent
from freeat.attacks.result import misclassified
from freeat.data import Images
from freeat.errors import InputError
from freeat.objectives import Model, cross_entropy
from freeat.rng import ImageRng
from freeat.stability.twins import CoupledRuns
from freeat.threat import Ball

PROBE_BATCH = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class WorstCase:
    """For each member and image, (K, n): the largest −log p_y found in the ball, and whether all were right."""

    cross_entropy: Tensor
    robust: Tensor

    @property
    def bounded(self) -> Tensor:
        """The largest 1 − p_y: a growing function of −log p_y, so its largest is found with it."""
        return -(-self.cross_entropy).expm1()

    @property
    def robust_accuracy(self) -> list[float]:
        """Of each member."""
        return [float(a) for a in self.robust.double().mean(1)]


@dataclass(frozen=True, kw_only=True)
class ProbeAttack:
    """PGD on cross-entropy with steps of ε/4 from random starts; the clean image is looked at too.

    For one seed all members, and all times of a run, are attacked with the same draws.
    """

    ball: Ball
    steps: int = 20
    restarts: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 1:
            raise InputError(
                f"probing with {self.steps} steps and {self.restarts} restarts: both must be at least 1"
            )

    def __call__(self, runs: CoupledRuns, images: Images) -> WorstCase:
        dtype = next(runs.base.model.parameters()).dtype
        losses, robust = [], []
        for rows in torch.split(torch.arange(len(images)), PROBE_BATCH):
            x, y = images.batch(rows)
            rng = ImageRng(self.seed, images.index[rows.to(images.index.device)].tolist())
            part_losses, part_robust = runs.measure(partial(self._attacked, rng=rng), x.to(dtype), y)
            losses.append(part_losses.cpu())
            robust.append(part_robust.cpu())
        return WorstCase(cross_entropy=torch.cat(losses, -1), robust=torch.cat(robust, -1))

    def _attacked(self, f: Model, x: Tensor, y: Tensor, rng: ImageRng) -> tuple[Tensor, Tensor]:
        largest = torch.full(y.shape, -torch.inf, device=x.device, dtype=x.dtype)
        right = torch.ones_like(y, dtype=torch.bool)

        def evaluate(x_adv: Tensor, delta: Tensor, rows: Tensor) -> tuple[Tensor, None]:
            nonlocal largest, right
            logits = f(x_adv)
            losses = cross_entropy(logits, y)
            largest = torch.maximum(largest, losses.detach())
            right = right & ~misclassified(logits, y)
            return losses, None

        with torch.no_grad():
            evaluate(x, torch.zeros_like(x), torch.arange(x.shape[-4]))
        alpha = self.ball.eps / 4
        for r in range(self.restarts):
            own = rng.at("restart", r)
            projected_ascent(evaluate, x, self.ball, own, steps=self.steps, alpha=alpha, finish=evaluate)
        return largest, right
