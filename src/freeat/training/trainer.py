"""Training with evaluations: the loop, its evaluations, checkpoints and guards; the plan of a training."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor, nn

from freeat.algorithms.step import Algorithm, Strength, is_one_step, training_cost
from freeat.compute import FORWARD_SHARE, Cost
from freeat.compute.machine import CALLS, QUICK, quickest
from freeat.data import Augmentation
from freeat.data.batches import Batches
from freeat.errors import InputError
from freeat.evaluation.evaluate import NonFiniteLogits
from freeat.evaluation.evaluator import (
    EvaluationSchedule,
    Evaluator,
    OneStep,
    Scores,
    collapse_warning,
    schedule_evaluations,
    spent,
)
from freeat.learner import Learner
from freeat.models import parameter_count
from freeat.objectives import cross_entropy
from freeat.training.checks import memory_remedy, out_of_memory
from freeat.training.loop import (
    Diverged,
    Meter,
    MeterState,
    check_losses,
    check_weights,
    next_batch,
    step_rng,
    train,
)
from freeat.training.records import Callback, Callbacks, NormCounts, Record, Recorder
from freeat.training.snapshot import LearnerState, restore_snapshot, take_snapshot

log = logging.getLogger(__name__)

OnCollapse = Literal["warn", "stop"]
FETCH_EVERY = 20
"""Batches between two fetches of the loss, where one waits for the device or for other processes."""


class Stopped(RuntimeError):
    """The run has saved a checkpoint and stopped, as requested."""


@dataclass(frozen=True, kw_only=True)
class CheckpointFacts:
    """What a checkpoint holds besides its tensors."""

    learner: LearnerState
    meter: MeterState
    history_bytes: int
    best_robust: float
    best_validation: float
    evaluation_cost: float
    seconds: float


@dataclass(kw_only=True)
class Trainer:
    """One model in training: its algorithm, evaluator, recorder, and progress."""

    learner: Learner
    algorithm: Algorithm
    batches: Batches
    evaluator: Evaluator
    augment: Augmentation | None = None
    eval_every: int | None = None
    eval_size: int | None = None
    final_size: int | None = None
    measures_strength: bool = False
    folder: Recorder | None = None
    checkpoint_every: float = 60.0
    on_collapse: OnCollapse = "warn"
    callback: Callback = field(default_factory=Callbacks)
    should_stop: Callable[[], bool] = lambda: False
    may_write: Callable[[], None] = lambda: None

    meter: Meter = field(default_factory=Meter)
    history: list[Record] = field(default_factory=list)
    best_robust: float = 0.0
    best_validation: float = -1.0
    evaluation_cost: float = 0.0
    seconds_before: float = 0.0

    def __post_init__(self) -> None:
        self.meter.processes = self.learner.processes
        self._began = time.monotonic()
        self._saved = time.monotonic()

    def run(self) -> Record:
        """Train to the end and evaluate the result; resumes from the newest checkpoint if there is one."""
        self._resume()
        learner, total = self.learner, self.learner.total_updates or 0
        if self._has_curve and not self.history:
            self._evaluate("evaluation")
        try:
            for record in train(learner, self.algorithm, self.evaluator.train, self.batches, self.augment):
                self.meter.add(record, len(self.batches(learner.batches)))
                if self._fetches_loss():
                    self.meter.fetch()
                    if learner.processes.is_main:
                        self.callback.step(learner.updates, total, self.meter.latest)
                if self._evaluation_due():
                    self._evaluate("evaluation")
                self._checkpoint_if_due()
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            raise InputError(memory_remedy(learner, self.evaluator.train, self.batches.size)) from error
        return self._finish()

    @property
    def seconds(self) -> float:
        """Time spent on this run, also before it was interrupted."""
        return self.seconds_before + time.monotonic() - self._began

    def _fetches_loss(self) -> bool:
        near = self.learner.precision.device.type == "cpu" and self.learner.processes.size == 1
        return near or self.learner.batches % FETCH_EVERY == 0

    @cached_property
    def evaluations(self) -> EvaluationSchedule:
        """When the model is evaluated during training, and on how many images."""
        total = self.learner.total_updates or 0
        return schedule_evaluations(
            images=total * self.batches.mean_size,
            cost_per_image=self.evaluator.cost_per_image,
            updates=total,
            every=self.eval_every,
            size=self.eval_size,
            largest=max(len(self.evaluator.train), len(self.evaluator.test)),
        )

    def _cost(self) -> Cost:
        return self.learner.processes.total(self.learner.cost, self.learner.precision.device)

    @property
    def _has_curve(self) -> bool:
        return self.evaluations.every < (self.learner.total_updates or 0)

    @property
    def curve_points(self) -> int:
        """The evaluations besides the final one: at update 0, at ends of batches during training, and at the end."""
        if not self._has_curve:
            return 0
        m, every = self.algorithm.updates_per_batch, self.evaluations.every
        batches = ((self.learner.total_updates or 0) - 1) // m
        intermediate = batches if m > every else batches * m // every
        return 1 + intermediate + self._curve_is_smaller

    def _evaluation_due(self) -> bool:
        """At the first batch boundary at or after a multiple of ``every``; the end has its own evaluation."""
        every, learner = self.evaluations.every, self.learner
        if not self._has_curve or learner.updates_left <= 0:
            return False
        return learner.updates // every > self.history[-1].update // every

    def _evaluate(self, kind: Literal["evaluation", "final"]) -> Record:
        """Evaluate and record. Where the final evaluation is on other images, the curve has an end of its own."""
        loss, norms = self.meter.take()
        if kind == "final" and self._has_curve and self._curve_is_smaller:
            self._record("evaluation", loss, None)
        record = self._record(kind, loss, norms)
        if record.collapsed and self.on_collapse == "stop" and kind != "final":
            self._checkpoint()
            raise Stopped(f"stopped at update {self.learner.updates} because of a {record.collapse}")
        return record

    @property
    def _curve_is_smaller(self) -> bool:
        """Whether the final evaluation is on other images than those before it."""
        numbers = [len(images) for images, _ in self.evaluator.views.values()]
        sizes = (self.evaluations.size, self.final_size or max(numbers))
        return any(len({min(size, n) for size in sizes}) > 1 for n in numbers)

    def _record(
        self, kind: Literal["evaluation", "final"], loss: float | None, norms: NormCounts | None
    ) -> Record:
        size = self.final_size if kind == "final" else self.evaluations.size
        learner, cost = self.learner, self._cost()
        try:
            scores = self.evaluator.scores(learner.model, size)
            check_losses(scores)
            one_step, collapse = self._check_collapse(scores, size)
            averages = {
                name: self.evaluator.scores(average.model, size)
                for name, average in learner.averages.items()
                if average.has_started(learner.updates)
            }
        except NonFiniteLogits as error:
            raise Diverged(str(error)) from None
        strength = self._strength()
        self.evaluation_cost += (
            0 if kind == "final" else spent(scores, one_step, strength, *averages.values())
        )
        record = Record(
            **vars(scores),
            kind=kind,
            update=learner.updates,
            batch=learner.batches,
            epoch=learner.batches / self.batches.replay / self.batches.per_epoch,
            equivalent_epoch=learner.updates / self.batches.per_epoch,
            lr=learner.optimizer.param_groups[0]["lr"],
            gradient_evaluations=cost.gradient_evaluations,
            forward_passes=cost.forward_passes,
            training_loss=loss,
            gradient_norms=norms,
            one_step=one_step,
            collapsed=collapse is not None and is_one_step(self.algorithm),
            collapse=collapse,
            strength=strength,
            ema=averages.get("ema"),
            slow=averages.get("slow"),
            best=learner.updates > 0 and self._is_best(scores),
            evaluation_share=self.evaluation_cost / cost.total if cost.total else 0.0,
            seconds=self.seconds,
        )
        if record.best:
            self._publish("best", learner.model)
        self._append(record)
        return record

    def _strength(self) -> Strength | None:
        """Of the training attack on the batch that comes next, where it is measured."""
        if not self.measures_strength:
            return None
        from freeat.algorithms.strength import measure_strength

        learner, ball = self.learner, self.evaluator.ball
        x, y, total, first = next_batch(learner, self.evaluator.train, self.batches, self.augment)
        with step_rng(learner, x.device):
            return measure_strength(self.algorithm, learner, x, y, ball, total=total, first=first)

    def _check_collapse(self, scores: Scores, size: int | None) -> tuple[OneStep | None, str | None]:
        """The one-step accuracy of adversarial training, and a warning where it is all that is left."""
        if not self.evaluator.watches_collapse:
            return None, None
        found = self.evaluator.one_step(self.learner.model, size)
        pgd = scores.train.robust_accuracy
        collapse = collapse_warning(found.robust_accuracy, pgd, self.best_robust, is_one_step(self.algorithm))
        last = self.history[-1] if self.history else None
        said = last is not None and last.update == self.learner.updates and last.collapse is not None
        if collapse is not None and not said:
            log.warning("update %d: %s", self.learner.updates, collapse)
        self.best_robust = max(self.best_robust, pgd)
        return found, collapse

    def _is_best(self, scores: Scores) -> bool:
        """Whether these weights are the best on the validation split so far; never chosen on the test set."""
        if scores.validation is None or scores.validation.robust_accuracy <= self.best_validation:
            return False
        self.best_validation = scores.validation.robust_accuracy
        return True

    def _append(self, record: Record) -> None:
        self.history.append(record)
        if folder := self._writable():
            folder.append(record)
        if self.learner.processes.is_main:
            self.callback.record(record)

    def _writable(self) -> Recorder | None:
        """The folder, if this process writes it and still holds its lock."""
        if self.folder is None or not self.learner.processes.is_main:
            return None
        self.may_write()
        return self.folder

    def _publish(self, name: str, model: nn.Module) -> None:
        if folder := self._writable():
            folder.publish_model(name, model.state_dict(), self.learner.updates)

    def _checkpoint_if_due(self) -> None:
        processes = self.learner.processes
        stop = self.should_stop()
        if processes.size > 1 and self.learner.batches % FETCH_EVERY:
            return
        if not processes.any(stop or time.monotonic() - self._saved >= self.checkpoint_every):
            return
        self._checkpoint()
        if processes.any(stop):
            where = f"; run the same command again to resume from {self.folder.path}" if self.folder else ""
            raise Stopped(f"stopped at update {self.learner.updates} as asked{where}")

    def _checkpoint(self) -> None:
        # Both refuse what is not finite, so that the last good checkpoint stays.
        meter = self.meter.state()
        check_weights(self.learner.model)
        cost = self._cost()
        self._saved = time.monotonic()
        if not (folder := self._writable()):
            return
        tensors, state = take_snapshot(self.learner)
        facts = CheckpointFacts(
            learner=replace(state, cost=cost),
            meter=meter,
            history_bytes=folder.history_length,
            best_robust=self.best_robust,
            best_validation=self.best_validation,
            evaluation_cost=self.evaluation_cost,
            seconds=self.seconds,
        )
        folder.checkpoints.save(self.learner.updates, tensors, facts)

    def _resume(self) -> None:
        found = self.folder.checkpoints.newest(CheckpointFacts) if self.folder else None
        self.learner.processes.check_same(
            {"update to begin at": 0 if found is None else found[1].learner.updates},
            "give an --out on storage that all machines share",
        )
        if self.folder is None or found is None:
            if folder := self._writable():
                folder.truncate(0)
            return
        tensors, facts = found
        restore_snapshot(self.learner, tensors, facts.learner)
        self.meter.restore(facts.meter)
        self.best_robust, self.best_validation = facts.best_robust, facts.best_validation
        self.evaluation_cost, self.seconds_before = facts.evaluation_cost, facts.seconds
        if folder := self._writable():
            folder.truncate(facts.history_bytes)
        self.learner.processes.wait()
        self.history = list(self.folder.history())
        log.info("resumed at update %d of %s", self.learner.updates, self.learner.total_updates)

    def _finish(self) -> Record:
        self.meter.fetch()
        final = self._evaluate("final")
        self._publish("model", self.learner.model)
        for name, average in self.learner.averages.items():
            self._publish(name, average.model)
        return final


TIMED_IMAGES = 32
"""Images of the timed pass on a CPU, if a pass of the whole batch would take longer than ``QUICK`` seconds of work."""


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
        at_once: How many of them run at the same time.
        threads: The CPU threads of each, None on another device.
        others: The cores that other programs use; None where that is unknown.
    """

    network: str
    parameters: int
    updates: int
    evaluations: int
    gradient_evaluations: float
    seconds: float | None
    runs: int = 1
    at_once: int = 1
    threads: int | None = None
    others: float | None = None


