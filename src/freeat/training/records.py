"""Records of a training run, the recorder that stores them, and callbacks that receive them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from torch import Tensor

from freeat.algorithms.step import Strength
from freeat.evaluation.evaluator import OneStep, Scores
from freeat.evaluation.gradient_norms import NormCounts
from freeat.files.tensors import Checkpoints


@dataclass(frozen=True, kw_only=True)
class Record(Scores):
    """One evaluation of a model in training, before the first batch or at the end of one.

    Args:
        kind: ``evaluation`` on the way, ``final`` at the end.
        equivalent_epoch: epochs at one update per batch, by which algorithms of several updates are compared.
        gradient_evaluations, forward_passes: images sent through the network by the training so far.
        training_loss: the mean since the last record.
        one_step, collapsed, collapse: the check for catastrophic overfitting, of adversarial training.
        strength: that of the training attack on the batch that comes next, where it was asked for.
        ema, slow: the same evaluation of the averaged weights, and of the slow ones once they have begun.
        best: whether these weights were the best on the validation split so far.
        evaluation_share: the cost of all evaluations on the way as a part of the training's.
        seconds: the time spent on the run so far.
    """

    kind: Literal["evaluation", "final"]
    update: int
    batch: int
    epoch: float
    equivalent_epoch: float
    lr: float
    gradient_evaluations: int
    forward_passes: int
    training_loss: float | None
    gradient_norms: NormCounts | None
    one_step: OneStep | None = None
    collapsed: bool = False
    collapse: str | None = None
    strength: Strength | None = None
    ema: Scores | None = None
    slow: Scores | None = None
    best: bool = False
    evaluation_share: float
    seconds: float


AnyRecord = TypeVar("AnyRecord", bound=Record)


def record_of(record: AnyRecord, weights: str) -> AnyRecord:
    """The record with the scores of other weights of the run: ``ema`` or ``slow``; its own before those begin."""
    scores: Scores | None = None if weights == "model" else getattr(record, weights)
    return record if scores is None else replace(record, **vars(scores))


class Recorder(Protocol):
    """Where the trainer appends its records, publishes weights and keeps its checkpoints."""

    @property
    def path(self) -> Path: ...

    @property
    def checkpoints(self) -> Checkpoints: ...

    @property
    def history_length(self) -> int:
        """The history's length in bytes."""

    def history(self) -> Iterator[Record]:
        """The records in order."""

    def append(self, record: Record) -> int:
        """Add a record to the history; returns the history's length in bytes."""

    def truncate(self, length: int) -> None:
        """Cut the history to its length at a checkpoint."""

    def publish_model(self, name: str, state: Mapping[str, Tensor], update: int) -> None:
        """Store the weights after this update under a name."""


def accuracies(scores: Scores) -> str:
    """An evaluation in one line."""
    train, test = scores.train, scores.test
    constant = "" if scores.constant_answer is None else "  the same answer to every image"
    return (
        f"robust train {train.robust_accuracy:.1%}  test {test.robust_accuracy:.1%}  "
        f"gap {scores.gap.value:+.1%}  clean test {test.clean_accuracy:.1%}  ({train.n}, {test.n} images){constant}"
    )


class Callback(Protocol):
    """Receives the losses and records of a run: a progress bar, a log, a tracker."""

    def step(self, update: int, total: int, loss: float | None) -> None:
        """After a batch; ``loss`` is None where it was not fetched from the device."""

    def record(self, record: Record) -> None:
        """After an evaluation, once its record is stored."""


class Callbacks:
    """Several callbacks as one, or none."""

    def __init__(self, *callbacks: Callback) -> None:
        self.callbacks = callbacks

    def step(self, update: int, total: int, loss: float | None) -> None:
        for callback in self.callbacks:
            callback.step(update, total, loss)

    def record(self, record: Record) -> None:
        for callback in self.callbacks:
            callback.record(record)
