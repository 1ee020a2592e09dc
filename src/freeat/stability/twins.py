"""Twin runs: S and K neighbours S′, trained with the same weights, batches, augmentation and starts."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from freeat.algorithms.step import Algorithm, StepRecord
from freeat.data import Augmentation, Images
from freeat.data.batches import Batches
from freeat.data.images import seeded_order
from freeat.errors import InputError
from freeat.rng import StepRng
from freeat.stability.coupled import CoupledRuns
from freeat.threat import l2_norm


@dataclass(frozen=True, kw_only=True, eq=False)
class Twins:
    """S and its K neighbours of Definition 1: in the k-th, row ``replaced[k]`` gives way to image k.

    Member 0 of the coupled runs trains on S, member k + 1 on the k-th neighbour.
    """

    sample: Images
    replaced: tuple[int, ...]
    replacements: Images

    def __post_init__(self) -> None:
        if len(self.replaced) != len(self.replacements) or not self.replaced:
            raise InputError(
                f"{len(self.replaced)} replaced examples and {len(self.replacements)} replacements: "
                "give one replacement for each, and at least one"
            )
        if not all(0 <= i < len(self.sample) for i in self.replaced):
            raise InputError(f"replaced rows {self.replaced}: must lie in 0 to {len(self.sample) - 1}")

    @classmethod
    def draw(cls, sample: Images, pool: Images, count: int, seed: int = 0) -> "Twins":
        """``count`` random rows of the sample, replaced by as many random images of ``pool``."""
        if not 1 <= count <= min(len(sample), len(pool)):
            raise InputError(
                f"{count} replaced examples: must lie between 1 and {min(len(sample), len(pool))}, the smaller of "
                f"the sample ({len(sample)}) and the pool of replacements ({len(pool)})"
            )
        rows = seeded_order(sample.index.cpu().numpy(), seed, "replaced")[:count]
        fresh = seeded_order(pool.index.cpu().numpy(), seed, "replacement")[:count]
        return cls(
            sample=sample,
            replaced=tuple(int(i) for i in rows),
            replacements=pool.take(torch.from_numpy(fresh)),
        )

    @property
    def members(self) -> int:
        """The runs: one on S and one per neighbour."""
        return 1 + len(self.replaced)

    @cached_property
    def both(self) -> Images:
        """S followed by the replacements."""
        return joined(self.sample, self.replacements)

    @cached_property
    def originals(self) -> Images:
        """The examples of S that are replaced, in the order of the neighbours."""
        return self.sample.take(torch.tensor(self.replaced))

    def rows(self, rows: Tensor) -> Tensor:
        """The rows of ``both`` that each member sees where S's are ``rows`` (b,): (K + 1, b)."""
        own = torch.tensor((-1, *self.replaced)).unsqueeze(1)
        instead = torch.arange(self.members).unsqueeze(1) + len(self.sample) - 1
        return torch.where(rows == own, instead, rows)

    def meetings(self, batches: Batches, count: int) -> list[int | None]:
        """For each neighbour, the first of ``count`` batches that holds the replaced example; None if none does."""
        first: dict[int, int] = {}
        for t in range(1, count + 1):
            for row in batches(t).tolist():
                first.setdefault(row, t)
        return [first.get(i) for i in self.replaced]


def joined(*parts: Images) -> Images:
    """The images of all parts, one part after the other."""
    return Images(
        x=torch.cat([part.x for part in parts]),
        y=torch.cat([part.y for part in parts]),
        index=torch.cat([part.index for part in parts]),
    )


def outside(images: Images, sample: Images) -> Images:
    """The images that are not in the sample, by their numbers."""
    rows = np.flatnonzero(~np.isin(images.index.cpu().numpy(), sample.index.cpu().numpy()))
    if not len(rows):
        raise InputError(
            f"no image is left outside the sample of {len(sample)}: train on fewer (--train-size), so that some "
            "remain to replace examples"
        )
    return images.take(torch.from_numpy(rows))


def train_twins(
    runs: CoupledRuns,
    algorithm: Algorithm,
    twins: Twins,
    batches: Batches,
    augment: Augmentation | None = None,
) -> Iterator[StepRecord]:
    """Train all members until the budget of weight updates is spent; yields each batch's record, (K + 1, b, …)."""
    differs = torch.zeros(twins.members, dtype=torch.bool)
    dtype = next(runs.base.model.parameters()).dtype
    while runs.base.updates_left > 0:
        t = runs.base.batches + 1
        rows = twins.rows(batches(t))
        differs |= (rows != rows[0]).any(1)
        rng = StepRng(runs.base.seed, (t,), rows.shape[1], 0)
        x, y = twins.both.batch(rows, augment, rng)
        yield runs.step(algorithm, x.to(dtype), y, differs)


def weight_distances(runs: CoupledRuns) -> list[float]:
    """d^w = ‖w − w′‖ of every neighbour."""
    weights = runs.weights()
    return [float(d) for d in (weights[1:] - weights[:1]).cpu().double().norm(dim=1)]


def delta_distances(record: StepRecord) -> list[float]:
    """d^δ = the batch's mean of ‖δ_j − δ_j′‖₂ of every neighbour."""
    return [float(d) for d in l2_norm(record.delta[1:] - record.delta[:1]).cpu().double().mean(1)]
