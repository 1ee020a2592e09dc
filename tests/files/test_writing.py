"""Files are written whole or not at all; a full disk is one message; what dead processes left is removed."""

import errno
import os
import shutil
import time
from pathlib import Path

import pytest

from freeat.errors import InputError
from freeat.files import documents
from freeat.files.documents import (
    NoSpace,
    atomic_folder,
    is_unfinished,
    read_document,
    remove_abandoned,
    write_bytes,
    write_document,
    write_text,
)
from killing import dead_process, of_process


def failing_sync(code: int) -> object:
    def sync(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    return sync


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = tmp_path / "a.json"
    write_text(path, "old")
    monkeypatch.setattr(os, "fsync", failing_sync(code))
    with pytest.raises((OSError, NoSpace)):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_bad_input_with_the_file_and_the_space_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(os, "fsync", failing_sync(code))
    with pytest.raises(InputError, match=r"a\.bin cannot be written: .*; it needs 12,345 bytes") as caught:
        write_bytes(tmp_path / "a.bin", b"x" * 12_345)
    assert documents.FULL[code] in str(caught.value)
    assert "run the same command again" in str(caught.value)

    def fill() -> None:
        with atomic_folder(tmp_path / "folder") as unfinished:
            (unfinished / "part").write_text("half")
            raise OSError(code, os.strerror(code))

    with pytest.raises(NoSpace, match="needs more space"):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_a_write_makes_its_folder_and_replaces_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "b" / "c" / "a.txt"
    write_text(path, "one")
    write_text(path, "zwei ε\n")
    assert path.read_bytes() == "zwei ε\n".encode()
    assert list(path.parent.iterdir()) == [path]
    assert not is_unfinished(path)


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX's")
def test_files_have_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_the_next_write_removes_what_dead_processes_left_and_nothing_else(tmp_path: Path) -> None:
    dead = dead_process()
    file, folder = of_process(tmp_path / "a.json", dead), of_process(tmp_path / "b", dead)
    file.write_text("half")
    folder.mkdir()
    (folder / "part").write_text("half")
    kept = [of_process(tmp_path / "c", os.getppid()), tmp_path / ".mine.tmp", tmp_path / "notes.txt"]
    for path in kept:
        path.write_text("in use")
    assert all(map(is_unfinished, (file, folder, kept[0])))
    write_text(tmp_path / "new", "")
    assert sorted(tmp_path.iterdir()) == sorted([*kept, tmp_path / "new"])


def test_reading_a_document_removes_what_dead_processes_left_beside_it(tmp_path: Path) -> None:
    write_document(tmp_path / "run.json", "run", {"name": "a"})
    left, kept = of_process(tmp_path / "a", dead_process()), of_process(tmp_path / "b", os.getppid())
    for path in (left, kept):
        path.write_text("half")
    assert read_document(tmp_path / "run.json", "run", dict) == {
        "format": documents.FORMATS["run"],
        "name": "a",
    }
    assert sorted(tmp_path.iterdir()) == sorted([kept, tmp_path / "run.json"])


def test_the_guard_of_a_killed_takeover_is_removed_and_that_of_a_living_one_kept(tmp_path: Path) -> None:
    guard = tmp_path / documents.TAKEOVER
    guard.touch()
    remove_abandoned(tmp_path)
    assert guard.exists()
    os.utime(guard, (time.time() - documents.TAKEN_OVER_AFTER - 1,) * 2)
    write_document(tmp_path / "run.json", "run", {})
    assert not guard.exists()


def test_a_temporary_file_of_another_host_is_removed_after_a_day(tmp_path: Path) -> None:
    path = tmp_path / ".a.json.00000000-1-00000000.tmp"
    path.write_text("half")
    remove_abandoned(tmp_path)
    assert path.exists()
    os.utime(path, (time.time() - documents.ABANDONED_AFTER - 60,) * 2)
    remove_abandoned(tmp_path)
    assert not path.exists()


@pytest.mark.skipif(os.name == "nt", reason="on Windows a living process is not seen")
def test_what_a_living_process_of_this_host_writes_for_days_is_kept(tmp_path: Path) -> None:
    """Such as a cache: the time of its folder is that of the last file that was begun in it."""
    kept, left = of_process(tmp_path / "a", os.getppid()), of_process(tmp_path / "b", dead_process())
    for folder in (kept, left):
        folder.mkdir()
        os.utime(folder, (time.time() - 10 * documents.ABANDONED_AFTER,) * 2)
    write_document(tmp_path / "run.json", "run", {})
    assert sorted(tmp_path.iterdir()) == sorted([kept, tmp_path / "run.json"])


def test_a_folder_that_a_killed_process_had_moved_away_is_put_back(tmp_path: Path) -> None:
    old = of_process(tmp_path / "export", dead_process()).with_suffix(".old.tmp")
    new = of_process(tmp_path / "export", dead_process())
    for folder, content in ((old, "published"), (new, "half")):
        folder.mkdir()
        (folder / "model").write_text(content)
    remove_abandoned(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["export"]
    assert (tmp_path / "export" / "model").read_text() == "published"
    shutil.copytree(tmp_path / "export", old)
    with atomic_folder(tmp_path / "export") as folder:
        (folder / "model").write_text("again")
    assert [path.name for path in tmp_path.iterdir()] == ["export"]
    assert (tmp_path / "export" / "model").read_text() == "again"
