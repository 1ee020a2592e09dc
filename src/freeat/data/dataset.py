"""A data set: two splits with their classes, and how one is found by name or by path."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from freeat.data.augmentation import Augmentation
from freeat.data.images import Images
from freeat.data.location import data_folder
from freeat.data.published import find_form, read_published
from freeat.data.readers.arrays import Arrays
from freeat.data.readers.digits import read_digits
from freeat.data.readers.npz import read_npz
from freeat.data.sources import SOURCES, Source, find_source
from freeat.errors import InputError, unknown_name


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSet:
    """Training and test images of the same classes and shape.

    ``augment`` is the augmentation customary for this data set; ``notes`` are plain sentences that every
    table made from it must say.
    """

    name: str
    train: Images
    test: Images
    classes: tuple[str, ...]
    augment: Augmentation | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise InputError(f"{self.name}: {len(self.classes)} class(es); a classifier needs at least 2")
        if self.train.shape != self.test.shape:
            raise InputError(
                f"{self.name}: training images are {self.train.shape} and test images {self.test.shape}; "
                "both must have one (C, H, W)"
            )
        if self.train.x.dtype != self.test.x.dtype:
            raise InputError(
                f"{self.name}: training images are {self.train.x.dtype} and test images {self.test.x.dtype}; "
                "store both in one type"
            )
        for split, images in (("train", self.train), ("test", self.test)):
            if not images.y.is_meta and int(images.y.max()) >= len(self.classes):
                raise InputError(
                    f"{self.name}: {split} label {int(images.y.max())} is out of range; with "
                    f"{len(self.classes)} classes labels run from 0 to {len(self.classes) - 1}"
                )

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of every image."""
        return self.train.shape

    @cached_property
    def digest(self) -> str:
        """SHA-256 of both splits and the number of classes."""
        return hashlib.sha256(
            f"{self.train.digest} {self.test.digest} {len(self.classes)}".encode()
        ).hexdigest()


def load(
    name_or_path: str | Path,
    *,
    data_dir: Path | str | None = None,
    seed: int = 0,
    test_fraction: float = 0.2,
    image_size: int | None = None,
) -> DataSet:
    """A data set by its name, or by the path of an ``.npz`` file or a folder.

    ``seed`` and ``test_fraction`` matter only where a test split must be made; ``image_size`` only where
    images of many sizes must become one.
    """
    source = find_source(str(name_or_path))
    if source is not None:
        return _load_named(source, data_folder(data_dir))
    path = Path(name_or_path).expanduser()
    if path.suffix == ".npz" and path.is_file():
        return _dataset(path.stem, read_npz(path))
    if path.exists() or len(path.parts) > 1 or path.suffix:
        raise InputError(f"{path}: no such file or folder; known data sets: {', '.join(SOURCES)}")
    raise unknown_name("data set", str(name_or_path), SOURCES)


def _load_named(source: Source, folder: Path) -> DataSet:
    if source.name == "digits":
        return _dataset(source.name, read_digits(), source)
    form = find_form(source, folder)
    if form is not None:
        return _dataset(source.name, read_published(form, folder), source)
    stand_in = folder / f"{source.name}.npz"
    if stand_in.is_file():
        return _stand_in(_dataset(source.name, read_npz(stand_in), source), stand_in)
    raise InputError(
        f"{source.title} is not in {folder}: run `freeat data fetch {source.name}`, or name the folder that "
        "has it with --data-dir or $FREEAT_DATA"
    )


def _stand_in(data: DataSet, path: Path) -> DataSet:
    note = (
        f"{data.name} is represented by the file {path.name} "
        f"({len(data.train)} train and {len(data.test)} test images, SHA-256 {data.digest[:16]}), "
        "not by the published data set."
    )
    return replace(data, notes=(*data.notes, note))


def _dataset(
    name: str, arrays: Arrays, source: Source | None = None, augment: Augmentation | None = None
) -> DataSet:
    train, test = arrays.images()
    if source is not None:
        classes, augment = arrays.classes or source.class_names, source.augment
    else:
        # Classes are those seen in training: a test label beyond them is out of range.
        classes = arrays.classes or tuple(str(c) for c in range(int(train.y.max()) + 1))
    return DataSet(name=name, train=train, test=test, classes=classes, augment=augment, notes=arrays.notes)
