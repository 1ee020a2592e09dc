"""Which data sets there are here, and reading the published ones."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from freeat.data.readers.arrays import Arrays, idx_path, npz_sizes, read_idx_folder, read_svhn
from freeat.data.readers.cifar import (
    read_cifar10_binary,
    read_cifar10_python,
    read_cifar100_binary,
    read_cifar100_python,
)
from freeat.data.readers.folder import read_tiny_imagenet
from freeat.data.readers.pixels import PixelStore
from freeat.data.readers.trees import open_tree
from freeat.data.sources import SOURCES, FileLayout, Source, data_folder, verify
from freeat.errors import InputError

READERS: dict[str, Callable[[Path, PixelStore], Arrays]] = {
    "cifar10-python": lambda path, _: read_cifar10_python(path),
    "cifar10-binary": lambda path, _: read_cifar10_binary(path),
    "cifar100-python": lambda path, _: read_cifar100_python(path),
    "cifar100-binary": lambda path, _: read_cifar100_binary(path),
    "svhn": lambda path, _: read_svhn(path),
    "tiny-imagenet": lambda path, store: read_tiny_imagenet(open_tree(path), store),
    "idx": lambda path, _: read_idx_folder(path),
}


def find_layout(source: Source, folder: Path) -> FileLayout | None:
    """The first layout of the data set that lies in the data folder."""
    return next((layout for layout in source.layouts if (folder / layout.path).exists()), None)


def substitute_path(source: Source, folder: Path) -> Path:
    """Where a user puts a file that replaces the data set while it is not there."""
    return folder / f"{source.name}.npz"


@dataclass(frozen=True, kw_only=True)
class Recognized:
    """A path that holds files of a published data set, or files made like them."""

    source: Source
    layout: FileLayout
    verified: bool


def recognize(path: Path) -> Recognized | None:
    """What published data set lies at this path, told by its files; a verified one goes before a likeness."""
    likely = [
        Recognized(source=source, layout=layout, verified=_is_published(layout, path))
        for source in SOURCES.values()
        for layout in source.layouts
        if _looks_like(layout, path)
    ]
    return max(likely, key=lambda found: found.verified, default=None)


def _looks_like(layout: FileLayout, path: Path) -> bool:
    if not path.is_dir():
        return path.name == layout.path
    return any((path / f"{layout.mark}{suffix}").is_file() for suffix in ("", ".gz"))


def _is_published(layout: FileLayout, path: Path) -> bool:
    try:
        verify_layout(layout, path)
    except InputError:
        return False
    return bool(layout.md5)


def read_layout(layout: FileLayout, path: Path, store: PixelStore) -> Arrays:
    """Read the folder or archive at ``path`` in the format of the layout."""
    return READERS[layout.reader](path, store)


def verify_layout(layout: FileLayout, root: Path) -> None:
    """Refuse files at ``root`` that are not the published ones."""
    for name, expected in layout.md5:
        if not name:
            verify(root, expected)
        elif layout.reader == "idx":
            verify(idx_path(root, name), expected, unpacked=True)
        else:
            verify(root / name, expected)


State = Literal["embedded", "published", "substitute", "absent", "damaged"]


@dataclass(frozen=True, kw_only=True)
class DataSetInfo:
    """A data set by name: its sizes as it lies here, else as it was published."""

    name: str
    title: str
    state: State
    path: Path | None
    n_train: int
    n_test: int
    shape: tuple[int, int, int]
    n_classes: int
    licence: str

    @property
    def present(self) -> bool:
        """Whether it can be loaded without fetching it."""
        return self.state in ("embedded", "published", "substitute")


def available(data_dir: Path | str | None = None) -> list[DataSetInfo]:
    """Every data set known by name. Files are found, not verified: loading does that."""
    folder = data_folder(data_dir)
    return [_info(source, folder) for source in SOURCES.values()]


def _info(source: Source, folder: Path) -> DataSetInfo:
    state, path, (n_train, n_test) = _found(source, folder)
    return DataSetInfo(
        name=source.name,
        title=source.title,
        state=state,
        path=path,
        n_train=n_train,
        n_test=n_test,
        shape=source.shape,
        n_classes=source.n_classes,
        licence=source.licence,
    )


def _found(source: Source, folder: Path) -> tuple[State, Path | None, tuple[int, int]]:
    published = source.n_train, source.n_test
    if not source.downloads:
        return "embedded", None, published
    if (layout := find_layout(source, folder)) is not None:
        return "published", folder / layout.path, published
    substitute = substitute_path(source, folder)
    if not substitute.is_file():
        return "absent", None, published
    try:
        return "substitute", substitute, npz_sizes(substitute)
    except InputError:
        return "damaged", substitute, published
