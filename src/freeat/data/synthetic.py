"""Synthetic data: random images in the published formats of the paper's four data sets."""

import io
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image
from scipy.io import savemat

from freeat.data.catalogue import SOURCES
from freeat.files.documents import remove, remove_abandoned, space_for, temporary_name

WNIDS = ("n02", "n01")


def write_synthetic(folder: Path, n: int) -> None:
    """Write all four to a data folder, with at least ``n`` images in each split; existing data sets stay."""
    for name, write in WRITERS.items():
        path = folder / SOURCES[name].layouts[0].path
        if path.exists():
            continue
        remove_abandoned(folder)
        # Renamed when complete: other processes may be looking for it.
        temporary = temporary_name(path)
        try:
            with space_for(path):
                write(temporary, n)
                temporary.rename(path)
        except OSError:
            if not path.exists():
                raise
        finally:
            remove(temporary)


def pixels(draw: np.random.Generator, *shape: int) -> np.ndarray:
    """Random pixels."""
    return draw.integers(0, 256, shape, dtype=np.uint8)


def cifar10_python(folder: Path, n: int = 4) -> dict[str, np.ndarray]:
    """CIFAR-10 with n images in each of its six files; returns the rows and labels of each."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    written = {}
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        rows, labels = pixels(draw, n, 3072), [int(i) for i in draw.integers(0, 10, n)]
        content = {
            b"batch_label": name.encode(),
            b"labels": labels,
            b"data": rows,
            b"filenames": [b"x.png"] * n,
        }
        (folder / name).write_bytes(python2_pickle(content))
        written[name], written[f"{name} labels"] = rows, np.array(labels)
    names = [f"class{i}".encode() for i in range(10)]
    (folder / "batches.meta").write_bytes(python2_pickle({b"label_names": names, b"num_vis": 3072}))
    return written


def cifar100_python(folder: Path, n: int = 6) -> dict[str, np.ndarray]:
    """CIFAR-100 with n images in each split; returns the rows and fine labels of each."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(1)
    written = {}
    for name in ("train", "test"):
        rows, fine = pixels(draw, n, 3072), [int(i) for i in draw.integers(20, 100, n)]
        coarse = [int(i) for i in draw.integers(0, 20, n)]
        content = {b"fine_labels": fine, b"coarse_labels": coarse, b"data": rows}
        (folder / name).write_bytes(python2_pickle(content))
        written[name], written[f"{name} labels"] = rows, np.array(fine)
    names = {b"fine_label_names": [b"f%d" % i for i in range(100)], b"coarse_label_names": [b"c"] * 20}
    (folder / "meta").write_bytes(python2_pickle(names))
    return written


def svhn(folder: Path, n: int = 12) -> dict[str, np.ndarray]:
    """SVHN with n images in each split; returns its arrays, in which label 10 means the digit 0."""
    folder.mkdir(parents=True)
    draw = np.random.default_rng(2)
    written = {}
    for split in ("train", "test"):
        x, y = pixels(draw, 32, 32, 3, n), (np.arange(n) % 10 + 1).astype(np.uint8)
        savemat(folder / f"{split}_32x32.mat", {"X": x, "y": y[:, None]})
        written[split], written[f"{split} labels"] = x, y
    return written


def tiny_imagenet(folder: Path, n: int = 4) -> None:
    """Tiny-ImageNet with two classes: n validation images, as many for training or a few more, one of them grey."""
    draw = np.random.default_rng(3)
    for wnid in WNIDS:
        (folder / "train" / wnid / "images").mkdir(parents=True)
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text("box\n")
        for i in range(max(3, -(-n // len(WNIDS)))):
            image = pixels(draw, 64, 64) if (wnid, i) == ("n01", 1) else pixels(draw, 64, 64, 3)
            (folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG").write_bytes(encoded(image, "JPEG"))
    (folder / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in WNIDS))
    (folder / "val" / "images").mkdir(parents=True)
    lines = []
    for i in range(n):
        value = np.full((64, 64, 3), 40 * i % 256, np.uint8)
        (folder / "val" / "images" / f"val_{i}.JPEG").write_bytes(encoded(value, "JPEG"))
        lines.append(f"val_{i}.JPEG\t{WNIDS[i % 4 in (1, 2)]}\t0\t0\t9\t9\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    (folder / "test" / "images").mkdir(parents=True)
    (folder / "test" / "images" / "test_0.JPEG").write_bytes(encoded(pixels(draw, 64, 64, 3), "JPEG"))


WRITERS: dict[str, Callable[[Path, int], object]] = {
    "cifar10": cifar10_python,
    "cifar100": cifar100_python,
    "svhn": svhn,
    "tiny-imagenet": tiny_imagenet,
}


def encoded(array: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    """The bytes of an image file."""
    out = io.BytesIO()
    Image.fromarray(array).save(out, kind, **options)
    return out.getvalue()


_PICKLER: Any = pickle._Pickler  # the one written in Python, whose methods can be changed


class _Python2Pickler(_PICKLER):  # type: ignore[misc]
    """Writes bytes as Python 2 wrote its strings."""

    dispatch: ClassVar[dict[type, Any]] = dict(_PICKLER.dispatch)

    def save_bytes(self, obj: bytes) -> None:
        short = len(obj) < 256
        self.write((b"U" + bytes([len(obj)]) if short else b"T" + struct.pack("<i", len(obj))) + obj)
        self.memoize(obj)

    dispatch[bytes] = save_bytes


def python2_pickle(value: Any) -> bytes:
    """A pickle as Python 2 and the numpy of its days wrote it."""
    out = io.BytesIO()
    _Python2Pickler(out, protocol=2).dump(value)
    return out.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
