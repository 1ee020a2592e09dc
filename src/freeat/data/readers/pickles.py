"""An unpickler that can build arrays and plain containers, and nothing else."""

import io
import pickle
from typing import Any

import numpy as np

from freeat.errors import InputError


def _reconstruct(subtype: type, shape: tuple[int, ...], dtype: bytes) -> np.ndarray[Any, Any]:
    """What old pickles call to make an empty array; its state follows."""
    if subtype is not np.ndarray:
        raise InputError(f"pickle asks for an array of type {subtype!r}: only plain arrays are read")
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
                f"pickle asks for {module}.{name}: only arrays and plain containers are read; "
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
    return {key.decode() if isinstance(key, bytes) else str(key): item for key, item in value.items()}
