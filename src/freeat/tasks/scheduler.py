"""Tasks and their scheduler, which any number of processes may run on the same store."""

import logging
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from freeat.compute.machine import arithmetic
from freeat.errors import InputError
from freeat.files.documents import NoSpace, read_document, write_document
from freeat.files.locks import Busy, FolderGone, LeaseLost, leased
from freeat.training.records import Callback
from freeat.training.trainer import Stopped

log = logging.getLogger(__name__)

POLL = 0.2
"""Seconds between two polls of the workers."""

PAUSES = (1.0, 15.0)
"""Seconds until a task that another process is running is tried again: the first time, and at most."""


class Task(Protocol):
    """What the scheduler and its backends need of a task. It must be picklable."""

    @property
    def name(self) -> str:
        """Its name in messages."""

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
        """Run or resume it, and store its result; raises ``Busy`` where another process is running it."""

    def summary(self) -> str:
        """Its result in one line."""


R = TypeVar("R")


class StoredTask(ABC, Generic[R]):
    """What tasks have in common whose result is stored."""

    @abstractmethod
    def result(self) -> R | None:
        """The result, if the task is finished; raises ``InputError`` if it cannot be read."""

    @abstractmethod
    def described(self, result: R) -> str:
        """The result in one line."""

    def summary(self) -> str:
        result = self.result()
        return "not finished" if result is None else self.described(result)

    def finished(self) -> bool:
        return self.result() is not None

    def found(self) -> R | None:
        """The result; None also if its files are damaged (see ``damage``)."""
        try:
            return self.result()
        except InputError:
            return None

    def damage(self) -> str | None:
        """Why what came out cannot be read, if so."""
        try:
            self.result()
        except InputError as error:
            return str(error)
        return None


