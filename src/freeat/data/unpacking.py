"""Archives unpacked without trusting them: no path escapes, no links or devices, no bombs."""

import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from freeat.errors import InputError
from freeat.files.reading import check_expansion, check_regular, open_zip

LARGEST_TOTAL = 4 << 30
"""Bytes an archive may unpack to."""


@dataclass(frozen=True, kw_only=True)
class _Member:
    name: str
    size: int
    is_file: bool
    is_folder: bool


def unpack(archive: Path, into: Path, names: frozenset[str]) -> None:
    """Write the files called ``names`` in the archive, whatever their folder in it, into the folder ``into``.

    Every member is checked, also those that are not unpacked: one bad name refuses the archive.
    """
    try:
        with _opened(archive) as opened:
            for member in _checked(archive, _members(opened)):
                name = PurePosixPath(member.name).name
                if member.is_file and name in names:
                    with _open(opened, member.name) as stream, (into / name).open("wb") as out:
                        shutil.copyfileobj(stream, out, 1 << 20)
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        raise InputError(f"{archive}: cannot be unpacked ({error}); fetch it again") from None


def check_name(archive: Path, name: str) -> None:
    """Refuse a member whose name could leave the folder it is unpacked to, on any system."""
    windows = PureWindowsPath(name)
    if not name or ".." in windows.parts or windows.root or windows.drive or "\0" in name:
        raise InputError(f"{archive}: holds the path {name!r}, which leaves its folder; do not use this file")


def _checked(archive: Path, members: Iterator[_Member]) -> list[_Member]:
    total, checked = 0, []
    packed = archive.stat().st_size
    for member in members:
        check_name(archive, member.name)
        total += member.size
        check_expansion(archive, total, packed)
        if total > LARGEST_TOTAL:
            raise InputError(f"{archive}: unpacks to more than {LARGEST_TOTAL} bytes; do not use this file")
        if not (member.is_file or member.is_folder):
            raise InputError(f"{archive}: holds a link or device, {member.name!r}; do not use this file")
        checked.append(member)
    return checked


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile | zipfile.ZipFile]:
    check_regular(archive)
    if zipfile.is_zipfile(archive):
        with open_zip(archive) as opened:
            yield opened
    else:
        with tarfile.open(archive) as unpacked:
            yield unpacked


def _members(opened: tarfile.TarFile | zipfile.ZipFile) -> Iterator[_Member]:
    if isinstance(opened, zipfile.ZipFile):
        for info in opened.infolist():
            link = stat.S_ISLNK(info.external_attr >> 16)
            yield _Member(
                name=info.filename,
                size=info.file_size,
                is_file=not info.is_dir() and not link,
                is_folder=info.is_dir(),
            )
    else:
        for entry in opened:
            yield _Member(name=entry.name, size=entry.size, is_file=entry.isfile(), is_folder=entry.isdir())


def _open(opened: tarfile.TarFile | zipfile.ZipFile, name: str) -> IO[bytes]:
    stream = opened.open(name) if isinstance(opened, zipfile.ZipFile) else opened.extractfile(name)
    assert stream is not None  # it is a file, and a file has a stream
    return stream
