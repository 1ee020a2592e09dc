"""PGD as an evaluation: k steps, r restarts, judged at the last iterate or at the worst along the way."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from freeat.attacks.verdict import Attacked, Logits, Search
from freeat.errors import InputError, unknown_name
from freeat.objectives import cross_entropy
from freeat.streams import ImageCoins
from freeat.threat import Ball, Start

Verdict = Literal["last", "worst"]


@dataclass(frozen=True, kw_only=True)
class Pgd:
    """PGD with ``steps`` steps of length ``alpha`` (default ε/4) from ``restarts`` random starts.

    ``last``: every image runs every step and only the last iterate is judged, as the paper's code does.
    ``worst``: every iterate is judged, the clean image among them, and an image is done once it is fooled.
    A loss, where it is asked for, is the largest over all iterates of all images, so nothing is then cut short.
    """

    steps: int = 10
    restarts: int = 1
    alpha: float | None = None
    start: Start = "uniform"
    verdict: Verdict = "worst"

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 1:
            raise InputError(
                f"PGD with {self.steps} steps and {self.restarts} restarts: both must be at least 1"
            )
        if self.verdict not in ("last", "worst"):
            raise unknown_name("verdict", self.verdict, ("last", "worst"))

    @property
    def name(self) -> str:
        return f"pgd-{self.steps}" + (f"-{self.restarts}" if self.restarts > 1 else "")

    def __call__(
        self, f: Logits, x: Tensor, y: Tensor, ball: Ball, coins: ImageCoins, *, with_loss: bool = False
    ) -> Attacked:
        search = Search(x, y)
        if self.verdict == "worst":
            rows = torch.arange(len(x), device=x.device)
            with torch.no_grad():
                logits = f(x)
            search.passes.forward += len(x)
            search.see(rows, torch.zeros_like(x), _wrong(logits, y), cross_entropy(logits, y), counts=True)
        for r in range(self.restarts):
            self._climb(
                f, x, y, ball, coins.at("restart", r), search, cuts=self.verdict == "worst" and not with_loss
            )
        return search.result(with_loss=with_loss)

    def _climb(
        self, f: Logits, x: Tensor, y: Tensor, ball: Ball, coins: ImageCoins, search: Search, *, cuts: bool
    ) -> None:
        rows = torch.arange(len(x), device=x.device)
        if cuts:
            rows, coins = _open(rows, coins, search)
            x, y = x[rows], y[rows]
        delta = ball.confine(x, ball.start(x, self.start, coins))
        alpha = ball.eps / 4 if self.alpha is None else self.alpha
        for k in range(self.steps + 1):
            if not len(rows):
                return
            ends = k == self.steps
            delta = delta.detach().requires_grad_(not ends)
            with torch.set_grad_enabled(not ends):
                logits = f(ball.apply(x, delta))
                losses = cross_entropy(logits, y)
            search.see(rows, delta, _wrong(logits, y), losses, counts=ends or self.verdict == "worst")
            if ends:
                search.passes.forward += len(rows)
                return
            search.passes.gradient += len(rows)
            g_delta = torch.autograd.grad(losses.sum(), delta)[0]
            delta = ball.confine(x, ball.ascend(delta.detach(), g_delta, alpha, coins.at(k)))
            if cuts:
                still = torch.nonzero(~search.fooled[rows]).squeeze(-1)
                rows, x, y, delta = rows[still], x[still], y[still], delta[still]


def _wrong(logits: Tensor, y: Tensor) -> Tensor:
    return logits.detach().argmax(-1) != y


def _open(rows: Tensor, coins: ImageCoins, search: Search) -> tuple[Tensor, ImageCoins]:
    """The images that are not yet fooled, with their coins."""
    rows = rows[~search.fooled]
    return rows, coins.select(rows.tolist())
