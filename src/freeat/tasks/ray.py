"""A Ray cluster: each task is a Ray task, tried again where its worker or node dies; the store is shared."""

import logging
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from freeat.errors import InputError
from freeat.tasks.scheduler import Outcome, Task, Tick, attempt
from freeat.training.records import Callbacks

log = logging.getLogger(__name__)

RETRIES = 20
"""How often a task may lose its worker; each time it resumes from its checkpoint."""

AT_ONCE = 10_000
"""Ray lets tasks wait for room itself, and grows the cluster by those that wait."""

SAVED_WITHIN = 60.0
"""Seconds that running tasks have to save where they are when they are told to stop."""


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
                _knock(address)
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (OSError, ValueError) as error:
                raise InputError(
                    f"no Ray cluster at {address}: {error}; start one with `ray start --head`"
                ) from None
        resources = self._ray.cluster_resources()
        gpus = gpus_to_reserve(device, resources) if gpus_per_run is None else gpus_per_run
        log.info("each run reserves %g GPUs of the cluster", gpus)
        self._run = ray.remote(num_gpus=gpus, max_retries=RETRIES)(_work)
        self._workers = room_for_runs(resources, threads=threads, gpus_per_run=gpus)
        self._references: list[Any] = []

    @property
    def slots(self) -> int:
        return AT_ONCE

    @property
    def workers(self) -> int:
        return self._workers

    def submit(self, task: Task) -> "Future[Outcome]":
        reference = self._run.options(name=task.name, num_cpus=task.threads).remote(task)
        self._references.append(reference)
        future: Future[Outcome] = reference.future()
        return future

    def ticks(self) -> Iterator[Tick]:
        """Silent: what a task is at is seen in Ray's own dashboard, and in its folder."""
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
    """What a run takes of a cluster where nobody said: Ray hides the GPUs from a task that reserves none."""
    on_gpus = device.partition(":")[0] in ("auto", "cuda")
    return 1.0 if on_gpus and resources.get("GPU", 0) >= 1 else 0.0


def room_for_runs(resources: Mapping[str, float], *, threads: int, gpus_per_run: float) -> int:
    """The runs that a cluster of these resources has room for at a time; one that is still to grow has room for one."""
    cores = int(resources.get("CPU", 0) / threads)
    if not gpus_per_run:
        return max(1, cores)
    return max(1, min(cores, int(resources.get("GPU", 0) / gpus_per_run)))


def _knock(address: str | None) -> None:
    """Make sure that somebody listens at HOST:PORT: Ray itself would try for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=10).close()


def _work(task: Task) -> Outcome:
    """In a process of the cluster. Ray cancels a task as Ctrl-C would: it saves where it is and stops."""
    stop = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: stop.set())
    try:
        return attempt(task, Callbacks(), stop.is_set)
    finally:
        signal.signal(signal.SIGINT, before)
