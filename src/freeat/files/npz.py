"""Arrays of .npz files: headers are checked against the bytes that are there, and nothing is unpickled."""

import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freeat.errors import InputError
from freeat.files.reading import open_zip, read_member, refusing

LARGEST_ARRAY = 1 << 36
"""Bytes of one array; those that expand to more than their file accounts for are refused before."""


def read_npz_arrays(path: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """The arrays of these names that an .npz file holds."""
    arrays = {}
    with open_zip(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        for name in names:
            member = members.get(f"{name}.npy")
            if member is None:
                continue
            what = f"{path}, {name}"
            data = read_member(path, archive, member, LARGEST_ARRAY)
            with refusing(what, "array", "plain arrays of numbers and text only"):
                arrays[name] = _array(data, what)
    return arrays


def _array(data: bytes, what: str) -> NDArray[Any]:
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read_header:
        raise InputError(f"{what}: version {version} of the .npy format is not read; write it again")
    shape, fortran, dtype = read_header[version](stream)
    if dtype.hasobject:
        raise InputError(f"{what}: it holds objects, which are never unpickled; store plain arrays")
    if any(n < 0 for n in shape):
        raise InputError(f"{what}: a shape {shape} with a negative axis; write it again")
    claimed = math.prod(shape) * dtype.itemsize
    present = len(data) - stream.tell()
    if claimed != present:
        raise InputError(
            f"{what}: {dtype} of shape {shape} takes {claimed} bytes, and the file holds {present}"
        )
    flat = np.frombuffer(data, dtype, offset=stream.tell()) if present else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if fortran else "C")
