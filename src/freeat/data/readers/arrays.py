"""Images as arrays: .npz files, MNIST's idx files, SVHN's .mat files and the embedded digits."""

import gzip
import math
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from freeat.data.images import Images, stratified_rows
from freeat.errors import InputError

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrays:
    """Images (n, H, W, C), uint8 or float in [0, 1], and integer labels (n,) of both splits."""

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def images(self) -> tuple[Images, Images]:
        """The two splits as tensors."""
        return as_images(self.x_train, self.y_train, "train"), as_images(self.x_test, self.y_test, "test")


def as_images(x: Array, y: Array, split: str) -> Images:
    """NHWC images and labels as `Images`, without a copy where the memory allows it."""
    if len(x) == 0:
        raise InputError(f"the {split} split holds no images: give at least one")
    try:
        return Images.of(_pixels(x), _labels(y))
    except InputError as error:
        raise InputError(f"{split} split: {error}") from None


def _pixels(x: Array) -> Tensor:
    if x.dtype != np.uint8:
        if x.dtype.kind != "f":
            raise InputError(f"images of type {x.dtype}: must be uint8, or float in [0, 1]")
        x = x.astype(np.float32, copy=False)
    if not x.flags.writeable:
        x = x.copy()
    return torch.from_numpy(x).permute(0, 3, 1, 2)


def _labels(y: Array) -> Tensor:
    if y.dtype.kind not in "iu":
        raise InputError(f"labels of type {y.dtype}: must be integers, the class numbers from 0")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    return torch.from_numpy(y.astype(np.int64))


FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
LARGEST = 1 << 30


def idx_path(folder: Path, name: str) -> Path:
    """The file of this name in the folder, unpacked or gzipped."""
    plain, packed = folder / name, folder / f"{name}.gz"
    if not plain.is_file() and not packed.is_file():
        raise InputError(f"{folder}: {name} (or {name}.gz) is missing; it must hold {', '.join(FILES)}")
    return plain if plain.is_file() else packed


def read_idx_folder(folder: Path) -> Arrays:
    """Both splits of a folder with the four files of MNIST."""
    x_train, y_train, x_test, y_test = (read_idx(idx_path(folder, name)) for name in FILES)
    if x_train.ndim != 3 or x_test.ndim != 3:
        raise InputError(f"{folder}: its images are {x_train.shape} and {x_test.shape}, not (n, H, W)")
    return Arrays(x_train=x_train[..., None], y_train=y_train, x_test=x_test[..., None], y_test=y_test)


def read_idx(path: Path) -> Array:
    """One idx file of bytes: 0, 0, type 8, number of axes, the axes as big-endian 32-bit words, the data."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as stream:
            data = stream.read(LARGEST)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); fetch it again") from None
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise InputError(f"{path}: not an idx file of bytes (it begins with {data[:4]!r}); fetch it again")
    start = 4 + 4 * data[3]
    shape = tuple(int(n) for n in np.frombuffer(data[4:start], ">u4"))
    if len(shape) != data[3] or len(data) - start != math.prod(shape):
        raise InputError(f"{path}: {len(data)} bytes do not hold {shape}; the file is cut, fetch it again")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def read_svhn(folder: Path) -> Arrays:
    """``train_32x32.mat`` and ``test_32x32.mat`` of a folder."""
    x_train, y_train = _read_split(folder / "train_32x32.mat")
    x_test, y_test = _read_split(folder / "test_32x32.mat")
    return Arrays(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def _read_split(path: Path) -> tuple[Array, Array]:
    """X is (32, 32, 3, n); the label 10 means the digit 0."""
    from scipy.io import loadmat

    if not path.is_file():
        raise InputError(f"{path} is missing; SVHN is the two files train_32x32.mat and test_32x32.mat")
    try:
        content = loadmat(path, variable_names=["X", "y"])
        x, y = content["X"], content["y"].reshape(-1).astype(np.int64)
    except Exception as error:  # scipy raises many kinds on damaged files
        raise InputError(f"{path}: not a readable .mat file with X and y ({error}); fetch it again") from None
    if x.ndim != 4 or x.dtype != np.uint8:
        raise InputError(f"{path}: X is {x.dtype} {x.shape}, not uint8 (H, W, C, n); fetch it again")
    return np.ascontiguousarray(np.moveaxis(x, 3, 0)), np.where(y == 10, 0, y)


TEST_IMAGES = 597
"""Leaves 1200 for training. The split is fixed: another seed must not give another data set."""


def read_digits() -> Arrays:
    """The digits with a fixed stratified split; 17 grey levels v are stored as v/16, exact in float32."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = (bunch.images / 16).astype(np.float32)[..., None]
    y = bunch.target.astype(np.int64)
    test = stratified_rows(y, np.arange(len(y)), TEST_IMAGES, seed=0, purpose="digits")
    train = np.setdiff1d(np.arange(len(y)), test)
    return Arrays(
        x_train=x[train],
        y_train=y[train],
        x_test=x[test],
        y_test=y[test],
        classes=tuple("0123456789"),
        notes=(f"digits: a fixed stratified split, {len(train)} train and {len(test)} test.",),
    )


