"""Archives unpacked without trusting them: no path escapes, no links or devices, no bombs."""

import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from freeat.errors import InputError

LARGEST_TOTAL = 4 << 30
"""Bytes an archive may unpack to."""


@dataclass(frozen=True, kw_only=True)
class _Member:
    name: str
    size: int
    plain: bool
    handle: tarfile.TarInfo | zipfile.ZipInfo


def unpack(archive: Path, into: Path, names: frozenset[str]) -> None:
    """Write the files called ``names`` in the archive, whatever their folder in it, into the folder ``into``.

    Every member is checked, also those that are not wanted: one bad name condemns the archive.
    """
    try:
        with _opened(archive) as opened:
            chosen = [m for m in _checked(archive, _members(opened)) if PurePosixPath(m.name).name in names]
            for member in chosen:
                stream = _open(opened, member)
                with stream, (into / PurePosixPath(member.name).name).open("wb") as out:
                    shutil.copyfileobj(stream, out, 1 << 20)
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{archive}: cannot be unpacked ({error}); fetch it again") from None


def check_name(archive: Path, name: str) -> None:
    """Refuse a member whose name could leave the folder it is unpacked to, on any system."""
    windows = PureWindowsPath(name)
    if not name or ".." in windows.parts or windows.root or windows.drive or "\0" in name:
        raise InputError(f"{archive}: holds the path {name!r}, which leaves its folder; do not use this file")


def _checked(archive: Path, members: Iterator[_Member]) -> list[_Member]:
    total, checked = 0, []
    for member in members:
        check_name(archive, member.name)
        total += member.size
        if total > LARGEST_TOTAL:
            raise InputError(f"{archive}: unpacks to more than {LARGEST_TOTAL} bytes; do not use this file")
        if not member.plain:
            raise InputError(f"{archive}: holds a link or device, {member.name!r}; do not use this file")
        checked.append(member)
    return checked


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile | zipfile.ZipFile]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened_zip:
            yield opened_zip
    else:
        with tarfile.open(archive) as opened_tar:
            yield opened_tar


def _members(opened: tarfile.TarFile | zipfile.ZipFile) -> Iterator[_Member]:
    if isinstance(opened, zipfile.ZipFile):
        for info in opened.infolist():
            link = (info.external_attr >> 16) & 0o170000 == 0o120000
            yield _Member(name=info.filename, size=info.file_size, plain=not link, handle=info)
    else:
        for entry in opened:
            yield _Member(
                name=entry.name, size=entry.size, plain=entry.isfile() or entry.isdir(), handle=entry
            )


def _open(opened: tarfile.TarFile | zipfile.ZipFile, member: _Member) -> IO[bytes]:
    if isinstance(opened, zipfile.ZipFile):
        return opened.open(member.name)
    stream = opened.extractfile(member.name)
    if stream is None:
        raise InputError(f"{opened.name!r}: {member.name!r} is a folder where a file was expected")
    return stream
