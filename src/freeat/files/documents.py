"""Files written whole or not at all, and typed documents with a format number that is checked when they are read.

A stored document is a frozen dataclass. ``write_document`` writes it with the number of its format, and
``read_document`` decodes and validates it: whatever is wrong with the file becomes one message with its name.
"""

import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from freeat.errors import InputError
from freeat.files.reading import open_file, parse_json, read_text, refusing

FORMATS: dict[str, int] = {
    "run": 1,
    "record": 1,
    "result": 1,
    "checkpoint": 1,
    "tensors": 1,
    "evaluation": 1,
    "examples": 1,
    "comparison": 1,
    "transfer": 1,
    "measurement": 1,
    "study": 1,
    "study summary": 1,
    "twins": 1,
    "population result": 1,
    "population study": 1,
    "reproduction": 1,
    "published tables": 1,
    "export": 1,
    "tracking": 1,
    "decoded images": 1,
    "found in files": 1,
}
"""The format of every kind of stored document: raised when its fields change, so that newer files are refused."""

FULL = {
    errno.ENOSPC: "its disk has no space left",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "it exceeds the limit on file sizes (`ulimit -f`)",
}
"""The errors of a write that there is no space for, and what they say."""

ABANDONED_AFTER = 24 * 3600.0
"""Seconds after which a temporary file counts as left over, where it cannot be seen whether its process is alive."""

TAKEOVER = ".takeover.tmp"
TAKEN_OVER_AFTER = 60.0
"""The guard of a process that takes a lease over, for milliseconds; seconds after which it is that of a killed one."""

_TEMPORARY = re.compile(r"\.(.+)\.([0-9a-f]{8})-(\d+)-[0-9a-f]{8}(\.old)?\.tmp")

T = TypeVar("T")


class NewerFormat(InputError):
    """A file written by a newer version of this library."""


def in_file_name(text: str) -> str:
    """The text as part of a file name: characters that some file system forbids are percent-encoded."""
    return re.sub(r'[%/\\:*?"<>|]', lambda found: f"%{ord(found.group()):02X}", text)


class NoSpace(InputError):
    """A file that cannot be written because a disk is full; the message has its size and the remedy."""


@contextmanager
def space_for(path: Path, size: int | None = None) -> Iterator[None]:
    """Inside, ``size`` bytes are written to ``path``; raises NoSpace where there is no space for them."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        disk = next(parent for parent in path.absolute().parents if parent.exists())
        free = shutil.disk_usage(disk).free
        needed = "more space" if size is None else f"{size:,} bytes"
        raise NoSpace(
            f"{path} cannot be written: {FULL[error.errno]}; it needs {needed}, and {free:,} bytes of the disk are "
            "free: make space, and run the same command again"
        ) from None


def check_output(*paths: Path) -> None:
    """Refuse files that cannot be written, before they are computed: a folder has the name, or it is below a file."""
    for path in paths:
        if path.is_dir():
            raise InputError(f"{path} is a folder, and a file of that name has to be written: remove it")
        existing = next(parent for parent in path.absolute().parents if parent.exists())
        if not existing.is_dir():
            raise InputError(f"cannot write to {path.parent}: {existing} is a file; choose another --out")
        if not os.access(existing, os.W_OK):
            raise InputError(f"cannot write to {path.parent}: {existing} is read-only; choose another --out")


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """The folder, made with its parents if need be; those that were made and stay empty are removed again."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for one in made:
            with suppress(OSError):  # it has content
                one.rmdir()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: it has the whole content, or is as it was."""
    with space_for(path, len(content)), made_folder(path.parent):
        remove_abandoned(path.parent)
        temporary = temporary_name(path)
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; bytes in the name of a file that are no text become question marks."""
    write_bytes(path, text.encode(errors="replace"))


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside ``path`` that replaces it when the block succeeds and is removed otherwise."""
    with space_for(path), made_folder(path.parent):
        remove_abandoned(path.parent)
        temporary = temporary_name(path)
        old = temporary.with_suffix(".old.tmp")
        temporary.mkdir()
        try:
            yield temporary
            if path.exists():
                path.rename(old)
            temporary.rename(path)
        finally:
            if old.exists() and not path.exists():
                old.rename(path)
            for left in (temporary, old):
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """A folder beside ``path`` for the length of a block; that of a killed process is removed by the next."""
    remove_abandoned(path.parent)
    temporary = temporary_name(path)
    temporary.mkdir()
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def temporary_name(path: Path) -> Path:
    """A new hidden name beside ``path`` with this process in it, so that others can see whether it is alive."""
    return path.with_name(f".{path.name}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")


def is_unfinished(path: Path) -> bool:
    """Whether this is the temporary file of a write that has not ended."""
    return path.name.startswith(".") and path.suffix == ".tmp"


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files that dead processes left in a folder; a folder they had moved away is put back."""
    for path in folder.glob(".*.tmp"):
        named = _TEMPORARY.fullmatch(path.name)
        with suppress(OSError):  # another process removes it too
            if path.name == TAKEOVER and time.time() - path.stat().st_mtime > TAKEN_OVER_AFTER:
                path.unlink()
            if named is None or not _abandoned(path, host=named[2], pid=int(named[3])):
                continue
            if named[4] and not path.with_name(named[1]).exists():
                path.rename(path.with_name(named[1]))
            else:
                remove(path)


