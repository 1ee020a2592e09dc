"""Encoded images to arrays of one size and one number of channels."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from freeat.data.readers.arrays import Array
from freeat.data.readers.trees import Tree
from freeat.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
GREY_MODES = ("1", "L", "LA", "I;16")
LARGEST_PIXELS = 50_000_000
"""A picture with more pixels is refused: a small file can claim billions (a decompression bomb)."""


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
    """What an image says of itself before it is decoded."""

    height: int
    width: int
    grey: bool


def is_image(name: str) -> bool:
    """Whether the name is that of an image."""
    return name.lower().endswith(SUFFIXES)


def read_header(tree: Tree, name: str) -> Header:
    """Size, after the turn its EXIF tag asks for, and whether it is grey."""
    with _opened(tree, name) as image:
        turned = image.getexif().get(0x0112, 1) >= 5
        height, width = (image.width, image.height) if turned else (image.height, image.width)
        return Header(height=height, width=width, grey=image.mode in GREY_MODES)


def decode(tree: Tree, name: str, frame: Frame) -> Array:
    """The image as uint8 (H, W, C); transparency is dropped, the first frame of an animation kept."""
    with _opened(tree, name) as image:
        upright = ImageOps.exif_transpose(image)
        if upright.mode == "I;16":
            upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
        plain = upright.convert("L" if frame.grey else "RGB")
        if plain.size != (frame.width, frame.height):
            plain = ImageOps.fit(plain, (frame.width, frame.height), Image.Resampling.BILINEAR)
        return np.asarray(plain).reshape(frame.shape)


@contextmanager
def _opened(tree: Tree, name: str) -> Iterator[Image.Image]:
    what = f"{tree.path}/{name}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is lower
            image = Image.open(io.BytesIO(tree.read(name)))
        if image.width * image.height > LARGEST_PIXELS:
            raise InputError(
                f"{what}: {image.width}×{image.height} pixels; at most {LARGEST_PIXELS} are read, scale it down"
            )
        if image.mode in ("I", "F"):
            raise InputError(f"{what}: 32-bit pixels; only 8- and 16-bit images are read, convert it")
        yield image
    except InputError:
        raise
    except UnidentifiedImageError:
        raise InputError(
            f"{what}: not a readable image (its content is of no known format); repair or remove it"
        ) from None
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        raise InputError(f"{what}: not a readable image ({error}); repair or remove it") from None
