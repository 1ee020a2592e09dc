"""Work done ahead in worker processes, in a fixed order: decoding while a model computes."""

import ctypes
import os
import platform
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from freeat.errors import InputError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

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
    raised here, at the turn of its key; so is an InputError where the system has ended a worker.
    """
    if workers == 0:
        yield from map(make, keys)
        return
    from multiprocessing import Pipe
    from multiprocessing.util import Finalize

    import torch
    from torch.utils.data import DataLoader  # a tenth of a second that small data sets need not spend

    ending, end = Pipe(duplex=False)
    # Also at the exit of Python, before it waits for its children.
    end_workers = Finalize(None, end.send_bytes, (b"end",), exitpriority=100)
    with warnings.catch_warnings(), signals_blocked():
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
            worker_init_fn=partial(_begin, ending),
            generator=torch.Generator(),  # the seed of the workers, which draw nothing, is not taken from torch's own
        )
        made: Any = iter(loader)
    _watch_when_waiting(made)
    failed: Exception | None = None
    try:
        while failed is None:
            try:
                one = next(made)
            except StopIteration:
                break
            except RuntimeError as error:
                if not str(error).startswith("DataLoader worker"):
                    raise
                failed = InputError(
                    f"a worker process that reads images ended before its time ({error}): where memory is short the "
                    f"system ends processes; use fewer of them, e.g. --workers {workers // 2}"
                )
            else:
                if isinstance(one, _Failure):
                    failed = one.error
                else:
                    yield one
    finally:
        del made  # ends the workers: held by the traceback of the error, they would wait for seconds
        end_workers()  # those that still make something, perhaps from a file that never comes
        ending.close()
        end.close()
    if failed is not None:
        raise failed


def _watch_when_waiting(made: Any) -> None:
    """Look for dead workers only while one is waited for.

    By itself torch raises the error of a dead worker from a signal handler: anywhere in the program, also while a
    checkpoint is written.
    """
    from torch._C import _remove_worker_pids

    if made._worker_pids_set:
        _remove_worker_pids(id(made))
        made._worker_pids_set = False


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Processes started inside receive no SIGINT and SIGTERM, also while they still begin."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _context() -> str:
    """Forked workers share the listing of the images, and need no guard in a user's script; only Linux's are safe."""
    return "fork" if sys.platform == "linux" else "spawn"


def _begin(ending: "Connection", worker: int) -> None:
    """Make a worker ready.

    It leaves the process group and ignores SIGINT and SIGTERM: they are for the process that waits, which saves its
    state and ends its workers. It ends with that process, and at its request, whatever it is doing.
    It gives large blocks back to the system at once: kept, those of unequal batches would add up to a gigabyte.
    """
    if hasattr(os, "setsid"):
        os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_on_request, args=(ending,), daemon=True).start()
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        for parameter, value in GIVE_BACK.items():
            libc.mallopt(parameter, value)


def _end_on_request(ending: "Connection") -> None:
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    assert parent is not None
    wait([ending, parent.sentinel])
    os._exit(0)


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
