"""A data set: two splits with their classes, and how one is found by name or by path."""

import hashlib
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from freeat.data.augmentation import Augmentation, CropFlip
from freeat.data.catalogue import (
    SOURCES,
    Recognized,
    find_layout,
    find_source,
    recognize,
    verify_layout,
)
from freeat.data.images import Images
from freeat.data.readers import MEMORY_LIMIT, Arrays
from freeat.data.readers.arrays import read_digits, read_npz
from freeat.data.sources import Source
from freeat.errors import InputError, unknown_name, wrong_type
from freeat.files.published import data_folder, substitute_path

if TYPE_CHECKING:
    from freeat.data.readers.store import PixelStore
    from freeat.data.readers.trees import Tree

MOST_CLASSES = 100_000
MOST_WORKERS = 256
SHOWN = 5
"""The most classes that a note names."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSet:
    """Training and test images of the same classes and shape.

    Args:
        name: Its name in reports.
        train: The training images.
        test: The test images.
        classes: The names of the classes, at least two.
        augment: The augmentation that is usual for this data set, e.g. ``CropFlip()``; None for none.
        notes: Sentences that every table made from it shows.
        content: The digest of the content of its files, where its own is that of their names, sizes and times and
            ``freeat data digest`` has read them.

    Raises:
        InputError: The splits differ in shape or type, or a label has no class.

    Example:
        >>> import torch, freeat
        >>> images = freeat.Images.of(torch.rand(6, 3, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2]))
        >>> data = freeat.DataSet(name="mine", train=images, test=images, classes=("cat", "dog", "owl"))
        >>> data.shape
        (3, 8, 8)
    """

    name: str
    train: Images
    test: Images
    classes: tuple[str, ...]
    augment: Augmentation | None = None
    notes: tuple[str, ...] = ()
    content: str | None = None

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise InputError(f"{self.name}: {len(self.classes)} class(es); a classifier needs at least 2")
        if self.train.shape != self.test.shape:
            raise InputError(
                f"{self.name}: training images are {self.train.shape} and test images {self.test.shape}; "
                "both must have one (C, H, W)"
            )
        if self.train.dtype != self.test.dtype:
            raise InputError(
                f"{self.name}: training images are {self.train.dtype} and test images {self.test.dtype}; "
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

    @property
    def example_batch(self) -> Tensor:
        """Two training images as a model receives them, to check it."""
        return self.train.batch(torch.arange(2) % len(self.train))[0]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of both splits and the number of classes."""
        return hashlib.sha256(
            f"{self.train.digest} {self.test.digest} {len(self.classes)}".encode()
        ).hexdigest()


def _check_named(data: object) -> None:
    """Refuse what is neither a name nor a path, such as a pair of tensors."""
    if not isinstance(data, str | Path):
        remedy = "pass a name, a path, or in Python a freeat.DataSet of two freeat.Images.of(x, y)"
        raise wrong_type("data", data, remedy)


