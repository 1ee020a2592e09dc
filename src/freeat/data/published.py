"""Published data sets in the data folder: found, verified, read."""

from collections.abc import Callable
from pathlib import Path

from freeat.data.checksums import verify
from freeat.data.readers.arrays import Arrays
from freeat.data.readers.cifar import (
    read_cifar10_binary,
    read_cifar10_python,
    read_cifar100_binary,
    read_cifar100_python,
)
from freeat.data.readers.idx import idx_path, read_idx_folder
from freeat.data.readers.svhn import read_svhn
from freeat.data.sources import Form, Source

READERS: dict[str, Callable[[Path], Arrays]] = {
    "cifar10-python": read_cifar10_python,
    "cifar10-binary": read_cifar10_binary,
    "cifar100-python": read_cifar100_python,
    "cifar100-binary": read_cifar100_binary,
    "svhn": read_svhn,
    "idx": read_idx_folder,
}


def find_form(source: Source, folder: Path) -> Form | None:
    """The first form of the data set that lies in the data folder."""
    return next((form for form in source.forms if (folder / form.path).exists()), None)


def read_published(form: Form, folder: Path) -> Arrays:
    """Verify the files against the published checksums and read them."""
    verify_form(form, folder)
    return READERS[form.reader](folder / form.path)


def verify_form(form: Form, folder: Path) -> None:
    """Refuse files that are not the published ones."""
    root = folder / form.path
    for name, expected in form.md5:
        if not name:
            verify(root, expected)
        elif form.reader == "idx":
            verify(idx_path(root, name), expected, unpacked=True)
        elif (root / name).is_file():  # a missing one is named by its reader
            verify(root / name, expected)
