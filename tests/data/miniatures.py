"""Miniature data sets in the true formats of the published ones."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image
from scipy.io import savemat

rng = np.random.default_rng(0)


def pixels(*shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape, dtype=np.uint8)


class Python2Pickler(pickle._Pickler):  # type: ignore[name-defined,misc]
    """Writes bytes as Python 2 wrote its strings."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_bytes(self, obj: bytes) -> None:
        short = len(obj) < 256
        self.write((b"U" + bytes([len(obj)]) if short else b"T" + struct.pack("<i", len(obj))) + obj)
        self.memoize(obj)

    dispatch[bytes] = save_bytes


def python2_pickle(value: Any) -> bytes:
    out = io.BytesIO()
    Python2Pickler(out, protocol=2).dump(value)
    return out.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def cifar10_python(folder: Path, n: int = 4) -> dict[str, np.ndarray]:
    """Returns what was written, as (n, 3072) rows and labels per file."""
    folder.mkdir(parents=True)
    written = {}
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        rows, labels = pixels(n, 3072), [int(i) for i in rng.integers(0, 10, n)]
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


def cifar10_binary(folder: Path, n: int = 4) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    written = {}
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        rows, labels = pixels(n, 3072), rng.integers(0, 10, n, dtype=np.uint8)
        (folder / f"{name}.bin").write_bytes(np.concatenate([labels[:, None], rows], 1).tobytes())
        written[name], written[f"{name} labels"] = rows, labels
    (folder / "batches.meta.txt").write_text("".join(f"class{i}\n" for i in range(10)))
    return written


def cifar100_python(folder: Path, n: int = 6) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    written = {}
    for name in ("train", "test"):
        rows, fine = pixels(n, 3072), [int(i) for i in rng.integers(20, 100, n)]
        coarse = [int(i) for i in rng.integers(0, 20, n)]
        content = {b"fine_labels": fine, b"coarse_labels": coarse, b"data": rows}
        (folder / name).write_bytes(python2_pickle(content))
        written[name], written[f"{name} labels"] = rows, np.array(fine)
    names = {b"fine_label_names": [b"f%d" % i for i in range(100)], b"coarse_label_names": [b"c"] * 20}
    (folder / "meta").write_bytes(python2_pickle(names))
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


def svhn(folder: Path, n: int = 12) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    written = {}
    for split in ("train", "test"):
        x, y = pixels(32, 32, 3, n), (np.arange(n) % 10 + 1).astype(np.uint8)
        savemat(folder / f"{split}_32x32.mat", {"X": x, "y": y[:, None]})
        written[split], written[f"{split} labels"] = x, y
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


def encoded(array: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(array).save(out, kind, **options)
    return out.getvalue()


def tiny_imagenet(folder: Path) -> None:
    """Two classes of three images, one of them grey; four validation images."""
    for wnid in ("n02", "n01"):
        (folder / "train" / wnid / "images").mkdir(parents=True)
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text("box\n")
        for i in range(3):
            image = pixels(64, 64) if (wnid, i) == ("n01", 1) else pixels(64, 64, 3)
            (folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG").write_bytes(encoded(image, "JPEG"))
    (folder / "wnids.txt").write_text("n02\nn01\n")
    (folder / "val" / "images").mkdir(parents=True)
    labels = ["n02", "n01", "n01", "n02"]
    for i in range(4):
        value = np.full((64, 64, 3), 40 * i, np.uint8)
        (folder / "val" / "images" / f"val_{i}.JPEG").write_bytes(encoded(value, "JPEG"))
    lines = [f"val_{i}.JPEG\t{label}\t0\t0\t9\t9\n" for i, label in enumerate(labels)]
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    (folder / "test" / "images").mkdir(parents=True)
    (folder / "test" / "images" / "test_0.JPEG").write_bytes(encoded(pixels(64, 64, 3), "JPEG"))


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
