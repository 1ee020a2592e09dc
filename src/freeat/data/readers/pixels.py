"""All images of a tree as arrays: in memory, or decoded once to a memory-mapped cache when too large for it."""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from freeat.data.readers.arrays import Array
from freeat.data.readers.decoding import Frame, decode
from freeat.data.readers.trees import Tree, listing_digest

MEMORY_LIMIT = 1 << 30
"""Bytes of pixels above which images are not held in memory."""
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class PixelStore:
    """Where decoded images are kept: in memory up to ``limit`` bytes, else in files below ``folder``."""

    folder: Path
    limit: int = MEMORY_LIMIT

    def pixels(self, tree: Tree, splits: dict[str, Sequence[str]], frame: Frame) -> dict[str, Array]:
        """For each split, the named images as uint8 (n, H, W, C)."""
        if sum(map(len, splits.values())) * math.prod(frame.shape) <= self.limit:
            arrays = {
                split: np.empty((len(names), *frame.shape), np.uint8) for split, names in splits.items()
            }
            for split, names in splits.items():
                _fill(arrays[split], tree, names, frame)
            return arrays
        return self._mapped(tree, splits, frame)

    def _mapped(self, tree: Tree, splits: dict[str, Sequence[str]], frame: Frame) -> dict[str, Array]:
        """The cache of these splits, built if it is not there.

        Caches of the same images, divided or sized otherwise, may be in use by other processes; those of a listing
        that has changed are removed.
        """
        place = hashlib.sha256(str(tree.path.resolve()).encode()).hexdigest()[:16]
        key = hashlib.sha256(
            json.dumps(
                [FORMAT, frame.shape, {s: listing_digest(tree, n) for s, n in splits.items()}]
            ).encode()
        ).hexdigest()[:16]
        home = self.folder / f"{place}-{key}"
        if not (home / "cache.json").is_file():
            listing = listing_digest(tree, sorted({name for names in splits.values() for name in names}))
            self._build(home, tree, splits, frame, listing)
            for other in self.folder.glob(f"{place}-*/cache.json"):
                if _listing(other) != listing and ".part-" not in other.parent.name:
                    shutil.rmtree(other.parent, ignore_errors=True)
        # Copy-on-write: tensors over it count as writable, the files never change.
        return {split: np.load(home / f"{split}.npy", mmap_mode="c") for split in splits}

    def _build(
        self, home: Path, tree: Tree, splits: dict[str, Sequence[str]], frame: Frame, listing: str
    ) -> None:
        part = home.with_name(f"{home.name}.part-{os.getpid()}")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            for split, names in splits.items():
                shape = (len(names), *frame.shape)
                array = np.lib.format.open_memmap(part / f"{split}.npy", "w+", np.uint8, shape)
                _fill(array, tree, names, frame)
                array.flush()
            (part / "cache.json").write_text(
                json.dumps(
                    {"format": FORMAT, "source": str(tree.path), "shape": frame.shape, "listing": listing}
                ),
                encoding="utf-8",
            )
            try:
                part.rename(home)
            except OSError:
                if not (home / "cache.json").is_file():  # else another process was faster
                    raise
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _listing(cache: Path) -> str | None:
    """The digest of all images that a cache was made of; None where it does not say."""
    try:
        found = json.loads(cache.read_text(encoding="utf-8")).get("listing")
    except (OSError, ValueError):  # another process is at it
        return None
    return None if found is None else str(found)


def _fill(out: Array, tree: Tree, names: Sequence[str], frame: Frame) -> None:
    for i, name in enumerate(names):
        out[i] = decode(tree, name, frame)
