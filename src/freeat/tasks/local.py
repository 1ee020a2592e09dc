"""Worker processes on this machine, whose threads never exceed its cores."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import active_children, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType

import torch

from freeat.compute.machine import usable_cores
from freeat.data.prefetch import signals_blocked
from freeat.learner.distributed import leave_launcher, on_this_machine
from freeat.tasks.scheduler import Task, TaskOutcome, Tick, attempt
from freeat.training.records import Record

log = logging.getLogger(__name__)


def visible_gpus(device: str) -> tuple[str, ...]:
    """The GPUs that runs on ``device`` may be spread over, by their names in CUDA_VISIBLE_DEVICES.

    Processes that ``torchrun`` started on this machine divide them.
    """
    if device not in ("auto", "cuda") or not torch.cuda.is_available():
        return ()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = tuple(named.split(",") if named else map(str, range(torch.cuda.device_count())))
    here = on_this_machine()
    return gpus[here.rank % len(gpus) :: here.size]


class LocalBackend:
    """Worker processes whose threads do not exceed the cores, each with one of the GPUs.

    Processes that ``torchrun`` started divide the cores and GPUs of their machine.

    With GPUs, each run has one of its own unless more ``workers`` or a fraction of a GPU are asked for. When the
    context ends, or this process is killed, running tasks save a checkpoint and stop.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        threads: int = 1,
        gpus: tuple[str, ...] = (),
        gpus_per_run: float = 1.0,
    ) -> None:
        most = max(1, usable_cores() // (threads * on_this_machine().size))
        if workers is not None and workers > most:
            log.warning("%d runs of %d threads each exceed the cores: %d at a time", workers, threads, most)
        wanted = workers or (max(1, int(len(gpus) / gpus_per_run)) if gpus else most)
        self.slots = self.workers = min(wanted, most)
        self._slots = [_Slot(gpus[number % len(gpus)] if gpus else None) for number in range(self.slots)]

    def submit(self, task: Task) -> "Future[TaskOutcome]":
        return next(slot for slot in self._slots if slot.free).submit(task)

    def ticks(self) -> Iterator[Tick]:
        for slot in self._slots:
            yield from slot.ticks()

    def __enter__(self) -> "LocalBackend":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for slot in self._slots:
            slot.stop()
        for slot in self._slots:
            slot.close()


class _Slot:
    """One worker process, started with its first task, and again after it was killed.

    It shares nothing with other workers, so that one that is killed leaves no lock behind.
    """

    def __init__(self, gpu: str | None) -> None:
        self._gpu = gpu
        self._executor: ProcessPoolExecutor | None = None
        self._process: BaseProcess
        self._pipe: (
            Connection  # from the worker None when it has begun, then ticks; to it the request to stop
        )
        self._begun = False
        self._latest: Future[TaskOutcome] | None = None

    @property
    def free(self) -> bool:
        return self._latest is None or self._latest.done()

    def submit(self, task: Task) -> "Future[TaskOutcome]":
        try:
            if self._executor is not None:
                self._latest = self._executor.submit(_work, task)
                return self._latest
        except BrokenProcessPool:
            self.close()
        context = get_context("spawn")
        _track_quietly()
        others = active_children()
        self._begun = False
        self._pipe, of_worker = context.Pipe()
        self._executor = ProcessPoolExecutor(
            1, mp_context=context, initializer=_begin, initargs=(of_worker, self._gpu)
        )
        with signals_blocked():
            self._latest = self._executor.submit(_work, task)
        self._process = next(process for process in active_children() if process not in others)
        of_worker.close()  # the worker holds it: when it dies, the pipe ends
        return self._latest

    def ticks(self) -> Iterator[Tick]:
        try:
            while self._executor is not None and self._pipe.poll():
                if (tick := self._pipe.recv()) is None:
                    self._begun = True
                else:
                    yield tick
        except (EOFError, OSError):
            return  # the worker was killed

    def stop(self) -> None:
        if self._executor is None:
            return
        list(self.ticks())
        if self._begun:
            with suppress(OSError):
                self._pipe.send("stop")
        else:
            self._process.kill()  # it still imports, for seconds, and has nothing to save

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._pipe.close()
            self._executor = None


QUIET = f"ignore::UserWarning:{resource_tracker.__name__}"


def _track_quietly() -> None:
    """Start Python's process that frees the semaphores of a killed one such that it does so without a warning."""
    sys.warnoptions.append(QUIET)  # it is started with the options of this process
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove(QUIET)


class _Worker:
    """A worker process: reports its progress, and stops its task when the main process says so or is gone."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._orphaned = threading.Event()
        self._busy = threading.Lock()
        self._can_save = False
        for number in (
            signal.SIGINT,
            signal.SIGTERM,
        ):  # the main process receives it too, and stops its workers
            signal.signal(number, signal.SIG_IGN)
        threading.Thread(target=self._end_on_request, daemon=True).start()
        pipe.send(None)

    def work(self, task: Task) -> TaskOutcome:
        with self._busy:
            self._can_save = False
            if self._pipe.poll():
                os._exit(1)  # asked to stop before it has begun
            return attempt(task, _TickSender(task.name, self._pipe), self._should_stop)

    def _should_stop(self) -> bool:
        self._can_save = True
        return self._orphaned.is_set() or self._pipe.poll()

    def _end_on_request(self) -> None:
        parent = parent_process()
        assert parent is not None
        wait([self._pipe, parent.sentinel])
        if self._busy.locked() and not self._can_save:
            os._exit(1)  # it is still reading data, which may never end
        parent.join()
        self._orphaned.set()
        with self._busy:  # until the task has saved a checkpoint
            os._exit(1)


class _TickSender:
    """A callback in a worker process that sends the progress of a task to the main process, at most 100 times."""

    def __init__(self, name: str, pipe: Connection) -> None:
        self._name, self._pipe, self._sent = name, pipe, 0

    def step(self, update: int, total: int, loss: float | None) -> None:
        if update - self._sent >= total / 100 or update >= total:
            with suppress(OSError):  # the main process is gone, which is noticed elsewhere
                self._pipe.send(Tick(name=self._name, done=update, total=total))
            self._sent = update

    def record(self, record: Record) -> None: ...


_worker: _Worker | None = None


def _begin(pipe: Connection, gpu: str | None) -> None:
    global _worker
    leave_launcher()
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # CUDA reads it when it is first used
    _worker = _Worker(pipe)


def _work(task: Task) -> TaskOutcome:
    assert _worker is not None
    return _worker.work(task)
