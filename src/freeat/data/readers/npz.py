"""NumPy archives with x_train, y_train, x_test, y_test, and optionally classes and layout."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from freeat.data.readers.arrays import Array, Arrays
from freeat.errors import InputError

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