class DocumentTask(StoredTask[R]):
    """A task whose result is one document: computed from its beginning by one process, and stored."""

    kind: ClassVar[str]
    document: ClassVar[type[Any]]
    """The kind of the document and its type."""

    @property
    @abstractmethod
    def path(self) -> Path:
        """The file of the result."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """How many cores it uses."""

    @property
    def leased_folder(self) -> Path:
        """The folder that the process which computes the result holds."""
        return self.path.parent

    @abstractmethod
    def compute(self, callback: Callback, should_stop: Callable[[], bool]) -> R:
        """The result."""

    def result(self) -> R | None:
        return read_document(self.path, self.kind, self.document) if self.path.is_file() else None

    def run(self, callback: Callback, should_stop: Callable[[], bool]) -> None:
        """Compute the result and store it, unless another process has meanwhile."""
        with leased(self.leased_folder) as lease, arithmetic(threads=self.threads, deterministic=True):
            if self.finished():
                return
            result = self.compute(callback, should_stop)
            lease.check()
            write_document(self.path, self.kind, result)


T = TypeVar("T", bound=Task)
T_co = TypeVar("T_co", bound=Task, covariant=True)


@dataclass(frozen=True, kw_only=True)
class EndedTask(Generic[T_co]):
    """A task that ended: ``found`` if its result was stored before, ``failure`` is why it has none."""

    task: T_co
    failure: str | None = None
    found: bool = False


class Progress(Protocol):
    """Receives the progress of tasks."""

    def tick(self, name: str, done: int, total: int) -> None:
        """A running task made ``done`` of ``total`` steps."""

    def ended(self, done: EndedTask[Any]) -> None:
        """A task ended."""


class NoProgress:
    """Ignores the progress of tasks."""

    def tick(self, name: str, done: int, total: int) -> None: ...

    def ended(self, done: EndedTask[Any]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Tick:
    """The progress of a task, sent by its worker."""

    name: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """How a worker's attempt at a task ended: with a result, a failure, or because another process is running it.

    On a ``full`` disk all other tasks would fail too.
    """

    failure: str | None = None
    busy: bool = False
    full: bool = False


class Backend(AbstractContextManager["Backend"], Protocol):
    """Executes tasks. Leaving the context stops running tasks, which save a checkpoint."""

    @property
    def slots(self) -> int:
        """How many tasks it accepts at a time; it may queue some of them."""

    @property
    def workers(self) -> int:
        """How many tasks run at a time, for estimates."""

    def submit(self, task: Task) -> "Future[TaskOutcome]": ...

    def ticks(self) -> Iterator[Tick]:
        """The progress received since the last call, possibly none."""


def attempt(task: Task, callback: Callback, should_stop: Callable[[], bool]) -> TaskOutcome:
    """Run a task in a worker; failures are returned, not raised."""
    try:
        task.run(callback, should_stop)
    except FolderGone as error:
        return TaskOutcome(failure=str(error))
    except (Busy, LeaseLost):
        return TaskOutcome(busy=True)
    except InputError as error:
        return TaskOutcome(failure=str(error), full=isinstance(error, NoSpace))
    except Exception as error:
        log.debug("%s", traceback.format_exc())
        return TaskOutcome(failure=f"{type(error).__name__}: {error}")
    return TaskOutcome()


STOPPED = "stopped as asked; run the same command again to resume"


def stop_or_report(callback: Callback, should_stop: Callable[[], bool]) -> Callable[[int, int], None]:
    """What a task calls with its updates so far and all its updates: reports them, or stops where that is asked."""

    def on_update(update: int, total: int) -> None:
        if should_stop():
            raise Stopped(STOPPED)
        callback.step(update, total, None)

    return on_update


def run_tasks(
    tasks: Sequence[T],
    backend: Backend,
    progress: Progress | None = None,
    *,
    should_stop: Callable[[], bool] = lambda: False,
) -> "list[EndedTask[T]]":
    """Run the tasks in their order as far as their needs and the backend allow; returns them in the order they ended.

    A task whose result is stored, also meanwhile by another process, is not run again. One that another process is
    running is tried again later. A failed task is reported, and so are those that need it; all others are run.
    Raises ``Stopped`` when ``should_stop`` returns True, and ``NoSpace`` where a disk is full.
    """
    progress = progress or NoProgress()
    queue = _Queue(tasks)
    ended: list[EndedTask[T]] = []
    running: dict[Future[TaskOutcome], T] = {}

    def end(done: EndedTask[T] | None) -> bool:
        if done is None:
            return False
        ended.append(done)
        progress.ended(done)
        return True

    for task in list(queue.waiting.values()):
        end(queue.ended_without_running(task))
    while queue.waiting or running:
        if should_stop():
            raise Stopped(STOPPED)
        while len(running) < backend.slots and (one := queue.next()) is not None:
            if not end(queue.ended_without_running(one)):
                running[backend.submit(queue.begin(one))] = one
        finished = _finished(running)
        for tick in backend.ticks():
            progress.tick(tick.name, tick.done, tick.total)
        for future in finished:
            outcome = _outcome(future)
            if outcome.full:
                raise NoSpace(outcome.failure)
            end(queue.end(running.pop(future), outcome))
    return ended


class _Queue(Generic[T]):
    """The tasks that have not ended, and which of them is next."""

    def __init__(self, tasks: Sequence[T]) -> None:
        self.waiting: dict[str, T] = {}
        for task in tasks:
            self.waiting.setdefault(task.key, task)
        for task in self.waiting.values():
            if missing := [need for need in task.needs if need not in self.waiting]:
                raise ValueError(f"{task.name} needs {missing[0]}, which is not among the tasks")
        self._unfinished = set(self.waiting)
        self._failures: dict[str, str] = {}
        self._again: dict[
            str, tuple[float, float]
        ] = {}  # when a task may be tried again, and after which pause

    def next(self) -> T | None:
        """The first task that may be tried now: its needs have ended, and no other process was just running it."""
        now = time.monotonic()
        for key, task in self.waiting.items():
            if self._again.get(key, (now, 0.0))[0] <= now and self._unfinished.isdisjoint(task.needs):
                return task
        return None

    def ended_without_running(self, task: T) -> EndedTask[T] | None:
        """The task, ended, if its result is stored or it cannot be run."""
        try:
            if task.finished():
                return self._done(task, None, found=True)
        except InputError as error:
            return self._done(task, str(error))
        failed = [self._failures[need] for need in task.needs if need in self._failures]
        return self._done(task, failed[0]) if failed else None

    def begin(self, task: T) -> T:
        return self.waiting.pop(task.key)

    def end(self, task: T, outcome: TaskOutcome) -> EndedTask[T] | None:
        """The task has ended, or waits again while another process is running it."""
        if not outcome.busy:
            return self._done(task, outcome.failure)
        first, most = PAUSES
        pause = min(2 * self._again[task.key][1], most) if task.key in self._again else first
        log.info("%s: another process is running it; looking again in %g s", task.name, pause)
        self._again[task.key] = (time.monotonic() + pause, pause)
        self.waiting[task.key] = task
        return None

    def _done(self, task: T, failure: str | None, *, found: bool = False) -> EndedTask[T]:
        self.waiting.pop(task.key, None)
        self._unfinished.remove(task.key)
        if failure is not None:
            self._failures[task.key] = f"it needs {task.name}, which failed: {failure}"
        return EndedTask(task=task, failure=failure, found=found)


def _finished(running: "dict[Future[TaskOutcome], T]") -> "set[Future[TaskOutcome]]":
    if not running:
        time.sleep(POLL)
        return set()
    return wait(running, timeout=POLL, return_when=FIRST_COMPLETED).done


def _outcome(future: "Future[TaskOutcome]") -> TaskOutcome:
    try:
        return future.result()
    except BrokenExecutor:
        remedy = "a worker process was killed, perhaps for want of memory: run it again with fewer --jobs"
        return TaskOutcome(failure=remedy)
    except Exception as error:
        return TaskOutcome(failure=f"{type(error).__name__}: {error}")
