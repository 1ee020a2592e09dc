"""Equal budgets: the number of weight updates of every algorithm of a comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

from freeat.algorithms import Algorithm
from freeat.algorithms.step import training_cost
from freeat.compute.machine import CALLS, arithmetic, quickest, resolve_device
from freeat.errors import unknown_name
from freeat.experiments.tasks import TrainTask
from freeat.learner.distributed import SINGLE_PROCESS
from freeat.runs.build import build_algorithm
from freeat.runs.run import assemble, settle
from freeat.runs.spec import TrainSpec
from freeat.training.loop import train
from freeat.training.trainer import Trainer

if TYPE_CHECKING:
    from freeat.learner.modifiers import WeightPerturbation

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
        update_cost: what one weight update spends in the mean, by algorithm.
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
        updates[reference] = trainer.learner.total_updates or 0
        amount = _update_cost(kind, by_algorithm[reference], trainer).spent(updates[reference])
        costs[reference] = amount / updates[reference]
    for name, task in by_algorithm.items():
        if name not in updates:
            cost = _update_cost(kind, task, _assembled(task))
            updates[name] = whole_batches(cost.affordable(amount), algorithm_of(task).updates_per_batch)
            costs[name] = cost.spent(updates[name]) / updates[name]
    budget = replace(budget, amount=amount, update_cost=costs, updates=updates)
    if budget.eval_size is None:
        shortest = min(within_budget(tasks, budget), key=lambda task: updates[label_of(task)])
        budget = replace(budget, eval_size=_assembled(shortest).evaluations.size)
    return budget


def whole_batches(updates: float, per_batch: int) -> int:
    """The nearest number of weight updates that makes whole batches, one batch at least."""
    return max(1, round(updates / per_batch)) * per_batch


def within_budget(tasks: Sequence[TrainTask], budget: Budget) -> list[TrainTask]:
    """The tasks with the updates that the budget gives to their algorithms; the reference keeps its spec.

    ``eval_every`` is as large a part of T for all of them, so that their curves have as many points.
    """
    made = []
    for task in tasks:
        if budget.eval_size is not None:
            task = replace(task, evaluation=replace(task.evaluation, eval_size=budget.eval_size))
        if (name := label_of(task)) != budget.reference and name in budget.updates:
            task = replace(task, spec=replace(task.spec, epochs=None, updates=budget.updates[name]))
            whole = budget.updates.get(budget.reference or "")
            if whole and (every := task.evaluation.eval_every) is not None:
                every = max(1, round(every * budget.updates[name] / whole))
                task = replace(task, evaluation=replace(task.evaluation, eval_every=every))
        made.append(task)
    return made


def label_of(task: TrainTask) -> str:
    """The algorithm of a task as tables name it; its runs differ in their seed only."""
    return task.name.rpartition("/")[0]


def algorithm_of(task: TrainTask) -> Algorithm:
    """The algorithm of a task, with its settings."""
    return build_algorithm(task.spec, updates=1, trust_code=task.options.trust_code)


@dataclass(frozen=True)
class UpdateCost:
    """What a weight update spends: ``plain``, or ``perturbed`` from update ``first`` on, where AWP begins."""

    plain: float
    perturbed: float
    first: int

    def spent(self, updates: int) -> float:
        """What a training of this many updates spends."""
        before = min(self.first, updates)
        return before * self.plain + (updates - before) * self.perturbed

    def affordable(self, amount: float) -> float:
        """The updates that an amount is spent on."""
        before = min(amount / self.plain, self.first)
        return before + (amount - before * self.plain) / self.perturbed


def _update_cost(kind: str, task: TrainTask, trainer: Trainer) -> UpdateCost:
    awp, mean, largest = trainer.learner.awp, trainer.batches.mean_size, max(trainer.batches.sizes)
    at_once = awp and replace(awp, first=0)

    def cost(spec: TrainSpec, awp: "WeightPerturbation | None") -> float:
        if kind == "gradients":
            return training_cost(trainer.algorithm, 1, awp).gradient_evaluations * mean
        return seconds_per_update(replace(task, spec=spec)) * mean / largest

    perturbed = cost(replace(task.spec, awp_from=0.0), at_once)
    plain = cost(replace(task.spec, awp=0.0, awp_from=0.0), None) if awp and awp.first else perturbed
    return UpdateCost(plain, perturbed, first=awp.first if awp else 0)


def seconds_per_update(task: TrainTask) -> float:
    """The seconds of a weight update on a full batch, with all that a training step does, on this machine.

    The pull to slow weights is left out: it begins late, and is a small part of a step.
    """
    device = resolve_device(task.options.device)
    per_batch = algorithm_of(task).updates_per_batch
    # batches drawn independently all have the same size
    spec = replace(task.spec, epochs=None, updates=(1 + CALLS) * per_batch, sampling="independent")
    spec = replace(spec, proximal=None, proximal_from=None)
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
