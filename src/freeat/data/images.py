"""Images with their labels and numbers in a split: batches, subsets and seeded orders."""

import hashlib
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from freeat.data.augmentation import Augmentation, RandomResizedCrop
from freeat.errors import InputError
from freeat.rng import Rng, stream_key, to_device

K = TypeVar("K")
T = TypeVar("T")

EVALUATION = "evaluation sample"
"""The random stream of the images that evaluations use."""
AT_ONCE = 1 << 24
"""The numbers of the pixels that are read at a time where all images are."""


def seeded_order(numbers: NDArray[np.int64], seed: int, purpose: str) -> NDArray[np.int64]:
    """The positions of ``numbers``, shuffled: sorted by a 64-bit hash of (seed, purpose, number)."""
    key = np.uint64(stream_key(seed, purpose))
    return np.argsort(_splitmix64(numbers.astype(np.uint64) + key), kind="stable")


def stratified_rows(
    labels: NDArray[np.int64], numbers: NDArray[np.int64], count: int, seed: int, purpose: str
) -> NDArray[np.int64]:
    """``count`` positions, sorted, whose classes are in proportion to ``labels`` (largest remainders)."""
    classes, sizes = np.unique(labels, return_counts=True)
    share = sizes * count / len(labels)
    quota = np.floor(share).astype(np.int64)
    # A stable sort gives ties to the smaller class label, so that the split is the same everywhere.
    quota[np.argsort(quota - share, kind="stable")[: count - int(quota.sum())]] += 1
    order = seeded_order(numbers, seed, purpose)
    of_class = labels[order]
    taken = [order[of_class == c][:k] for c, k in zip(classes, quota, strict=True)]
    return np.sort(np.concatenate(taken))


