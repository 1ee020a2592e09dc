"""Someone who looks on while a model trains: a progress bar, a log, a tracker, or nobody."""

from typing import Protocol

from freeat.training.recorder import Record


class Watcher(Protocol):
    """Is told of every look at the loss and of every record."""

    def step(self, update: int, total: int, loss: float | None) -> None: ...

    def record(self, record: Record) -> None: ...


class Nobody:
    """A watcher who does not look."""

    def step(self, update: int, total: int, loss: float | None) -> None: ...

    def record(self, record: Record) -> None: ...
