"""A seeded order of images that depends on nothing but each image's number.

Because an image's rank is a function of (seed, purpose, its number), the first n of the order are nested for
growing n, a subset of a subset is the subset itself, and no library's generator can change it.
"""

import numpy as np
from numpy.typing import NDArray

from freeat.rng import stream_key


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


def _splitmix64(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of the SplitMix64 generator: a bijection of 64-bit words with good avalanche."""
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
