"""Equal budgets: the number of weight updates of every algorithm of a comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from freeat.algorithms import Algorithm
from freeat.compute.machine import CALLS, arithmetic, quickest, resolve_device
from freeat.errors import unknown_name
from freeat.experiments.tasks import TrainTask
from freeat.learner.distributed import SINGLE_PROCESS
from freeat.runs.build import build_algorithm, gradients_per_update
from freeat.runs.run import assemble, settle
from freeat.training.loop import train
from freeat.training.trainer import Trainer

BudgetKind = Literal["updates", "gradients", "seconds"]
KINDS: tuple[str, ...] = get_args(BudgetKind)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What every run of a comparison spends.

    Args:
        kind: what is equal: weight updates, gradient evaluations (forward–backward passes of images), or seconds of
            training on the machine where it was resolved.
        reference: the algorithm whose ``--epochs`` or ``--updates`` set the amount.
        amount: what a run of the reference spends, in gradient evaluations or seconds.
        update_cost: what one weight update spends, by algorithm.
        updates: the weight updates T, by algorithm. Equal numbers of updates need no resolution: nothing is stored.
        eval_size: the images of each split that learning curves are made of, the same for all algorithms.
    """

    kind: BudgetKind = "updates"
    reference: str | None = None
    amount: float | None = None
    update_cost: Mapping[str, float] = field(default_factory=dict)
    updates: Mapping[str, int] = field(default_factory=dict)
    eval_size: int | None = None


def resolve_budget(
    kind: str, tasks: Sequence[TrainTask], *, reference: str, stored: Budget | None = None
) -> Budget:
    """The updates of every algorithm among the tasks, whose specs have the length of the reference.

    What was stored before is kept; algorithms that join a comparison are given the amount it has. T is a whole number
    of batches; that of the reference is as its spec says.
    """
    if kind not in KINDS:
        raise unknown_name("budget", kind, KINDS)
    if kind == "updates":
        return Budget()
    by_algorithm = {label_of(task): task for task in reversed(tasks)}
    budget = stored or Budget(kind=kind, reference=reference)  # type: ignore[arg-type]
    costs, updates = dict(budget.update_cost), dict(budget.updates)
    amount = budget.amount
    if amount is None:
        trainer = _assembled(by_algorithm[reference])
        costs[reference] = _update_cost(kind, by_algorithm[reference], trainer)
        updates[reference] = trainer.learner.total_updates or 0
        amount = updates[reference] * costs[reference]
    for name, task in by_algorithm.items():
        if name not in updates:
            costs[name] = _update_cost(kind, task, _assembled(task))
            updates[name] = whole_batches(amount / costs[name], algorithm_of(task).updates_per_batch)
    budget = replace(budget, amount=amount, update_cost=costs, updates=updates)
    if budget.eval_size is None:
        shortest = min(within_budget(tasks, budget), key=lambda task: updates[label_of(task)])
        budget = replace(budget, eval_size=_assembled(shortest).evaluations.size)
    return budget


def whole_batches(updates: float, per_batch: int) -> int:
    """The nearest number of weight updates that makes whole batches, one batch at least."""
    return max(1, round(updates / per_batch)) * per_batch


def within_budget(tasks: Sequence[TrainTask], budget: Budget) -> list[TrainTask]:
    """The tasks with the updates that the budget gives to their algorithms; the reference keeps its spec."""
    made = []
    for task in tasks:
        if budget.eval_size is not None:
            task = replace(task, evaluation=replace(task.evaluation, eval_size=budget.eval_size))
        if (name := label_of(task)) != budget.reference and name in budget.updates:
            task = replace(task, spec=replace(task.spec, epochs=None, updates=budget.updates[name]))
        made.append(task)
    return made


def label_of(task: TrainTask) -> str:
    """The algorithm of a task as tables name it; its runs differ in their seed only."""
    return task.name.rpartition("/")[0]


def algorithm_of(task: TrainTask) -> Algorithm:
    """The algorithm of a task, with its settings."""
    return build_algorithm(task.spec, updates=1, trust_code=task.options.trust_code)


def _update_cost(kind: str, task: TrainTask, trainer: Trainer) -> float:
    if kind == "gradients":
        learner = trainer.learner
        images = gradients_per_update(trainer.algorithm, learner.awp, learner.total_updates or 1)
        return images * trainer.batches.mean_size
    largest = max(trainer.batches.sizes)
    return seconds_per_update(task) * trainer.batches.mean_size / largest


def seconds_per_update(task: TrainTask) -> float:
    """The seconds of a weight update on a full batch, with all that a training step does, on this machine."""
    device = resolve_device(task.options.device)
    per_batch = algorithm_of(task).updates_per_batch
    # batches drawn independently all have the same size
    spec = replace(task.spec, epochs=None, updates=(1 + CALLS) * per_batch, sampling="independent")
    spec = replace(
        spec, awp_from=0.0, proximal=None, proximal_from=None
    )  # what begins later is timed at once
    settled = settle(spec, device)
    assert settled.threads is not None
    with arithmetic(threads=settled.threads, deterministic=spec.deterministic):
        trainer, _ = assemble(spec, task.evaluation, task.options, device, SINGLE_PROCESS, settled)
        images, augment = trainer.evaluator.train, trainer.augment
        steps = train(trainer.learner, trainer.algorithm, images, trainer.batches, augment)
        return quickest(lambda: next(steps), device) / per_batch


def _assembled(task: TrainTask) -> Trainer:
    device = resolve_device(task.options.device)
    return assemble(task.spec, task.evaluation, task.options, device, SINGLE_PROCESS)[0]
