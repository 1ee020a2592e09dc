"""The draws of the Square attack: one stream per image, drawn in blocks of many queries at once.

A stream per image and query would cost more than a small network's forward pass. Each image instead keeps one
generator for the whole attack, and takes the same number of draws from it for every query, whether or not the
query uses them all: what query t of image i draws depends on nothing else.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from freeat.rng import ImageRng, stream_key

BLOCK = 256


class SquareDraws:
    """Uniform draws in [0, 1) for query after query of a set of images that may shrink."""

    def __init__(self, rng: ImageRng, per_query: int, like: Tensor) -> None:
        self._streams = [
            np.random.Generator(np.random.Philox(key=stream_key(rng.seed, "square", image, *rng.path)))
            for image in rng.images
        ]
        self._per_query = per_query
        self._like = like
        self._block = like.new_empty((0, len(self._streams), per_query))
        self._next = 0

    def once(self, shape: tuple[int, ...]) -> Tensor:
        """Draws of ``shape`` for each image, for the start: (n, *shape)."""
        return self._tensor(np.stack([stream.random(shape, np.float32) for stream in self._streams]))

    def query(self) -> Tensor:
        """The draws of the next query: (n, per_query)."""
        if self._next == len(self._block):
            shape = (BLOCK, self._per_query)
            drawn = np.stack([stream.random(shape, np.float32) for stream in self._streams], axis=1)
            self._block, self._next = self._tensor(drawn), 0
        self._next += 1
        return self._block[self._next - 1]

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these of the images only."""
        self._streams = [self._streams[row] for row in rows]
        self._block = self._block[:, torch.as_tensor(rows, device=self._block.device, dtype=torch.int64)]

    def _tensor(self, drawn: np.ndarray) -> Tensor:
        return torch.from_numpy(drawn).to(self._like.device, self._like.dtype)
