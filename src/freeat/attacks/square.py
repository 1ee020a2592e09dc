"""The Square attack: a random search that asks the model for scores and never for a gradient."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from freeat.attacks.result import AttackResult, Oracle, Search, misclassified
from freeat.attacks.square_draws import SquareDraws
from freeat.attacks.square_moves import moves
from freeat.compute.precision import PRECISIONS
from freeat.errors import InputError, unknown_name
from freeat.objectives import Model, cross_entropy, margin
from freeat.rng import ImageRng
from freeat.threat import Ball

HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""The queries after which the part of the image that a move changes is halved."""
ROUGH = (
    "Square was guided by {} scores, which round small gains away: in fp32 it may leave fewer images right."
)


@dataclass(frozen=True, kw_only=True)
class Square:
    """Square attack (Andriushchenko et al., 2020) on the margin loss, with AutoAttack's constants.

    An image is asked about at most ``queries`` times, the clean image not counted, and no more once it is fooled.
    A move is kept when it raises the margin. ``p`` is the part of the image the first moves change; ``rescale``
    stretches the schedule that halves it, made for 10,000 queries, to ``queries`` (AutoAttack does not).
    """

    queries: int = 5000
    p: float = 0.8
    rescale: bool = False
    precision: str = "fp32"
    black_box: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.queries < 1:
            raise InputError(f"Square with {self.queries} queries: must be at least 1; 5000 is usual")
        if not 0 < self.p <= 1:
            raise InputError(f"Square with p = {self.p:g}: a part of the image, in (0, 1]; 0.8 is usual")
        if self.precision not in PRECISIONS:
            raise unknown_name("precision", self.precision, PRECISIONS)

    @property
    def name(self) -> str:
        return "square" if self.queries == 5000 else f"square-{self.queries}"

    def part(self, t: int) -> float:
        """The part of the image that move t = 0, 1, … changes: the published schedule."""
        at = int(t / self.queries * 10_000) if self.rescale else t
        return self.p * 0.5 ** sum(at > after for after in HALVINGS)

    @torch.no_grad()
    def __call__(
        self, f: Model, x: Tensor, y: Tensor, ball: Ball, rng: ImageRng, *, with_loss: bool = False
    ) -> AttackResult:
        search, oracle = Search(x, y), Oracle(f, self.precision, x)
        queries = torch.zeros_like(y)
        rows = torch.arange(len(x), device=x.device)
        clean = oracle.exact_logits(x)
        search.see(rows, torch.zeros_like(x), cross_entropy(clean, y), misclassified(clean, y))
        if not with_loss:
            rows = rows[~search.fooled]
        if len(rows):
            self._search(oracle, x, y, ball, rng, search, rows, queries, cuts=not with_loss)
        notes = () if oracle.exact else (ROUGH.format(oracle.precision.name),)
        return search.result(oracle.passes, with_loss=with_loss, queries=queries, notes=notes)

    def _search(
        self,
        oracle: Oracle,
        x: Tensor,
        y: Tensor,
        ball: Ball,
        rng: ImageRng,
        search: Search,
        rows: Tensor,
        queries: Tensor,
        *,
        cuts: bool,
    ) -> None:
        """The random search on the images ``rows``, which shrink as images fall."""
        _, c, h, w = x.shape
        move = moves(ball, (c, h, w))
        x, y = x[rows], y[rows]
        draws = SquareDraws(rng.select(rows.tolist()), move.per_query, x)
        best = torch.zeros_like(x)
        height = torch.full_like(x[:, 0, 0, 0], -torch.inf)
        for t in range(self.queries):
            if t == 0:
                raw = move.first(draws.once(move.first_shape()))
            else:
                raw = move.propose(best, self.part(t - 1), draws.query())
            delta = ball.confine(x, ball.project(raw))
            x_adv = ball.apply(x, delta)
            logits = oracle.logits(x_adv)
            queries[rows] += 1
            wrong = oracle.wrong(x_adv, y, logits)
            search.see(rows, delta, cross_entropy(logits, y), wrong)
            score = margin(logits, y)
            better = score > height
            height = torch.where(better, score, height)
            best = torch.where(better[:, None, None, None], delta, best)
            if cuts and bool(wrong.any()):
                still = (~wrong).nonzero().squeeze(-1)
                if not len(still):
                    return
                rows, x, y, best, height = rows[still], x[still], y[still], best[still], height[still]
                draws.keep(still.tolist())
