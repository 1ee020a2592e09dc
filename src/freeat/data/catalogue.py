"""The published data sets by name, and which of them are here."""

from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

from freeat.data.sources import FileLayout, Source, verify
from freeat.errors import ImportedOnUse, InputError
from freeat.files.published import KnownDataSet, PublishedDataSet, data_folder

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


def as_published(source: Source) -> PublishedDataSet:
    """What the list of data sets needs of a source."""
    return PublishedDataSet(
        name=source.name,
        title=source.title,
        n_train=source.n_train,
        n_test=source.n_test,
        shape=source.shape,
        n_classes=source.n_classes,
        licence=source.licence,
        paths=tuple(layout.path for layout in source.layouts),
    )


def available(data_dir: Path | str | None = None) -> list[KnownDataSet]:
    """Every data set known by name. Files are found, not verified: loading does that."""
    folder = data_folder(data_dir)
    return [as_published(source).in_folder(folder) for source in SOURCES.values()]
