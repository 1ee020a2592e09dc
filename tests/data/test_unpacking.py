"""Hostile archives are refused."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from freeat.data import unpacking
from freeat.data.unpacking import unpack
from freeat.errors import InputError

NAMES = frozenset({"good", "evil"})


def tar(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as out:
        for member in (entry("package/good"), *members):
            out.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 3) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size if kind == tarfile.REGTYPE else 0
    return info


def zipped(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as out:
        for name in ("package/good", *names):
            out.writestr(name, b"xxx")
    return path


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "in" / "to"
    folder.mkdir(parents=True)
    return folder


ESCAPES = ["../evil", "package/../../evil", "/evil", "C:\\evil", "..\\evil", "\\\\host\\share\\evil"]


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_path_that_leaves_the_folder_is_refused(tmp_path: Path, into: Path, kind: str, name: str) -> None:
    archive = tar(tmp_path / "a.tgz", entry(name)) if kind == "tar" else zipped(tmp_path / "a.zip", name)
    with pytest.raises(InputError, match="leaves its folder"):
        unpack(archive, into, NAMES)
    assert list(into.iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, into: Path, kind: bytes) -> None:
    archive = tar(tmp_path / "a.tgz", entry("package/other", kind, "/etc/passwd"))
    with pytest.raises(InputError, match="link or device"):
        unpack(archive, into, NAMES)
    assert list(into.iterdir()) == []


def test_a_link_in_a_zip_is_refused(tmp_path: Path, into: Path) -> None:
    info = zipfile.ZipInfo("package/evil")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as out:
        out.writestr(info, "/etc/passwd")
    with pytest.raises(InputError, match="link or device"):
        unpack(tmp_path / "a.zip", into, NAMES)


def test_a_bomb_is_refused(tmp_path: Path, into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "LARGEST_TOTAL", 1000)
    with pytest.raises(InputError, match="more than 1000 bytes"):
        unpack(tar(tmp_path / "a.tgz", entry("package/big", size=999)), into, NAMES)


@pytest.mark.parametrize("make", [tar, zipped])
def test_wanted_files_are_unpacked_and_others_are_not(tmp_path: Path, into: Path, make: object) -> None:
    extra = entry("package/other") if make is tar else "package/other"
    unpack(make(tmp_path / "archive", extra), into, NAMES)  # type: ignore[operator]
    assert [(f.name, f.read_bytes()) for f in into.iterdir()] == [("good", b"xxx")]


def test_folder_with_a_requested_name_is_skipped(tmp_path: Path, into: Path) -> None:
    unpack(tar(tmp_path / "a.tgz", entry("package/evil", tarfile.DIRTYPE)), into, NAMES)
    assert [f.name for f in into.iterdir()] == ["good"]


def test_a_damaged_archive_is_refused(tmp_path: Path, into: Path) -> None:
    archive = tar(tmp_path / "a.tgz", entry("package/more", size=100_000))
    archive.write_bytes(archive.read_bytes()[:60])
    with pytest.raises(InputError, match="cannot be unpacked"):
        unpack(archive, into, NAMES)
