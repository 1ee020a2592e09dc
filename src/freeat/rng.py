"""Random streams: every draw is a pure function of a seed, a purpose, and a step or an image.

Nothing here, and nothing built on it, reads a global generator. From that follow bit-exact resume, twin runs
that share their draws, and draws that do not depend on the batch size, the other images or the number of processes.
Layers that draw for themselves (dropout) are the exception: they read torch's generator, which has a stream of its own
in each training step and process.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

import numpy as np
import torch
from torch import Tensor

Law = Literal["uniform", "normal"]
PER_COUNT = 8
"""The 32-bit numbers that Philox makes of one value of its counter."""
IN_CACHE = 1 << 14
"""The numbers that are transformed at a time, so that they stay in the cache."""
OF_THE_CPU = {torch.float32: 1, torch.float64: 2}
"""The 32-bit numbers that a draw takes from torch's generator on a CPU."""
NORMAL_BLOCK = 16
"""The normal numbers that torch makes at a time on a CPU; the last block of an uneven draw is drawn again."""


def stream_key(seed: int, *path: str | int) -> int:
    """The 64-bit key of a stream: a hash of the seed and of what the stream is for."""
    text = repr((int(seed), *(part if isinstance(part, str) else int(part) for part in path))).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())


def generator(device: torch.device, key: int) -> torch.Generator:
    """A generator on ``device`` at the beginning of the stream ``key``."""
    where = "cpu" if device.type == "meta" else device  # meta tensors have no generator of their own
    return torch.Generator(device=where).manual_seed(key)


def permutation(n: int, seed: int, *path: str | int) -> Tensor:
    """A uniformly random order of n items, always drawn on the CPU."""
    return torch.randperm(n, generator=generator(torch.device("cpu"), stream_key(seed, *path)))


def sample(n: int, size: int, seed: int, *path: str | int) -> Tensor:
    """``size`` of n items in random order, uniformly without replacement: what `permutation` begins with, in O(size).

    One draw on the CPU, then the first ``size`` exchanges of a Fisher–Yates shuffle, of which only the moved items are
    kept.
    """
    u = torch.rand(
        size, dtype=torch.float64, generator=generator(torch.device("cpu"), stream_key(seed, *path))
    )
    left = torch.arange(n, n - size, -1)
    moved: dict[int, int] = {}
    taken = []
    for i, offset in enumerate((u * left).long().tolist()):
        taken.append(moved.get(i + offset, i + offset))
        moved[i + offset] = moved.pop(i, i)
    return torch.tensor(taken, dtype=torch.int64)


@contextmanager
def layer_rng(device: torch.device, key: int) -> Iterator[None]:
    """Inside, layers that draw for themselves (dropout) draw from the stream ``key``; outside, nothing changes.

    Such layers read torch's global generator, so it is saved and restored.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key)
        if device.type in ("cpu", "meta"):
            yield
            return
        accelerator = torch.get_device_module(device)
        own = accelerator.device(device) if device.type == "cuda" else nullcontext()
        with own:  # the generator of this device, not of another GPU
            before = accelerator.get_rng_state()
            accelerator.manual_seed(key)
            try:
                yield
            finally:
                accelerator.set_rng_state(before)


class Rng(Protocol):
    """Draws for a batch of images x of shape (..., b, C, H, W), the same for every member of a stack.

    ``shape`` is what is drawn for each image (default: C, H, W); the result has shape (..., b, *shape).
    """

    def uniform(self, purpose: str, x: Tensor, shape: tuple[int, ...] | None = None) -> Tensor: ...

    def normal(self, purpose: str, x: Tensor, shape: tuple[int, ...] | None = None) -> Tensor: ...

    def common(self, purpose: str, x: Tensor) -> Tensor:
        """One normal draw of shape (C, H, W), common to all images of the batch."""
        ...

    def at(self, *path: str | int) -> Self:
        """The rng of a part of this step: an iteration of an attack, a restart."""
        ...


def _dtype(x: Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.float32


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """x on ``device``; from pinned memory where it is sent to a GPU, so that the program does not wait for the copy."""
    if device.type == "cuda" and x.device.type == "cpu":
        return x.pin_memory().to(device, non_blocking=True)
    return x.to(device)


def reading_is_free(x: Tensor) -> bool:
    """Whether the program may look at values of x without waiting for a device."""
    return x.device.type == "cpu"


def _like(drawn: np.ndarray, x: Tensor) -> Tensor:
    return to_device(torch.from_numpy(drawn), x.device).to(_dtype(x))


def _filling_order(size: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which a draw of ``size`` is filled: images (n, C, H, W) channels last, as in memory."""
    return (size[0], *size[2:], size[1]) if len(size) == 4 else size


