"""What a training will take, said before it begins: its network, updates, evaluations and time."""

from dataclasses import dataclass

import torch
from torch import Tensor

from freeat.compute.machine import CALLS, quickest
from freeat.models import parameter_count
from freeat.objectives import cross_entropy
from freeat.training.checks import out_of_memory
from freeat.training.loop import step_rng
from freeat.training.trainer import Trainer

TIMED_IMAGES = 32
"""Images of the timed pass on a CPU, whose time per image hardly depends on the batch."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a training will take.

    Args:
        network: The name of its network.
        parameters: The number of trainable parameters.
        updates: The weight updates T.
        evaluations: The evaluations, the last one included.
        gradient_evaluations: Of the training and all evaluations, in images.
        seconds: The expected time on this machine as busy as it is; None where nothing was timed.
        runs: How many runs like this one there are; ``seconds`` are of all of them.
        threads: The CPU threads, None on another device.
        others: The cores that other programs use; None where that is unknown.
    """

    network: str
    parameters: int
    updates: int
    evaluations: int
    gradient_evaluations: float
    seconds: float | None
    runs: int = 1
    threads: int | None = None
    others: float | None = None


def plan_training(trainer: Trainer, network: str, *, others: float | None = None) -> Plan:
    """The plan of a trainer, from one timed pass of a copy of its model.

    The trainer itself stays as it is, to the bit. Several processes, or a memory that is exhausted, give no time.
    """
    learner, evaluator = trainer.learner, trainer.evaluator
    updates, device = learner.total_updates or 0, learner.precision.device
    per_image = trainer.algorithm.cost.total
    schedule = trainer.evaluation_schedule(per_image)
    points = (updates - 1) // schedule.every if schedule.every else 0
    models = 1 if learner.average is None else 2
    per_view = evaluator.cost_per_image(models=models) / len(evaluator.views)
    sizes = [len(images) for images, _ in evaluator.views.values()]
    evaluated = sum(
        count * min(n, size or n)
        for count, size in ((points, schedule.size), (1, trainer.final_size))
        for n in sizes
    )
    cost = per_image * trainer.batches.mean_size * updates + per_view * evaluated
    timed = _seconds_per_gradient(trainer) if learner.processes.size == 1 else None
    return Plan(
        network=network,
        parameters=parameter_count(learner.model),
        updates=updates,
        evaluations=points + 1,
        gradient_evaluations=cost,
        seconds=None if timed is None else timed * cost,
        threads=torch.get_num_threads() if device.type == "cpu" else None,
        others=others,
    )


def _seconds_per_gradient(trainer: Trainer) -> float | None:
    """The seconds of a gradient evaluation of one image, with a share of an update."""
    learner, images = trainer.learner, trainer.evaluator.train
    device = learner.precision.device
    most = learner.micro_batch or trainer.batches.size
    n = min(most, len(images), TIMED_IMAGES if device.type == "cpu" else most)

    def step() -> None:
        twin.begin(x)
        twin.both_gradients(loss, torch.zeros_like(x), x, y)
        twin.descend()

    def loss(delta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(twin.logits(x + delta), y)

    try:
        twin = learner.copy(updates=1 + CALLS)
        x, y = twin.to_device(*images.batch(torch.arange(n)))
        with step_rng(twin, device):
            return quickest(step, device, wall=True) / n
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        return None
