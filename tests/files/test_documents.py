"""Documents are written completely or not at all, and read only in a supported format."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeat.errors import InputError
from freeat.files.documents import (
    NewerFormat,
    atomic,
    in_file_name,
    is_unfinished,
    read_json,
    sha256,
    write_json,
    write_text,
)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_text(path, "old")

    def fail_halfway() -> None:
        with atomic(path) as temporary:
            temporary.write_text("half")
            assert is_unfinished(temporary)
            assert path.read_text() == "old"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


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
        with atomic(tmp_path / "a") as temporary:
            temporary.unlink()
            os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, 0o600))  # a writer with ideas of its own
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_json_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"ε": 0.1 + 0.2, "none": None}, format=3)
    for known in (3, 4):
        assert read_json(path, format=known) == {"format": 3, "ε": 0.30000000000000004, "none": None}
    with pytest.raises(NewerFormat, match=r"format 3, newer than the 2.*upgrade freeat"):
        read_json(path, format=2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b"[1]", "no format number"),
        (b"{}", "no format number"),
        (b'{"format": "1"}', "no format number"),
    ],
)
def test_json_without_a_valid_format_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_json(path, format=1)


def test_missing_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_json(tmp_path / "none", format=1)


def test_digest(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_json_is_written_as_unescaped_unicode(tmp_path: Path) -> None:
    write_json(tmp_path / "a", {"note": "ε ≤ 1"}, format=1)
    assert "ε ≤ 1" in (tmp_path / "a").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "a").read_text(encoding="utf-8"))["format"] == 1


@given(st.text(max_size=8), st.text(max_size=8))
def test_different_texts_give_different_file_names(one: str, other: str) -> None:
    assert not set(in_file_name(one)) & set('/\\:*?"<>|')
    assert (in_file_name(one) == in_file_name(other)) == (one == other)


def test_plain_name_is_unchanged_in_a_file_name() -> None:
    assert in_file_name("free-4 seed_0@ema") == "free-4 seed_0@ema"
    assert in_file_name("free-4/seed-0") == "free-4%2Fseed-0"
