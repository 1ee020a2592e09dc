"""Projected gradient ascent: the one loop of training, evaluation and stability, and PGD as an evaluation."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, get_args

import torch
from torch import Tensor

from freeat.attacks.result import AttackResult, Oracle, Search
from freeat.compute.precision import PRECISIONS
from freeat.errors import InputError, unknown_name
from freeat.objectives import LOSS_NAMES, LOSSES, LossName, Model, cross_entropy, defined_loss
from freeat.rng import ImageRng, Rng, reading_is_free
from freeat.threat import STARTS, Ball, Start

Iterate = Literal["last", "worst"]
ITERATES: tuple[str, ...] = get_args(Iterate)
COMPACT_EVERY = 4
"""The steps after which images that stopped leave a batch that is not on the CPU: to know them is to wait."""
NO_GRADIENT = (
    "The model has no gradient: PGD took random steps, and the accuracy it left is no robust accuracy."
)
ImageLoss = Callable[[Tensor], Tensor]  # perturbed images to one value each
Evaluate = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor | None]]
"""From an iterate (x + δ, δ and the rows of the images that still move) to the values that are ascended, one per image,
and whether each image is misclassified, which only a stop rule needs. It keeps what is kept of the iterates."""


class Maximizer(Protocol):
    """argmax_{δ ∈ Δ} of a loss, exactly or nearly: line 4 of Algorithm 1."""

    def __call__(self, loss: ImageLoss, x: Tensor, y: Tensor, ball: Ball, rng: Rng) -> Tensor: ...


def gradient_of(losses: Tensor, delta: Tensor) -> Tensor:
    """[∇_δ loss_j]_j, each image's own gradient (of the sum, never divided by the batch size)."""
    return torch.autograd.grad(losses.sum(), delta)[0]


def delta_gradient(loss: ImageLoss, x: Tensor, delta: Tensor, ball: Ball) -> Tensor:
    """The gradient of each image's loss at x + δ with respect to its δ."""
    delta = delta.detach().requires_grad_()
    with torch.enable_grad():
        return gradient_of(loss(ball.apply(x, delta)), delta)


def projected_ascent(
    evaluate: Evaluate,
    x: Tensor,
    ball: Ball,
    rng: Rng,
    *,
    steps: int,
    alpha: float,
    start: Start = "uniform",
    noise: float = 0.0,
    patience: int | None = None,
    shrink: bool = False,
    finish: Callable[[Tensor, Tensor, Tensor], object] | None = None,
    gradient: Callable[[Tensor, Tensor], Tensor] = gradient_of,
) -> Tensor:
    """The last of ``steps`` iterates δ ← P_Δ(δ + α π_Δ(∇_δ)/ε), kept in the box; the one loop of every PGD.

    Args:
        evaluate: receives every iterate, with gradients enabled, and keeps what the caller needs of it.
        x: images (..., b, C, H, W); a stack of batches has leading axes.
        alpha: the length of a step, in input units.
        noise: the standard deviation of Gaussian noise that is added to each step.
        patience: the steps that an image still takes once it is misclassified; None: no image stops.
        shrink: images that stop leave the batch, on the CPU at once and elsewhere after every few steps. Otherwise they
            keep their δ, and no shape depends on values.
        finish: receives the last iterate, with gradients disabled.
        gradient: the gradient at x + δ of the values that ``evaluate`` returned.
    """
    rows = torch.arange(x.shape[-4], device=x.device)
    left = torch.full(
        x.shape[:-3], patience or 0, device=x.device
    )  # the steps that an image has left once wrong
    feasible = ball.feasible(x)
    delta = feasible.confine(ball.start(x, start, rng)).detach()
    compact_every = 1 if reading_is_free(x) else COMPACT_EVERY
    for k in range(steps):
        if not len(rows):
            return delta
        # δ is feasible, so that no pixel is cut by the box and the gradient at x + δ is that for δ.
        x_adv = ball.apply(x, delta).requires_grad_()
        with torch.enable_grad():
            losses, wrong = evaluate(x_adv, delta, rows)
            g_delta = gradient(losses, x_adv)
        moved = ball.ascend(delta, g_delta, alpha, rng.at(k), ball.project if noise else feasible)
        if noise:
            moved = feasible(moved + noise * rng.at(k).normal("omega", x))
        if patience is None:
            delta = moved
            continue
        assert wrong is not None
        moves = ~wrong | (left > 0)
        left = left - wrong.to(left.dtype)
        if not shrink or compact_every > 1:
            moved = torch.where(moves[..., None, None, None], moved, delta)
        delta = moved
        if shrink and (k + 1) % compact_every == 0 and not moves.all():
            still = moves.nonzero().squeeze(-1)
            rows, x, left, delta = rows[still], x[still], left[still], delta[still]
            feasible = ball.feasible(x)
    if finish is not None and len(rows):
        with torch.no_grad():
            finish(ball.apply(x, delta), delta, rows)
    return delta


