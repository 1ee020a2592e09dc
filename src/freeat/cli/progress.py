"""Progress of every command: a bar with the remaining time on a terminal, plain lines elsewhere."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click
import torch
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from freeat.compute.machine import CpuClock, resolve_device, usable_cores
from freeat.errors import printable
from freeat.learner.distributed import is_main_process
from freeat.training.records import Record, accuracies

if TYPE_CHECKING:
    from freeat.tasks import Backend, EndedTask, Task
    from freeat.training.trainer import Plan

T = TypeVar("T", bound="Task")


class _WithLatest(Progress):
    """A bar, and beneath it what was found last, so that a narrow terminal cuts neither."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield from (Text(task.fields["latest"]) for task in self.tasks if task.fields["latest"])


class Reporter:
    """The one reporter of every command: a bar on stderr where that is a terminal, lines elsewhere.

    Of the processes that ``torchrun`` started, only the first reports.
    """

    def __init__(self) -> None:
        self.bar: Progress | None = None
        self._task: TaskID | None = None
        self._prints = is_main_process()

    def __enter__(self) -> Self:
        if self._prints and sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}", markup=False),
                TimeRemainingColumn(),
            )
            self.bar = _WithLatest(*columns, console=Console(stderr=True))
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, title: str, completed: float, total: float, unit: str, latest: str = "") -> None:
        """Move the bar, where there is one."""
        if self.bar is None:
            return
        title, latest = printable(title), printable(latest)
        if self._task is None:
            self._task = self.bar.add_task(title, total=total, unit=unit, latest=latest)
        self.bar.update(self._task, completed=completed, latest=latest)

    def clear(self) -> None:
        """Take the bar away: another one follows."""
        if self.bar is not None and self._task is not None:
            self.bar.remove_task(self._task)
        self._task = None

    def line(self, text: str) -> None:
        """Print a line that stays."""
        if not self._prints:
            return
        text = printable(text)
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False)
        else:
            click.echo(text, err=True)


