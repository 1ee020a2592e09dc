"""Image files decoded and resized to arrays of pixels."""

import io
import math
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, ClassVar, overload

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from freeat.data.augmentation import RandomResizedCrop
from freeat.data.readers import Array
from freeat.data.readers.trees import Tree, opened_file
from freeat.errors import InputError
from freeat.files.reading import refusing

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM", "JPEG2000")
"""What a file may hold, whatever its name says: for other formats Pillow starts programs, Ghostscript for one."""
SIXTEEN_BITS = "I;16"
"""How the modes of 16-bit grey images begin; what follows is the order of the bytes."""
GREY_MODES = ("1", "L", "LA")
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
    """Size, after the rotation of its EXIF tag, and whether it is grey; only what that takes is read of the file."""
    with _opened(tree, name, opened_file) as image:
        turned = image.getexif().get(0x0112, 1) >= 5
        height, width = (image.width, image.height) if turned else (image.height, image.width)
        return Header(
            height=height, width=width, grey=image.mode in GREY_MODES or image.mode.startswith(SIXTEEN_BITS)
        )


def decode(tree: Tree, name: str, frame: Frame) -> Array:
    """The image as uint8 (H, W, C); transparency is dropped, the first frame of an animation kept."""
    with _opened(tree, name) as image:
        return fitted(image, frame)


def fitted(image: Image.Image, frame: Frame) -> Array:
    """An opened image as uint8 (H, W, C), brought to the frame."""
    plain = _plain(image, frame)
    if plain.size != (frame.width, frame.height):
        plain = ImageOps.fit(plain, (frame.width, frame.height), Image.Resampling.BILINEAR)
    return np.asarray(plain).reshape(frame.shape)


def _plain(image: Image.Image, frame: Frame) -> Image.Image:
    """The image upright, grey or RGB."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith(SIXTEEN_BITS):
        upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
    return upright.convert("L" if frame.grey else "RGB")


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


def _read_whole(tree: Tree, name: str) -> AbstractContextManager[IO[bytes]]:
    return nullcontext(io.BytesIO(tree.read(name)))


@contextmanager
def _opened(
    tree: Tree,
    name: str,
    file_of: Callable[[Tree, str], AbstractContextManager[IO[bytes]]] = _read_whole,
) -> Iterator[Image.Image]:
    what = f"{tree.path}/{name}"
    try:
        with file_of(tree, name) as file:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is lower
                image = Image.open(file, formats=FORMATS)
            if image.width * image.height > LARGEST_PIXELS:
                raise UnreadableImage(
                    f"{what}: {image.width}×{image.height} pixels; at most {LARGEST_PIXELS} are read, scale it down"
                )
            if image.mode in ("I", "F"):
                raise UnreadableImage(
                    f"{what}: 32-bit pixels; only 8- and 16-bit images are read, convert it"
                )
            yield image
    except InputError:
        raise
    except UnidentifiedImageError:
        raise UnreadableImage(
            f"{what}: not a readable image (its content is of no known format); repair or remove it"
        ) from None
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        raise UnreadableImage(f"{what}: not a readable image ({error}); repair or remove it") from None


@dataclass(frozen=True, eq=False)
class CachedPixels:
    """Decoded pixels in an .npy file, of which the rows that are asked for are read, and nothing is kept.

    The file stays open: who has begun to read a cache keeps it when it is replaced by one of other images.
    """

    path: Path
    workers: int = 0
    digest: str | None = None
    dtype: ClassVar[torch.dtype] = torch.uint8
    device: ClassVar[torch.device] = torch.device("cpu")

    @cached_property
    def _file(self) -> tuple[int, tuple[int, ...], int]:
        """Its descriptor, its shape, and where the pixels begin; a file of another size is refused."""
        with _reading(self.path), self.path.open("rb") as file:
            np.lib.format.read_magic(file)
            shape, _, _ = np.lib.format.read_array_header_1_0(file)
            if os.fstat(file.fileno()).st_size != file.tell() + math.prod(shape):
                raise InputError(f"{self.path} does not hold {shape} bytes; run the same command again")
            descriptor = os.dup(file.fileno())
            weakref.finalize(self, os.close, descriptor)
            return descriptor, shape, file.tell()

    def __getstate__(self) -> dict[str, object]:
        # Another process opens the file for itself.
        return {"path": self.path, "workers": self.workers, "digest": self.digest}

    @property
    def shape(self) -> tuple[int, ...]:
        return self._file[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Tensor) -> Tensor:
        descriptor, (n, *shape), begin = self._file
        size = math.prod(shape)
        out = np.empty((len(rows), size), np.uint8)
        for place, row in enumerate(rows.tolist()):
            if not -n <= row < n:
                raise IndexError(f"row {row} of {n} images")
            with _reading(self.path):  # on a network's disk, another machine may have removed it
                found = _read_at(descriptor, size, begin + row % n * size)
            if len(found) != size:
                raise InputError(f"{self.path} was cut while it was read; run the same command again")
            out[place] = np.frombuffer(found, np.uint8)
        return torch.from_numpy(out.reshape(len(rows), *shape))


def _reading(path: Path) -> AbstractContextManager[None]:
    return refusing(path, "cache of decoded images", "run the same command again")


_SEEKING = threading.Lock()


def _read_at(descriptor: int, size: int, place: int) -> bytes:
    """``size`` bytes from ``place`` on; forked processes share the descriptor, so its own place is not used."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, place)
    with _SEEKING:  # on Windows, which does not fork
        os.lseek(descriptor, place, os.SEEK_SET)
        return os.read(descriptor, size)