def last_iterate(
    loss: ImageLoss, x: Tensor, ball: Ball, rng: Rng, *, steps: int, alpha: float, start: Start = "uniform"
) -> Tensor:
    """PGD on ``loss``, as training uses it: every image takes every step."""

    def evaluate(x_adv: Tensor, delta: Tensor, rows: Tensor) -> tuple[Tensor, None]:
        return loss(x_adv), None

    return projected_ascent(evaluate, x, ball, rng, steps=steps, alpha=alpha, start=start)


@dataclass(frozen=True, kw_only=True)
class Pgd:
    """Projected gradient descent (PGD) as an evaluation attack.

    A robust loss, where an evaluation computes it, is the largest cross-entropy over all iterates of an image; every
    image then takes every step.

    Args:
        steps: the steps of each restart.
        restarts: the random starts.
        alpha: the length of a step in input units; by default ε/4, and ε for one step.
        start: where δ starts: ``uniform``, ``radius``, ``gaussian`` or ``zero``.
        iterate: ``last``: every image takes every step and only the last iterate counts, as in the paper's code.
            ``worst``: every iterate counts, also the clean image, and an image stops once it is fooled.
        loss: what is ascended: ``ce`` (cross-entropy), ``margin`` or ``dlr``.
        precision: the arithmetic of the gradients; correctness is always decided in fp32.

    Raises:
        InputError: a number is out of range, or a name is unknown.

    Example:
        >>> import freeat
        >>> attack = freeat.Pgd(steps=50, restarts=10, loss="margin")
        >>> attack.name, attack.step_size(freeat.L2(0.5))
        ('pgd-margin-50-10', 0.125)
    """

    steps: int = 10
    restarts: int = 1
    alpha: float | None = None
    start: Start = "uniform"
    iterate: Iterate = "worst"
    loss: LossName = "ce"
    precision: str = "fp32"
    black_box: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 1:
            raise InputError(
                f"PGD with {self.steps} steps and {self.restarts} restarts: both must be at least 1"
            )
        if self.alpha is not None and not 0 <= self.alpha < math.inf:
            raise InputError(f"PGD with steps of {self.alpha:g}: must be positive and finite, e.g. 2/255")
        for kind, value, known in (
            ("iterate", self.iterate, ITERATES),
            ("loss of an attack", self.loss, LOSS_NAMES),
            ("start", self.start, STARTS),
            ("precision", self.precision, PRECISIONS),
        ):
            if value not in known:
                raise unknown_name(kind, value, known)

    @property
    def name(self) -> str:
        """The name of the attack, without ``alpha``, ``iterate``, ``precision`` and most starts."""
        loss = [self.loss] if self.loss != "ce" else []
        if self.steps == self.restarts == 1 and self.start == "zero":
            return "-".join(["fgsm", *loss])
        restarts = [str(self.restarts)] if self.restarts > 1 else []
        return "-".join(["pgd", *loss, str(self.steps), *restarts])

    def step_size(self, ball: Ball) -> float:
        """α in input units."""
        if self.alpha is not None:
            return self.alpha
        return ball.eps if self.steps == 1 else ball.eps / 4

    def __call__(
        self, f: Model, x: Tensor, y: Tensor, ball: Ball, rng: ImageRng, *, with_loss: bool = False
    ) -> AttackResult:
        oracle = Oracle(f, self.precision, x)
        search = Search(oracle, x, y)
        if self.iterate == "worst" and len(x):
            clean = torch.zeros_like(x)
            search.confirm(search.all_rows, ball.apply(x, clean), clean)
        for r in range(self.restarts):
            own = rng.at("restart", r)
            if self.iterate == "worst" and not with_loss:
                rows = search.all_rows[~search.fooled]
                own = own.select(rows.tolist())
                self._restart(search, x[rows], rows, ball, own, until_fooled=True)
            else:
                self._restart(search, x, search.all_rows, ball, own, until_fooled=False)
        notes = (
            *defined_loss(self.loss, oracle.classes)[1],
            *(() if oracle.differentiable else (NO_GRADIENT,)),
        )
        return search.result(with_loss=with_loss, notes=notes)

    def _restart(
        self, search: Search, x: Tensor, rows: Tensor, ball: Ball, rng: ImageRng, *, until_fooled: bool
    ) -> None:
        """One ascent of the images ``rows`` of the search."""
        oracle = search.oracle

        def evaluate(x_adv: Tensor, delta: Tensor, still: Tensor) -> tuple[Tensor, Tensor | None]:
            mine = rows[still]
            y = search.y[mine]
            logits = oracle.logits(x_adv)
            name = defined_loss(self.loss, oracle.classes)[0]
            losses = LOSSES[name](logits, y)
            wrong = oracle.wrong(x_adv, y, logits) if self.iterate == "worst" else None
            measured = losses if name == "ce" else cross_entropy(logits.detach(), y)
            search.update(mine, delta, measured, wrong)
            return losses, wrong

        projected_ascent(
            evaluate,
            x,
            ball,
            rng,
            steps=self.steps,
            alpha=self.step_size(ball),
            start=self.start,
            patience=0 if until_fooled else None,
            shrink=True,
            finish=lambda x_adv, delta, still: search.confirm(rows[still], x_adv, delta),
            gradient=oracle.gradient,
        )