class Speed:
    """Weight updates per second over the last ``SPAN`` seconds; the time of evaluations is left out."""

    SPAN = 10.0
    """Length of the window in seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def pause(self) -> None:
        """Forget what was measured: something else begins."""
        self._seen.clear()

    def at(self, now: float, update: int) -> float | None:
        """Updates per second up to now; None while too little was seen."""
        self._seen.append((now, update))
        while len(self._seen) > 2 and now - self._seen[1][0] > self.SPAN:
            self._seen.popleft()
        then, first = self._seen[0]
        return (update - first) / (now - then) if now > then else None


class RunProgress(Reporter):
    """Reports one run, whose batches have ``batch_size`` images."""

    EVERY = 30.0
    """Seconds between two lines where there is no terminal."""

    def __init__(self, title: str, batch_size: int) -> None:
        super().__init__()
        self.title = title
        self.batch_size = batch_size
        self._began: tuple[float, int] | None = None
        self._last_line = time.monotonic()
        self._speed = Speed()
        self._rate: float | None = None
        self._latest = ""

    def step(self, update: int, total: int, loss: float | None) -> None:
        now = time.monotonic()
        self._began = self._began or (now, update)
        self._rate = self._speed.at(now, update) or self._rate
        if self.bar is not None:
            self.show(self.title, update, total, "updates", self._shown(loss))
        elif now - self._last_line > self.EVERY:
            self._last_line = now
            left = self._left(now, update, total)
            self.line(f"{self.title}: update {update}/{total}{left}  {self._shown(loss)}")

    def record(self, record: "Record") -> None:
        self._latest = accuracies(record)
        self._speed.pause()
        if self.bar is None:
            self._last_line = time.monotonic()
            shown = [self._latest] if self._rate is None else [self._latest, self._throughput(self._rate)]
            self.line(f"{self.title}: update {record.update}  {'  '.join(shown)}")

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
        """The time that remains at the speed since the beginning, evaluations included."""
        assert self._began is not None
        then, first = self._began
        if update <= first:
            return ""
        return f"  {timedelta(seconds=round((now - then) / (update - first) * (total - update)))} left"


class TaskProgress(Reporter):
    """Reports tasks: one bar for all of them, a line for each that ends with the time that remains.

    ``weights`` are the shares of the work by the tasks' names; by default all are equal.
    """

    def __init__(self, title: str, names: Iterable[str], weights: Mapping[str, float] | None = None) -> None:
        super().__init__()
        self.title = title
        self.weights = {name: 1.0 if weights is None else weights[name] for name in names}
        self.shares = dict.fromkeys(self.weights, 0.0)
        self.done = 0
        self._found = 0.0
        self._began = time.monotonic()

    def tick(self, name: str, done: int, total: int) -> None:
        self.shares[name] = done / total
        self._show()

    def ended(self, done: "EndedTask[Any]") -> None:
        name = done.task.name
        self.shares[name] = 1.0
        self.done += 1
        if done.found:
            self._found += self.weights[name]
        outcome = f"FAILED: {done.failure}" if done.failure is not None else done.task.summary()
        found = "found: " if done.found else ""
        self.line(f"[{self.done}/{len(self.shares)}{self._left()}] {name}: {found}{outcome}")
        self._show()

    def _left(self) -> str:
        """The time that remains, if the rest takes as long for its weight as what was run so far."""
        total, spent = sum(self.weights.values()), self._spent()
        worked = spent - self._found
        if worked <= 0 or spent >= total:
            return ""
        return f", {duration((time.monotonic() - self._began) / worked * (total - spent))} left"

    def _spent(self) -> float:
        return sum(self.weights[name] * share for name, share in self.shares.items())

    def _show(self) -> None:
        total = sum(self.weights.values())
        self.show(self.title, len(self.shares) * self._spent() / total, len(self.shares), "tasks")


def run_all(
    title: str, tasks: "Sequence[T]", backend: "Backend", weights: Mapping[str, float] | None = None
) -> "list[EndedTask[T]]":
    """Run the tasks with their progress shown, until a signal asks to stop; returns them as they ended."""
    from freeat.cli.main import stop_on_signal
    from freeat.tasks import run_tasks

    names = [task.name for task in tasks]
    with stop_on_signal() as stop, TaskProgress(title, names, weights) as progress, backend:
        return run_tasks(tasks, backend, progress, should_stop=stop)


class SweepProgress(Reporter):
    """Reports evaluations that follow one another: a bar over the images of each, or a line for each.

    Where they are on the CPU as ``device``, a line says once if other programs use the cores that they need.
    """

    def __init__(self, device: str | None = None) -> None:
        super().__init__()
        on_cpu = device is not None and resolve_device(device).type == "cpu"
        self._clock = CpuClock.now() if on_cpu else None

    def watch(self, title: str, images: int) -> Callable[[int], None]:
        """Begin an evaluation; returns what counts its images."""
        self.clear()
        if self.bar is None:
            self.line(title)
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self.show(title, done, images, "images")
            self._report_others()

        advance(0)
        return advance

    def _report_others(self) -> None:
        others = self._clock.cores_of_others() if self._clock is not None else None
        if others is not None:  # long enough to know it
            self._clock = None
            for line in busy_lines(others, torch.get_num_threads()):
                self.line(line)


def busy_lines(
    others: float | None, threads: int | None, *, at_once: int = 1, timed: bool = False
) -> list[str]:
    """The notice that other programs use cores that runs of ``threads`` need, with the remedy; empty where they do not.

    A time that was measured meanwhile is a guess: a pass may have waited for a core or not.
    """
    cores = usable_cores()
    if others is None or threads is None or others + threads * at_once <= cores + 0.5:
        return []
    remedy = (
        "threads that wait for a core slow each other down, so try --threads 1"
        if threads > 1
        else "it may take longer"
    )
    guess = ", so that the time is a guess" if timed else ""
    return [f"other programs use {others:.1f} of the {cores} cores{guess}: {remedy}"]


def plan_lines(plan: "Plan") -> list[str]:
    """What a training, or several, will take, and whether other programs use the cores that it needs."""
    cores = usable_cores()
    used = min(cores, (plan.threads or 1) * plan.at_once)
    where = f"{used} of {cores} cores" if used < cores else f"{cores} core{'s' if cores > 1 else ''}"
    if plan.threads is None:
        where = "this device"
    time = "" if plan.seconds is None else f", about {duration(max(1, plan.seconds))} on {where}"
    counts = f"{plan.updates:,} updates, {plan.evaluations} evaluation{'s' if plan.evaluations > 1 else ''}"
    each = f"{plan.runs} runs of {counts}" if plan.runs > 1 else counts
    line = f"{plan.network}, {short_count(plan.parameters)} parameters, {each}{time}"
    timed = plan.seconds is not None
    return [line, *busy_lines(plan.others, plan.threads, at_once=plan.at_once, timed=timed)]


def short_count(n: int) -> str:
    """A large number as short text: ``650``, ``93 k``, ``11.2 M``."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return str(n)


def duration(seconds: float) -> str:
    """A duration as text: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:,.1f} h"
