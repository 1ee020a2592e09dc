"""Progress that is kept, to be looked at."""

from typing import Any

from freeat.tasks import EndedTask


class Seen:
    """Keeps every report of tasks."""

    def __init__(self) -> None:
        self.ticks: list[tuple[str, int, int]] = []
        self.done: list[EndedTask[Any]] = []

    def tick(self, name: str, done: int, total: int) -> None:
        self.ticks.append((name, done, total))

    def ended(self, done: EndedTask[Any]) -> None:
        self.done.append(done)
