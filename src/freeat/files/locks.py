"""Leases on folders: only the holder writes; a living process renews its lease, a stale lease is taken over.

A lease is a file created exclusively, with host, process, token and a heartbeat. File locks are not used because
they fail on network file systems.
"""

import json
import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from freeat.errors import InputError

LEASE = "lease.json"
HEARTBEAT = 10.0
STALE_AFTER = 60.0
UNWRITTEN_AFTER = 2.0
"""A holder writes its lease at once: one that stays empty for this long is of a process killed in between."""


class Busy(InputError):
    """A living process holds the folder."""


class LeaseLost(RuntimeError):
    """Another process took the folder over; this one must not write there any more."""


class Lease:
    """Held on a folder from ``acquire`` until ``release``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LEASE
        self.token = secrets.token_hex(8)
        self._stop = threading.Event()
        self._beat = threading.Thread(target=self._keep_alive, daemon=True)

    def acquire(self) -> None:
        """Take the lease, also from a process that is gone; raise Busy where a living one holds it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(20):
            try:
                handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                if self.stale():
                    self._remove()
                elif not self._holder():
                    time.sleep(UNWRITTEN_AFTER / 10)
                continue
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"host": socket.gethostname(), "pid": os.getpid(), "token": self.token}, file)
            self._beat.start()
            return
        raise self.busy()

    def busy(self) -> Busy:
        return Busy(f"{self.path.parent} is in use by another process; wait for it, or choose another --out")

    def check(self) -> None:
        """Raise LeaseLost unless this process still holds the lease; called before each write."""
        if self._holder().get("token") != self.token:
            raise LeaseLost(f"{self.path.parent} was taken over by another process; stopping without writing")

    def release(self) -> None:
        self._stop.set()
        if self._beat.is_alive():
            self._beat.join()
        if self._holder().get("token") == self.token:
            self.path.unlink(missing_ok=True)

    def _holder(self) -> dict[str, object]:
        try:
            holder = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return holder if isinstance(holder, dict) else {}

    def stale(self) -> bool:
        """Whether the lease that is there belongs to a process that is gone."""
        holder = self._holder()
        if holder.get("host") == socket.gethostname() and not _alive(int(str(holder.get("pid", 0)))):
            return True
        limit = STALE_AFTER if holder else UNWRITTEN_AFTER
        try:
            beat = self.path.stat().st_mtime
            # On a network the file system's clock gave that time: this host's may be wrong.
            return time.time() - beat > limit and self._file_system_time() - beat > limit
        except FileNotFoundError:
            return False  # released in this moment

    def _remove(self) -> None:
        """Remove a stale lease, one process at a time: a second one would remove the lease of the first."""
        guard = self.path.with_name(".takeover.tmp")
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
                self.path.unlink(missing_ok=True)
        finally:
            guard.unlink(missing_ok=True)

    def _file_system_time(self) -> float:
        """The time of the file system's clock; this host's where the folder is not writable."""
        try:
            with tempfile.NamedTemporaryFile(dir=self.path.parent, prefix=".", suffix=".tmp") as file:
                return os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            raise  # the folder is gone, and the lease with it
        except OSError:
            return time.time()

    def _keep_alive(self) -> None:
        while not self._stop.wait(HEARTBEAT):
            if self._holder().get("token") == self.token:
                with suppress(FileNotFoundError):  # taken over in this moment
                    os.utime(self.path)


def _alive(pid: int) -> bool:
    if os.name == "nt":
        return True  # no cheap probe there: the heartbeat decides
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it lives, and belongs to another user
    return True


def is_held(folder: Path) -> bool:
    """Whether a living process holds the folder."""
    lease = Lease(folder)
    return lease.path.exists() and not lease.stale()


def check_free(folder: Path) -> None:
    """Raise Busy where a living process holds the folder: checked before costly preparations."""
    if is_held(folder):
        raise Lease(folder).busy()


@contextmanager
def leased(folder: Path, *, wait: bool = False) -> Iterator[Lease]:
    """The lease of a folder for the length of a block; with ``wait``, after the process that holds it now."""
    lease = Lease(folder)
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
