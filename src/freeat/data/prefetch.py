"""Work done ahead in worker processes, in a fixed order: decoding while a model computes."""

import ctypes
import os
import platform
import sys
import warnings
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

K = TypeVar("K")
T = TypeVar("T")

MOST_WORKERS = 8
"""The most worker processes that are started unasked."""
GIVE_BACK = {-4: 1 << 16, -3: 1 << 20, -1: 1 << 20}
"""glibc's M_MMAP_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, from <malloc.h>, for blocks that do not stay."""


def default_workers() -> int:
    """Worker processes for decoding: half of the cores, which the processes that ``torchrun`` started divide."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_WORKERS, max(1, cores // 2 // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def prefetched(make: Callable[[K], T], keys: Iterable[K], workers: int) -> Generator[T, None, None]:
    """``make(key)`` for every key in turn, made ahead by worker processes; by this process where there are none.

    What is made must depend on the key alone: then it is the same for any number of workers. An error of ``make`` is
    raised here, at the turn of its key.
    """
    if workers == 0:
        yield from map(make, keys)
        return
    from torch.utils.data import DataLoader  # a tenth of a second that small data sets need not spend

    with warnings.catch_warnings():
        # Python warns of forks of a program with threads; the workers use none of what those threads may hold.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        # More workers than cores are the caller's choice.
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        loader: DataLoader[Any] = DataLoader(
            _Calls(make),  # type: ignore[arg-type]  # it needs no more of a Dataset than its items
            sampler=keys,
            batch_size=None,
            num_workers=workers,
            collate_fn=_as_it_is,
            multiprocessing_context=_context(),
            worker_init_fn=_begin,
        )
        made = iter(loader)
    failed: Exception | None = None
    for one in made:
        if isinstance(one, _Failure):
            failed = one.error
            break
        yield one
    del made  # ends the workers: held by the traceback of the error, they would wait for seconds
    if failed is not None:
        raise failed


def _context() -> str:
    """Forked workers share the listing of the images, and need no guard in a user's script; only Linux's are safe."""
    return "fork" if sys.platform == "linux" else "spawn"


def _begin(worker: int) -> None:
    """Make a worker ready.

    It leaves the process group: what is sent to that (Ctrl-C) is for the process that waits, which ends its workers.
    It gives large blocks back to the system at once: kept, those of unequal batches would add up to a gigabyte.
    """
    if hasattr(os, "setsid"):
        os.setsid()
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        for parameter, value in GIVE_BACK.items():
            libc.mallopt(parameter, value)


class _Failure:
    def __init__(self, error: Exception) -> None:
        self.error = error


class _Calls:
    """A data set, as a loader sees it, whose item of a key is what is made of it."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make = make

    def __getitem__(self, key: Any) -> Any:
        try:
            return self.make(key)
        except Exception as error:  # raised in the process that waits for it, without the worker's traceback
            return _Failure(error)


def _as_it_is(made: Any) -> Any:
    return made