def load_data(
    name_or_path: str | Path,
    *,
    data_dir: Path | str | None = None,
    seed: int = 0,
    test_fraction: float = 0.2,
    image_size: int | None = None,
    skip_unreadable: bool = False,
    memory_limit: int = MEMORY_LIMIT,
    stream: bool = False,
    workers: int | None = None,
) -> DataSet:
    """Load a data set by its name or by its path.

    Args:
        name_or_path: A name listed by ``freeat data``, or the path of an ``.npz`` file, of a published archive, of a
            folder or zip of images, of tar shards, or of 🤗 parquet or arrow files.
        data_dir: The folder of fetched data sets; by default ``$FREEAT_DATA``, else the user's cache folder.
        seed: The seed of the test split, where the data have none.
        test_fraction: The fraction of images in that test split.
        image_size: The side in pixels that images of several sizes are resized to.
        skip_unreadable: Leave out images of a folder or zip that cannot be read, instead of refusing all.
        memory_limit: The bytes of pixels up to which decoded images are held in memory; others are read from a cache
            of decoded images, row by row.
        stream: Keep no decoded images: decode those of each batch from their files. For images that exceed the disk
            once they are decoded, and to cut ``random-resized-crop`` from the whole files.
        workers: The processes that decode images, for a cache once or while a model computes, and that read those of
            the next batches from a cache; by default half of the cores. The numbers do not depend on it.

    Returns:
        The data set with its two splits, classes, usual augmentation and notes.

    Raises:
        InputError: The name or path is unknown, the data set is not fetched, or its files are damaged.

    Example:
        >>> import freeat
        >>> data = freeat.load_data("digits")
        >>> len(data.train), len(data.test), data.shape
        (1200, 597, (1, 8, 8))
    """
    _check_named(name_or_path)
    if workers is not None and not 0 <= workers <= MOST_WORKERS:
        raise InputError(
            f"--workers {workers}: must lie between 0 and {MOST_WORKERS}; 0 decodes between the batches"
        )
    folder = data_folder(data_dir)
    source = find_source(str(name_or_path))
    if source is not None:
        _refuse_resizing(source.name, image_size)
        if source.name == "digits":
            return _dataset(source.name, read_digits(), source)

    from freeat.data.readers.arrow import is_arrow, read_arrow
    from freeat.data.readers.folder import read_folder
    from freeat.data.readers.shards import ShardTree, read_shards, shards_of
    from freeat.data.readers.store import PixelStore
    from freeat.data.readers.trees import open_tree

    store = PixelStore(folder=folder / "cache", limit=memory_limit, stream=stream, workers=workers)
    if source is not None:
        return _load_named(source, folder, store)
    path = _existing(name_or_path)
    found = recognize(path)
    how: dict[str, Any] = {"seed": seed, "test_fraction": test_fraction, "image_size": image_size}
    if found is None and is_arrow(path):
        return _with_content(_own_images(path, read_arrow(path, store, **how)), path, store)
    if found is None and shards_of(path):
        shards = ShardTree(path, store)
        arrays = read_shards(shards, store, **how, skip_unreadable=skip_unreadable)
        return _with_content(_own_images(path, arrays), path, store, shards)
    if found is None and (path.is_dir() or path.suffix == ".zip"):
        tree = open_tree(path)
        arrays = read_folder(tree, store, **how, skip_unreadable=skip_unreadable)
        return _with_content(_own_images(path, arrays), path, store, tree)
    _refuse_resizing(path.name, image_size)
    if found is not None:
        return _with_content(_load_recognized(found, path, store), path, store)
    if path.suffix != ".npz":
        raise InputError(
            f"{path}: not a data set; give an .npz or .parquet file, a folder, zip or tars of images, or a known name"
        )
    return _of_npz(path.stem, path)


def _with_content(data: DataSet, path: Path, store: "PixelStore", listed: "Tree | None" = None) -> DataSet:
    """A stream with the digest of the content of its files, where that was found before."""
    if not data.train.streamed:
        return data
    return replace(data, content=store.known_content(listed or _files_at(path, store)))


def _files_at(path: Path, store: "PixelStore") -> "Tree":
    """All files at a path, those inside archives and tars too."""
    from freeat.data.readers.shards import ShardTree, shards_of
    from freeat.data.readers.trees import PlainFiles, open_tree

    if shards_of(path):
        return ShardTree(path, store)
    return open_tree(path) if path.is_dir() or path.suffix == ".zip" else PlainFiles(path, (path,))


def content_digest(
    path: Path | str, *, data_dir: Path | str | None = None, workers: int | None = None
) -> str:
    """SHA-256 of all files at a path or of a published data set, inside archives and tars too, with their names.

    Of a single file that is no archive it is that of its content. What was read once is kept as long as names, sizes
    and times of the files stay as they are.
    """
    from freeat.data.readers.store import PixelStore

    folder = data_folder(data_dir)
    source = find_source(str(path))
    layout = None if source is None else find_layout(source, folder)
    path = _existing(path) if layout is None else folder / layout.path
    store = PixelStore(folder=folder / "cache", workers=workers)
    return store.content_digest(_files_at(path, store))


def _refuse_resizing(name: str, image_size: int | None) -> None:
    if image_size is not None:
        raise InputError(
            f"image size {image_size} for {name}: only folders of images are resized; leave it out"
        )


