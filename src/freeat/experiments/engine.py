"""Many runs on one machine: worker processes that never fight for threads."""

import logging
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from typing import Any

import torch

from freeat.assembly import Place, assemble, training_algorithm
from freeat.errors import InputError
from freeat.fitting import Stopped
from freeat.machine import resolve_device
from freeat.run import execute
from freeat.spec import EvalSpec, TrainSpec
from freeat.store import RunFolder
from freeat.threat import make_ball
from freeat.world import ALONE

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of an experiment."""

    name: str
    spec: TrainSpec
    evaluation: EvalSpec
    place: Place


@dataclass(frozen=True, kw_only=True)
class Done:
    """What became of a job: its result, or why it failed."""

    job: Job
    result: dict[str, Any] | None
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class Tick:
    """How far a job is."""

    name: str
    update: int
    total: int


def check_jobs(jobs: Sequence[Job]) -> None:
    """Refuse bad input before any run begins. Writes nothing.

    The runs share their data and model, so one of them is assembled for all; finished runs need neither.
    """
    folders = [RunFolder(job.place.folder) for job in jobs]
    for job, folder in zip(jobs, folders, strict=True):
        folder.check(job.spec, job.evaluation)
        training_algorithm(job.spec, make_ball(job.spec.norm, job.spec.eps), updates=1)
        resolve_device(job.place.device)
    unfinished = [job for job, folder in zip(jobs, folders, strict=True) if folder.result is None]
    for job in unfinished[:1]:
        assemble(job.spec, job.evaluation, job.place, torch.device("cpu"), ALONE)


class _Worker:
    """A worker process: says how far it is, and stops its run when the main process says so or is gone."""

    def __init__(self, ticks: "Queue[Tick]", stop: Event) -> None:
        self.ticks, self._stop = ticks, stop
        self._orphaned = threading.Event()
        self._busy = threading.Lock()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process hears it too, and says what to do
        threading.Thread(target=self._end_with_parent, daemon=True).start()

    def work(self, job: Job) -> Done:
        with self._busy:
            try:
                watcher = _Ticker(job.name, self.ticks)
                result = execute(
                    job.spec, job.evaluation, job.place, watcher=watcher, should_stop=self._should_stop
                )
                return Done(job=job, result=result)
            except InputError as error:
                return Done(job=job, result=None, failure=str(error))
            except Exception as error:
                log.debug("%s", traceback.format_exc())
                return Done(job=job, result=None, failure=f"{type(error).__name__}: {error}")

    def _should_stop(self) -> bool:
        return self._orphaned.is_set() or self._stop.is_set()

    def _end_with_parent(self) -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        self._orphaned.set()
        with self._busy:  # until the run has saved where it is
            os._exit(1)


class _Ticker:
    """Watches a run in a worker process and tells the main one how far it is, now and then."""

    def __init__(self, name: str, ticks: "Queue[Tick]") -> None:
        self.name, self.ticks, self._told = name, ticks, 0

    def step(self, update: int, total: int, loss: float | None) -> None:
        if update - self._told >= total / 100 or update >= total:
            self.ticks.put(Tick(name=self.name, update=update, total=total))
            self._told = update

    def record(self, record: dict[str, Any]) -> None: ...


_worker: _Worker | None = None


def _begin(ticks: "Queue[Tick]", stop: Event) -> None:
    global _worker
    _worker = _Worker(ticks, stop)


def _work(job: Job) -> Done:
    assert _worker is not None
    return _worker.work(job)


def carry_out(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    on_tick: Callable[[Tick], None] = lambda tick: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[Done]:
    """Run the jobs in worker processes, in their order; yields each as it ends.

    Workers × threads never exceed the cores. A failed job is reported and does not stop the others. When this
    process should stop, is interrupted, or is killed, the runs save where they are and stop.
    """
    threads = max((job.spec.threads or 1 for job in jobs), default=1)
    workers = max(1, min(len(jobs), workers or (os.cpu_count() or 1) // threads))
    context = get_context("spawn")
    ticks, stop = context.Queue(), context.Event()
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(ticks, stop)) as pool:
        running = {pool.submit(_work, job): job for job in jobs}
        waiting = set(running)
        try:
            while waiting:
                if should_stop():
                    raise Stopped("stopped as asked; run the same command again to go on")
                finished, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                while not ticks.empty():
                    on_tick(ticks.get())
                yield from (_outcome(running[future], future) for future in finished)
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            ticks.close()


def _outcome(job: Job, future: "Future[Done]") -> Done:
    try:
        return future.result()
    except BrokenProcessPool:
        failure = "a worker process was killed, perhaps for want of memory: run it again with fewer --jobs"
        return Done(job=job, result=None, failure=failure)
