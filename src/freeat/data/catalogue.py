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
from freeat.data.sources import SOURCES, Form, Source, data_folder, verify
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


def find_form(source: Source, folder: Path) -> Form | None:
    """The first form of the data set that lies in the data folder."""
    return next((form for form in source.forms if (folder / form.path).exists()), None)


def stand_in_path(source: Source, folder: Path) -> Path:
    """Where a user puts a file that stands in for the data set while it is not there."""
    return folder / f"{source.name}.npz"


@dataclass(frozen=True, kw_only=True)
class Recognized:
    """A path that holds files of a published data set, or files made like them."""

    source: Source
    form: Form
    verified: bool


def recognize(path: Path) -> Recognized | None:
    """What published data set lies at this path, told by its files; a verified one goes before a likeness."""
    likely = [
        Recognized(source=source, form=form, verified=_is_published(form, path))
        for source in SOURCES.values()
        for form in source.forms
        if _looks_like(form, path)
    ]
    return max(likely, key=lambda found: found.verified, default=None)


def _looks_like(form: Form, path: Path) -> bool:
    if not path.is_dir():
        return path.name == form.path
    return any((path / f"{form.mark}{suffix}").is_file() for suffix in ("", ".gz"))


def _is_published(form: Form, path: Path) -> bool:
    try:
        verify_form(form, path)
    except InputError:
        return False
    return bool(form.md5)


def read_form(form: Form, path: Path, store: PixelStore) -> Arrays:
    """Read the folder or archive at ``path`` in the format of the form."""
    return READERS[form.reader](path, store)


def verify_form(form: Form, root: Path) -> None:
    """Refuse files at ``root`` that are not the published ones."""
    for name, expected in form.md5:
        if not name:
            verify(root, expected)
        elif form.reader == "idx":
            verify(idx_path(root, name), expected, unpacked=True)
        else:
            verify(root / name, expected)


State = Literal["embedded", "published", "stand-in", "absent", "damaged"]


@dataclass(frozen=True, kw_only=True)
class Entry:
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
        return self.state in ("embedded", "published", "stand-in")


def available(data_dir: Path | str | None = None) -> list[Entry]:
    """Every data set known by name. Files are found, not verified: loading does that."""
    folder = data_folder(data_dir)
    return [_entry(source, folder) for source in SOURCES.values()]


def _entry(source: Source, folder: Path) -> Entry:
    state, path, (n_train, n_test) = _found(source, folder)
    return Entry(
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
    if (form := find_form(source, folder)) is not None:
        return "published", folder / form.path, published
    stand_in = stand_in_path(source, folder)
    if not stand_in.is_file():
        return "absent", None, published
    try:
        return "stand-in", stand_in, npz_sizes(stand_in)
    except InputError:
        return "damaged", stand_in, published
