"""The record of ‖∇_δ h‖ over a training run (Figure 12), of which the smallest is 1/ψ."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

LOWEST, HIGHEST = -120, 80
"""Bins are tenths of a decade: bin k holds the norms in [10^(k/10), 10^((k+1)/10))."""


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

    def take(self) -> dict[str, Any] | None:
        """What was counted since the last call, for a record; None where the algorithm shows no norms."""
        if self.smallest is None:
            return None
        taken = {
            "smallest_so_far": self.smallest,
            "bins": {str(k): v for k, v in sorted(self.counts.items())},
        }
        self.counts = {}
        return taken

    def state(self) -> dict[str, Any]:
        return {"smallest": self.smallest, "counts": {str(k): v for k, v in self.counts.items()}}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "GradientNorms":
        return cls(smallest=state["smallest"], counts={int(k): v for k, v in state["counts"].items()})
