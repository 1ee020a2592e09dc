"""Results read back from a store: whole, or refused with the remedy; and looked up where one must not stop others."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from freeat.errors import InputError
from freeat.files.documents import NewerFormat


class Stored(Protocol):
    """Whatever has a result, or will have one."""

    def result(self) -> dict[str, Any] | None: ...


def found_result(task: Stored) -> dict[str, Any] | None:
    """What came out of a task; None also where its files are damaged, which ``damage`` tells."""
    try:
        return task.result()
    except InputError:
        return None


def damage(task: Stored) -> str | None:
    """Why what came out of a task cannot be read, if so."""
    try:
        task.result()
    except InputError as error:
        return str(error)
    return None


@contextmanager
def read_whole(folder: Path) -> Iterator[None]:
    """Inside, damaged files of a folder are refused with the remedy."""
    try:
        yield
    except NewerFormat:
        raise
    except InputError as error:
        raise InputError(f"{error}; restore it, or delete {folder} to have it made again") from None
