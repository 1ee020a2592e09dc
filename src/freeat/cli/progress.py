"""Progress of a run: a bar with robust accuracy, throughput and remaining time on a terminal, plain lines elsewhere."""

import sys
import time
from collections import deque
from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

if TYPE_CHECKING:
    from freeat.tasks.scheduler import Tick


def describe(record: dict[str, Any]) -> str:
    """A record in one line."""
    train, test, gap = record["train"], record["test"], record["gap"]
    return (
        f"robust train {train['robust_accuracy']:.1%}  test {test['robust_accuracy']:.1%}  "
        f"gap {gap['value']:+.1%}  clean test {test['clean_accuracy']:.1%}  ({train['n']}, {test['n']} images)"
    )


class _WithFigures(Progress):
    """A bar, and beneath it what was found last, so that a narrow terminal cuts neither."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield from (Text(task.fields["latest"]) for task in self.tasks if task.fields["latest"])


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
            )
            self.bar = _WithFigures(*columns, console=Console(stderr=True))
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()


class Speed:
    """How fast weights are updated of late; the time of judging is left out."""

    SPAN = 10.0
    """Seconds that are looked back on."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def pause(self) -> None:
        """Something else begins: what comes after is measured anew."""
        self._seen.clear()

    def at(self, now: float, update: int) -> float | None:
        """Updates per second up to now; None while too little was seen."""
        self._seen.append((now, update))
        while len(self._seen) > 2 and now - self._seen[1][0] > self.SPAN:
            self._seen.popleft()
        then, first = self._seen[0]
        return (update - first) / (now - then) if now > then else None


class RunProgress(Bar):
    """Watches one run, whose batches have ``batch_size`` images."""

    EVERY = 30.0
    """Seconds between two lines where there is no terminal."""

    def __init__(self, title: str, batch_size: int) -> None:
        super().__init__()
        self.title = title
        self.batch_size = batch_size
        self._task: TaskID | None = None
        self._began: tuple[float, int] | None = None
        self._spoke = time.monotonic()
        self._speed = Speed()
        self._rate: float | None = None
        self._latest = ""

    def step(self, update: int, total: int, loss: float | None) -> None:
        now = time.monotonic()
        self._began = self._began or (now, update)
        self._rate = self._speed.at(now, update) or self._rate
        if self.bar is not None:
            if self._task is None:
                self._task = self.bar.add_task(self.title, total=total, unit="updates", latest="")
            self.bar.update(self._task, completed=update, latest=self._shown(loss))
        elif now - self._spoke > self.EVERY:
            self._spoke = now
            left = self._left(now, update, total)
            click.echo(f"{self.title}: update {update}/{total}{left}  {self._shown(loss)}", err=True)

    def record(self, record: dict[str, Any]) -> None:
        self._latest = describe(record)
        self._speed.pause()
        if self.bar is None:
            self._spoke = time.monotonic()
            shown = [self._latest] if self._rate is None else [self._latest, self._throughput(self._rate)]
            click.echo(f"{self.title}: update {record['update']}  {'  '.join(shown)}", err=True)

    def _shown(self, loss: float | None) -> str:
        parts = [
            "" if loss is None else f"loss {loss:.3f}",
            "" if self._rate is None else self._throughput(self._rate),
            self._latest,
        ]
        return "  ".join(part for part in parts if part)

    def _throughput(self, rate: float) -> str:
        return f"{rate * self.batch_size:,.0f} images/s"

    def _left(self, now: float, update: int, total: int) -> str:
        """The time that remains if it goes on as since the beginning, judging included."""
        assert self._began is not None
        then, first = self._began
        if update <= first:
            return ""
        return f"  {timedelta(seconds=round((now - then) / (update - first) * (total - update)))} left"


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