def remove(path: Path) -> None:
    """Remove a file or a folder; none need be there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _abandoned(path: Path, *, host: str, pid: int) -> bool:
    """Whether it is left over: its process is gone, or cannot be seen and the time is up."""
    if host == _host() and os.name != "nt":
        return not is_alive(pid)
    return time.time() - path.stat().st_mtime > ABANDONED_AFTER


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def is_alive(pid: int) -> bool:
    """Whether a process of this host is alive; on Windows, which has no cheap way to see it, always True."""
    if os.name == "nt":
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it lives, and belongs to another user
    return True


def to_json(document: Any, **options: Any) -> str:
    """Standard JSON: a number that is not finite becomes null."""
    return json.dumps(_finite(document), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plain(value: Any) -> Any:
    """A typed value as dictionaries, lists, text and numbers."""
    return msgspec.to_builtins(value)


def decoded(value: Any, kind: type[T], where: Path | str) -> T:
    """Plain values as the typed value they describe; anything else is refused with ``where`` it was read."""
    with refusing(where, "document"):  # of a number of 400 digits, what raises is not msgspec's
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise InputError(f"{where} is damaged: {error}") from None


def write_document(path: Path, kind: str, value: Any) -> None:
    """Write a typed document of this kind with the number of its format, atomically."""
    write_json(path, plain(value), format=FORMATS[kind])


def read_document(path: Path, kind: str, as_type: type[T]) -> T:
    """Read and validate a document of this kind; what dead processes left beside it is removed."""
    found = decoded(read_json(path, format=FORMATS[kind]), as_type, path)
    remove_abandoned(path.parent)
    return found


def identity_of(facts: Mapping[str, Any]) -> str:
    """The identity of what these facts determine: a hash of their JSON with sorted keys and exact floats."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:20]


def write_json(path: Path, document: dict[str, Any], *, format: int) -> None:
    """Write a JSON document with its format number, atomically."""
    write_text(path, to_json({"format": format, **document}, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, *, format: int) -> dict[str, Any]:
    """Read a JSON document of this format or an older one."""
    document = parse_json(read_text(path), path)
    if not isinstance(document, dict):
        raise InputError(f"{path} was not written by freeat: it carries no format number")
    check_format(path, document.get("format"), format)
    return document


def check_format(path: Path, found: object, known: int) -> None:
    """Refuse a file without a format number, and one written by a newer version."""
    if not isinstance(found, int) or isinstance(found, bool):
        raise InputError(f"{path} was not written by freeat: it carries no format number")
    if found > known:
        raise NewerFormat(
            f"{path} has format {found}, newer than the {known} this version reads: upgrade freeat"
        )


def sha256(path: Path) -> str:
    """The digest of a file's content."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
