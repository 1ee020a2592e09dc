"""From an image to the pixels that a model takes, by the rule by which its data were read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from freeat.data.readers.pixels import Frame, UnreadableImage, decode, fitted
from freeat.errors import InputError
from freeat.files.reading import read_bytes

RESIZE = "bilinear, until it just covers height × width, its proportions kept"
CROP = "centre"
ImageLike = str | Path | Image.Image


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """The form in which a model takes images, and the way there.

    An image is turned upright by its EXIF tag, made grey (one channel) or RGB (three), scaled, cropped, and its bytes
    become numbers in [low, high]. Normalization is inside the model.

    Args:
        channels: 1 for grey images, 3 for RGB.
        height: The height in pixels.
        width: The width in pixels.
        resize: How an image of another size is scaled.
        crop: Where it is cropped then.
        low: The value of black.
        high: The value of white.
        layout: The order of the axes.
    """

    channels: int
    height: int
    width: int
    resize: str = RESIZE
    crop: str = CROP
    low: float = 0.0
    high: float = 1.0
    layout: str = "NCHW"

    @classmethod
    def of_shape(cls, shape: tuple[int, int, int]) -> Self:
        """For a model of images of ``shape`` (C, H, W)."""
        return cls(channels=shape[0], height=shape[1], width=shape[2])

    def __call__(self, images: ImageLike | Sequence[ImageLike]) -> Tensor:
        """The pixels (n, C, H, W) of one image or several: files, or images that Pillow has opened."""
        several = [images] if isinstance(images, str | Path | Image.Image) else list(images)
        if self.channels not in (1, 3) or (self.resize, self.crop) != (RESIZE, CROP):
            raise InputError(
                f"images with {self.channels} channels, resized {self.resize}, cropped {self.crop}: images are read "
                f"with 1 or 3 channels, {RESIZE}, cropped at the {CROP}; pass the model a tensor instead"
            )
        frame = Frame(height=self.height, width=self.width, grey=self.channels == 1)
        pixels = [self._pixels(image, frame) for image in several]
        levels = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float() / 255
        return self.low + (self.high - self.low) * levels

    def _pixels(self, image: ImageLike, frame: Frame) -> np.ndarray:
        if isinstance(image, Image.Image):
            return fitted(image, frame)
        return decode(ImagePath(Path(image)), Path(image).name, frame)


@dataclass(frozen=True)
class ImagePath:
    """One file as a tree of files."""

    file: Path

    @property
    def path(self) -> Path:
        return self.file.parent

    @property
    def files(self) -> dict[str, tuple[int, int]]:
        return {self.file.name: (self.file.stat().st_size, 0)}

    def read(self, name: str) -> bytes:
        return read_bytes(self.file)


def read_image_files(
    preprocess: Preprocessing, files: Iterable[Path], *, skip_unreadable: bool = False
) -> tuple[list[Path], list[Tensor], list[str]]:
    """The files that can be read, their pixels, and why the others cannot; those are refused unless skipped."""
    read, pixels, reasons = [], [], []
    for file in files:
        try:
            pixels.append(preprocess(file))
            read.append(file)
        except (UnreadableImage, OSError) as error:
            reasons.append(str(error))
    if reasons and not skip_unreadable:
        listed = "\n".join(f"  {reason}" for reason in reasons)
        raise InputError(
            f"{len(reasons)} of {len(read) + len(reasons)} images cannot be read:\n{listed}\n"
            "leave them out with --skip-unreadable"
        )
    return read, pixels, reasons
