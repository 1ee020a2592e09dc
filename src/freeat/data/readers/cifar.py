"""CIFAR-10 and CIFAR-100: the python batches as published, read without executing a pickle."""

import io
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from freeat.data.augmentation import CropFlip
from freeat.data.readers import Array, Arrays
from freeat.data.readers.store import PixelStore
from freeat.data.sources import Download, FileLayout, RegistryPackage, Source
from freeat.errors import InputError
from freeat.files.reading import LARGEST_FILE, check_size, opened_tar, read_bytes, refusing


def read_members(path: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The contents of the named files of a folder, or of a tar archive in whatever folder of it."""
    wanted = tuple(names)
    found = _from_folder(path, wanted) if path.is_dir() else _from_archive(path, wanted)
    for name in wanted:
        if name not in found:
            raise InputError(f"{path}: {name} is missing; it must hold {', '.join(wanted)}")
    return found


def _from_folder(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    return {name: read_bytes(path / name) for name in names if (path / name).exists()}


def _from_archive(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    found = {}
    with opened_tar(path) as members:
        for member, archive in members:
            name = member.name.rsplit("/", 1)[-1]
            if member.isfile() and name in names:
                check_size(path / name, member.size, LARGEST_FILE)
                stream = archive.extractfile(member)
                assert stream is not None  # a regular file always has one
                found[name] = stream.read()
    return found


def _reconstruct(subtype: type, shape: tuple[int, ...], dtype: bytes) -> np.ndarray[Any, Any]:
    """What old pickles call to make an empty array; its state follows."""
    if subtype is not np.ndarray:
        raise InputError(f"pickle holds an array of type {subtype!r}: only plain arrays are read")
    return np.ndarray(shape, dtype=dtype.decode())


# Python 2 and NumPy 1 wrote these module names; they are names only, nothing is imported from a pickle.
ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise InputError(
                f"pickle refers to {module}.{name}: only arrays and plain containers are read; "
                "do not use this file, fetch the data set again"
            ) from None


def read_pickle(data: bytes, what: str) -> dict[str, Any]:
    """The dictionary in a Python-2 or -3 pickle, its byte keys as text."""
    try:
        value = _Restricted(io.BytesIO(data), encoding="bytes").load()
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
    except Exception as error:  # a damaged pickle can raise almost anything
        raise InputError(f"{what}: damaged pickle ({error}); fetch the data set again") from None
    if not isinstance(value, dict):
        raise InputError(f"{what}: the pickle holds a {type(value).__name__}, not the dictionary expected")
    return {
        key.decode(errors="replace") if isinstance(key, bytes) else str(key): item
        for key, item in value.items()
    }


PIXELS = 3 * 32 * 32
CIFAR10_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))


def read_cifar10_python(path: Path, _: PixelStore) -> Arrays:
    """Five training batches and a test batch, Python-2 pickles with byte keys."""
    files = read_members(path, (*CIFAR10_TRAIN, "test_batch", "batches.meta"))
    batches = [read_pickle(files[name], f"{path}/{name}") for name in CIFAR10_TRAIN]
    test = read_pickle(files["test_batch"], f"{path}/test_batch")
    meta = read_pickle(files["batches.meta"], f"{path}/batches.meta")
    return Arrays(
        x_train=np.concatenate([_images(_entry(b, "data", path), path) for b in batches]),
        y_train=np.concatenate([_labels(b, "labels", path) for b in batches]),
        x_test=_images(_entry(test, "data", path), path),
        y_test=_labels(test, "labels", path),
        classes=_names(meta, "label_names", path),
    )


def read_cifar100_python(path: Path, _: PixelStore) -> Arrays:
    """The 100 fine labels; the 20 coarse ones are left aside."""
    files = read_members(path, ("train", "test", "meta"))
    train, test, meta = (read_pickle(files[name], f"{path}/{name}") for name in ("train", "test", "meta"))
    return Arrays(
        x_train=_images(_entry(train, "data", path), path),
        y_train=_labels(train, "fine_labels", path),
        x_test=_images(_entry(test, "data", path), path),
        y_test=_labels(test, "fine_labels", path),
        classes=_names(meta, "fine_label_names", path),
    )


def read_cifar10_binary(path: Path, _: PixelStore) -> Arrays:
    """Records of a label byte and 3072 pixel bytes."""
    train, test = tuple(f"{name}.bin" for name in CIFAR10_TRAIN), "test_batch.bin"
    files = read_members(path, (*train, test, "batches.meta.txt"))
    parts = [_records(files[name], 1, f"{path}/{name}") for name in train]
    x_test, y_test = _records(files[test], 1, f"{path}/{test}")
    return Arrays(
        x_train=np.concatenate([x for x, _ in parts]),
        y_train=np.concatenate([y for _, y in parts]),
        x_test=x_test,
        y_test=y_test,
        classes=_words(files["batches.meta.txt"], path),
    )


def read_cifar100_binary(path: Path, _: PixelStore) -> Arrays:
    """Records of a coarse label byte, a fine label byte and 3072 pixel bytes."""
    files = read_members(path, ("train.bin", "test.bin", "fine_label_names.txt"))
    x_train, y_train = _records(files["train.bin"], 2, f"{path}/train.bin")
    x_test, y_test = _records(files["test.bin"], 2, f"{path}/test.bin")
    classes = _words(files["fine_label_names.txt"], path)
    return Arrays(x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test, classes=classes)


def _words(data: bytes, path: Path) -> tuple[str, ...]:
    with refusing(path, "list of class names", "fetch it again"):
        return tuple(data.decode().split())


def _records(data: bytes, label_bytes: int, what: str) -> tuple[Array, Array]:
    size = label_bytes + PIXELS
    if not data or len(data) % size:
        raise InputError(
            f"{what}: {len(data)} bytes, not a multiple of {size}; the file is cut, fetch it again"
        )
    rows = np.frombuffer(data, np.uint8).reshape(-1, size)
    return _nhwc(rows[:, label_bytes:]), rows[:, label_bytes - 1].astype(np.int64)


def _images(rows: object, path: Path) -> Array:
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.shape[1:] != (PIXELS,):
        raise InputError(f"{path}: its images are not rows of {PIXELS} bytes; fetch the data set again")
    return _nhwc(rows)


def _nhwc(rows: Array) -> Array:
    # A row holds the red plane, then green, then blue.
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _labels(batch: dict[str, Any], key: str, path: Path) -> Array:
    return np.asarray(_entry(batch, key, path))


def _names(meta: dict[str, Any], key: str, path: Path) -> tuple[str, ...]:
    with refusing(path, "list of class names", "fetch the data set again"):
        return tuple(n.decode() if isinstance(n, bytes) else str(n) for n in _entry(meta, key, path))


def _entry(batch: dict[str, Any], key: str, path: Path) -> Any:
    if key not in batch:
        raise InputError(f"{path}: no {key!r} in its pickle; it is not the published python version")
    return batch[key]


_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_CIFAR_LICENCE = (
    "no licence stated; cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"
)

CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10",
    shape=(3, 32, 32),
    n_classes=10,
    n_train=50_000,
    n_test=10_000,
    licence=_CIFAR_LICENCE,
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    augment=CropFlip(),
    layouts=(
        FileLayout(
            path="cifar-10-batches-py",
            reader=read_cifar10_python,
            mark="data_batch_1",
            md5=(
                ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
                ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
                ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
                ("data_batch_4", "634d18415352ddfa80567beed471001a"),
                ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
                ("test_batch", "40351d587109b95175f43aff81a1287e"),
                ("batches.meta", "5ff9c542aee3614f3951f8cda6e48888"),
            ),
        ),
        FileLayout(
            path="cifar-10-python.tar.gz",
            reader=read_cifar10_python,
            md5=(("", "c58f30108f718f92721af3d95e74349a"),),
        ),
        FileLayout(
            path="cifar-10-batches-bin",
            reader=read_cifar10_binary,
            mark="data_batch_1.bin",
            md5=(
                ("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
                ("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
                ("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
                ("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
                ("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
                ("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),
            ),
        ),
        FileLayout(
            path="cifar-10-binary.tar.gz",
            reader=read_cifar10_binary,
            md5=(("", "c32a1d4ab5d03f1284b67883e8d87530"),),
        ),
    ),
    package=RegistryPackage(client="npm", spec="convnetjs@0.1.4"),  # later versions dropped the images
    downloads=(
        Download(
            url=f"{_TORONTO}cifar-10-python.tar.gz",
            path="cifar-10-python.tar.gz",
            md5="c58f30108f718f92721af3d95e74349a",
        ),
    ),
)

CIFAR100 = Source(
    name="cifar100",
    title="CIFAR-100",
    shape=(3, 32, 32),
    n_classes=100,
    n_train=50_000,
    n_test=10_000,
    licence=_CIFAR_LICENCE,
    augment=CropFlip(),
    layouts=(
        FileLayout(
            path="cifar-100-python",
            reader=read_cifar100_python,
            mark="meta",
            md5=(
                ("train", "16019d7e3df5f24257cddd939b257f8d"),
                ("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
                ("meta", "7973b15100ade9c7d40fb424638fde48"),
            ),
        ),
        FileLayout(
            path="cifar-100-python.tar.gz",
            reader=read_cifar100_python,
            md5=(("", "eb9058c3a382ffc7106e4002c42a8d85"),),
        ),
        FileLayout(
            path="cifar-100-binary",
            reader=read_cifar100_binary,
            mark="fine_label_names.txt",
            md5=(
                ("train.bin", "6172c7755cfe09b2fe270c85cebc1b15"),
                ("test.bin", "4499cfba6c016c1be1438163640a0898"),
            ),
        ),
        FileLayout(
            path="cifar-100-binary.tar.gz",
            reader=read_cifar100_binary,
            md5=(("", "03b5dce01913d631647c71ecec9e9cb8"),),
        ),
    ),
    downloads=(
        Download(
            url=f"{_TORONTO}cifar-100-python.tar.gz",
            path="cifar-100-python.tar.gz",
            md5="eb9058c3a382ffc7106e4002c42a8d85",
        ),
    ),
)
