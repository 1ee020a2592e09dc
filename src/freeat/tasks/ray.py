"""A Ray cluster: each task is a Ray task, retried if its worker or node dies; the store is shared."""

import logging
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from freeat.errors import InputError
from freeat.tasks.scheduler import Task, TaskOutcome, Tick, attempt
from freeat.training.records import Callbacks

log = logging.getLogger(__name__)

RETRIES = 20
"""How often a task may lose its worker; each time it resumes from its checkpoint."""

AT_ONCE = 10_000
"""Ray queues tasks itself, and grows the cluster by those in the queue."""

SAVED_WITHIN = 60.0
"""Seconds that running tasks have to save a checkpoint after the request to stop."""


class RayBackend:
    """The cluster at ``address``: ``auto`` the one this machine is part of, None that of $RAY_ADDRESS or a new one.

    Every node needs this library, and the store and the data under the same paths. ``gpus_per_run`` is by default one
    where the cluster has GPUs and runs on ``device`` use them.
    """

    def __init__(
        self,
        *,
        address: str | None = None,
        threads: int = 1,
        device: str = "auto",
        gpus_per_run: float | None = None,
    ) -> None:
        try:
            import ray
        except ImportError:
            raise InputError("--backend ray needs Ray: pip install 'freeat[ray]'") from None
        self._ray: Any = ray
        self._joined = not ray.is_initialized()
        if self._joined:
            try:
                _check_listening(address)
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (OSError, ValueError) as error:
                raise InputError(
                    f"no Ray cluster at {address}: {error}; start one with `ray start --head`"
                ) from None
        resources = self._ray.cluster_resources()
        gpus = gpus_to_reserve(device, resources) if gpus_per_run is None else gpus_per_run
        log.info("each run reserves %g GPUs of the cluster", gpus)
        self._run = ray.remote(num_gpus=gpus, max_retries=RETRIES)(_work)
        self.slots = AT_ONCE
        self.workers = runs_at_once(resources, threads=threads, gpus_per_run=gpus)
        self._references: list[Any] = []

    def submit(self, task: Task) -> "Future[TaskOutcome]":
        reference = self._run.options(name=task.name, num_cpus=task.threads).remote(task)
        self._references.append(reference)
        future: Future[TaskOutcome] = reference.future()
        return future

    def ticks(self) -> Iterator[Tick]:
        """None: the progress of a task is shown by Ray's dashboard and stored in its folder."""
        return iter(())

    def __enter__(self) -> "RayBackend":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._references:
            _, unfinished = self._ray.wait(self._references, num_returns=len(self._references), timeout=0)
            for reference in unfinished:
                self._ray.cancel(reference)
            if unfinished:
                self._ray.wait(unfinished, num_returns=len(unfinished), timeout=SAVED_WITHIN)
        if self._joined:
            self._ray.shutdown()


def gpus_to_reserve(device: str, resources: Mapping[str, float]) -> float:
    """The GPUs that a run reserves by default: Ray hides the GPUs from a task that reserves none."""
    on_gpus = device.partition(":")[0] in ("auto", "cuda")
    return 1.0 if on_gpus and resources.get("GPU", 0) >= 1 else 0.0


def runs_at_once(resources: Mapping[str, float], *, threads: int, gpus_per_run: float) -> int:
    """The runs that a cluster of these resources executes at a time, at least one: it may still grow."""
    cores = int(resources.get("CPU", 0) / threads)
    if not gpus_per_run:
        return max(1, cores)
    return max(1, min(cores, int(resources.get("GPU", 0) / gpus_per_run)))


def _check_listening(address: str | None) -> None:
    """Connect to HOST:PORT once: Ray itself would try for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=10).close()


def _work(task: Task) -> TaskOutcome:
    """Run a task in a process of the cluster. Ray cancels it as Ctrl-C would: it saves a checkpoint and stops."""
    stop = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: stop.set())
    try:
        return attempt(task, Callbacks(), stop.is_set)
    finally:
        signal.signal(signal.SIGINT, before)