def _in_requested_shape(drawn: Tensor) -> Tensor:
    """A filled draw, back in the requested shape."""
    return drawn.movedim(-1, 1) if drawn.ndim == 4 else drawn


def _fill(law: Law, empty: Tensor, g: torch.Generator) -> Tensor:
    return empty.uniform_(generator=g) if law == "uniform" else empty.normal_(generator=g)


def _on_device(law: Law, size: tuple[int, ...], rows: slice, like: Tensor, key: int) -> Tensor:
    """The ``rows`` of a draw of ``size``.

    On a CPU no others are drawn. A GPU draws all, which takes microseconds: which thread draws a number there depends
    on how many are drawn.
    """
    g, dtype, order = generator(like.device, key), _dtype(like), _filling_order(size)
    numbers = math.prod(size[1:])
    whole = rows == slice(0, size[0])
    if whole or like.device.type != "cpu" or dtype not in OF_THE_CPU or math.prod(size) < NORMAL_BLOCK:
        return _in_requested_shape(_fill(law, torch.empty(order, device=like.device, dtype=dtype), g))[rows]
    part = _part(law, math.prod(size), rows.start * numbers, rows.stop * numbers, dtype, g)
    return _in_requested_shape(part.view(-1, *order[1:]))


def _part(law: Law, total: int, first: int, stop: int, dtype: torch.dtype, g: torch.Generator) -> Tensor:
    """The numbers ``first`` to ``stop`` of a draw of ``total`` numbers on a CPU: the same bits, without the others."""

    def drawn(skipped: int, count: int) -> Tensor:
        unused = torch.empty(min(IN_CACHE, skipped * OF_THE_CPU[dtype]), dtype=torch.uint8)
        for k in range(0, skipped * OF_THE_CPU[dtype], IN_CACHE):
            unused[: skipped * OF_THE_CPU[dtype] - k].random_(generator=g)
        return _fill(law, torch.empty(count, dtype=dtype), g)

    if law == "uniform":
        return drawn(first, stop - first)
    whole_blocks, again = total // NORMAL_BLOCK * NORMAL_BLOCK, total - NORMAL_BLOCK
    low = first // NORMAL_BLOCK * NORMAL_BLOCK
    high = max(low, min(-(-stop // NORMAL_BLOCK) * NORMAL_BLOCK, whole_blocks))
    found = drawn(low, high - low)
    if whole_blocks < total and stop > again:
        last = drawn(total - high, NORMAL_BLOCK)
        found = torch.cat([found[: max(again - low, 0)], last[max(low - again, 0) :]])
    return found[first - low : stop - low]


@dataclass(frozen=True)
class StepRng:
    """The draws of one training step, made on the device.

    A process that holds rows ``first, …`` of a global batch of ``total`` images has its rows of each draw. Members of
    a stack share their draws, unless ``seed`` holds one seed for each of them: then a member draws what a single run
    with its seed draws.
    """

    seed: int | tuple[int, ...]
    path: tuple[str | int, ...] = ()
    total: int | None = None
    first: int = 0

    def uniform(self, purpose: str, x: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        return self._draw("uniform", purpose, x, shape)

    def normal(self, purpose: str, x: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        return self._draw("normal", purpose, x, shape)

    def common(self, purpose: str, x: Tensor) -> Tensor:
        drawn = self._members("normal", (1, *x.shape[-3:]), slice(0, 1), x, purpose)
        return drawn if isinstance(self.seed, tuple) else drawn[0]

    def at(self, *path: str | int) -> Self:
        return replace(self, path=(*self.path, *path))

    def from_row(self, row: int) -> Self:
        """The rng of the part of the batch that begins at ``row``."""
        return replace(self, first=self.first + row)

    def _members(self, law: Law, size: tuple[int, ...], rows: slice, like: Tensor, purpose: str) -> Tensor:
        """The rows of a draw of ``size``; with a leading axis for the members where each has a seed of its own."""
        if not isinstance(self.seed, tuple):
            return _on_device(law, size, rows, like, stream_key(self.seed, purpose, *self.path))
        keys = [stream_key(seed, purpose, *self.path) for seed in self.seed]
        return torch.stack([_on_device(law, size, rows, like, key) for key in keys])

    def _draw(self, law: Law, purpose: str, x: Tensor, shape: tuple[int, ...] | None) -> Tensor:
        b = x.shape[-4]
        total = b if self.total is None else self.total
        part = x.shape[-3:] if shape is None else shape
        own = slice(self.first, self.first + b)
        rows = self._members(law, (total, *part), own, x, purpose)
        return rows.expand(*x.shape[:-4], *rows.shape[-1 - len(part) :])


@dataclass(frozen=True)
class ImageRng:
    """The draws of an evaluation: each image has its own, whatever batch it comes in."""

    seed: int
    images: Sequence[int]
    path: tuple[str | int, ...] = ()

    def uniform(self, purpose: str, x: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        return self._draw("uniform", purpose, x, shape)

    def normal(self, purpose: str, x: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        return self._draw("normal", purpose, x, shape)

    def common(self, purpose: str, x: Tensor) -> Tensor:
        channels, *sides = x.shape[-3:]
        stream = np.random.Generator(
            np.random.Philox(key=stream_key(self.seed, purpose, "common", *self.path))
        )
        drawn = stream.standard_normal((*sides, channels), np.float32)
        return _like(drawn, x).movedim(-1, 0)

    def at(self, *path: str | int) -> Self:
        return replace(self, path=(*self.path, *path))

    def select(self, rows: Sequence[int]) -> Self:
        """The rng of some of the images: those that an attack continues with."""
        return replace(self, images=[self.images[row] for row in rows])

    def _draw(self, law: Law, purpose: str, x: Tensor, shape: tuple[int, ...] | None) -> Tensor:
        size = (len(self.images), *(x.shape[-3:] if shape is None else shape))
        numbers = math.prod(size[1:])
        # The number of numbers is in the key: draws of other lengths are other streams.
        key = stream_key(self.seed, purpose, "images", numbers, *self.path)
        if law == "uniform":
            block = _of_images(key, self.images, numbers)
        else:
            block = _normal(_of_images(key, self.images, numbers + numbers % 2))[:, :numbers]
        rows = _in_requested_shape(_like(block.reshape(_filling_order(size)), x))
        return rows.expand(*x.shape[:-4], *rows.shape)


def _of_images(key: int, images: Sequence[int], numbers: int) -> np.ndarray:
    """Uniform numbers in [0, 1) for each image, (images, numbers): image i has the i-th block of the stream ``key``.

    Consecutive images are drawn at once; between others the counter jumps.
    """
    index = np.asarray(images, dtype=np.int64)
    counts = -(-numbers // PER_COUNT)  # of the counter, for one image
    block = np.empty((len(index), counts * PER_COUNT), np.float32)
    bits = np.random.Philox(key=key)
    stream = np.random.Generator(bits)
    position = 0
    for run in np.split(np.arange(len(index)), np.flatnonzero(np.diff(index) != 1) + 1):
        if len(run):
            first = int(index[run[0]])
            bits.advance((first - position) * counts)
            stream.random(out=block[run[0] : run[-1] + 1], dtype=np.float32)
            position = first + len(run)
    return block[:, :numbers]


def _normal(u: np.ndarray) -> np.ndarray:
    """Normal numbers in the place of uniform ones in [0, 1), by Box and Muller's transformation of pairs of columns."""
    half = u.shape[1] // 2
    rows = max(1, IN_CACHE // max(half, 1))
    for first in range(0, len(u), rows):
        part = u[first : first + rows]
        radius = np.sqrt(np.float32(-2) * np.log(np.float32(1) - part[:, :half]))
        angle = np.float32(2 * math.pi) * part[:, half:]
        part[:, :half], part[:, half:] = radius * np.cos(angle), radius * np.sin(angle)
    return u
