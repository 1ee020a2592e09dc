"""The right to write a run's folder: a lease that a living process renews and a stale one loses.

A lease is a file created exclusively, with host, process, token and a heartbeat: file locks fail on network
file systems.
"""

import json
import os
import secrets
import socket
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
"""A holder writes its name at once: a lease that stays empty belongs to a process killed in between."""


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
        """Take the lease, if need be from a process that is gone; InputError where a living one holds it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(20):
            try:
                handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                self._remove_if_stale()
                continue
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"host": socket.gethostname(), "pid": os.getpid(), "token": self.token}, file)
            self._beat.start()
            return
        raise InputError(
            f"{self.path.parent} is in use by another process; wait for it, or choose another --out"
        )

    def check(self) -> None:
        """Before each publication: whether the lease is still ours."""
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

    def _remove_if_stale(self) -> None:
        holder = self._holder()
        try:
            age = time.time() - self.path.stat().st_mtime
        except FileNotFoundError:
            return
        here = holder.get("host") == socket.gethostname()
        gone = here and not _alive(int(str(holder.get("pid", 0))))
        if gone or age > (STALE_AFTER if holder else UNWRITTEN_AFTER):
            self.path.unlink(missing_ok=True)
        elif not holder:
            time.sleep(UNWRITTEN_AFTER / 10)

    def _keep_alive(self) -> None:
        while not self._stop.wait(HEARTBEAT):
            if self._holder().get("token") == self.token:
                with suppress(FileNotFoundError):  # taken over in this very moment
                    os.utime(self.path)


def _alive(pid: int) -> bool:
    if os.name == "nt":
        return True  # no cheap probe there: the heartbeat decides
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def leased(folder: Path) -> Iterator[Lease]:
    """The lease of a folder for the length of a block."""
    lease = Lease(folder)
    lease.acquire()
    try:
        yield lease
    finally:
        lease.release()
