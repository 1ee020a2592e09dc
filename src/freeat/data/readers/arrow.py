"""🤗 data sets on disk: parquet files, or the folder that ``save_to_disk`` writes, read by pyarrow alone.

::

    FILE.parquet, FILE.arrow                         one split; a test split is made
    FOLDER/train-00000-of-00001.parquet, test-…      splits by the names of files or of the folders they are in
    FOLDER/train/*.arrow, FOLDER/test/*.arrow        save_to_disk of a DatasetDict
    FOLDER/*.arrow                                   save_to_disk of a Dataset

Images are encoded (a struct with ``bytes``) or arrays; labels whole numbers, with their names where the features tell
them, or texts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from freeat.data.order import stratified_rows
from freeat.data.readers.arrays import Array, Arrays
from freeat.data.readers.arrow_columns import Columns
from freeat.data.readers.folder import TEST_FOLDERS, choose_frame
from freeat.data.readers.pixels import PixelStore
from freeat.errors import InputError

SUFFIXES = (".parquet", ".arrow")
_WORDS = re.compile(r"[a-z]+")


def is_arrow(path: Path) -> bool:
    """Whether a 🤗 data set lies at this path."""
    return path.suffix in SUFFIXES if path.is_file() else bool(_files(path))


def read_arrow(
    path: Path, store: PixelStore, *, seed: int, test_fraction: float, image_size: int | None
) -> Arrays:
    """Both splits; where there is no test split a stratified one is made, and said so in the notes."""
    splits = {split: Columns.read(path, files) for split, files in _splits(path).items()}
    names = splits["train"].names or splits["train"].texts
    labels = {split: table.labels(names) for split, table in splits.items()}
    if all(table.encoded for table in splits.values()):
        tree = Cells(path, {split: table.images for split, table in splits.items()})
        pictures: dict[str, Sequence[str]] = {
            split: [f"{split}/{i}" for i in range(len(y))] for split, y in labels.items()
        }
        frame, notes = choose_frame(tree, [name for part in pictures.values() for name in part], image_size)
        pixels = store.pixels(tree, pictures, frame)
    elif image_size is not None:
        raise InputError(
            f"image size {image_size} for {path.name}: its images are arrays of one size; leave it out"
        )
    else:
        pixels, notes = {split: table.pixels(f"{path}: {split}") for split, table in splits.items()}, ()
    return _both(path, pixels, labels, names, notes, seed, test_fraction)


def _both(
    path: Path,
    pixels: dict[str, Array],
    labels: dict[str, Array],
    names: tuple[str, ...],
    notes: tuple[str, ...],
    seed: int,
    test_fraction: float,
) -> Arrays:
    x, y = pixels["train"], labels["train"]
    if "test" in pixels:
        return Arrays(
            x_train=x, y_train=y, x_test=pixels["test"], y_test=labels["test"], classes=names, notes=notes
        )
    count = round(len(y) * test_fraction)
    if not 1 <= count < len(y):
        raise InputError(
            f"{path} has no test split, and one of {test_fraction:g} of its {len(y)} images leaves one side empty: "
            "store a test split beside it"
        )
    held = np.zeros(len(y), bool)
    held[stratified_rows(y, np.arange(len(y)), count, seed, "test split")] = True
    made = f"{path.name} has no test split: a stratified one of {count} of its {len(y)} images was made (seed {seed})."
    return Arrays(
        x_train=x[~held],
        y_train=y[~held],
        x_test=x[held],
        y_test=y[held],
        classes=names,
        notes=(made, *notes),
    )


def _files(path: Path) -> list[Path]:
    """The data files of a folder or of its subfolders, of the first kind there is."""
    for suffix in SUFFIXES:
        found = sorted((*path.glob(f"*{suffix}"), *path.glob(f"*/*{suffix}")))
        if found := [file for file in found if not file.name.startswith("cache-")]:  # what `map` left there
            return found
    return []


def _splits(path: Path) -> dict[str, list[Path]]:
    """The files of each split, told by the words in their names or in those of their folders."""
    if path.is_file():
        return {"train": [path]}
    found: dict[str, list[Path]] = {}
    for file in _files(path):
        words = _WORDS.findall(file.relative_to(path).as_posix().lower())
        split = next((word for word in words if word == "train" or word in TEST_FOLDERS), "train")
        found.setdefault(split, []).append(file)
    test = next((found[name] for name in TEST_FOLDERS if name in found), None)
    if "train" not in found:
        raise InputError(f"{path} has no training split: name its files train-….parquet and test-….parquet")
    return {"train": found["train"]} | ({"test": test} if test else {})


@dataclass(frozen=True, eq=False)
class Cells:
    """Encoded images in columns, as a tree of files: ``train/0``, ``train/1``, …"""

    path: Path
    columns: dict[str, Any]

    @cached_property
    def files(self) -> dict[str, tuple[int, int]]:
        """Name to (size, time of change of the data set)."""
        sources = [self.path] if self.path.is_file() else _files(self.path)
        changed = max(file.stat().st_mtime_ns for file in sources)
        names = (f"{split}/{i}" for split, column in self.columns.items() for i in range(len(column)))
        return {name: (len(self.read(name)), changed) for name in names}

    def read(self, name: str) -> bytes:
        split, _, row = name.partition("/")
        cell = self.columns[split][int(row)].as_py()
        value = cell.get("bytes") if isinstance(cell, dict) else cell
        if not isinstance(value, bytes):
            known = (
                f"only the path {cell['path']!r}"
                if isinstance(cell, dict) and cell.get("path")
                else "nothing"
            )
            raise InputError(
                f"{self.path}: image {name} holds {known}, not the picture: save the data set with its images embedded"
            )
        return value
