"""Synthetic data sets in the further formats of the published ones, beside those of ``freeat.data.synthetic``."""

import gzip
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from freeat.data.synthetic import cifar10_python, cifar100_python, svhn, tiny_imagenet

__all__ = ["cifar10_python", "cifar100_python", "svhn", "tiny_imagenet"]

rng = np.random.default_rng(0)


def pixels(*shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape, dtype=np.uint8)


def cifar10_binary(folder: Path, n: int = 4) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    written = {}
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        rows, labels = pixels(n, 3072), rng.integers(0, 10, n, dtype=np.uint8)
        (folder / f"{name}.bin").write_bytes(np.concatenate([labels[:, None], rows], 1).tobytes())
        written[name], written[f"{name} labels"] = rows, labels
    (folder / "batches.meta.txt").write_text("".join(f"class{i}\n" for i in range(10)))
    return written


def cifar100_binary(folder: Path, n: int = 6) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    written = {}
    for name in ("train", "test"):
        rows = pixels(n, 3072)
        coarse, fine = rng.integers(0, 20, n, dtype=np.uint8), rng.integers(20, 100, n, dtype=np.uint8)
        (folder / f"{name}.bin").write_bytes(np.c_[coarse, fine, rows].astype(np.uint8).tobytes())
        written[name], written[f"{name} labels"] = rows, fine
    (folder / "fine_label_names.txt").write_text("".join(f"f{i}\n" for i in range(100)))
    return written


def idx_bytes(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def idx(folder: Path, *, packed: bool, n: int = 20) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    written = {}
    for split in ("train", "t10k"):
        arrays = {"images-idx3": pixels(n, 28, 28), "labels-idx1": (np.arange(n) % 10).astype(np.uint8)}
        for kind, array in arrays.items():
            data, name = idx_bytes(array), f"{split}-{kind}-ubyte"
            (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)
            written[name] = array
    return written


def tar_gz(folder: Path) -> Path:
    archive = folder.with_name(f"{folder.name}.tar.gz")
    with tarfile.open(archive, "w:gz") as out:
        out.add(folder, folder.name)
    return archive


def zipped(folder: Path) -> Path:
    archive = folder.with_name(f"{folder.name}.zip")
    with zipfile.ZipFile(archive, "w") as out:
        for file in sorted(folder.rglob("*")):
            out.write(file, file.relative_to(folder.parent))
    return archive


def photographs(folder: Path, seed: int) -> Path:
    """A folder of images of two classes, without a test split."""
    levels = np.random.default_rng(seed)
    for k in range(40):
        path = folder / ("cats", "dogs")[k % 2] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(levels.integers(0, 256, (8, 8, 3), np.uint8)).save(path)
    return folder
