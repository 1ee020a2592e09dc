"""Worker processes of this machine that never fight for its cores."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.context import SpawnContext
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any

import torch

from freeat.experiments.engine import Outcome, Tick, attempt
from freeat.experiments.tasks import Task
from freeat.machine import usable_cores

log = logging.getLogger(__name__)


def visible_gpus(device: str) -> tuple[str, ...]:
    """The GPUs that runs on ``device`` may be spread over, by their names in CUDA_VISIBLE_DEVICES."""
    if device not in ("auto", "cuda") or not torch.cuda.is_available():
        return ()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return tuple(named.split(",") if named else map(str, range(torch.cuda.device_count())))


class LocalPool:
    """So many worker processes that workers × threads do not exceed the cores, each with one of the GPUs.

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
        fitting = max(1, usable_cores() // threads)
        if workers is not None and workers > fitting:
            log.warning(
                "%d runs of %d threads each exceed the cores: %d at a time", workers, threads, fitting
            )
        wanted = workers or (max(1, int(len(gpus) / gpus_per_run)) if gpus else fitting)
        context = get_context("spawn")
        self._ticks: Queue[Tick] = context.Queue()
        self._stop = context.Event()
        self._slots = [
            _Slot(context, self._ticks, self._stop, gpus[number % len(gpus)] if gpus else None)
            for number in range(min(wanted, fitting))
        ]

    @property
    def slots(self) -> int:
        return len(self._slots)

    def submit(self, task: Task) -> "Future[Outcome]":
        return next(slot for slot in self._slots if slot.free).submit(task)

    def ticks(self) -> Iterator[Tick]:
        while not self._ticks.empty():
            yield self._ticks.get()

    def __enter__(self) -> "LocalPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for slot in self._slots:
            slot.close()
        self._ticks.close()


class _Slot:
    """One worker process, begun with its first task, and anew after it was killed: it takes no other with it."""

    def __init__(
        self, context: SpawnContext, ticks: "Queue[Tick]", stop: Event, gpu: str | None = None
    ) -> None:
        self._context, self._told = context, (ticks, stop, gpu)
        self._executor = self._begin()
        self._latest: Future[Outcome] | None = None

    @property
    def free(self) -> bool:
        return self._latest is None or self._latest.done()

    def submit(self, task: Task) -> "Future[Outcome]":
        try:
            self._latest = self._executor.submit(_work, task)
        except BrokenProcessPool:
            self.close()
            self._executor = self._begin()
            self._latest = self._executor.submit(_work, task)
        return self._latest

    def close(self) -> None:
        self._executor.shutdown(cancel_futures=True)

    def _begin(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, mp_context=self._context, initializer=_begin, initargs=self._told)


class _Worker:
    """A worker process: says how far it is, and stops its task when the main process says so or is gone."""

    def __init__(self, ticks: "Queue[Tick]", stop: Event) -> None:
        self.ticks, self._stop = ticks, stop
        self._orphaned = threading.Event()
        self._busy = threading.Lock()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process hears it too, and says what to do
        threading.Thread(target=self._end_with_parent, daemon=True).start()

    def work(self, task: Task) -> Outcome:
        with self._busy:
            return attempt(task, _Ticker(task.name, self.ticks), self._should_stop)

    def _should_stop(self) -> bool:
        return self._orphaned.is_set() or self._stop.is_set()

    def _end_with_parent(self) -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        self._orphaned.set()
        with self._busy:  # until the task has saved where it is
            os._exit(1)


class _Ticker:
    """Watches a task in a worker process and tells the main one how far it is, now and then."""

    def __init__(self, name: str, ticks: "Queue[Tick]") -> None:
        self.name, self.ticks, self._told = name, ticks, 0

    def step(self, update: int, total: int, loss: float | None) -> None:
        if update - self._told >= total / 100 or update >= total:
            self.ticks.put(Tick(name=self.name, update=update, total=total))
            self._told = update

    def record(self, record: dict[str, Any]) -> None: ...


_worker: _Worker | None = None


def _begin(ticks: "Queue[Tick]", stop: Event, gpu: str | None) -> None:
    global _worker
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # CUDA reads it when it is first used
    _worker = _Worker(ticks, stop)


def _work(task: Task) -> Outcome:
    assert _worker is not None
    return _worker.work(task)
