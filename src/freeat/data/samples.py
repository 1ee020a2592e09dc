"""Labelled images block by block: tensors, PyTorch data sets and loaders, or `Images`."""

from collections.abc import Iterable, Iterator, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from freeat.data.images import Images
from freeat.errors import InputError

Sample = Images | tuple[Tensor, Tensor] | Dataset[Any] | Iterable[Any]
READ_AT_ONCE = 256


def sample_size(sample: Sample) -> int | None:
    """The number of images of a sample, where it has a length."""
    if isinstance(sample, tuple):
        return len(sample[0])
    if isinstance(sample, DataLoader):
        counted: object = sample.sampler  # the loader's own length counts batches
    else:
        counted = sample if isinstance(sample, Images | Dataset) else None
    return len(counted) if isinstance(counted, Sized) else None


def blocks(sample: Sample, size: int | None = None) -> Iterator[Images]:
    """The images of a sample in turn, numbered as they come; at most ``size`` of them.

    Of images in memory, ``size`` takes the nested random subset; of a loader, the first that it gives.
    """
    if isinstance(sample, tuple):
        x, y = _pair(sample)
        sample = Images.of(_pixels(x), _labels(y))
    if isinstance(sample, Images):
        yield sample if size is None or size >= len(sample) else sample.subset(size)
        return
    if isinstance(sample, Dataset):
        sample = DataLoader(sample, batch_size=READ_AT_ONCE)
    seen = 0
    for batch in sample:
        x, y = _pair(batch)
        if size is not None:
            x, y = x[: size - seen], y[: size - seen]
        index = torch.arange(seen, seen + len(x), device=x.device)
        yield Images(x=_pixels(x), y=_labels(y).to(x.device), index=index)
        seen += len(x)
        if seen == size:
            return
    if not seen:
        raise InputError(
            "a loader without images: give at least one batch (a generator is used up once read)"
        )


def _pair(batch: Any) -> tuple[Tensor, Tensor]:
    if (
        isinstance(batch, tuple | list)
        and len(batch) == 2
        and all(isinstance(part, Tensor) for part in batch)
    ):
        return batch[0], batch[1]
    found = f"{type(batch).__name__}" + (f" of {len(batch)}" if isinstance(batch, tuple | list) else "")
    raise InputError(
        f"a batch is a {found}: give pairs (x, y) of tensors, images (b, C, H, W) and their labels (b,)"
    )


def _pixels(x: Tensor) -> Tensor:
    if not x.is_floating_point():
        return x
    if x.numel() and float(x.min()) < 0:
        raise InputError(
            f"pixels down to {float(x.min()):g}: they must lie in [0, 1], where ε is measured; take a normalization "
            "out of the loader and put it in front of the model, as its first layer"
        )
    return x.to(torch.float32)


def _labels(y: Tensor) -> Tensor:
    whole = not (y.is_floating_point() or y.is_complex() or y.dtype == torch.bool)
    return y.to(torch.int64) if whole else y
