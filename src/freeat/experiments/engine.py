"""Many runs on one machine: worker processes that never fight for threads."""

import logging
import os
import queue
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from freeat.assembly import Place
from freeat.errors import InputError
from freeat.run import execute
from freeat.spec import EvalSpec, TrainSpec

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


class _Ticker:
    """Watches a run in a worker process and tells the main one how far it is, now and then."""

    def __init__(self, name: str, ticks: "queue.Queue[Tick]") -> None:
        self.name, self.ticks, self._told = name, ticks, 0

    def step(self, update: int, total: int, loss: float | None) -> None:
        if update - self._told >= total / 100 or update >= total:
            self.ticks.put(Tick(name=self.name, update=update, total=total))
            self._told = update

    def record(self, record: dict[str, Any]) -> None: ...


def _work(job: Job, ticks: "queue.Queue[Tick]") -> Done:
    try:
        return Done(
            job=job, result=execute(job.spec, job.evaluation, job.place, watcher=_Ticker(job.name, ticks))
        )
    except InputError as error:
        return Done(job=job, result=None, failure=str(error))
    except Exception as error:
        log.debug("%s", traceback.format_exc())
        return Done(job=job, result=None, failure=f"{type(error).__name__}: {error}")


def carry_out(
    jobs: Sequence[Job], *, workers: int | None = None, on_tick: Callable[[Tick], None] = lambda tick: None
) -> Iterator[Done]:
    """Run the jobs in worker processes, in their order; yields each as it ends.

    Workers × threads never exceed the cores. A failed job is reported and does not stop the others.
    """
    threads = max((job.spec.threads or 1 for job in jobs), default=1)
    workers = min(len(jobs), workers or max(1, (os.cpu_count() or 1) // threads))
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(workers, mp_context=context) as pool:
        ticks: queue.Queue[Tick] = manager.Queue()
        waiting: set[Future[Done]] = {pool.submit(_work, job, ticks) for job in jobs}
        try:
            while waiting:
                finished, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                while not ticks.empty():
                    on_tick(ticks.get())
                yield from (future.result() for future in finished)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