def stratified_order(
    labels: NDArray[np.int64], numbers: NDArray[np.int64], seed: int, purpose: str
) -> NDArray[np.int64]:
    """The positions of ``labels``, shuffled so that every beginning has the classes in proportion.

    The image of rank r = 0, 1, … in the seeded order of its class, of size s, comes at (r + ½)/s; images at one place
    come in seeded order. The first n are then the seats that Sainte-Laguë's method gives to the classes. Unlike largest
    remainders it never takes a seat back when n grows.
    """
    order = seeded_order(numbers, seed, purpose)
    by_class = np.argsort(labels[order], kind="stable")
    _, first, sizes = np.unique(labels[order][by_class], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(first, sizes)
    place = np.empty(len(order))
    # Equal fractions have equal quotients: a division of whole numbers is correctly rounded.
    place[by_class] = (2 * rank + 1) / (2 * np.repeat(sizes, sizes))
    return order[np.argsort(place, kind="stable")]


def _splitmix64(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of the SplitMix64 generator: a bijection of 64-bit words with good avalanche."""
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Pixels(Protocol):
    """Pixels of images by their rows, uint8 or float32 (n, H, W, C): a tensor, or what reads or decodes them.

    What reads or decodes them may have a ``digest`` of them all, and a number of ``workers`` that do so ahead.
    """

    @property
    def shape(self) -> torch.Size | tuple[int, ...]: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Tensor, /) -> Tensor:
        """The images at these rows (b,), as a new tensor (b, H, W, C)."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False, init=False)
class Images:
    """A labelled sample S of images: rows of pixels that other samples may share.

    Subsets, splits, joined samples and neighbours are views: they have their own labels and numbers, and the pixels
    of the images that they were taken from.

    Args:
        x: Images (n, C, H, W), uint8 or float32 in [0, 1]; stored in channels_last memory.
        y: Labels (n,), int64, from 0.
        index: The number (n,), int64, of each image in its original split. It survives every selection, so that
            the random draws of an image do not depend on the images around it.

    Raises:
        InputError: Shapes, types or values are not as above.

    Example:
        >>> import torch, freeat
        >>> images = freeat.Images.of(torch.rand(6, 3, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2]))
        >>> len(images), images.shape
        (6, (3, 8, 8))
        >>> rest, held_out = images.split(3)
        >>> held_out.y.sort().values
        tensor([0, 1, 2])
    """

    y: Tensor
    index: Tensor
    parts: tuple[Pixels, ...]
    """Where the pixels are; their rows are counted through all parts."""
    rows: Tensor | None
    """The rows (n,) of the images, on the CPU; None where they are all, in order."""

    def __init__(self, *, x: Tensor, y: Tensor, index: Tensor) -> None:
        _check_images(x)
        stored = x.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)
        self._set((stored,), None, y, index)
        self._check_rows(len(x))

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> "Images":
        """Images numbered 0, 1, … in the order given."""
        return cls(x=x, y=y, index=torch.arange(len(x), device=x.device))

    @classmethod
    def stored(
        cls, pixels: Pixels, y: Tensor, digest: str | None = None, rows: Tensor | None = None
    ) -> "Images":
        """Images whose pixels stay where they are, numbered 0, 1, … in their order; with a digest known before.

        With ``rows`` they are those at these rows only.
        """
        n = len(pixels) if rows is None else len(rows)
        images = cls._view((pixels,), rows, y, torch.arange(n, device=pixels.device))
        images._check_rows(n)
        if digest is not None:
            vars(images)["digest"] = digest
        return images

    @classmethod
    def joined(cls, *several: "Images") -> "Images":
        """The images of all samples, one sample after the other: a view of the pixels of each."""
        parts: dict[int, tuple[Pixels, int]] = {}  # by identity: samples of the same images share their part
        rows, count = [], 0
        for images in several:
            own, moved, first = images._own_rows(), torch.empty(len(images), dtype=torch.int64), 0
            for part in images.parts:
                if id(part) not in parts:
                    parts[id(part)], count = (part, count), count + len(part)
                here = (own >= first) & (own < first + len(part))
                moved[here] = own[here] - first + parts[id(part)][1]
                first += len(part)
            rows.append(moved)
        return cls._view(
            tuple(part for part, _ in parts.values()),
            torch.cat(rows),
            torch.cat([images.y for images in several]),
            torch.cat([images.index for images in several]),
        )

    @classmethod
    def _view(cls, parts: tuple[Pixels, ...], rows: Tensor | None, y: Tensor, index: Tensor) -> "Images":
        images = cls.__new__(cls)
        images._set(parts, rows, y, index)
        return images

    def _set(self, parts: tuple[Pixels, ...], rows: Tensor | None, y: Tensor, index: Tensor) -> None:
        for name, value in {"parts": parts, "rows": rows, "y": y, "index": index}.items():
            object.__setattr__(self, name, value)

    def _check_rows(self, n: int) -> None:
        _check_labels(self.y, n)
        if self.index.shape != self.y.shape or self.index.dtype != torch.int64:
            raise InputError(
                f"index of shape {tuple(self.index.shape)} and type {self.index.dtype}: must be one int64 "
                f"per image ({n}); use Images.of(x, y) to number them"
            )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def x(self) -> Tensor:
        """The pixels (n, C, H, W): those of a view are a copy."""
        (first, *more) = self.parts
        if self.rows is None and not more and isinstance(first, Tensor):
            return first.permute(0, 3, 1, 2)
        return self._pixels(self._own_rows()).permute(0, 3, 1, 2)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        _, h, w, c = self.parts[0].shape
        return c, h, w

    @property
    def dtype(self) -> torch.dtype:
        """The type of the pixels: uint8 or float32."""
        return self.parts[0].dtype

    @property
    def device(self) -> torch.device:
        """Where batches are made."""
        return self.parts[0].device

    @property
    def nbytes(self) -> int:
        """The bytes of the pixels of these images, wherever they are."""
        return len(self) * math.prod(self.shape) * self.dtype.itemsize

    @property
    def _stored(self) -> int:
        """The number of images that its parts hold."""
        return sum(map(len, self.parts))

    def _own_rows(self) -> Tensor:
        return torch.arange(self._stored) if self.rows is None else self.rows

    def _pixels(self, stored: Tensor) -> Tensor:
        """The pixels (b, H, W, C) at these rows (b,) of the parts, as a new tensor."""
        return self._of_parts(stored, lambda part, rows, _: part[to_device(rows, self.device)])

    def _windows(self, stored: Tensor, crop: RandomResizedCrop, draws: Tensor) -> Tensor:
        """The same, each a window by its numbers in ``draws`` (b, 5), cut from the whole file where there is one."""

        def cut(part: Pixels, rows: Tensor, here: Tensor | slice) -> Tensor:
            if hasattr(part, "crops"):
                windows: Tensor = part.crops(rows, crop, draws[here])
                return windows
            x = part[to_device(rows, self.device)].permute(0, 3, 1, 2)
            return crop.cut(x, draws[here]).permute(0, 2, 3, 1)

        return self._of_parts(stored, cut)

    def _of_parts(self, stored: Tensor, read: Callable[[Pixels, Tensor, Tensor | slice], Tensor]) -> Tensor:
        """What ``read`` returns of each part, its own rows and where they are among these rows (b,), put together."""
        if len(self.parts) == 1:
            return read(self.parts[0], stored, slice(None))
        out = torch.empty((len(stored), *self.parts[0].shape[1:]), dtype=self.dtype, device=self.device)
        first = 0
        for part in self.parts:
            here = ((stored >= first) & (stored < first + len(part))).nonzero().flatten()
            if len(here):
                out[to_device(here, self.device)] = read(part, stored[here] - first, here)
            first += len(part)
        return out

    def _blocks(self) -> Iterator[Tensor]:
        """The pixels (b, H, W, C) of all images in turn, a few at a time: all of them may exceed the memory."""
        for rows in torch.split(self._own_rows(), max(1, AT_ONCE // math.prod(self.shape))):
            yield self._pixels(rows)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of pixels and labels, the same on every device.

        Where pixels that are not in memory have a digest, it and the rows stand for them, and none is read.
        """
        if self._is_known:
            return self._digest_of_rows()
        digest = pixels_digest((len(self), *self.shape), self.dtype)
        for block in self._blocks():
            digest.update(block.cpu().numpy().tobytes())
        digest.update(self.y.cpu().numpy().tobytes())
        return digest.hexdigest()

    @property
    def _is_known(self) -> bool:
        """Whether all pixels that are not in memory have a digest, and there are such."""
        outside = [part for part in self.parts if not isinstance(part, Tensor)]
        return bool(outside) and all(getattr(part, "digest", None) is not None for part in outside)

    def _digest_of_rows(self) -> str:
        """SHA-256 of the digests of the parts, the rows and the labels."""
        digest = hashlib.sha256(f"view {self.dtype}".encode())
        for part in self.parts:
            own: str | None = getattr(part, "digest", None)
            if isinstance(part, Tensor):
                pixels = pixels_digest(tuple(part.shape), part.dtype)
                pixels.update(part.cpu().contiguous().numpy().tobytes())
                own = pixels.hexdigest()
            digest.update(f" {own} {len(part)}".encode())
        digest.update(self._own_rows().numpy().tobytes())
        digest.update(self.y.cpu().numpy().tobytes())
        return digest.hexdigest()

    def to(self, device: torch.device | str) -> "Images":
        """The same images on another device: of a view, the images of the view only."""
        if torch.empty(0, device=device).device == self.device:
            return self
        channels, *sides = self.shape
        pixels = torch.empty((len(self), *sides, channels), dtype=self.dtype, device=device)
        first = 0
        for block in self._blocks():
            pixels[first : first + len(block)] = block
            first += len(block)
        return self._view((pixels,), None, self.y.to(device), self.index.to(device))

    def take(self, rows: Tensor) -> "Images":
        """The images at these rows, in this order: a view."""
        here, own = rows.to(self.y.device), rows.cpu()
        own = own if self.rows is None else self.rows[own]
        return self._view(self.parts, own, self.y[here], self.index[here])

    def subset(self, n: int, seed: int = 0) -> "Images":
        """The first n of a fixed seeded order, so nested in n; kept in their original order.

        A random subset to train on; images to evaluate on are a `sample`.
        """
        if not 1 <= n <= len(self):
            raise InputError(f"subset of {n} images: must lie between 1 and the {len(self)} there are")
        if n == len(self):
            return self
        rows = seeded_order(self.index.cpu().numpy(), seed, "subset")[:n]
        return self.take(torch.from_numpy(np.sort(rows)))

    def sample(self, n: int | None = None, seed: int = 0) -> "Images":
        """The images that evaluations use: n of them, or all where n is None or there are no more.

        A seeded random sample with the classes in proportion, kept in the original order. It depends on labels and
        numbers only, so that all models that are evaluated on n of these images are evaluated on the same ones, and
        data in the order of their classes have no other sample than shuffled data. It is nested in n.
        """
        if n is None or n >= len(self):
            return self
        if n < 1:
            raise InputError(f"a sample of {n} images: evaluate at least 1")
        rows = stratified_order(self.y.cpu().numpy(), self.index.cpu().numpy(), seed, EVALUATION)[:n]
        return self.take(torch.from_numpy(np.sort(rows)))

    def split(self, held_out: float | int, seed: int = 0) -> tuple["Images", "Images"]:
        """(rest, held out): a stratified validation split, by count or by fraction in (0, 1)."""
        count = held_out if isinstance(held_out, int) else round(held_out * len(self))
        if not 1 <= count < len(self):
            raise InputError(
                f"held-out part {held_out}: must leave at least one of {len(self)} images on each side; "
                "give a fraction such as 0.1 or a count"
            )
        rows = stratified_rows(self.y.cpu().numpy(), self.index.cpu().numpy(), count, seed, "split")
        kept = np.ones(len(self), dtype=bool)
        kept[rows] = False
        return self.take(torch.from_numpy(np.flatnonzero(kept))), self.take(torch.from_numpy(rows))

    def neighbour(self, i: int, x: Tensor, y: int) -> "Images":
        """S': example i replaced by (x, y). It keeps i's number, so that both runs share their draws."""
        if not 0 <= i < len(self):
            raise InputError(f"neighbour at {i}: must be the row of an image, 0 to {len(self) - 1}")
        if x.shape != self.shape or x.dtype != self.dtype:
            raise InputError(
                f"replacement of shape {tuple(x.shape)} and type {x.dtype}: "
                f"must be {self.shape} and {self.dtype}, as the images are"
            )
        instead = x.to(self.device).permute(1, 2, 0).unsqueeze(0)
        rows, labels = self._own_rows().clone(), self.y.clone()
        rows[i], labels[i] = self._stored, y
        return self._view((*self.parts, instead), rows, labels, self.index)

    def batch(
        self, rows: Tensor, augment: Augmentation | None = None, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        """(x, y) at ``rows`` of shape (…, b): x float32 in [0, 1], (…, b, C, H, W), channels_last."""
        x, y = self.view(rows, augment, rng)
        return in_unit_box(x), y

    def view(
        self, rows: Tensor, augment: Augmentation | None = None, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        """The same with x in the type of the stored pixels: a quarter of the bytes where that is uint8."""
        stored = rows if self.rows is None else self.rows[rows.cpu()]
        if augment is not None and rng is None:
            raise InputError("augmentation without an rng: pass the random stream it draws from")
        if isinstance(augment, RandomResizedCrop) and rng is not None and self.streamed:
            draws = augment.draws(torch.empty(1).expand(*rows.shape, *self.shape), rng)
            pixels = self._windows(stored.flatten(), augment, draws)
            augment = None
        else:
            pixels = self._pixels(stored.flatten())
        x = pixels.view(*rows.shape, *pixels.shape[1:]).movedim(-1, -3)
        if augment is not None and rng is not None:
            x = augment(x, rng)
        return x, self.y[to_device(rows, self.y.device)]

    @property
    def streamed(self) -> bool:
        """Whether pixels are decoded from files; random windows are then cut from the files themselves."""
        return any(hasattr(part, "crops") for part in self.parts)

    @property
    def workers(self) -> int:
        """The processes that read or decode batches ahead; none where the pixels are in memory."""
        return max(getattr(part, "workers", 0) for part in self.parts)

    def ahead(self, make: Callable[[K], T], keys: Sequence[K]) -> Generator[T, None, None]:
        """``make(key)``, a batch of these images, for every key in turn; made ahead if there are workers.

        It must be a function of the key alone.
        """
        if not self.workers or len(keys) < 2:
            yield from map(make, keys)
            return
        from freeat.data.prefetch import prefetched

        yield from prefetched(make, keys, self.workers)


def pixels_digest(shape: tuple[int, ...], dtype: torch.dtype) -> "hashlib._Hash":
    """The beginning of the digest of images of this shape (n, C, H, W): pixels (n, H, W, C) follow, then labels."""
    return hashlib.sha256(f"{shape} {dtype}".encode())


def in_unit_box(x: Tensor) -> Tensor:
    """Pixels as float32 in [0, 1]; a new tensor where they are uint8."""
    return x.to(torch.float32).div_(255) if x.dtype == torch.uint8 else x


def _check_images(x: Tensor) -> None:
    if x.ndim != 4 or 0 in x.shape:
        raise InputError(f"images of shape {tuple(x.shape)}: must be (n, C, H, W) with no empty axis")
    if x.dtype not in (torch.uint8, torch.float32):
        raise InputError(f"images of type {x.dtype}: must be uint8, or float32 in [0, 1]")
    if x.dtype == torch.float32 and not x.is_meta:
        low, high = (float(v) for v in torch.aminmax(x))
        # NaN fails both comparisons.
        if not (low >= 0 and high <= 1):
            raise InputError(_bad_pixels(x))


def _bad_pixels(x: Tensor) -> str:
    """The message for float images that are not in [0, 1]."""
    broken = ~x.isfinite().flatten(1).all(1)
    bad = broken if broken.any() else ~((x >= 0) & (x <= 1)).flatten(1).all(1)
    rows = bad.nonzero().flatten().tolist()
    which = f"image {rows[0]}" + (f" and {len(rows) - 1} more of {len(x)}" if len(rows) > 1 else "")
    if broken.any():
        return f"{which}: holds pixels that are NaN or infinite, and all must be in [0, 1]; mend or remove it"
    low, high = (float(v) for v in torch.aminmax(x))
    return (
        f"{which}: float pixels between {low:g} and {high:g} must be in [0, 1]; divide by 255, or pass uint8"
    )


def _check_labels(y: Tensor, n: int) -> None:
    if y.shape != (n,) or y.dtype != torch.int64:
        raise InputError(
            f"labels of shape {tuple(y.shape)} and type {y.dtype}: must be {n} int64, one per image"
        )
    if not y.is_meta and int(y.min()) < 0:
        raise InputError(f"label {int(y.min())}: labels must be class numbers from 0")
