"""Tasks and their scheduler: run in the order their needs allow, beside other processes that do the same."""

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
from freeat.training.records import Callback
from freeat.training.trainer import Stopped

log = logging.getLogger(__name__)

POLL = 0.2
"""Seconds between two looks at what the workers do."""

PAUSES = (1.0, 15.0)
"""Seconds until a task is tried again that another process is running: at first, and at most."""


class Task(Protocol):
    """A piece of work: all that the scheduler and its backends know of it. It must be picklable."""

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
    def threads(self) -> int:
        """How many cores it uses."""

    def finished(self) -> bool:
        """Whether its result is stored; raises ``InputError`` where what is stored cannot be read."""

    def run(self, callback: Callback, should_stop: Callable[[], bool]) -> None:
        """Do it, or resume it, and store its result; raises ``Busy`` where another process is running it."""

    def summary(self) -> str:
        """What came out, in one line."""


T = TypeVar("T", bound=Task)
T_co = TypeVar("T_co", bound=Task, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Done(Generic[T_co]):
    """A task that ended: ``found`` if it need not be run, ``failure`` says why it has no result."""

    task: T_co
    failure: str | None = None
    found: bool = False


class Progress(Protocol):
    """Who is told how far the tasks are."""

    def tick(self, name: str, done: int, total: int) -> None:
        """A running task made ``done`` of ``total`` steps."""

    def ended(self, done: Done[Any]) -> None:
        """A task ended."""


class Silent:
    """Progress that nobody looks at."""

    def tick(self, name: str, done: int, total: int) -> None: ...

    def ended(self, done: Done[Any]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Tick:
    """How far a task is, as its worker says."""

    name: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a worker says of a task: it is done, it failed, or another process is running it."""

    failure: str | None = None
    busy: bool = False


class Backend(AbstractContextManager["Backend"], Protocol):
    """Workers, wherever they are. Leaving the context stops what still runs, with everything saved."""

    @property
    def slots(self) -> int:
        """How many tasks it takes at a time; some may wait there for room."""

    @property
    def workers(self) -> int:
        """How many tasks really run at a time, for estimates."""

    def submit(self, task: Task) -> "Future[Outcome]": ...

    def ticks(self) -> Iterator[Tick]:
        """How far the tasks are, as told since the last call; a backend may be silent."""


def attempt(task: Task, callback: Callback, should_stop: Callable[[], bool]) -> Outcome:
    """Run a task, in a worker: whatever happens is returned, not raised."""
    try:
        task.run(callback, should_stop)
    except (Busy, LeaseLost):
        return Outcome(busy=True)
    except InputError as error:
        return Outcome(failure=str(error))
    except Exception as error:
        log.debug("%s", traceback.format_exc())
        return Outcome(failure=f"{type(error).__name__}: {error}")
    return Outcome()


def run_tasks(
    tasks: Sequence[T],
    backend: Backend,
    progress: Progress | None = None,
    *,
    should_stop: Callable[[], bool] = lambda: False,
) -> "list[Done[T]]":
    """Run the tasks, in their order as far as needs and room allow; returns them in the order they ended.

    What is finished already, here or meanwhile by another process, is found and not run again; what another process is
    running is looked at again later. A failed task is reported, and so are those that need it; all others are run.
    Raises ``Stopped`` when ``should_stop`` says so.
    """
    progress = progress or Silent()
    agenda = _Agenda(tasks)
    ended: list[Done[T]] = []
    running: dict[Future[Outcome], T] = {}

    def end(done: Done[T] | None) -> bool:
        if done is None:
            return False
        ended.append(done)
        progress.ended(done)
        return True

    for task in list(agenda.waiting.values()):
        end(agenda.settle(task))
    while agenda.waiting or running:
        if should_stop():
            raise Stopped("stopped as asked; run the same command again to resume")
        while len(running) < backend.slots and (one := agenda.next()) is not None:
            if not end(agenda.settle(one)):
                running[backend.submit(agenda.begin(one))] = one
        finished = _finished(running)
        for tick in backend.ticks():
            progress.tick(tick.name, tick.done, tick.total)
        for future in finished:
            end(agenda.end(running.pop(future), _outcome(future)))
    return ended


class _Agenda(Generic[T]):
    """The tasks that are not done yet, and which of them comes next."""

    def __init__(self, tasks: Sequence[T]) -> None:
        self.waiting: dict[str, T] = {}
        for task in tasks:
            self.waiting.setdefault(task.key, task)
        for task in self.waiting.values():
            if missing := [need for need in task.needs if need not in self.waiting]:
                raise ValueError(f"{task.name} needs {missing[0]}, which is not among the tasks")
        self._unfinished = set(self.waiting)
        self._failures: dict[str, str] = {}
        self._again: dict[str, tuple[float, float]] = {}  # when a task may be tried again, after which pause

    def next(self) -> T | None:
        """The first task that may be tried now: its needs have ended, and no other process was just running it."""
        now = time.monotonic()
        for key, task in self.waiting.items():
            if self._again.get(key, (now, 0.0))[0] <= now and self._unfinished.isdisjoint(task.needs):
                return task
        return None

    def settle(self, task: T) -> Done[T] | None:
        """A task that need not be run, because it is finished, or cannot be."""
        try:
            if task.finished():
                return self._done(task, None, found=True)
        except InputError as error:
            return self._done(task, str(error))
        failed = [self._failures[need] for need in task.needs if need in self._failures]
        return self._done(task, failed[0]) if failed else None

    def begin(self, task: T) -> T:
        return self.waiting.pop(task.key)

    def end(self, task: T, outcome: Outcome) -> Done[T] | None:
        """What a worker said: the task is done, or waits again while another process is running it."""
        if not outcome.busy:
            return self._done(task, outcome.failure)
        first, most = PAUSES
        pause = min(2 * self._again[task.key][1], most) if task.key in self._again else first
        log.info("%s: another process is running it; looking again in %g s", task.name, pause)
        self._again[task.key] = (time.monotonic() + pause, pause)
        self.waiting[task.key] = task
        return None

    def _done(self, task: T, failure: str | None, *, found: bool = False) -> Done[T]:
        self.waiting.pop(task.key, None)
        self._unfinished.remove(task.key)
        if failure is not None:
            self._failures[task.key] = f"it needs {task.name}, which failed: {failure}"
        return Done(task=task, failure=failure, found=found)


def _finished(running: "dict[Future[Outcome], T]") -> "set[Future[Outcome]]":
    if not running:
        time.sleep(POLL)
        return set()
    return wait(running, timeout=POLL, return_when=FIRST_COMPLETED).done


def _outcome(future: "Future[Outcome]") -> Outcome:
    try:
        return future.result()
    except BrokenExecutor:
        remedy = "a worker process was killed, perhaps for want of memory: run it again with fewer --jobs"
        return Outcome(failure=remedy)
    except Exception as error:
        return Outcome(failure=f"{type(error).__name__}: {error}")
