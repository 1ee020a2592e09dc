"""Progress of a run: a bar with the current robust accuracy on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from freeat.experiments.engine import Tick


def describe(record: dict[str, Any]) -> str:
    """A record in one line."""
    train, test, gap = record["train"], record["test"], record["gap"]
    return (
        f"robust train {train['robust_accuracy']:.1%}  test {test['robust_accuracy']:.1%}  "
        f"gap {gap['value']:+.1%}  clean test {test['clean_accuracy']:.1%}  ({train['n']}, {test['n']} images)"
    )


class Bar:
    """A bar on stderr where that is a terminal; None elsewhere."""

    def __init__(self) -> None:
        self.bar: Progress | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[latest]}"),
            )
            self.bar = Progress(*columns, console=Console(stderr=True))
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()


class RunProgress(Bar):
    """Watches one run."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title
        self._task: TaskID | None = None
        self._spoke = time.monotonic()
        self._latest = ""

    def step(self, update: int, total: int, loss: float | None) -> None:
        shown = f"loss {loss:.3f}  {self._latest}" if loss is not None else self._latest
        if self.bar is not None:
            if self._task is None:
                self._task = self.bar.add_task(self.title, total=total, unit="updates", latest="")
            self.bar.update(self._task, completed=update, latest=shown)
        elif time.monotonic() - self._spoke > 30:
            self._spoke = time.monotonic()
            click.echo(f"{self.title}: update {update}/{total}  {shown}", err=True)

    def record(self, record: dict[str, Any]) -> None:
        self._latest = describe(record)
        if self.bar is None:
            self._spoke = time.monotonic()
            click.echo(f"{self.title}: update {record['update']}  {self._latest}", err=True)


class GridProgress(Bar):
    """Watches a grid of runs: one bar for all, a line for each that ends."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.shares = dict.fromkeys(names, 0.0)
        self.done = 0
        self._task: TaskID | None = None

    def tick(self, tick: "Tick") -> None:
        self.shares[tick.name] = tick.update / tick.total
        self._show()

    def finished(self, name: str, result: dict[str, Any] | None, failure: str | None) -> None:
        self.shares[name] = 1.0
        self.done += 1
        outcome = describe(result) if result else f"FAILED: {failure}"
        line = f"[{self.done}/{len(self.shares)}] {name}: {outcome}"
        if self.bar is not None:
            self.bar.console.print(line, markup=False, highlight=False)
        else:
            click.echo(line, err=True)
        self._show()

    def _show(self) -> None:
        if self.bar is None:
            return
        if self._task is None:
            self._task = self.bar.add_task("comparing", total=len(self.shares), unit="runs", latest="")
        self.bar.update(self._task, completed=sum(self.shares.values()))
