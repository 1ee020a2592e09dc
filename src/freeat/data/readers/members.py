"""Files of a data set, read from a folder or straight from its archive."""

import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from freeat.errors import InputError

LARGEST = 1 << 30
"""No published file read whole is larger; a larger one is a mistake or a bomb."""


def read_members(path: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The contents of the named files of a folder, or of a tar archive in whatever folder of it."""
    wanted = tuple(names)
    try:
        found = _from_folder(path, wanted) if path.is_dir() else _from_archive(path, wanted)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); fetch it again") from None
    for name in wanted:
        if name not in found:
            raise InputError(f"{path}: {name} is missing; it must hold {', '.join(wanted)}")
    return found


def _from_folder(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    present = [path / name for name in names if (path / name).is_file()]
    for file in present:
        _check_size(file, file.stat().st_size)
    return {file.name: file.read_bytes() for file in present}


def _from_archive(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            name = member.name.rsplit("/", 1)[-1]
            if member.isfile() and name in names:
                _check_size(path / name, member.size)
                stream = archive.extractfile(member)
                assert stream is not None  # a regular file always has one
                found[name] = stream.read()
    return found


def _check_size(what: Path, size: int) -> None:
    if size > LARGEST:
        raise InputError(f"{what}: {size} bytes; a published file has at most {LARGEST}")
