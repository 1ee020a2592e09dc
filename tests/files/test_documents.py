"""Documents are written completely or not at all, and read only in a supported format."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeat.errors import InputError
from freeat.files.documents import (
    NewerFormat,
    in_file_name,
    read_json,
    sha256,
    write_json,
)


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
