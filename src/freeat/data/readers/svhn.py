"""SVHN's cropped digits, MATLAB files."""

from pathlib import Path

import numpy as np

from freeat.data.readers.arrays import Array, Arrays
from freeat.errors import InputError


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
