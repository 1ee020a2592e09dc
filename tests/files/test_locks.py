"""Leases: a folder has one writer; a dead process loses its lease, and who lost it raises."""

import errno
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from freeat.errors import InputError
from freeat.files import locks as leases
from freeat.files.documents import NoSpace
from freeat.files.locks import LEASE, Busy, Lease, LeaseLost, check_free, is_held, leased, locked
from killing import dead_process


def hold(folder: Path, *, host: str | None = None, pid: int | None = None, age: float = 0.0) -> None:
    """A lease as another process would have left it."""
    holder = {"host": host or socket.gethostname(), "pid": pid or os.getpid(), "token": "another"}
    (folder / LEASE).write_text(json.dumps(holder))
    grow_old(folder, age)


def grow_old(folder: Path, age: float) -> None:
    os.utime(folder / LEASE, (time.time() - age,) * 2)


def test_lease_is_exclusive_until_released(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with leased(folder) as lease:
        lease.check()
        with pytest.raises(Busy, match=r"in use by another process.*choose another --out"):
            Lease(folder).acquire()
        assert issubclass(Busy, InputError)
        lease.check()
    assert list(folder.iterdir()) == []
    with leased(folder):
        pass


def test_the_lease_of_a_dead_process_is_taken_at_once(tmp_path: Path) -> None:
    hold(tmp_path, pid=dead_process())
    with leased(tmp_path) as lease:
        lease.check()


def test_lease_of_another_host_is_respected_while_its_heartbeat_continues(tmp_path: Path) -> None:
    hold(tmp_path, host="elsewhere", pid=dead_process(), age=leases.STALE_AFTER / 2)
    with pytest.raises(InputError, match="in use"):
        Lease(tmp_path).acquire()
    grow_old(tmp_path, leases.STALE_AFTER + 1)
    with leased(tmp_path) as lease:
        lease.check()


CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "a list": b"[]",
    "half": b"{",
    "an empty object": b"{}",
    "a number for the host": b'{"host": 3, "pid": 1, "token": "t"}',
    "a text for the process": b'{"host": "h", "pid": "x", "token": "t"}',
    "no process": b'{"host": "h", "pid": null, "token": "t"}',
    "a negative process": b'{"host": "h", "pid": -1, "token": "t"}',
    "no token": b'{"host": "h", "pid": 1}',
    "no text": bytes(range(256)),
    "deep nesting": b"[" * 100_000,
    "zeros": bytes(100_000),
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_lease_of_any_other_content_is_taken_over_after_a_delay(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "UNWRITTEN_AFTER", 0.2)
    (tmp_path / LEASE).write_bytes(content)
    assert is_held(tmp_path)
    with leased(tmp_path, wait=True) as lease:
        lease.check()
    assert list(tmp_path.iterdir()) == []


def test_an_impossible_process_number_is_that_of_a_dead_process(tmp_path: Path) -> None:
    hold(tmp_path, pid=2**62)
    with leased(tmp_path) as lease:
        lease.check()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_no_lease(
    tmp_path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "UNWRITTEN_AFTER", 0.2)
    make(tmp_path / LEASE)
    with leased(tmp_path, wait=True) as lease:
        lease.check()
    assert list(tmp_path.iterdir()) == []


def test_a_heartbeat_in_the_future_is_stale_after_its_lifetime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "STALE_AFTER", 0.5)
    hold(tmp_path, host="elsewhere", age=-1e6)
    began = time.monotonic()
    assert is_held(tmp_path)
    with leased(tmp_path, wait=True) as lease:
        lease.check()
    assert 0.4 < time.monotonic() - began < 10


def test_a_living_process_keeps_its_lease_when_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT", 0.02)
    monkeypatch.setattr(leases, "STALE_AFTER", 0.5)
    with leased(tmp_path) as lease:
        grow_old(tmp_path, -1e6)
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            assert is_held(tmp_path)
            time.sleep(0.05)
        lease.check()


def test_a_folder_deleted_while_it_is_in_use_is_said_to_be_gone(tmp_path: Path) -> None:
    with leased(tmp_path / "run") as lease:
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(LeaseLost, match=r"run is gone: it was deleted or moved"):
            lease.check()
    assert list(tmp_path.iterdir()) == []


def test_a_lease_that_cannot_be_written_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, mode: str) -> None:
        os.close(handle)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdopen", full)
        with pytest.raises(NoSpace, match=r"lease\.json cannot be written"):
            Lease(tmp_path).acquire()
    assert list(tmp_path.iterdir()) == []


