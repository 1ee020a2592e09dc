"""MD5 sums of files, as the publishers of data sets give them."""

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import BinaryIO

from freeat.errors import InputError

BLOCK = 1 << 20


def md5_of(path: Path, *, unpacked: bool = False) -> str:
    """The MD5 of a file; with ``unpacked``, of what a gzipped file holds."""
    digest = hashlib.md5(usedforsecurity=False)
    opener = gzip.open if unpacked and path.suffix == ".gz" else open
    try:
        stream: BinaryIO
        with opener(path, "rb") as stream:  # type: ignore[assignment]
            while block := stream.read(BLOCK):
                digest.update(block)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); fetch it again") from None
    return digest.hexdigest()


def verify(path: Path, expected: str, *, unpacked: bool = False) -> None:
    """Refuse a file that is not there or not the published one."""
    if not path.is_file():
        raise InputError(f"{path} is missing; fetch the data set again")
    found = md5_of(path, unpacked=unpacked)
    if found != expected:
        raise InputError(
            f"{path}: MD5 {found}, but the published file has {expected}; delete it and fetch it "
            "again, or load it by its path if you mean another version"
        )