def _existing(name_or_path: str | Path) -> Path:
    path = Path(name_or_path).expanduser()
    if path.exists():
        return path
    if {"/", os.sep} & set(str(name_or_path)) or path.suffix:
        raise InputError(f"{path}: no such file or folder; known data sets: {', '.join(SOURCES)}")
    raise unknown_name("data set", str(name_or_path), SOURCES)


def _load_named(source: Source, folder: Path, store: "PixelStore") -> DataSet:
    layout = find_layout(source, folder)
    if layout is not None:
        verify_layout(layout, folder / layout.path)
        data = _dataset(source.name, layout.reader(folder / layout.path, store), source)
        _check_published(data, source, folder / layout.path)
        return _with_content(data, folder / layout.path, store)
    substitute = substitute_path(source.name, folder)
    if substitute.is_file():
        return _with_substitute_note(_of_npz(source.name, substitute, source), substitute)
    raise InputError(
        f"{source.title} is not in {folder}: run `freeat data fetch {source.name}`, or name the folder that "
        "has it with --data-dir or $FREEAT_DATA"
    )


def _check_published(data: DataSet, source: Source, path: Path) -> None:
    """Catch an archive that was unpacked in part, where no checksum of the single files is known."""
    if (len(data.train), len(data.test)) != (source.n_train, source.n_test):
        raise InputError(
            f"{path}: {len(data.train)} train and {len(data.test)} test images, but {source.title} has "
            f"{source.n_train} and {source.n_test}; unpack it again, or load it by its path if you mean this"
        )


def _with_substitute_note(data: DataSet, path: Path) -> DataSet:
    note = (
        f"{data.name} is represented by the file {path.name} "
        f"({len(data.train)} train and {len(data.test)} test images, SHA-256 {data.digest[:16]}), "
        "not by the published data set."
    )
    return replace(data, notes=(*data.notes, note))


def _load_recognized(found: Recognized, path: Path, store: "PixelStore") -> DataSet:
    """The files of a published data set, or files made like them, at a path of the user's choice."""
    arrays = found.layout.reader(path, store)
    if found.verified:
        return _dataset(found.source.name, arrays, found.source)
    note = f"{path.name} has the form of {found.source.title}, but was not verified by its checksums."
    return _dataset(path.name, replace(arrays, notes=(*arrays.notes, note)), found.source)


def _own_images(path: Path, arrays: Arrays) -> DataSet:
    """A user's images, with CIFAR's augmentation: a pad of 4 of 32 pixels, in proportion."""
    pad = max(1, min(arrays.x_train.shape[1:3]) // 8)
    return replace(_dataset(path.stem, arrays), augment=CropFlip(pad=pad))


def _dataset(name: str, arrays: Arrays, source: Source | None = None) -> DataSet:
    train, test = arrays.images()
    if source is not None:
        classes = arrays.classes or source.class_names
    else:
        # Classes are those seen in training: a test label beyond them is out of range.
        largest = int(train.y.max())
        if not arrays.classes and largest >= MOST_CLASSES:
            raise InputError(
                f"{name}: training label {largest}; labels are class numbers from 0, of at most {MOST_CLASSES} classes"
            )
        classes = arrays.classes or tuple(str(c) for c in range(largest + 1))
    augment = None if source is None else source.augment
    return DataSet(name=name, train=train, test=test, classes=classes, augment=augment, notes=arrays.notes)


def _of_npz(name: str, path: Path, source: Source | None = None) -> DataSet:
    """The arrays of a file, with a note where they lack a class."""
    data = _dataset(name, read_npz(path), source)
    splits = ((data.train, "training"), (data.test, "test"))
    unseen = [note for images, split in splits for note in _unseen(name, data.classes, images, split)]
    return replace(data, notes=(*data.notes, *unseen))


def _unseen(name: str, classes: tuple[str, ...], images: Images, split: str) -> list[str]:
    """A note where classes have no image."""
    seen = set(images.y.tolist())
    missing = [label for k, label in enumerate(classes) if k not in seen]
    if not missing:
        return []
    shown = ", ".join(missing[:SHOWN]) + (f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else "")
    return [f"{name} has no {split} image of class {shown}."]
