"""Records of a training run, the gradient norms in them, the recorder that stores them, and callbacks."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import torch
from torch import Tensor

from freeat.algorithms.step import Strength
from freeat.evaluation.evaluator import OneStep, Scores
from freeat.files.tensors import Checkpoints

LOWEST, HIGHEST = -120, 80
"""Bins are tenths of a decade: bin k holds the norms in [10^(k/10), 10^((k+1)/10))."""


@dataclass(frozen=True, kw_only=True)
class NormCounts:
    """How many norms fell into which bin since the last record, and the smallest of the whole run."""

    smallest_so_far: float
    bins: dict[str, int]

    def __post_init__(self) -> None:
        for name, count in self.bins.items():
            if not LOWEST <= int(name) <= HIGHEST or count < 0:
                raise ValueError(f"{count} norms in bin {name!r}: bins are {LOWEST} to {HIGHEST}")


@dataclass
class GradientNorms:
    """Counts of per-image ‖∇_δ h‖ since the last record (Figure 12), and the smallest so far, which is 1/ψ."""

    smallest: float | None = None
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, norms: Tensor) -> None:
        """Count some norms; a zero falls into the lowest bin."""
        if not norms.numel():
            return
        norms = norms.detach().flatten().double()
        least = float(norms.min())
        self.smallest = least if self.smallest is None else min(self.smallest, least)
        bins = (norms.log10() * 10).floor().nan_to_num(HIGHEST).clamp(LOWEST, HIGHEST).long()
        for bin_, count in zip(*torch.unique(bins, return_counts=True), strict=True):
            self.counts[int(bin_)] = self.counts.get(int(bin_), 0) + int(count)

    def state(self) -> NormCounts | None:
        """What a checkpoint keeps; None where the algorithm shows no norms."""
        if self.smallest is None:
            return None
        bins = {str(k): count for k, count in sorted(self.counts.items())}
        return NormCounts(smallest_so_far=self.smallest, bins=bins)

    def take(self) -> NormCounts | None:
        """What was counted since the last call, for a record."""
        taken, self.counts = self.state(), {}
        return taken

    @classmethod
    def from_state(cls, state: NormCounts | None) -> "GradientNorms":
        if state is None:
            return cls()
        return cls(smallest=state.smallest_so_far, counts={int(k): v for k, v in state.bins.items()})


@dataclass(frozen=True, kw_only=True)
class Record(Scores):
    """One evaluation of a model in training, before the first batch or at the end of one.

    Args:
        kind: ``evaluation`` during training, ``final`` at the end.
        equivalent_epoch: epochs at one update per batch, by which algorithms of several updates are compared.
        gradient_evaluations, forward_passes: images sent through the network by the training so far.
        training_loss: the mean since the last record.
        one_step, collapsed, collapse: the check for catastrophic overfitting, of adversarial training. ``collapse``
            says in words that the model resists one step and not PGD, whatever it was trained with.
        strength: that of the training attack on the batch that comes next, where it was asked for.
        ema, slow: the same evaluation of the averaged weights, and of the slow ones once they have begun.
        best: whether these weights were the best on the validation split so far.
        evaluation_share: the cost of all evaluations but the final one as a part of the training's.
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


def curve_of(history: Iterable[AnyRecord], weights: str) -> list[AnyRecord]:
    """The learning curve of other weights of the run: their scores, from the first record at which they exist."""
    return [
        record_of(record, weights)
        for record in history
        if weights == "model" or getattr(record, weights) is not None
    ]


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


def accuracies(record: Record) -> str:
    """An evaluation in one line, with how many training and test images it is of, and whether it is the last."""
    train, test = record.train, record.test
    constant = "" if record.constant_answer is None else "  the same answer to every image"
    final = "final, " if record.kind == "final" else ""
    part = "all" if (train.n, test.n) == (train.population, test.population) else "sample of"
    return (
        f"robust train {train.robust_accuracy:.1%}  test {test.robust_accuracy:.1%}  "
        f"gap {100 * record.gap.value:+.1f} points  clean test {test.clean_accuracy:.1%}  "
        f"({final}{part} {train.n}, {test.n} images){constant}"
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
