"""Worker processes of this machine, never more than its cores have room for."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from types import TracebackType

import torch

from freeat.compute.machine import usable_cores
from freeat.tasks.scheduler import Outcome, Task, Tick, attempt
from freeat.training.records import Record

log = logging.getLogger(__name__)


def visible_gpus(device: str) -> tuple[str, ...]:
    """The GPUs that runs on ``device`` may be spread over, by their names in CUDA_VISIBLE_DEVICES."""
    if device not in ("auto", "cuda") or not torch.cuda.is_available():
        return ()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return tuple(named.split(",") if named else map(str, range(torch.cuda.device_count())))


def room_for(threads: int) -> int:
    """How many runs of this number of threads the cores of this machine have room for."""
    return max(1, usable_cores() // threads)


class LocalBackend:
    """Worker processes, as many as workers × threads do not exceed the cores, each with one of the GPUs.

    Where there are GPUs, each run has one for itself unless more ``workers`` or a part of a GPU are asked for.
    When the context ends, or this process is killed, the tasks that run save where they are and stop.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        threads: int = 1,
        gpus: tuple[str, ...] = (),
        gpus_per_run: float = 1.0,
    ) -> None:
        most = room_for(threads)
        if workers is not None and workers > most:
            log.warning("%d runs of %d threads each exceed the cores: %d at a time", workers, threads, most)
        wanted = workers or (max(1, int(len(gpus) / gpus_per_run)) if gpus else most)
        self._slots = [
            _Slot(gpus[number % len(gpus)] if gpus else None) for number in range(min(wanted, most))
        ]

    @property
    def slots(self) -> int:
        return len(self._slots)

    @property
    def workers(self) -> int:
        return len(self._slots)

    def submit(self, task: Task) -> "Future[Outcome]":
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
    """One worker process, begun with its first task, and anew after it was killed.

    Whatever it shares with this process it shares with no other worker: one that is killed leaves no lock behind.
    """

    def __init__(self, gpu: str | None) -> None:
        self._gpu = gpu
        self._executor: ProcessPoolExecutor | None = None
        self._line: Connection  # ticks from the worker, the request to stop to it
        self._latest: Future[Outcome] | None = None

    @property
    def free(self) -> bool:
        return self._latest is None or self._latest.done()

    def submit(self, task: Task) -> "Future[Outcome]":
        try:
            if self._executor is not None:
                self._latest = self._executor.submit(_work, task)
                return self._latest
        except BrokenProcessPool:
            self.close()
        context = get_context("spawn")
        self._line, theirs = context.Pipe()
        self._executor = ProcessPoolExecutor(
            1, mp_context=context, initializer=_begin, initargs=(theirs, self._gpu)
        )
        self._latest = self._executor.submit(_work, task)
        theirs.close()  # the worker has it: when it dies, the line ends
        return self._latest

    def ticks(self) -> Iterator[Tick]:
        try:
            while self._executor is not None and self._line.poll():
                yield self._line.recv()
        except (EOFError, OSError):
            return  # the worker was killed

    def stop(self) -> None:
        if self._executor is not None:
            with suppress(OSError):
                self._line.send("stop")

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._line.close()
            self._executor = None


class _Worker:
    """A worker process: says how far it is, and stops its task when the main process says so or is gone."""

    def __init__(self, line: Connection) -> None:
        self._line = line
        self._orphaned = threading.Event()
        self._busy = threading.Lock()
        for number in (signal.SIGINT, signal.SIGTERM):  # the main process hears it too, and says what to do
            signal.signal(number, signal.SIG_IGN)
        threading.Thread(target=self._end_with_parent, daemon=True).start()

    def work(self, task: Task) -> Outcome:
        with self._busy:
            return attempt(task, _Ticker(task.name, self._line), self._should_stop)

    def _should_stop(self) -> bool:
        return self._orphaned.is_set() or self._line.poll()

    def _end_with_parent(self) -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        self._orphaned.set()
        with self._busy:  # until the task has saved where it is
            os._exit(1)


class _Ticker:
    """Watches a task in a worker process and tells the main one how far it is, now and then."""

    def __init__(self, name: str, line: Connection) -> None:
        self._name, self._line, self._told = name, line, 0

    def step(self, update: int, total: int, loss: float | None) -> None:
        if update - self._told >= total / 100 or update >= total:
            with suppress(OSError):  # the main process is gone, which is noticed elsewhere
                self._line.send(Tick(name=self._name, done=update, total=total))
            self._told = update

    def record(self, record: Record) -> None: ...


_worker: _Worker | None = None


def _begin(line: Connection, gpu: str | None) -> None:
    global _worker
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # CUDA reads it when it is first used
    _worker = _Worker(line)


def _work(task: Task) -> Outcome:
    assert _worker is not None
    return _worker.work(task)
