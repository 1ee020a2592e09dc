"""Files that are not trusted: what is refused, by which limit, with the name of the file."""

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from freeat.errors import InputError, printable
from freeat.files import reading
from freeat.files.npz import read_npz_arrays
from freeat.files.reading import (
    check_expansion,
    open_zip,
    opened_tar,
    parse_json,
    parse_yaml,
    read_bytes,
    read_member,
    refusing,
    unpacked_blocks,
)


@pytest.mark.parametrize("device", ["/dev/full", "/dev/zero", "/dev/null"])
def test_devices_are_refused(device: str) -> None:
    with pytest.raises(InputError, match=f"{device}: it is a device, and only regular files are read"):
        read_bytes(Path(device))


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="it is a named pipe"):
        read_bytes(tmp_path / "pipe")


def test_a_file_beyond_its_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match=rf"large has {1 << 40} bytes, and at most {1 << 30} are read"):
        read_bytes(tmp_path / "large")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 101 + "]" * 101])
def test_deep_json_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"a\.json is damaged: nested more than 100 deep"):
        parse_json(text, "a.json")


def test_json_of_a_hundred_levels_is_read() -> None:
    assert parse_json("[" * 99 + "1" + "]" * 99, "a.json")


@pytest.mark.parametrize(
    "text",
    ["eps: !!int '0x'", "eps: !!timestamp '2020'", "eps: !!float x", "eps: 2020-99-99", f"eps: {'9' * 5000}"],
)
def test_values_that_yaml_cannot_construct_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"a\.yaml is not YAML: a value cannot be read"):
        parse_yaml(text, "a.yaml")


@pytest.mark.parametrize("text", ["a: &a [*a]", "[" * 150 + "]" * 150, "a: &a {b: *a}"])
def test_yaml_that_nests_without_end_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"a\.yaml (is not YAML: nested more than 100 deep|holds more than 10000)"
    ):
        parse_yaml(text, "a.yaml")


def test_aliases_count_as_what_they_repeat() -> None:
    bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
    bomb += "".join(f"a{k}: &a{k} [{','.join([f'*a{k - 1}'] * 10)}]\n" for k in range(1, 10))
    with pytest.raises(InputError, match=r"holds more than 10000 values, those of aliases counted each time"):
        parse_yaml(bomb, "a.yaml")


def test_a_small_alias_is_read() -> None:
    assert parse_yaml("a: &a [1, 2]\nb: *a", "a.yaml")[1] == {"a": [1, 2], "b": [1, 2]}


def test_an_expansion_beyond_measure_is_refused() -> None:
    check_expansion("a", 1 << 28, 1)
    check_expansion("a", 10 << 30, 1 << 30)
    with pytest.raises(InputError, match="at most 200 times are read"):
        check_expansion("a", 1 << 30, 1 << 20)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FREE_EXPANSION", 1 << 16)


@pytest.mark.usefixtures("small_limits")
def test_archives_of_zeros_are_refused(tmp_path: Path) -> None:
    zeros = bytes(1 << 22)
    (tmp_path / "a.gz").write_bytes(gzip.compress(zeros))
    with pytest.raises(InputError, match=r"a\.gz expands from"):
        list(unpacked_blocks(tmp_path / "a.gz"))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", zeros)
    with pytest.raises(InputError, match=r"a\.zip: 'zeros' expands from"):
        open_zip(tmp_path / "a.zip")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("zeros")
        info.size = len(zeros)
        tar.addfile(info, io.BytesIO(zeros))
    with (
        pytest.raises(InputError, match=r"a\.tar\.gz expands from"),
        opened_tar(tmp_path / "a.tar.gz") as members,
    ):
        list(members)


def zip_with(path: Path, *, flag: int = 0, method: int = 0) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"abc")
    data = bytearray(path.read_bytes())
    for signature, flags, methods in ((b"PK\x03\x04", 6, 8), (b"PK\x01\x02", 8, 10)):
        at = data.find(signature)
        data[at + flags] |= flag
        data[at + methods] = method
    path.write_bytes(data)
    return path


def test_encrypted_members_and_unknown_methods_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'a\.npy' is encrypted"):
        open_zip(zip_with(tmp_path / "a.zip", flag=1))
    path = zip_with(tmp_path / "b.zip", method=99)
    with (
        open_zip(path) as archive,
        pytest.raises(InputError, match=r"b\.zip: 'a\.npy': not a readable member"),
    ):
        read_member(path, archive, archive.infolist()[0], 100)


def npz_with(path: Path, data: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", data)
    return path


def header(shape: str, kind: str = "'|u1'") -> bytes:
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header("(1125899906842624, 8)"), "takes 9007199254740992 bytes, and the file holds 0"),
        (header("(2, 2)") + b"abc", "takes 4 bytes, and the file holds 3"),
        (header("(-1,)"), "negative axis"),
        (header("(1,)", "'|O'"), "objects, which are never unpickled"),
        (b"no array", "not a readable array"),
        (b"", "not a readable array"),
    ],
)
def test_arrays_that_are_not_as_their_header_says_are_refused(
    tmp_path: Path, data: bytes, message: str
) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        read_npz_arrays(npz_with(tmp_path / "a.npz", data), ["x"])
    assert "a.npz, x" in str(refusal.value)


def test_arrays_are_read_as_numpy_wrote_them(tmp_path: Path) -> None:
    arrays = {
        "plain": np.arange(6).reshape(2, 3),
        "columns": np.asfortranarray(np.random.default_rng(0).random((3, 4))),
        "texts": np.array(["a", "bc"]),
        "scalar": np.int64(3),
        "empty": np.zeros((0, 3)),
    }
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    found = read_npz_arrays(tmp_path / "a.npz", [*arrays, "missing"])
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == np.asarray(array).dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    "error", [KeyError("x"), MemoryError(), RecursionError(), OverflowError("large"), OSError()]
)
def test_whatever_a_decoder_raises_becomes_one_message_with_the_name(error: Exception) -> None:
    with pytest.raises(InputError, match=r"^a\.pt: "), refusing("a.pt", "weights file"):
        raise error


def test_printable_text_has_no_control_characters() -> None:
    assert printable("a\x1b[2J\x07b\u202ec\x9bd\n\te\u202f1") == "a[2Jbcd\n\te\u202f1"


@pytest.mark.parametrize("text", [r'{"a": "\ud800"}', r'{"\uDFFF": 1}', b'{"a": "\xed\xa0\x80"}'])
def test_half_a_character_is_refused_where_it_is_read(text: str | bytes) -> None:
    with pytest.raises(InputError, match=r"run\.json is damaged: "):
        parse_json(text, "run.json")


def test_whole_characters_are_read_however_they_are_written() -> None:
    assert parse_json(r'{"a": "\ud83d\ude00 \\ud800"}', "run.json") == {"a": "😀 \\ud800"}


@pytest.mark.parametrize("text", [r'"\ud800"', r'"\U0000D800"'])
def test_half_a_character_in_settings_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="half of a character"):
        parse_yaml(f"data: {text}", "spec.yaml")
