"""The published data sets by name, and which of them are here."""

from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from freeat.data.readers.arrays import npz_sizes
from freeat.data.sources import FileLayout, Source, data_folder, verify
from freeat.errors import ImportedOnUse, InputError

SOURCES: MutableMapping[str, Source] = ImportedOnUse(
    {
        "digits": "freeat.data.readers.arrays:DIGITS",
        "cifar10": "freeat.data.readers.cifar:CIFAR10",
        "cifar100": "freeat.data.readers.cifar:CIFAR100",
        "svhn": "freeat.data.readers.arrays:SVHN",
        "tiny-imagenet": "freeat.data.readers.folder:TINY_IMAGENET",
        "mnist": "freeat.data.readers.arrays:MNIST",
        "fashion-mnist": "freeat.data.readers.arrays:FASHION_MNIST",
    }
)


def find_source(name: str) -> Source | None:
    """The data set of this name, however written: ``CIFAR-10``, ``cifar_10`` and ``cifar10`` are one."""
    plain = _plain(name)
    return next((SOURCES[known] for known in SOURCES if _plain(known) == plain), None)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")


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
    """The published data set at this path, recognized by its files; verified files take precedence."""
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
    return bool(layout.md5) and is_intact(layout, path)


def verify_layout(layout: FileLayout, root: Path) -> None:
    """Refuse files at ``root`` that are not the published ones; each may be gzipped."""
    for name, expected in layout.md5:
        file, packed = (root / name, root / f"{name}.gz") if name else (root, root)
        verify(packed if packed.is_file() and not file.is_file() else file, expected, unpacked=bool(name))


def is_intact(layout: FileLayout, path: Path) -> bool:
    """Whether the published files are at ``path``, as far as checksums are known."""
    try:
        verify_layout(layout, path)
    except InputError:
        return False
    return path.exists()


State = Literal["embedded", "published", "substitute", "absent", "damaged"]


@dataclass(frozen=True, kw_only=True)
class KnownDataSet:
    """A data set by name: its state, and the sizes of the files found here, else the published sizes."""

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


def available(data_dir: Path | str | None = None) -> list[KnownDataSet]:
    """Every data set known by name. Files are found, not verified: loading does that."""
    folder = data_folder(data_dir)
    return [_known(source, folder) for source in SOURCES.values()]


def _known(source: Source, folder: Path) -> KnownDataSet:
    state, path, (n_train, n_test) = _found(source, folder)
    return KnownDataSet(
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
