"""A piece of work with an identity: all that the scheduler and its backends know of it."""

from collections.abc import Callable
from typing import Any, Protocol

from freeat.training.callbacks import Watcher


class Task(Protocol):
    """What an engine carries out: all it knows of a piece of work."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def key(self) -> str:
        """Its identity: tasks with the same key are the same work."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Keys of the tasks whose results it reads."""

    @property
    def threads(self) -> int: ...

    def result(self) -> dict[str, Any] | None:
        """What came out, if it is finished."""

    def carry_out(self, watcher: Watcher, should_stop: Callable[[], bool]) -> dict[str, Any]:
        """Do it, or go on with it; raises ``lease.Busy`` where another process is at it."""
