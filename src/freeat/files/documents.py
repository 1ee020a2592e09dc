"""Documents written whole or not at all, typed, with a format number that is checked when they are read.

A stored document is a frozen dataclass. ``write_document`` writes it with the number of its format, and
``read_document`` decodes and validates it: whatever is wrong with the file becomes one message with its name.
"""

import hashlib
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from freeat.errors import InputError

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
}
"""The format of every kind of stored document: raised when its fields change, so that newer files are refused."""

T = TypeVar("T")


class NewerFormat(InputError):
    """A file written by a newer version of this library."""


def in_file_name(text: str) -> str:
    """The text as part of a file name: characters that some file system forbids are percent-encoded."""
    return re.sub(r'[%/\\:*?"<>|]', lambda found: f"%{ord(found.group()):02X}", text)


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that replaces it when the block succeeds and is removed otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    temporary.touch(exist_ok=False)
    mode = temporary.stat().st_mode  # from the user's umask; some writers make the file private
    try:
        yield temporary
        temporary.chmod(mode)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside ``path`` that replaces it when the block succeeds and is removed otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    temporary, old = (path.with_name(f".{path.name}.{token}.{kind}.tmp") for kind in ("new", "old"))
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


def is_unfinished(path: Path) -> bool:
    """Whether this is the temporary file of a write that was cut off."""
    return path.name.startswith(".") and path.suffix == ".tmp"


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


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
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where} is damaged: {error}") from None


def write_document(path: Path, kind: str, value: Any) -> None:
    """Write a typed document of this kind with the number of its format, atomically."""
    write_json(path, plain(value), format=FORMATS[kind])


def read_document(path: Path, kind: str, as_type: type[T]) -> T:
    """Read and validate a document of this kind."""
    return decoded(read_json(path, format=FORMATS[kind]), as_type, path)


def identity_of(facts: Mapping[str, Any]) -> str:
    """The identity of what these facts determine: a hash of their JSON with sorted keys and exact floats."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:20]


def write_json(path: Path, document: dict[str, Any], *, format: int) -> None:
    """Write a JSON document with its format number, atomically."""
    write_text(path, to_json({"format": format, **document}, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, *, format: int) -> dict[str, Any]:
    """Read a JSON document of this format or an older one."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise InputError(f"{path} was not written by freeat: it carries no format number")
    check_format(path, document["format"], format)
    return document


def check_format(path: Path, found: int, known: int) -> None:
    """Refuse a file written by a newer version."""
    if found > known:
        raise NewerFormat(
            f"{path} has format {found}, newer than the {known} this version reads: upgrade freeat"
        )


def sha256(path: Path) -> str:
    """The digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
