"""Random crops and flips of a batch, one draw per image, as tensor indexing."""

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


NAMED: dict[str, CropFlip | None] = {
    "none": None,
    "crop": CropFlip(flip=False),
    "flip": CropFlip(pad=0),
    "crop-flip": CropFlip(),
}


def parse_augmentation(name: str, auto: Augmentation | None = None) -> Augmentation | None:
    """The augmentation a user named; ``auto`` stands for the data set's own."""
    key = name.strip().lower()
    if key == "auto":
        return auto
    if key not in NAMED:
        raise unknown_name("augmentation", name, ["auto", *NAMED])
    return NAMED[key]
