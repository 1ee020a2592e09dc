"""Tasks carried out as their needs allow, over a pool of workers, beside other processes at the same work."""

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from freeat.errors import InputError
from freeat.files.locks import Busy, LeaseLost
from freeat.tasks.task import Task
from freeat.training.callbacks import Watcher
from freeat.training.trainer import Stopped

log = logging.getLogger(__name__)

GLANCE = 0.2
"""Seconds between two looks at what the workers do."""

PAUSES = (1.0, 15.0)
"""Seconds until a task is tried again that another process is at: at first, and at most."""

AnyTask = TypeVar("AnyTask", bound=Task)
SomeTask = TypeVar("SomeTask", bound=Task, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Done(Generic[SomeTask]):
    """What became of a task: its result, or why it failed."""

    task: SomeTask
    result: dict[str, Any] | None
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class Tick:
    """How far a task is."""

    name: str
    update: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a worker says of a task: its result, why it failed, or that another process is at it."""

    result: dict[str, Any] | None = None
    failure: str | None = None
    busy: bool = False


class Pool(AbstractContextManager["Pool"], Protocol):
    """Workers, wherever they are. Leaving the context stops what still runs, with everything saved."""

    @property
    def slots(self) -> int:
        """How many tasks it takes at a time; some may wait there for room."""

    @property
    def workers(self) -> int:
        """How many tasks really run at a time, for plans."""

    def submit(self, task: Task) -> "Future[Outcome]": ...

    def ticks(self) -> Iterator[Tick]:
        """How far the tasks are, as told since the last call; a pool may be silent."""


def attempt(task: Task, watcher: Watcher, should_stop: Callable[[], bool]) -> Outcome:
    """Carry a task out, in a worker: whatever happens is told, not raised."""
    try:
        return Outcome(result=task.carry_out(watcher, should_stop))
    except (Busy, LeaseLost):
        return Outcome(busy=True)
    except InputError as error:
        return Outcome(failure=str(error))
    except Exception as error:
        log.debug("%s", traceback.format_exc())
        return Outcome(failure=f"{type(error).__name__}: {error}")


def carry_out(
    tasks: Sequence[AnyTask],
    pool: Pool,
    *,
    on_tick: Callable[[Tick], None] = lambda tick: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> "Iterator[Done[AnyTask]]":
    """Carry the tasks out, in their order as far as needs and room allow; yields each as it ends.

    What is finished already, here or meanwhile by another process, is found and not done again; what another
    process is at is looked at again later. A failed task is reported, and so are those that need it; all others
    go on.
    """
    agenda = Agenda(tasks)
    yield from agenda.settled(list(agenda.waiting.values()))
    running: dict[Future[Outcome], AnyTask] = {}
    while agenda.waiting or running:
        if should_stop():
            raise Stopped("stopped as asked; run the same command again to go on")
        while len(running) < pool.slots and (task := agenda.next()) is not None:
            if (done := agenda.settle(task)) is not None:
                yield done
            else:
                running[pool.submit(agenda.begin(task))] = task
        finished = _finished(running)
        for tick in pool.ticks():
            on_tick(tick)
        for future in finished:
            if (done := agenda.end(running.pop(future), _outcome(future))) is not None:
                yield done


class Agenda(Generic[AnyTask]):
    """The tasks that are not done yet, and which of them comes next."""

    def __init__(self, tasks: Sequence[AnyTask]) -> None:
        self.waiting: dict[str, AnyTask] = {}
        for task in tasks:
            self.waiting.setdefault(task.key, task)
        for task in self.waiting.values():
            if missing := [need for need in task.needs if need not in self.waiting]:
                raise ValueError(f"{task.name} needs {missing[0]}, which is not among the tasks")
        self._unfinished = set(self.waiting)
        self._failures: dict[str, str] = {}
        self._again: dict[str, tuple[float, float]] = {}  # when a task may be tried again, after which pause

    def next(self) -> AnyTask | None:
        """The first task that may be tried now: its needs have ended, and no other process was just at it."""
        now = time.monotonic()
        for key, task in self.waiting.items():
            if self._again.get(key, (now, 0.0))[0] <= now and self._unfinished.isdisjoint(task.needs):
                return task
        return None

    def settled(self, tasks: Sequence[AnyTask]) -> "Iterator[Done[AnyTask]]":
        yield from (done for task in tasks if (done := self.settle(task)) is not None)

    def settle(self, task: AnyTask) -> Done[AnyTask] | None:
        """A task that need not be carried out, because it is finished, or cannot be."""
        try:
            result = task.result()
        except InputError as error:
            return self._done(task, None, str(error))
        failed = [self._failures[need] for need in task.needs if need in self._failures]
        if result is None and not failed:
            return None
        return self._done(task, result, None if result is not None else failed[0])

    def begin(self, task: AnyTask) -> AnyTask:
        return self.waiting.pop(task.key)

    def end(self, task: AnyTask, outcome: Outcome) -> Done[AnyTask] | None:
        """What a worker said: the task is done, or waits again while another process is at it."""
        if not outcome.busy:
            return self._done(task, outcome.result, outcome.failure)
        first, most = PAUSES
        pause = min(2 * self._again[task.key][1], most) if task.key in self._again else first
        log.info("%s: another process is at it; looking again in %g s", task.name, pause)
        self._again[task.key] = (time.monotonic() + pause, pause)
        self.waiting[task.key] = task
        return None

    def _done(self, task: AnyTask, result: dict[str, Any] | None, failure: str | None) -> Done[AnyTask]:
        self.waiting.pop(task.key, None)
        self._unfinished.remove(task.key)
        if failure is not None:
            self._failures[task.key] = f"it needs {task.name}, which failed: {failure}"
        return Done(task=task, result=result, failure=failure)


def _finished(running: "dict[Future[Outcome], AnyTask]") -> "set[Future[Outcome]]":
    if not running:
        time.sleep(GLANCE)
        return set()
    return wait(running, timeout=GLANCE, return_when=FIRST_COMPLETED).done


def _outcome(future: "Future[Outcome]") -> Outcome:
    try:
        return future.result()
    except BrokenExecutor:
        remedy = "a worker process was killed, perhaps for want of memory: run it again with fewer --jobs"
        return Outcome(failure=remedy)
    except Exception as error:
        return Outcome(failure=f"{type(error).__name__}: {error}")
