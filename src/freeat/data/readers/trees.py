"""A tree of files, in a folder or inside a zip archive, read without unpacking it."""

import hashlib
import io
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import IO, Protocol

from freeat.data.unpacking import check_name
from freeat.files.documents import sha256
from freeat.files.reading import check_regular, open_zip, opened_section, read_bytes, read_member

LARGEST = 1 << 28
"""Bytes of one image or list file."""


class Tree(Protocol):
    """Files by their name relative to the root, with forward slashes."""

    @property
    def path(self) -> Path: ...

    @property
    def files(self) -> dict[str, tuple[int, int]]:
        """Name to (size, time of change), sorted by name."""
        ...

    def read(self, name: str) -> bytes: ...


class NestedTree(Tree, Protocol):
    """A tree whose folders are known too."""

    @property
    def folders(self) -> frozenset[str]:
        """The folders by name, also those that hold nothing."""
        ...


@dataclass(frozen=True)
class FolderTree:
    """The files of a folder; hidden files and folders are left out."""

    path: Path

    @cached_property
    def _content(self) -> tuple[dict[str, tuple[int, int]], list[str]]:
        """The files with size and time of change, and the folders; links to folders are not followed."""
        files: dict[str, tuple[int, int]] = {}
        folders: list[str] = []
        waiting = [""]
        while waiting:
            prefix = waiting.pop()
            with suppress(PermissionError), os.scandir(self.path / prefix) as entries:
                for entry in entries:
                    name = prefix + entry.name
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir():
                        folders.append(name)
                        if not entry.is_symlink():
                            waiting.append(f"{name}/")
                    else:
                        status = entry.stat() if entry.is_file() else check_regular(self.path / name)
                        files[name] = (status.st_size, status.st_mtime_ns)
        return files, folders

    @cached_property
    def files(self) -> dict[str, tuple[int, int]]:
        return dict(sorted(self._content[0].items()))

    @cached_property
    def folders(self) -> frozenset[str]:
        return frozenset(self._content[1])

    def read(self, name: str) -> bytes:
        return read_bytes(self.path / name, limit=LARGEST)

    def opened(self, name: str) -> AbstractContextManager[BufferedReader]:
        """The file, of which only what is asked for is read."""
        return opened_section(self.path / name, limit=LARGEST)

    @property
    def light(self) -> "FolderTree":
        """The folder without its listing."""
        return FolderTree(self.path)


@dataclass(frozen=True)
class PlainFiles:
    """A few files at a path, or the one file that it is."""

    path: Path
    listed: tuple[Path, ...]

    @cached_property
    def files(self) -> dict[str, tuple[int, int]]:
        found = {}
        for file in self.listed:
            status = file.stat()
            found[file.relative_to(self.path).as_posix()] = (status.st_size, status.st_mtime_ns)
        return found

    def read(self, name: str) -> bytes:
        return read_bytes(self.path / name, limit=LARGEST)


@dataclass(frozen=True)
class ZipTree:
    """The files of a zip archive, below the one folder that holds them all if there is one."""

    path: Path

    @cached_property
    def _opened(self) -> tuple[zipfile.ZipFile, list[int]]:
        """The archive, and the process that opened its file."""
        return open_zip(self.path), [os.getpid()]

    @property
    def _archive(self) -> zipfile.ZipFile:
        archive, owner = self._opened
        if owner != [os.getpid()]:
            # A forked process shares the place in the file with its parent: it needs a file of its own.
            archive.fp, owner[:] = self.path.open("rb"), [os.getpid()]
        return archive

    def __getstate__(self) -> dict[str, Path]:
        return {"path": self.path}  # an open archive cannot be sent to another process

    @cached_property
    def _top(self) -> str:
        """The one folder that holds all files, with its slash; empty where there is none."""
        for member in self._archive.infolist():
            check_name(self.path, member.filename)
        names = [m.filename for m in self._archive.infolist() if not m.is_dir()]
        tops = {name.split("/", 1)[0] for name in names}
        return f"{tops.pop()}/" if len(tops) == 1 and all("/" in name for name in names) else ""

    @cached_property
    def _members(self) -> dict[str, zipfile.ZipInfo]:
        members = [m for m in self._archive.infolist() if not m.is_dir()]
        members.sort(key=lambda m: m.filename)
        return {m.filename.removeprefix(self._top): m for m in members}

    @cached_property
    def files(self) -> dict[str, tuple[int, int]]:
        return {name: (m.file_size, m.CRC) for name, m in self._members.items()}

    @cached_property
    def folders(self) -> frozenset[str]:
        names = (m.filename.removeprefix(self._top) for m in self._archive.infolist() if m.is_dir())
        return frozenset(name.rstrip("/") for name in names if name)

    def read(self, name: str) -> bytes:
        return read_member(self.path, self._archive, self._members[name], LARGEST)


def open_tree(path: Path) -> NestedTree:
    """The tree of a folder or of a zip archive."""
    return FolderTree(path) if path.is_dir() else ZipTree(path)


def light(tree: Tree) -> Tree:
    """The tree as worker processes need it, without its listing where it has a form for that."""
    found: Tree = getattr(tree, "light", tree)
    return found


@contextmanager
def opened_file(tree: Tree, name: str) -> Iterator[IO[bytes]]:
    """A file of a tree, of which only what is asked for is read where the tree can do that; else it is read whole."""
    lazily: Callable[[str], AbstractContextManager[BufferedReader]] | None = getattr(tree, "opened", None)
    if lazily is None:
        yield io.BytesIO(tree.read(name))
        return
    with lazily(name) as file:
        yield file


def file_digest(tree: Tree, name: str) -> str:
    """SHA-256 of the content of a file of a tree, of any size where it is a file of its own."""
    if isinstance(tree, FolderTree | PlainFiles):
        return sha256(tree.path / name)
    return hashlib.sha256(tree.read(name)).hexdigest()


def listing_digest(tree: Tree, names: Iterable[str]) -> str:
    """SHA-256 of the names, sizes and times of these files: another listing means other content."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{name}\0{tree.files[name]}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
