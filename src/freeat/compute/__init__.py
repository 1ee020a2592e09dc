"""Counted costs; precision, device and threads, provenance, frozen eval mode with conv–BN fusion."""

from dataclasses import dataclass

import torch

FORWARD_SHARE = 1 / 3
"""The cost of a forward pass without a backward pass, in gradient evaluations."""


@dataclass
class Cost:
    """Images sent through a network: gradient evaluations (forward–backward passes) and forward-only passes."""

    gradient_evaluations: int = 0
    forward_passes: int = 0

    def add(self, images: int) -> None:
        """Count one pass of a batch, with its backward pass where gradients are enabled."""
        if torch.is_grad_enabled():
            self.gradient_evaluations += images
        else:
            self.forward_passes += images

    @property
    def total(self) -> float:
        """In gradient evaluations."""
        return self.gradient_evaluations + FORWARD_SHARE * self.forward_passes
