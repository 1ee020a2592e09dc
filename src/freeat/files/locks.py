"""Leases on folders: only the holder writes; a living process renews its lease, a stale lease is taken over.

A lease is a file created exclusively, with host, process, token and a heartbeat. File locks are not used because
they fail on network file systems.
"""

import os
import secrets
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from freeat.errors import InputError
from freeat.files.documents import (
    TAKEOVER,
    is_alive,
    is_unfinished,
    made_folder,
    remove,
    remove_abandoned,
    space_for,
    temporary_name,
)

LEASE = "lease.json"
HEARTBEAT = 10.0
STALE_AFTER = 60.0
UNWRITTEN_AFTER = 2.0
"""A holder writes its lease at once: one that stays empty for this long is of a process killed in between."""


LONGEST = 4096
"""Bytes that are read of a lease: a longer file is none."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The process that a lease names."""

    host: str
    pid: int
    token: str


class Busy(InputError):
    """A living process holds the folder."""


class LeaseLost(RuntimeError):
    """The folder was deleted, or another process took it over; this one must not write there any more."""


class FolderGone(LeaseLost):
    """The folder was deleted or moved away."""


class Lease:
    """Held on a folder from ``acquire`` until ``release``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LEASE
        self._takeover = folder / TAKEOVER
        self.token = secrets.token_hex(8)
        self._stop = threading.Event()
        self._beat = threading.Thread(target=self._keep_alive, daemon=True)

    def acquire(self) -> None:
        """Take the lease, also from a process that is gone; raise Busy where a living one holds it."""
        holder = Holder(host=socket.gethostname(), pid=os.getpid(), token=self.token)
        content = msgspec.json.encode(holder)
        with space_for(self.path, len(content)):
            for _ in range(20):
                try:
                    self.path.parent.mkdir(parents=True, exist_ok=True)
                    handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                except FileNotFoundError:
                    continue  # the process that had made the folder removed it at this moment
                except FileExistsError:
                    if not self.path.parent.is_dir():
                        raise
                    if self.stale():
                        self._remove()
                    elif not self._holder():
                        time.sleep(UNWRITTEN_AFTER / 10)
                    continue
                try:
                    with os.fdopen(handle, "wb") as file:
                        file.write(content)
                except OSError:
                    self.path.unlink(missing_ok=True)
                    raise
                self._takeover.unlink(missing_ok=True)  # nothing is left to take over
                self._beat.start()
                return
        raise self.busy()

    def busy(self) -> Busy:
        return Busy(f"{self.path.parent} is in use by another process; wait for it, or choose another --out")

    def check(self) -> None:
        """Raise LeaseLost unless this process still holds the lease; called before each write."""
        if self._is_mine():
            return
        folder = self.path.parent
        if not folder.exists():
            raise FolderGone(f"{folder} is gone: it was deleted or moved while it was in use; stopping")
        raise LeaseLost(f"{folder} was taken over by another process; stopping without writing")

    def release(self) -> None:
        self._stop.set()
        if self._beat.is_alive():
            self._beat.join()
        if self._is_mine():
            self.path.unlink(missing_ok=True)

    def _is_mine(self) -> bool:
        holder = self._holder()
        return holder is not None and holder.token == self.token

    def _holder(self) -> Holder | None:
        """Who holds the lease; None where that is not written, whatever else is."""
        try:
            with open(self.path, "rb", opener=_open_at_once) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return None
                holder = msgspec.json.decode(file.read(LONGEST), type=Holder)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return holder if holder.pid > 0 else None

    def stale(self) -> bool:
        """Whether the lease that is there belongs to a process that is gone.

        A heartbeat in the future says nothing about that: it is set to the present, and counts from now.
        """
        holder = self._holder()
        if holder and holder.host == socket.gethostname() and not is_alive(holder.pid):
            return True
        limit = STALE_AFTER if holder else UNWRITTEN_AFTER
        try:
            beat = self.path.stat().st_mtime
            age = time.time() - beat
            if abs(age) <= limit:
                return False
            # On a network the file system's clock gave that time: this host's may be wrong.
            there = self._file_system_time() - beat
            if max(age, there) < -limit:
                with suppress(PermissionError):
                    os.utime(self.path)
            return min(age, there) > limit
        except FileNotFoundError:
            return False  # released at this moment

    def _remove(self) -> None:
        """Remove a stale lease, one process at a time: a second one would remove the lease of the first."""
        guard = self._takeover
        try:
            os.close(os.open(guard, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            time.sleep(0.05)
            with suppress(FileNotFoundError):
                if self._file_system_time() - guard.stat().st_mtime > UNWRITTEN_AFTER:
                    guard.unlink()  # left by a process that was killed here
            return
        try:
            if self.stale():
                remove(self.path)
        finally:
            guard.unlink(missing_ok=True)

    def _file_system_time(self) -> float:
        """The time of the file system's clock; this host's where the folder is not writable."""
        clock = temporary_name(self.path)
        try:
            clock.touch()
            return clock.stat().st_mtime
        except FileNotFoundError:
            raise  # the folder is gone, and the lease with it
        except OSError:
            return time.time()
        finally:
            with suppress(OSError):
                clock.unlink(missing_ok=True)

    def _keep_alive(self) -> None:
        while not self._stop.wait(HEARTBEAT):
            if self._is_mine():
                with suppress(FileNotFoundError):  # taken over at this moment
                    os.utime(self.path)


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for another process, as a pipe would."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def is_held(folder: Path) -> bool:
    """Whether a living process holds the folder."""
    lease = Lease(folder)
    return lease.path.exists() and not lease.stale()


def check_free(folder: Path) -> None:
    """Raise Busy where a living process holds the folder: checked before costly preparations."""
    if is_held(folder):
        raise Lease(folder).busy()


def is_leftover(path: Path) -> bool:
    """Whether a process may have left this that was killed before it had described its folder."""
    return path.name == LEASE or is_unfinished(path)


def check_unclaimed(folder: Path, what: str, *ours: str) -> None:
    """Refuse a folder that holds more than files called ``ours`` and what killed processes leave; ``what`` says why."""
    if folder.is_dir() and all(is_leftover(path) or path.name in ours for path in folder.iterdir()):
        return
    if folder.exists():
        raise InputError(f"{folder} exists and {what}: choose another --out; nothing was touched")


@contextmanager
def leased(folder: Path, *, wait: bool = False) -> Iterator[Lease]:
    """The lease of a folder for the length of a block; with ``wait``, after the process that holds it now.

    A folder that is made for it and stays empty is removed again.
    """
    lease = Lease(folder)
    with space_for(lease.path), made_folder(folder):
        while True:
            try:
                lease.acquire()
                break
            except Busy:
                if not wait:
                    raise
                time.sleep(0.2)
        try:
            yield lease
        finally:
            lease.release()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """The right to make ``path``, after the processes that make it now: the lease of a hidden folder beside it.

    The folder is removed afterwards, and so are those beside it whose processes were killed.
    """
    try:
        with leased(path.with_name(f".{path.name}.lock"), wait=True):
            yield
    finally:
        for folder in path.parent.glob(".*.lock"):
            with suppress(OSError):  # a living process holds it, or removes it too
                remove_abandoned(folder)
                lease = Lease(folder)
                if lease.stale():
                    lease._remove()
                folder.rmdir()
