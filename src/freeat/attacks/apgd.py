"""Auto-PGD (Croce and Hein, 2020): projected gradient ascent that chooses its own step sizes, and the attack by it."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from freeat.attacks.pgd import COMPACT_EVERY, NO_GRADIENT, Evaluate, gradient_of
from freeat.attacks.result import AttackResult, Oracle, Search
from freeat.compute.precision import PRECISIONS
from freeat.errors import InputError, unknown_name
from freeat.objectives import LOSSES, Model, cross_entropy, defined_loss, defined_targeted_loss
from freeat.rng import ImageRng, Rng, reading_is_free
from freeat.threat import Ball

ApgdLoss = Literal["ce", "margin", "dlr", "t"]
APGD_LOSSES: tuple[str, ...] = get_args(ApgdLoss)
FIRST, SHORTER, SHORTEST = 22, 3, 6
"""The first interval between checkpoints, by how much each is shorter than the last, and the shortest; in % of N."""
RHO = 0.75
"""The share of the steps since the last checkpoint that must raise the loss; otherwise the step is halved."""
MOMENTUM = 0.75
"""α of the paper: the share of a step that follows the gradient; the rest repeats the step before."""
STEPS = 100
TARGETS = 9
"""The most classes that the targeted attack aims at."""
ImageLogitLoss = Callable[[Tensor, Tensor], Tensor]  # logits and the rows of their images to one value each


def checkpoints(steps: int) -> tuple[int, ...]:
    """The steps w_j = ⌈p_j N⌉ < N after which step sizes are checked.

    p_0 = 0, p_1 = 0.22, p_{j+1} = p_j + max(p_j − p_{j−1} − 0.03, 0.06), in whole percents, so that no sum is rounded.
    """
    intervals = itertools.chain(range(FIRST, SHORTEST, -SHORTER), itertools.repeat(SHORTEST))
    at = (-(-percent * steps // 100) for percent in itertools.accumulate(intervals))
    return tuple(dict.fromkeys(itertools.takewhile(lambda step: step < steps, at)))


@dataclass(kw_only=True)
class Ascent:
    """What Auto-PGD keeps of the images that still move: one entry per image in every tensor."""

    rows: Tensor
    x: Tensor
    delta: Tensor  # x^(k) − x
    previous: Tensor  # x^(k−1) − x
    eta: Tensor  # the step size η, in units of ε
    height: Tensor  # f(x^(k))
    best: Tensor  # x_max − x
    best_gradient: Tensor  # ∇f(x_max)
    highest: Tensor  # f_max = f(x_max)
    highest_before: Tensor  # f_max at the last checkpoint
    halved: Tensor  # whether η was halved at the last checkpoint
    rises: Tensor  # the steps since the last checkpoint that raised f
    fooled: Tensor

    @classmethod
    def begin(cls, x: Tensor, delta: Tensor) -> "Ascent":
        """At x^(0) = x + δ, with the step size η = 2ε."""
        none = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        lowest = torch.full((len(x),), -torch.inf, dtype=x.dtype, device=x.device)
        return cls(
            rows=torch.arange(len(x), device=x.device),
            x=x,
            delta=delta,
            previous=delta,
            eta=torch.full_like(x[:, :1, :1, :1], 2),
            height=lowest,
            best=delta,
            best_gradient=torch.zeros_like(x),
            highest=lowest,
            highest_before=lowest,
            halved=~none,  # Condition 2 needs two checkpoints
            rises=torch.zeros_like(none, dtype=torch.int64),
            fooled=none,
        )

    def keep(self, still: Tensor) -> None:
        """Keep these of the images only."""
        vars(self).update({name: value[still] for name, value in vars(self).items()})


def adaptive_ascent(
    evaluate: Evaluate,
    x: Tensor,
    start: Tensor,
    ball: Ball,
    rng: Rng,
    *,
    steps: int,
    shrink: bool = False,
    gradient: Callable[[Tensor, Tensor], Tensor] = gradient_of,
) -> Ascent:
    """Auto-PGD, Algorithm 1 of Croce and Hein (2020), with N = ``steps``, from x^(0) = x + ``start``.

    Args:
        evaluate: receives every iterate, as in `projected_ascent`; gradients are enabled but for the last.
        shrink: images that are misclassified leave the batch, on the CPU at once and elsewhere after every few steps.
        gradient: the gradient at x + δ of the values that ``evaluate`` returned.

    Returns:
        The state of the images that were not left out, with the highest point of each.
    """
    s = Ascent.begin(x, start)
    feasible = ball.feasible(x)
    check_after = checkpoints(steps)
    compact_every = 1 if reading_is_free(x) else COMPACT_EVERY
    last_check = 0
    for k in range(steps + 1):
        x_adv = ball.apply(s.x, s.delta).requires_grad_(k < steps)
        with torch.set_grad_enabled(k < steps):
            f, wrong = evaluate(x_adv, s.delta, s.rows)
            g = gradient(f, x_adv) if k < steps else s.best_gradient
        f = f.detach()
        if k > 0:
            s.rises = s.rises + (f > s.height)
        s.height = f
        higher = f > s.highest
        s.highest = torch.where(higher, f, s.highest)
        s.best = torch.where(_each(higher), s.delta, s.best)
        s.best_gradient = torch.where(_each(higher), g, s.best_gradient)
        if k == steps:
            break
        if k in check_after:
            few_rises = s.rises <= RHO * (k - last_check)  # Condition 1
            no_gain = ~s.halved & (s.highest <= s.highest_before)  # Condition 2
            halve = few_rises | no_gain
            s.eta = torch.where(_each(halve), s.eta / 2, s.eta)
            s.delta = torch.where(_each(halve), s.best, s.delta)  # restart from x_max
            g = torch.where(_each(halve), s.best_gradient, g)
            s.halved, s.highest_before, s.rises = halve, s.highest, torch.zeros_like(s.rises)
            last_check = k
        z = feasible(s.delta + s.eta * ball.extreme(g, rng.at(k)))
        share = MOMENTUM if k > 0 else 1.0
        moved = feasible(s.delta + share * (z - s.delta) + (1 - share) * (s.delta - s.previous))
        s.previous, s.delta = s.delta, moved
        if shrink and wrong is not None:
            s.fooled = s.fooled | wrong
            if (k + 1) % compact_every == 0 and s.fooled.any():
                s.keep((~s.fooled).nonzero().squeeze(-1))
                feasible = ball.feasible(s.x)
                if not len(s.rows):
                    break
    return s


def _each(values: Tensor) -> Tensor:
    """One value per image, for all its pixels."""
    return values[:, None, None, None]


@dataclass(frozen=True, kw_only=True)
class Apgd:
    """Auto-PGD as an evaluation attack: ``apgd-ce`` and ``apgd-t`` are the first two parts of AutoAttack.

    Every iterate counts, also the clean image, and an image stops once it is fooled. A robust loss, where an evaluation
    computes it, is the largest cross-entropy over all iterates; every image then takes every step.

    Args:
        loss: what is ascended: ``ce`` (cross-entropy), ``margin``, ``dlr``, or ``t``, the targeted DLR loss, towards
            each of the 9 classes with the largest logits after the label in turn.
        steps: N, the steps of each ascent.
        restarts: the random starts, for ``t`` of each target. All are uniform in the ball.
        precision: the arithmetic of the gradients; correctness is always decided in fp32.

    Raises:
        InputError: a number is out of range, or a name is unknown.
    """

    loss: ApgdLoss = "ce"
    steps: int = STEPS
    restarts: int = 1
    precision: str = "fp32"
    black_box: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 1:
            raise InputError(
                f"APGD with {self.steps} steps and {self.restarts} restarts: both must be at least 1"
            )
        for kind, value, known in (
            ("loss of APGD", self.loss, APGD_LOSSES),
            ("precision", self.precision, PRECISIONS),
        ):
            if value not in known:
                raise unknown_name(kind, value, known)

    @property
    def name(self) -> str:
        """The name of the attack, without ``precision``."""
        restarts = [str(self.restarts)] if self.restarts > 1 else []
        steps = [str(self.steps)] if restarts or self.steps != STEPS else []
        return "-".join(["apgd", self.loss, *steps, *restarts])

    def __call__(
        self, f: Model, x: Tensor, y: Tensor, ball: Ball, rng: ImageRng, *, with_loss: bool = False
    ) -> AttackResult:
        oracle = Oracle(f, self.precision, x)
        search = Search(oracle, x, y)
        if not len(x):
            return search.result(with_loss=with_loss)
        clean = search.confirm(search.all_rows, x, torch.zeros_like(x))
        losses, notes = self._losses(clean, y)
        for (aim, loss), r in itertools.product(enumerate(losses), range(self.restarts)):
            own = rng.at("apgd", self.loss, aim, r)
            if with_loss:
                self._ascend(search, loss, x, search.all_rows, ball, own, shrink=False)
                continue
            rows = search.all_rows[~search.fooled]
            if not len(rows):
                break
            self._ascend(search, loss, x[rows], rows, ball, own.select(rows.tolist()), shrink=True)
        notes += () if oracle.differentiable else (NO_GRADIENT,)
        return search.result(with_loss=with_loss, notes=notes)

    def _losses(self, clean: Tensor, y: Tensor) -> tuple[Iterator[ImageLogitLoss], tuple[str, ...]]:
        """The losses that are ascended one after another, given the logits of the clean images, and notes on them."""
        classes = clean.shape[-1]
        if self.loss != "t":
            name, notes = defined_loss(self.loss, classes)
            return iter([lambda logits, rows: LOSSES[name](logits, y[rows])]), notes
        aimed, notes = defined_targeted_loss(classes)
        others = clean.scatter(-1, y.unsqueeze(-1), -torch.inf)
        targets = others.topk(min(TARGETS, classes - 1), dim=-1).indices
        losses = (lambda logits, rows, t=t: aimed(logits, y[rows], t[rows]) for t in targets.unbind(-1))
        return losses, notes

    def _ascend(
        self,
        search: Search,
        loss: ImageLogitLoss,
        x: Tensor,
        rows: Tensor,
        ball: Ball,
        rng: ImageRng,
        *,
        shrink: bool,
    ) -> None:
        """One ascent of the images ``rows`` of the search."""
        oracle = search.oracle

        def evaluate(x_adv: Tensor, delta: Tensor, still: Tensor) -> tuple[Tensor, Tensor]:
            mine = rows[still]
            y = search.y[mine]
            logits = oracle.logits(x_adv)
            wrong = oracle.wrong(x_adv, y, logits)
            search.update(mine, delta, cross_entropy(logits.detach(), y), wrong)
            return loss(logits, mine), wrong

        start = ball.confine(x, ball.start(x, "uniform", rng))
        reached = adaptive_ascent(
            evaluate, x, start, ball, rng, steps=self.steps, shrink=shrink, gradient=oracle.gradient
        )
        if not oracle.exact and len(reached.rows):  # fp32 may see more at the highest point
            search.confirm(rows[reached.rows], ball.apply(reached.x, reached.best), reached.best)