@dataclass(frozen=True, eq=False)
class FilePixels:
    """Pixels that are decoded when they are asked for; only the names of the files are held."""

    tree: Tree
    names: "Names"
    frame: Frame
    workers: int = 0
    digest: str | None = None
    dtype: ClassVar[torch.dtype] = torch.uint8
    device: ClassVar[torch.device] = torch.device("cpu")

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), *self.frame.shape

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self._filled(rows, [lambda image: fitted(image, self.frame)] * len(rows))

    def crops(self, rows: Tensor, crop: RandomResizedCrop, draws: Tensor) -> Tensor:
        """The images at these rows, each cut from the whole file by its numbers in ``draws``, (b, H, W, C)."""
        return self._filled(rows, [partial(_cut, self.frame, crop, own) for own in draws.tolist()])

    def _filled(self, rows: Tensor, views: Sequence[Callable[[Image.Image], Array]]) -> Tensor:
        out = np.empty((len(rows), *self.frame.shape), np.uint8)
        for place, row, view in zip(range(len(rows)), rows.tolist(), views, strict=True):
            with _opened(self.tree, self.names[row]) as image:
                out[place] = view(image)
        return torch.from_numpy(out)


def _cut(frame: Frame, crop: RandomResizedCrop, draws: Sequence[float], image: Image.Image) -> Array:
    whole = _plain(image, frame)
    window = whole.resize(
        (frame.width, frame.height),
        Image.Resampling.BILINEAR,
        box=crop.window(draws, whole.width, whole.height),
    )
    if crop.mirrors(draws):
        window = ImageOps.mirror(window)
    return np.asarray(window).reshape(frame.shape)


class Names(Sequence[str]):
    """Many names in two arrays: a list of strings would be copied page by page into every worker process."""

    def __init__(self, names: Iterable[str]) -> None:
        encoded = [name.encode(errors="surrogateescape") for name in names]
        self._text = b"".join(encoded)
        self._ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, i: int) -> str: ...

    @overload
    def __getitem__(self, i: slice) -> list[str]: ...

    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        i %= len(self)
        return self._text[self._ends[i - 1] if i else 0 : self._ends[i]].decode(errors="surrogateescape")
