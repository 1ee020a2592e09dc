"""Which images a batch holds: a pure function of the seed and the batch's number."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from torch import Tensor

from freeat.errors import InputError, unknown_name
from freeat.rng import permutation, sample
from freeat.units import LARGEST_COUNT

Sampling = Literal["epochs", "independent"]
SAMPLINGS: tuple[str, ...] = get_args(Sampling)


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Batches of ``size`` out of ``n`` images.

    ``epochs``: each epoch is a new random order of all images, the last batch is kept, and a last batch of one
    image joins the one before it (batch normalization needs two). ``independent``: each batch is drawn without
    replacement from all images, as the theorems assume. ``replay`` batches in a row are the same batch of the data.
    """

    n: int
    size: int
    seed: int
    sampling: Sampling = "epochs"
    replay: int = 1

    def __post_init__(self) -> None:
        if self.sampling not in SAMPLINGS:
            raise unknown_name("sampling", self.sampling, SAMPLINGS)
        if not self.size >= 1:
            raise InputError(f"batch size {self.size} must be at least 1")
        if not self.replay >= 1:
            raise InputError(f"batches used {self.replay} times: must be at least 1")

    @property
    def per_epoch(self) -> int:
        """Batches in one epoch."""
        whole, rest = divmod(self.n, self.size)
        joined = rest == 1 and whole > 0
        return max(1, whole + (rest > 0) - joined)

    @property
    def mean_size(self) -> float:
        """The mean number of images in a batch."""
        return min(self.n, self.size) if self.sampling == "independent" else self.n / self.per_epoch

    @property
    def sizes(self) -> tuple[int, ...]:
        """The possible numbers of images in a batch."""
        if self.sampling == "independent":
            return (min(self.n, self.size),)
        last = self.n - (self.per_epoch - 1) * self.size
        return (last,) if self.per_epoch == 1 else tuple({self.size, last})

    def drawn(self, t: int) -> int:
        """The number of the batch of the data that batch t = 1, 2, … uses."""
        return (t - 1) // self.replay + 1

    def __call__(self, t: int) -> Tensor:
        """The rows of batch t = 1, 2, …"""
        t = self.drawn(t)
        if self.sampling == "independent":
            return sample(self.n, min(self.n, self.size), self.seed, "batch", t)
        epoch, position = divmod(t - 1, self.per_epoch)
        last = position == self.per_epoch - 1
        first = position * self.size
        return _order(self.n, self.seed, epoch)[first : None if last else first + self.size]


@lru_cache(maxsize=4)
def _order(n: int, seed: int, epoch: int) -> Tensor:
    return permutation(n, seed, "order", epoch)


def updates_for(epochs: float, n: int, batch_size: int) -> int:
    """T = epochs · batches per epoch: the weight updates that one update per batch makes in ``epochs``."""
    updates = round(epochs * Batches(n=n, size=batch_size, seed=0).per_epoch)
    if not 1 <= updates <= LARGEST_COUNT:
        rule = (
            "no update: train for more"
            if updates < 1
            else f"more than {LARGEST_COUNT} updates: train for less"
        )
        raise InputError(f"{epochs:g} epochs of {n} images make {rule}")
    return updates