def plan_training(trainer: Trainer, network: str, *, others: float | None = None) -> Plan:
    """The plan of a trainer, from one timed pass of a copy of its model.

    The trainer itself stays as it is, to the bit. Several processes, or a memory that is exhausted, give no time.
    """
    learner = trainer.learner
    updates, device = learner.total_updates or 0, learner.precision.device
    training = training_cost(trainer.algorithm, updates, learner.awp)
    cost = training.total * trainer.batches.mean_size
    cost += evaluation_cost(trainer, [average.first for average in learner.averages.values()])
    timed = _seconds_per_gradient(trainer) if learner.processes.size == 1 else None
    return Plan(
        network=network,
        parameters=parameter_count(learner.model),
        updates=updates,
        evaluations=trainer.curve_points + 1,
        gradient_evaluations=cost,
        seconds=None if timed is None else timed * cost,
        threads=torch.get_num_threads() if device.type == "cpu" else None,
        others=others,
    )


def evaluation_cost(trainer: Trainer, starts: Iterable[int]) -> float:
    """Gradient evaluations of all evaluations: of the model, and of averages of its weights, begun at ``starts``."""
    evaluator, updates = trainer.evaluator, trainer.learner.total_updates or 0
    shares = [1 - min(first / max(updates, 1), 1) for first in starts]  # of the curve, that an average has
    models = 1 + len(shares)
    sizes = [len(images) for images, _ in evaluator.views.values()]
    curve = trainer.curve_points * sum(min(n, trainer.evaluations.size or n) for n in sizes)
    last = sum(min(n, trainer.final_size or n) for n in sizes)
    one_step = 1 + 2 * FORWARD_SHARE if evaluator.watches_collapse else 0
    total = evaluator.cost_per_image * ((1 + sum(shares)) * curve + models * last) + one_step * (curve + last)
    return total / len(sizes)


def _seconds_per_gradient(trainer: Trainer) -> float | None:
    """The seconds of a gradient evaluation of one image, with a share of an update.

    Threads that wait for a core lose time at every operation, whatever the batch: only a pass of the whole batch has
    its time per image. A few images of a large network show it well enough.
    """
    learner, images = trainer.learner, trainer.evaluator.train
    device = learner.precision.device
    most = min(learner.micro_batch or trainer.batches.size, len(images))
    few = min(most, TIMED_IMAGES)

    def step(x: Tensor, y: Tensor) -> None:
        twin.begin(x)
        twin.both_gradients(loss, torch.zeros_like(x), x, y)
        twin.descend()

    def loss(delta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(twin.logits(x + delta), y)

    try:
        twin = learner.copy(updates=3 + CALLS)
        x, y = twin.to_device(*images.batch(torch.arange(most)))
        with step_rng(twin, device):
            step(x[:few], y[:few])
            began = time.process_time()
            step(x[:few], y[:few])
            work = (time.process_time() - began) / torch.get_num_threads() * most / few
            n = most if device.type != "cpu" or work < QUICK else few
            return quickest(lambda: step(x[:n], y[:n]), device, wall=True) / n
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        return None
