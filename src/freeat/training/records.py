"""What a training run reports: its records, who keeps them (a run folder), and who receives them (callbacks)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from freeat.files.tensors import Checkpoints

Record = dict[str, Any]


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
        """Cut the history to what a checkpoint knew of."""

    def publish_model(self, name: str, state: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Store the weights under a name."""


def accuracies(record: Record) -> str:
    """An evaluation in one line."""
    train, test, gap = record["train"], record["test"], record["gap"]
    return (
        f"robust train {train['robust_accuracy']:.1%}  test {test['robust_accuracy']:.1%}  "
        f"gap {gap['value']:+.1%}  clean test {test['clean_accuracy']:.1%}  ({train['n']}, {test['n']} images)"
    )


class Callback(Protocol):
    """Receives every look at the loss and every record of a run: a progress bar, a log, a tracker."""

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
