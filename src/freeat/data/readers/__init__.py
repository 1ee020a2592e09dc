"""Readers of published files and of users' own: one module per family of formats, each returning `Arrays`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from freeat.data.images import Images, Pixels, stratified_rows
from freeat.errors import InputError

Array = NDArray[Any]

MEMORY_LIMIT = 1 << 30
"""Bytes of pixels above which images are not held in memory."""
NAMED = 5
"""The most classes that a note names."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrays:
    """Images (n, H, W, C), uint8 or float in [0, 1], and integer labels (n,) of both splits.

    ``digests`` has those of the splits that were worked out before. ``rows`` has those of a split that is a part of its
    images; its labels are those of these rows.
    """

    x_train: Array | Pixels
    y_train: Array
    x_test: Array | Pixels
    y_test: Array
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    digests: Mapping[str, str | None] = field(default_factory=dict)
    rows: Mapping[str, Array] = field(default_factory=dict)

    def images(self) -> tuple[Images, Images]:
        """The two splits as tensors."""
        x, y = {"train": self.x_train, "test": self.x_test}, {"train": self.y_train, "test": self.y_test}
        train, test = (
            as_images(x[split], y[split], split, self.digests.get(split), self.rows.get(split)) for split in x
        )
        return train, test


def as_images(
    x: Array | Pixels, y: Array, split: str, digest: str | None = None, rows: Array | None = None
) -> Images:
    """NHWC images and labels as `Images`, without a copy where the memory allows it; with ``rows``, a view of these."""
    if len(x) == 0:
        raise InputError(f"the {split} split holds no images: give at least one")
    try:
        stored = _pixels(x) if isinstance(x, np.ndarray) else x
        if isinstance(stored, Tensor) and digest is None:
            if rows is None:
                return Images.of(stored.permute(0, 3, 1, 2), _labels(y))
            (stored,) = Images.of(stored.permute(0, 3, 1, 2), torch.zeros(len(x), dtype=torch.int64)).parts
        return Images.stored(stored, _labels(y), digest, None if rows is None else torch.from_numpy(rows))
    except InputError as error:
        raise InputError(f"{split} split: {error}") from None


def make_test_split(
    path: Path, labels: Array, test_fraction: float, seed: int, classes: Sequence[str]
) -> tuple[Array, tuple[str, ...]]:
    """A stratified test split of a data set without one: a mask of its images, and notes.

    Classes of too few images to have one in it are named.
    """
    n, count = len(labels), round(len(labels) * test_fraction)
    if not 1 <= count < n:
        raise InputError(
            f"{path} has no test split, and a test fraction {test_fraction:g} of its {n} images leaves one side "
            "empty: give another fraction, or store a test split beside it"
        )
    held_out = np.zeros(n, bool)
    held_out[stratified_rows(labels, np.arange(n), count, seed, "test split")] = True
    note = f"{path.name} has no test split: a stratified one of {count} of its {n} images was made (seed {seed})."
    untested = sorted({*labels.tolist()} - {*labels[held_out].tolist()})
    if not untested:
        return held_out, (note,)
    names = [classes[k] if k < len(classes) else str(k) for k in untested]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    missing = f"{path.name}: the test split has no image of {', '.join(names[:NAMED])}{more}"
    return held_out, (note, f"{missing}: there are too few; add some, or store a test split beside them.")


def _pixels(x: Array) -> Tensor:
    if x.dtype != np.uint8:
        if x.dtype.kind != "f":
            raise InputError(f"images of type {x.dtype}: must be uint8, or float in [0, 1]")
        x = x.astype(np.float32, copy=False)
    if not x.flags.writeable:
        x = x.copy()
    return torch.from_numpy(x)


def _labels(y: Array) -> Tensor:
    if y.dtype.kind not in "iu":
        raise InputError(f"labels of type {y.dtype}: must be integers, the class numbers from 0")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dtype.kind == "u" and y.size and int(y.max()) >= 2**63:
        raise InputError(f"label {int(y.max())}: labels must be class numbers from 0")
    return torch.from_numpy(y.astype(np.int64))
