"""The record of ‖∇_δ h‖ over a training run (Figure 12), of which the smallest is 1/ψ."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

LOWEST, HIGHEST = -120, 80
"""Bins are tenths of a decade: bin k holds the norms in [10^(k/10), 10^((k+1)/10))."""


@dataclass(frozen=True, kw_only=True)
class NormCounts:
    """How many norms fell into which bin since the last record, and the smallest of the whole run."""

    smallest_so_far: float
    bins: dict[str, int]


@dataclass
class GradientNorms:
    """Counts of per-image norms since the last record, and the smallest seen in the whole run."""

    smallest: float | None = None
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, norms: Tensor) -> None:
        """Count some norms; a zero falls into the lowest bin."""
        if not norms.numel():
            return
        norms = norms.detach().flatten().double()
        least = float(norms.min())
        self.smallest = least if self.smallest is None else min(self.smallest, least)
        bins = (norms.log10() * 10).floor().nan_to_num(HIGHEST).clamp(LOWEST, HIGHEST).long()
        for bin_, count in zip(*torch.unique(bins, return_counts=True), strict=True):
            self.counts[int(bin_)] = self.counts.get(int(bin_), 0) + int(count)

    def state(self) -> NormCounts | None:
        """What a checkpoint keeps; None where the algorithm shows no norms."""
        if self.smallest is None:
            return None
        bins = {str(k): count for k, count in sorted(self.counts.items())}
        return NormCounts(smallest_so_far=self.smallest, bins=bins)

    def take(self) -> NormCounts | None:
        """What was counted since the last call, for a record."""
        taken, self.counts = self.state(), {}
        return taken

    @classmethod
    def from_state(cls, state: NormCounts | None) -> "GradientNorms":
        if state is None:
            return cls()
        return cls(smallest=state.smallest_so_far, counts={int(k): v for k, v in state.bins.items()})
