"""Images on their way to a model that is judged, batch by batch, and what was found of each joined again."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from freeat.data import Augmentation, Images
from freeat.rng import ImageRng


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgedBatch:
    """Some images where the model is and as wide as its numbers; the draws follow each image, not the batch."""

    rows: Tensor
    x: Tensor
    y: Tensor
    rng: ImageRng


def judged_batches(
    model: nn.Module,
    images: Images,
    size: int,
    *,
    seed: int = 0,
    rows: Tensor | None = None,
    augment: Augmentation | None = None,
) -> Iterator[JudgedBatch]:
    """The images (or those at ``rows``) in turn; where there are none, one empty batch."""
    device, dtype = home(model)
    for part in torch.split(torch.arange(len(images)) if rows is None else rows, size):
        rng = ImageRng(seed, images.index[part.to(images.index.device)].tolist())
        x, y = images.batch(part, augment, rng)
        yield JudgedBatch(rows=part, x=x.to(device, dtype), y=y.to(device), rng=rng)


class Columns:
    """What was found of each image, by name; kept on the CPU."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Tensor]] = {}

    def add(self, **found: Tensor) -> None:
        """What was found of the next batch."""
        for name, values in found.items():
            self._parts.setdefault(name, []).append(values.cpu())

    def joined(self) -> dict[str, Tensor]:
        """Every column whole."""
        return {name: torch.cat(parts) for name, parts in self._parts.items()}


def home(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Where the model's weights are, and how wide its floating-point numbers."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            return tensor.device, tensor.dtype
    return torch.device("cpu"), torch.float32
