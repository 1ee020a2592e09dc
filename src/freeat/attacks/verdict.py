"""What an attack found: for each image the perturbation, whether it fools the model, and the largest loss."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from freeat.compute.passes import Passes
from freeat.objectives import Model
from freeat.rng import ImageRng
from freeat.threat import Ball


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """The result of an attack on a batch. ``loss`` is the largest cross-entropy along the way, if asked for.

    ``queries`` counts, for a black-box attack, the scores it asked of each image; ``notes`` are sentences that a
    report of this result must say.
    """

    delta: Tensor
    fooled: Tensor
    loss: Tensor | None
    passes: Passes
    queries: Tensor | None = None
    notes: tuple[str, ...] = ()


class Attack(Protocol):
    """Looks for δ in the ball, in the box, such that the model is wrong at x + δ.

    ``f`` is the model, in evaluation mode with its weights frozen.
    """

    @property
    def name(self) -> str: ...

    @property
    def black_box(self) -> bool:
        """Whether it asks for scores only, never for a gradient."""
        ...

    def __call__(
        self, f: Model, x: Tensor, y: Tensor, ball: Ball, rng: ImageRng, *, with_loss: bool = False
    ) -> Attacked: ...


class Search:
    """The best found so far for each image of a batch, while an attack runs."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.delta = torch.zeros_like(x)
        self.fooled = torch.zeros_like(y, dtype=torch.bool)
        self.loss = torch.full(y.shape, -torch.inf, device=x.device, dtype=x.dtype)
        self._kept = self.loss.clone()  # the loss at the perturbation that is kept

    def see(self, rows: Tensor, delta: Tensor, wrong: Tensor, loss: Tensor, *, counts: bool) -> None:
        """An iterate of the images ``rows``; it ``counts`` towards the verdict, or only towards the loss.

        Kept is the first perturbation that fools, and until there is one, that of the largest loss.
        """
        loss = loss.detach().to(self.loss.dtype)
        if counts:
            better = ~self.fooled[rows] & (wrong | (loss > self._kept[rows]))
            at = rows[better]
            self.delta[at] = delta.detach()[better]
            self._kept[at] = loss[better]
            self.fooled[at] = wrong[better]
        self.loss[rows] = torch.maximum(self.loss[rows], loss)

    def result(
        self, passes: Passes, *, with_loss: bool, queries: Tensor | None = None, notes: tuple[str, ...] = ()
    ) -> Attacked:
        loss = self.loss if with_loss else None
        return Attacked(
            delta=self.delta, fooled=self.fooled, loss=loss, passes=passes, queries=queries, notes=notes
        )
