"""Progress of a run: a bar with the current robust accuracy on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Any, Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


def describe(record: dict[str, Any]) -> str:
    """A record in one line."""
    train, test, gap = record["train"], record["test"], record["gap"]
    return (
        f"robust train {train['robust_accuracy']:.1%}  test {test['robust_accuracy']:.1%}  "
        f"gap {gap['value']:+.1%}  clean test {test['clean_accuracy']:.1%}"
    )


class RunProgress:
    """Watches one run on stderr."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.console = Console(stderr=True)
        self.bar: Progress | None = None
        self._task: Any = None
        self._spoke = time.monotonic()
        self._latest = ""

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total} updates"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[latest]}"),
                console=self.console,
            )
            self._task = self.bar.add_task(self.title, total=None, latest="")
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def step(self, update: int, total: int, loss: float | None) -> None:
        shown = f"loss {loss:.3f}  {self._latest}" if loss is not None else self._latest
        if self.bar is not None:
            self.bar.update(self._task, completed=update, total=total, latest=shown)
        elif time.monotonic() - self._spoke > 30:
            self._spoke = time.monotonic()
            click.echo(f"{self.title}: update {update}/{total}  {shown}", err=True)

    def record(self, record: dict[str, Any]) -> None:
        self._latest = describe(record)
        if self.bar is None:
            self._spoke = time.monotonic()
            click.echo(f"{self.title}: update {record['update']}  {self._latest}", err=True)
