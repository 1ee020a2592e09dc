"""Labelled images block by block: tensors, PyTorch data sets and loaders, or `Images`."""

from collections.abc import Iterable, Iterator, Sized
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from freeat.data.images import EVALUATION, Images, stratified_order
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
    """The images of a sample in turn, numbered by their rows; at most ``size`` of them.

    These are ``Images.sample(size)``. A data set, or a loader over one in order, is sampled by its rows: with the
    classes in proportion where it says its labels (as ``targets`` or ``labels``), else at random. Of any other loader,
    such as one that shuffles, they are the first that it gives.
    """
    if isinstance(sample, tuple):
        x, y = _pair(sample)
        sample = Images.of(_pixels(x), _labels(y))
    if isinstance(sample, Images):
        yield sample.sample(size)
        return
    if isinstance(sample, Dataset):
        sample = DataLoader(sample, batch_size=READ_AT_ONCE)
    numbers = None
    if size is not None and isinstance(sample, DataLoader) and _in_order(sample):
        numbers = _sampled_rows(sample.dataset, size)
        sample = DataLoader(
            Subset(sample.dataset, numbers.tolist()),
            batch_size=sample.batch_size,
            collate_fn=sample.collate_fn,
            num_workers=sample.num_workers,
        )
    seen = 0
    for batch in sample:
        x, y = _pair(batch)
        if size is not None:
            x, y = x[: size - seen], y[: size - seen]
        index = torch.arange(seen, seen + len(x)) if numbers is None else numbers[seen : seen + len(x)]
        yield Images(x=_pixels(x), y=_labels(y).to(x.device), index=index.to(x.device))
        seen += len(x)
        if seen == size:
            return
    if not seen:
        raise InputError(
            "a loader without images: give at least one batch (a generator is used up once read)"
        )


def _in_order(loader: DataLoader[Any]) -> bool:
    """Whether a loader gives all rows of a data set in their order."""
    whole = isinstance(loader.sampler, SequentialSampler) and loader.batch_size is not None
    return whole and not isinstance(loader.dataset, IterableDataset)


def _sampled_rows(dataset: Dataset[Any], size: int) -> Tensor:
    """The rows of a data set that are evaluated, ascending."""
    n = len(dataset)  # type: ignore[arg-type]  # a loader gives it in order, so it has a length
    order = stratified_order(_known_labels(dataset, n), np.arange(n), 0, EVALUATION)
    return torch.from_numpy(np.sort(order[:size]))


def _known_labels(dataset: Dataset[Any], n: int) -> NDArray[np.int64]:
    """The labels of a data set where it says them; else zeros, as if there were one class."""
    if isinstance(dataset, TensorDataset):
        found: Any = dataset.tensors[-1].cpu()
    else:
        found = getattr(dataset, "targets", getattr(dataset, "labels", ()))
    labels = np.asarray(found)
    known = labels.shape == (n,) and np.issubdtype(labels.dtype, np.integer)
    return labels.astype(np.int64) if known else np.zeros(n, np.int64)


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
