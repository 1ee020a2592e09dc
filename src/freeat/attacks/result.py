"""What an attack is, what it finds, and how it queries the model: costs counted, correctness in fp32."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from freeat.compute import Cost
from freeat.compute.precision import Precision
from freeat.objectives import Model, cross_entropy
from freeat.rng import ImageRng, reading_is_free
from freeat.threat import Ball


@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """The result of an attack on a batch. ``loss`` is the largest cross-entropy along the way, if asked for.

    ``queries`` counts the queries of each image, for a black-box attack; ``notes`` are sentences that a report of
    this result must contain.
    """

    delta: Tensor
    fooled: Tensor
    loss: Tensor | None
    cost: Cost
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
        """Whether it queries scores only, never a gradient."""
        ...

    def __call__(
        self, f: Model, x: Tensor, y: Tensor, ball: Ball, rng: ImageRng, *, with_loss: bool = False
    ) -> AttackResult: ...


def misclassified(logits: Tensor, y: Tensor) -> Tensor:
    """Whether each image's largest logit is not its label's."""
    return logits.detach().argmax(-1) != y


class Oracle:
    """The model as an attack queries it, in the attack's precision, with its cost counted.

    Where that precision is not fp32, the model itself decides whether an image is fooled, so that an attack in bf16
    never claims what fp32 does not confirm.
    """

    def __init__(self, f: Model, precision: str, x: Tensor) -> None:
        self.f = f
        self.precision = Precision(precision, x.device)
        self.cost = Cost()
        self.classes = 0  # set by the first logits
        self.differentiable = True  # until logits have no gradient

    @property
    def exact(self) -> bool:
        return self.precision.dtype is None

    def logits(self, x_adv: Tensor) -> Tensor:
        """The logits that guide the attack, in its precision."""
        self.cost.add(len(x_adv))
        return self._seen(self.precision.run(self.f, x_adv))

    @torch.no_grad()
    def exact_logits(self, x_adv: Tensor) -> Tensor:
        """The logits that decide correctness."""
        self.cost.forward_passes += len(x_adv)
        return self._seen(self.f(x_adv))

    def gradient(self, losses: Tensor, delta: Tensor) -> Tensor:
        """∇_δ of the losses; zero, with ``differentiable`` unset, where the model cut it off."""
        if losses.requires_grad:
            (g_delta,) = torch.autograd.grad(losses.sum(), delta, allow_unused=True)
            if g_delta is not None:
                return g_delta
        self.differentiable = False
        return torch.zeros_like(delta)

    def wrong(self, x_adv: Tensor, y: Tensor, logits: Tensor) -> Tensor:
        """Whether the model is wrong at x_adv, given ``logits(x_adv)``."""
        wrong = misclassified(logits, y)
        if self.exact:
            return wrong
        rows = wrong.nonzero().squeeze(-1)
        if len(rows):
            wrong[rows] = misclassified(self.exact_logits(x_adv[rows].detach()), y[rows])
        return wrong

    def _seen(self, logits: Tensor) -> Tensor:
        self.classes = logits.shape[-1]
        return logits


def _store(kept: Tensor, rows: Tensor, chosen: Tensor, values: Tensor) -> None:
    """Put the ``chosen`` of the values of the images ``rows`` in their place among those kept."""
    if reading_is_free(kept):
        kept[rows[chosen]] = values[chosen]
    else:
        chosen = chosen.view(-1, *[1] * (values.ndim - 1))
        kept[rows] = torch.where(chosen, values, kept[rows])


class Search:
    """The best perturbation found so far for each image of a batch, while an attack runs."""

    def __init__(self, oracle: Oracle, x: Tensor, y: Tensor) -> None:
        self.oracle = oracle
        self.y = y
        self.all_rows = torch.arange(len(x), device=x.device)
        self.delta = torch.zeros_like(x)
        self.fooled = torch.zeros_like(y, dtype=torch.bool)
        self.loss = torch.full(y.shape, -torch.inf, device=x.device, dtype=x.dtype)
        self._kept = self.loss.clone()  # the loss at the perturbation that is kept

    def confirm(self, rows: Tensor, x_adv: Tensor, delta: Tensor) -> Tensor:
        """Take in an iterate of the images ``rows``, evaluated in fp32, and return its logits."""
        logits, y = self.oracle.exact_logits(x_adv), self.y[rows]
        self.update(rows, delta, cross_entropy(logits, y), misclassified(logits, y))
        return logits

    def update(self, rows: Tensor, delta: Tensor, loss: Tensor, wrong: Tensor | None) -> None:
        """Take in an iterate of the images ``rows``, of which some are ``wrong``; None: it counts for the loss only.

        Kept is the first perturbation that fools, and until there is one, that of the largest loss.
        """
        loss = loss.detach().to(self.loss.dtype)
        if wrong is not None:
            better = ~self.fooled[rows] & (wrong | (loss > self._kept[rows]))
            _store(self.delta, rows, better, delta.detach())
            _store(self._kept, rows, better, loss)
            _store(self.fooled, rows, better, wrong)
        self.loss[rows] = torch.maximum(self.loss[rows], loss)

    def result(
        self, *, with_loss: bool, queries: Tensor | None = None, notes: tuple[str, ...] = ()
    ) -> AttackResult:
        loss = self.loss if with_loss else None
        return AttackResult(
            delta=self.delta,
            fooled=self.fooled,
            loss=loss,
            cost=self.oracle.cost,
            queries=queries,
            notes=notes,
        )
