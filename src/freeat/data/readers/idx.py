"""The idx format of MNIST and Fashion-MNIST, gzipped or not."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from freeat.data.readers.arrays import Array, Arrays
from freeat.errors import InputError

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
