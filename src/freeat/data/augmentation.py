"""Random crops and flips of a batch, one draw per image, as tensor indexing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from freeat.errors import InputError, unknown_name
from freeat.rng import Rng


class Augmentation(Protocol):
    """A random map of images (..., C, H, W) to images of the same shape and dtype."""

    def __call__(self, x: Tensor, rng: Rng) -> Tensor: ...


@dataclass(frozen=True, kw_only=True)
class CropFlip:
    """Zero-pad by ``pad``, crop a random window of the old size, mirror half of them left-right."""

    pad: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if self.pad < 0:
            raise InputError(f"augmentation pad {self.pad}: must be 0 or more pixels; 0 crops nothing")

    def __call__(self, x: Tensor, rng: Rng) -> Tensor:
        """Crop and flip; exact on uint8, and channels_last stays channels_last."""
        u = rng.uniform("augment", x, (3,)).reshape(-1, 3)
        out = x.flatten(0, -4) if x.ndim > 4 else x
        if self.pad:
            out = self._crop(out, u[:, 0], u[:, 1])
        if self.flip:
            out = torch.where((u[:, 2] < 0.5)[:, None, None, None], out.flip(-1), out)
        return out.reshape(x.shape)

    def _crop(self, x: Tensor, u_top: Tensor, u_left: Tensor) -> Tensor:
        places = 2 * self.pad + 1
        # u < 1, yet u * places can round up to places in float32.
        top, left = ((u * places).long().clamp_(max=places - 1) for u in (u_top, u_left))
        padded = F.pad(x, (self.pad,) * 4)
        # A view of every window, of which one per image is then copied: no index per pixel.
        windows = padded.unfold(2, x.shape[2], 1).unfold(3, x.shape[3], 1)
        return windows[torch.arange(len(x), device=x.device), :, top, left]


@dataclass(frozen=True, kw_only=True)
class RandomResizedCrop:
    """Scale a random window to the size of the images, and mirror half of them left-right.

    The window has a part of the area that is uniform in ``scale`` and a ratio of width to height that is log-uniform
    in ``ratio``; a side that would exceed the image is cut to it. Its place is uniform.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise InputError(
                f"scale {self.scale} of random crops: must be two parts of the area in (0, 1], ascending"
            )
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise InputError(f"ratio {self.ratio} of random crops: must be two positive numbers, ascending")

    def draws(self, x: Tensor, rng: Rng) -> Tensor:
        """Five uniform numbers for each image: area, ratio, left, top, mirrored."""
        return rng.uniform("augment", x, (5,)).reshape(-1, 5)

    def window(self, draws: Sequence[float], width: int, height: int) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the window of one image, by its five numbers."""
        u = torch.tensor(draws, dtype=torch.float64)
        left, top, w, h = (float(v) for v in self._windows(u.unsqueeze(0), width, height))
        return left, top, min(left + w, width), min(top + h, height)

    def mirrors(self, draws: Sequence[float]) -> bool:
        """Whether the image with these five numbers is mirrored."""
        return self.flip and draws[4] < 0.5

    def __call__(self, x: Tensor, rng: Rng) -> Tensor:
        """Cut the windows and scale them (bilinear); uint8 is rounded."""
        out = x.flatten(0, -4) if x.ndim > 4 else x
        return self.cut(out, self.draws(x, rng)).reshape(x.shape)

    def cut(self, x: Tensor, u: Tensor) -> Tensor:
        """The windows of images (b, C, H, W) by their numbers (b, 5), scaled to the size of the images."""
        *_, height, width = x.shape
        left, top, w, h = (v.unsqueeze(1) for v in self._windows(u, width, height))
        across = (torch.arange(width, device=x.device) + 0.5) / width
        down = (torch.arange(height, device=x.device) + 0.5) / height
        if self.flip:
            across = torch.where(u[:, 4:] < 0.5, 1 - across, across)
        # In the coordinates of grid_sample, -1 and 1 are the outer edges of the image.
        columns, rows = 2 * (left + w * across) / width - 1, 2 * (top + h * down) / height - 1
        shape = (len(x), height, width)
        grid = torch.stack([columns.unsqueeze(1).expand(shape), rows.unsqueeze(2).expand(shape)], -1)
        scaled = F.grid_sample(x.to(u.dtype), grid, padding_mode="border", align_corners=False)
        if not x.is_floating_point():
            scaled = scaled.round_()
        return scaled.to(x.dtype)

    def _windows(self, u: Tensor, width: int, height: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Left, top, width and height of every window."""
        area = (self.scale[0] + (self.scale[1] - self.scale[0]) * u[:, 0]) * (width * height)
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        ratio = torch.exp(low + (high - low) * u[:, 1])
        w, h = (area * ratio).sqrt().clamp(max=width), (area / ratio).sqrt().clamp(max=height)
        return u[:, 2] * (width - w), u[:, 3] * (height - h), w, h


NAMED: dict[str, Augmentation | None] = {
    "none": None,
    "crop": CropFlip(flip=False),
    "flip": CropFlip(pad=0),
    "crop-flip": CropFlip(),
    "random-resized-crop": RandomResizedCrop(),
}


def parse_augmentation(name: str, auto: Augmentation | None = None) -> Augmentation | None:
    """The augmentation a user named; ``auto`` stands for the data set's own."""
    key = name.strip().lower()
    if key == "auto":
        return auto
    if key not in NAMED:
        raise unknown_name("augmentation", name, ["auto", *NAMED])
    return NAMED[key]