def test_lost_lease_raises_and_does_not_release_the_new_holder(tmp_path: Path) -> None:
    with leased(tmp_path) as lease:
        hold(tmp_path)
        with pytest.raises(LeaseLost, match="taken over by another process"):
            lease.check()
    assert json.loads((tmp_path / LEASE).read_text())["token"] == "another"


def test_removed_lease_counts_as_lost(tmp_path: Path) -> None:
    with leased(tmp_path) as lease:
        (tmp_path / LEASE).unlink()
        with pytest.raises(LeaseLost):
            lease.check()


def test_heartbeat_renews_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT", 0.02)
    with leased(tmp_path):
        grow_old(tmp_path, 1000)
        until = time.monotonic() + 10
        while time.time() - (tmp_path / LEASE).stat().st_mtime > 100:
            assert time.monotonic() < until, "no heartbeat"
            time.sleep(0.01)


def test_lease_is_released_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), leased(tmp_path):
        raise ZeroDivisionError
    assert not (tmp_path / LEASE).exists()


def test_is_held_changes_nothing(tmp_path: Path) -> None:
    check_free(tmp_path / "nowhere")
    assert not is_held(tmp_path / "nowhere")
    hold(tmp_path)
    assert is_held(tmp_path)
    with pytest.raises(Busy, match="in use"):
        check_free(tmp_path)
    hold(tmp_path, pid=dead_process())
    check_free(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [LEASE]


def test_fast_host_clock_does_not_take_over_a_live_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(tmp_path, host="elsewhere")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 10 * leases.STALE_AFTER)
    assert is_held(tmp_path)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_read_only_folder_uses_the_host_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "touch", refuse)
    hold(tmp_path, host="elsewhere", age=leases.STALE_AFTER / 2)
    assert is_held(tmp_path)
    grow_old(tmp_path, leases.STALE_AFTER + 1)
    assert not is_held(tmp_path)


def test_concurrent_takeover_of_a_stale_lease_leaves_one_holder(tmp_path: Path) -> None:
    for _ in range(20):
        hold(tmp_path, pid=dead_process())
        barrier = threading.Barrier(4)

        def take(barrier: threading.Barrier = barrier) -> Lease | None:
            lease = Lease(tmp_path)
            barrier.wait()
            try:
                lease.acquire()
            except Busy:
                return None
            return lease

        with ThreadPoolExecutor(4) as threads:
            holders = [lease for lease in threads.map(lambda _: take(), range(4)) if lease is not None]
        (holder,) = holders
        holder.check()
        holder.release()


def test_guard_of_a_killed_takeover_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "UNWRITTEN_AFTER", 0.2)
    hold(tmp_path, pid=dead_process())
    (tmp_path / ".takeover.tmp").touch()
    with leased(tmp_path) as lease:
        lease.check()
    assert list(tmp_path.iterdir()) == []


def test_guard_of_a_takeover_killed_after_the_removal_goes_with_the_next_lease(tmp_path: Path) -> None:
    (tmp_path / ".takeover.tmp").touch()
    with leased(tmp_path) as lease:
        lease.check()
    assert list(tmp_path.iterdir()) == []


def test_the_locks_of_killed_builders_are_removed_by_the_next_and_those_of_living_ones_kept(
    tmp_path: Path,
) -> None:
    own, other, held, empty = (
        tmp_path / f".{name}.lock" for name in ("made", "made before", "held", "taken over")
    )
    for folder in (own, other, held, empty):
        folder.mkdir()
    hold(own, pid=dead_process())
    hold(other, pid=dead_process())
    (other / ".takeover.tmp").touch()
    os.utime(other / ".takeover.tmp", (time.time() - 100,) * 2)
    hold(held)
    with locked(tmp_path / "made"):
        assert is_held(own)
    assert [path.name for path in tmp_path.iterdir()] == [".held.lock"]
    assert is_held(held)


def test_a_lock_that_another_process_waited_for_leaves_no_folder(tmp_path: Path) -> None:
    begun = threading.Event()

    def wait() -> None:
        begun.wait()
        with locked(tmp_path / "made"):
            pass

    with ThreadPoolExecutor(1) as thread:
        with locked(tmp_path / "made"):
            waiting = thread.submit(wait)
            begun.set()
            time.sleep(0.3)
        waiting.result()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_released_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "made"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
