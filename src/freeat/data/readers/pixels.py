"""Image files decoded, resized and cached as arrays of pixels."""

import hashlib
import io
import json
import math
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from freeat.data.readers import MEMORY_LIMIT, Array
from freeat.data.readers.trees import Tree, listing_digest
from freeat.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
GREY_MODES = ("1", "L", "LA", "I;16")
LARGEST_PIXELS = 50_000_000
"""An image with more pixels is refused: a small file can claim billions (a decompression bomb)."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The form all images of a data set are brought to.

    An image of another size is scaled (bilinear) until it just covers the frame, then cropped at its centre.
    """

    height: int
    width: int
    grey: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, W, C)."""
        return self.height, self.width, 1 if self.grey else 3


@dataclass(frozen=True, kw_only=True)
class Header:
    """What the header of an image file holds."""

    height: int
    width: int
    grey: bool


def is_image(name: str) -> bool:
    """Whether the name is that of an image."""
    return name.lower().endswith(SUFFIXES)


def read_header(tree: Tree, name: str) -> Header:
    """Size, after the rotation of its EXIF tag, and whether it is grey."""
    with _opened(tree, name) as image:
        turned = image.getexif().get(0x0112, 1) >= 5
        height, width = (image.width, image.height) if turned else (image.height, image.width)
        return Header(height=height, width=width, grey=image.mode in GREY_MODES)


def decode(tree: Tree, name: str, frame: Frame) -> Array:
    """The image as uint8 (H, W, C); transparency is dropped, the first frame of an animation kept."""
    with _opened(tree, name) as image:
        return fitted(image, frame)


def fitted(image: Image.Image, frame: Frame) -> Array:
    """An opened image as uint8 (H, W, C), brought to the frame."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode == "I;16":
        upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
    plain = upright.convert("L" if frame.grey else "RGB")
    if plain.size != (frame.width, frame.height):
        plain = ImageOps.fit(plain, (frame.width, frame.height), Image.Resampling.BILINEAR)
    return np.asarray(plain).reshape(frame.shape)


class UnreadableImage(InputError):
    """An image file that cannot be decoded."""


def find_unreadable(tree: Tree, names: Iterable[str]) -> dict[str, str]:
    """The images that cannot be decoded, each with the reason."""
    reasons: dict[str, str] = {}
    for name in names:
        try:
            with _opened(tree, name) as image:
                image.load()
        except UnreadableImage as error:
            reasons[name] = str(error)
    return reasons


@contextmanager
def _opened(tree: Tree, name: str) -> Iterator[Image.Image]:
    what = f"{tree.path}/{name}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is lower
            image = Image.open(io.BytesIO(tree.read(name)))
        if image.width * image.height > LARGEST_PIXELS:
            raise UnreadableImage(
                f"{what}: {image.width}×{image.height} pixels; at most {LARGEST_PIXELS} are read, scale it down"
            )
        if image.mode in ("I", "F"):
            raise UnreadableImage(f"{what}: 32-bit pixels; only 8- and 16-bit images are read, convert it")
        yield image
    except InputError:
        raise
    except UnidentifiedImageError:
        raise UnreadableImage(
            f"{what}: not a readable image (its content is of no known format); repair or remove it"
        ) from None
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        raise UnreadableImage(f"{what}: not a readable image ({error}); repair or remove it") from None


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
        source = hashlib.sha256(str(tree.path.resolve()).encode()).hexdigest()[:16]
        key = hashlib.sha256(
            json.dumps(
                [FORMAT, frame.shape, {s: listing_digest(tree, n) for s, n in splits.items()}]
            ).encode()
        ).hexdigest()[:16]
        cache = self.folder / f"{source}-{key}"
        if not (cache / "cache.json").is_file():
            listing = listing_digest(tree, sorted({name for names in splits.values() for name in names}))
            self._build(cache, tree, splits, frame, listing)
            for other in self.folder.glob(f"{source}-*/cache.json"):
                if _listing(other) != listing and ".part-" not in other.parent.name:
                    shutil.rmtree(other.parent, ignore_errors=True)
        # Copy-on-write: tensors over it count as writable, the files never change.
        return {split: np.load(cache / f"{split}.npy", mmap_mode="c") for split in splits}

    def _build(
        self, cache: Path, tree: Tree, splits: dict[str, Sequence[str]], frame: Frame, listing: str
    ) -> None:
        part = cache.with_name(f"{cache.name}.part-{os.getpid()}")
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
                part.rename(cache)
            except OSError:
                if not (cache / "cache.json").is_file():  # else another process published it first
                    raise
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _listing(file: Path) -> str | None:
    """The digest of all images that a cache was made of; None where the cache has none."""
    try:
        found = json.loads(file.read_text(encoding="utf-8")).get("listing")
    except (OSError, ValueError):  # another process is removing it
        return None
    return None if found is None else str(found)


def _fill(out: Array, tree: Tree, names: Sequence[str], frame: Frame) -> None:
    for i, name in enumerate(names):
        out[i] = decode(tree, name, frame)
