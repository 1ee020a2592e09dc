"""The strength of a training attack: what the perturbations do at which the weights descend.

Free descends at perturbations that are still on their way, the first of them random, so its attack is weaker than
Vanilla's in the same ball. Here the difference is a number.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from freeat.algorithms.step import Algorithm, Strength, WarmUp, without_warm_up
from freeat.learner import Learner
from freeat.objectives import Model, Objective, cross_entropy, margin
from freeat.threat import Ball, dual_norm


@dataclass(eq=False)
class MeasuredObjective:
    """Another objective that also adds up how strong the perturbations are at which the weights descend.

    ``batch`` is the number of images in a batch, of which a call may hold a part.
    """

    objective: Objective
    ball: Ball
    batch: int
    loss_passes: ClassVar[int] = 1
    attack_forwards: ClassVar[int] = 0
    passes: float = 0.0
    size: Tensor | float = 0.0  # these stay on the device until they are asked for
    loss_increase: Tensor | float = 0.0
    lowered: Tensor | float = 0.0
    largest: Tensor | float = 0.0

    @property
    def margin_share(self) -> float:
        return float(self.lowered / self.largest)

    def loss(self, f: Model, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor:
        clean = x.detach().requires_grad_()
        logits = f(clean)
        before = margin(logits, y)
        slope = torch.autograd.grad(before.sum(), clean)[0]
        part = x.shape[-4] / self.batch
        with torch.no_grad():
            perturbed = f(x_adv)
            self.passes += part
            self.size += part * _mean(self.ball.size(x_adv - x)) / self.ball.eps
            increase = cross_entropy(perturbed, y) - cross_entropy(logits, y)
            self.loss_increase += part * _mean(increase)
            self.lowered += part * _mean(margin(perturbed, y) - before)
            self.largest += part * self.ball.eps * _mean(dual_norm(slope.flatten(-3), self.ball))
        return self.objective.loss(f, x, y, x_adv)

    def attack(self, f: Model, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        return self.objective.attack(f, x, y)


def _mean(values: Tensor) -> Tensor:
    """Their mean, in double precision where the device has it."""
    return values.mean().to(torch.float32 if values.device.type == "mps" else torch.float64)


def measure_strength(
    algorithm: Algorithm, learner: Learner, x: Tensor, y: Tensor, ball: Ball, *, total: int, first: int = 0
) -> Strength:
    """The strength of an algorithm's attack on a batch: its step on a copy of the learner, which itself stays as it is.

    (x, y) are the rows ``first, …`` of a batch of ``total`` images, as several processes share it; ε is that of
    ``ball``. No random stream is consumed: the draws are those of the learner's next step.
    """
    twin = learner.copy(updates=algorithm.updates_per_batch)
    twin.expect(total, first)
    inner = without_warm_up(algorithm)
    measured = MeasuredObjective(inner.objective, ball, total)  # type: ignore[attr-defined]
    inner = replace(inner, objective=measured)  # type: ignore[type-var]
    (replace(algorithm, algorithm=inner) if isinstance(algorithm, WarmUp) else inner).step(twin, x, y)
    sums = [measured.passes, measured.size, measured.loss_increase, measured.lowered, measured.largest]
    device = learner.precision.device
    dtype = torch.float32 if device.type == "mps" else torch.float64
    passes, size, increase, lowered, largest = learner.processes.sum(
        torch.stack([torch.as_tensor(value, dtype=dtype, device=device) for value in sums])
    ).tolist()
    return Strength(
        size=size / passes,
        loss_increase=increase / passes,
        margin_share=lowered / largest if largest > 0 else 0.0,
        cost=learner.processes.total(twin.cost, device),
    )