KEYS = ("x_train", "y_train", "x_test", "y_test")
CHANNELS = (1, 3)


def read_npz(path: Path) -> Arrays:
    """Images (n, H, W), (n, H, W, C) or (n, C, H, W); pickled objects are never loaded."""
    content = _read(path, KEYS, optional=("classes", "layout"))
    layout = str(content["layout"]).upper() if "layout" in content else None
    x_train, x_test = (to_nhwc(content[key], layout, f"{path}: {key}") for key in ("x_train", "x_test"))
    return Arrays(
        x_train=x_train,
        y_train=content["y_train"],
        x_test=x_test,
        y_test=content["y_test"],
        classes=tuple(str(c) for c in np.atleast_1d(content.get("classes", ()))),
    )


def npz_sizes(path: Path) -> tuple[int, int]:
    """The numbers of training and test images, without reading the images."""
    content = _read(path, ("y_train", "y_test"))
    return len(content["y_train"]), len(content["y_test"])


def _read(path: Path, keys: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Array]:
    content: dict[str, Array] = {}
    key = ""
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("an .npz is a zip archive, and this file is none")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            for key in (*keys, *optional):
                if key in archive.files:
                    content[key] = archive[key]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, TypeError) as error:
        where = f"{path}, {key}" if key else str(path)
        raise InputError(
            f"{where}: not readable ({error}); write it again with "
            "numpy.savez(path, x_train=…, y_train=…, x_test=…, y_test=…), plain arrays only"
        ) from None
    missing = [key for key in keys if key not in content]
    if missing:
        raise InputError(f"{path}: no {', '.join(missing)}; a data set file holds {', '.join(KEYS)}")
    return content


def to_nhwc(x: Array, layout: str | None, what: str) -> Array:
    """Channels last. Without a layout, the axis of size 1 or 3 holds the channels, if only one can."""
    if layout not in (None, "NHWC", "NCHW"):
        raise InputError(f"{what}: layout {layout!r} is unknown; it must be NHWC or NCHW")
    if x.ndim == 3:
        return x[..., None]
    if x.ndim != 4:
        raise InputError(f"{what} has shape {x.shape}: must be (n, H, W), (n, H, W, C) or (n, C, H, W)")
    first, last = x.shape[1] in CHANNELS, x.shape[3] in CHANNELS
    if layout is None and first == last:
        raise InputError(
            f"{what} has shape {x.shape}: {'either' if first else 'no'} outer axis can be the 1 or 3 "
            "channels; store layout='NHWC' or layout='NCHW' in the file"
        )
    return x if layout == "NHWC" or (layout is None and last) else np.moveaxis(x, 1, 3)
