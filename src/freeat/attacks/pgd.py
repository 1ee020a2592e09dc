"""PGD as an evaluation: k steps, r restarts, judged at the last iterate or at the worst along the way."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from freeat.attacks.result import AttackResult, Oracle, Search, misclassified
from freeat.compute.precision import PRECISIONS
from freeat.errors import InputError, unknown_name
from freeat.objectives import LOSS_NAMES, LOSSES, LossName, Model, cross_entropy, defined_loss
from freeat.rng import ImageRng
from freeat.threat import STARTS, Ball, Start

Iterate = Literal["last", "worst"]
ITERATES = ("last", "worst")
BLIND = "The model hides its gradient altogether: PGD walked at random, and what it left right is not robust."


@dataclass(frozen=True, kw_only=True)
class Pgd:
    """PGD with ``steps`` steps of length ``alpha`` (default ε/4, and ε for one step) from ``restarts`` starts.

    ``last``: every image runs every step and only the last iterate is judged, as the paper's code does.
    ``worst``: every iterate is judged, the clean image among them, and an image is done once it is fooled.
    A loss, where it is asked for, is the largest cross-entropy over all iterates of all images, so nothing is
    then cut short. In ``precision`` bf16 only the gradients are; correctness is decided in fp32.
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
        """What it is called; ``alpha``, ``iterate``, ``precision`` and most starts are said elsewhere."""
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
        search, oracle = Search(x, y), Oracle(f, self.precision, x)
        if self.iterate == "worst":
            everyone = torch.arange(len(x), device=x.device)
            self._judge(oracle, everyone, x, y, torch.zeros_like(x), ball, search)
        cuts = self.iterate == "worst" and not with_loss
        for r in range(self.restarts):
            self._climb(oracle, x, y, ball, rng.at("restart", r), search, cuts=cuts)
        notes = (*defined_loss(self.loss, oracle.classes)[1], *(() if oracle.differentiable else (BLIND,)))
        return search.result(oracle.passes, with_loss=with_loss, notes=notes)

    def _climb(
        self,
        oracle: Oracle,
        x: Tensor,
        y: Tensor,
        ball: Ball,
        rng: ImageRng,
        search: Search,
        *,
        cuts: bool,
    ) -> None:
        rows = torch.arange(len(x), device=x.device)
        if cuts:
            rows = rows[~search.fooled]
            x, y, rng = x[rows], y[rows], rng.select(rows.tolist())
        delta = ball.confine(x, ball.start(x, self.start, rng))
        for k in range(self.steps):
            if not len(rows):
                return
            g_delta = self._ascent(oracle, rows, x, y, delta, ball, search)
            delta = ball.confine(x, ball.ascend(delta, g_delta, self.step_size(ball), rng.at(k)))
            if cuts:
                still = (~search.fooled[rows]).nonzero().squeeze(-1)
                rows, x, y, delta = rows[still], x[still], y[still], delta[still]
        self._judge(oracle, rows, x, y, delta, ball, search)

    def _ascent(
        self, oracle: Oracle, rows: Tensor, x: Tensor, y: Tensor, delta: Tensor, ball: Ball, search: Search
    ) -> Tensor:
        """g_δ at this iterate; the search sees it on the way."""
        delta = delta.requires_grad_()
        with torch.enable_grad():
            x_adv = ball.apply(x, delta)
            logits = oracle.logits(x_adv)
            name = defined_loss(self.loss, oracle.classes)[0]
            losses = LOSSES[name](logits, y)
        counts = self.iterate == "worst"
        wrong = oracle.wrong(x_adv, y, logits) if counts else search.fooled[rows]
        measured = losses if name == "ce" else cross_entropy(logits.detach(), y)
        search.see(rows, delta, wrong, measured, counts=counts)
        g_delta = oracle.gradient(losses, delta)
        delta.requires_grad_(False)
        return g_delta

    @staticmethod
    def _judge(
        oracle: Oracle, rows: Tensor, x: Tensor, y: Tensor, delta: Tensor, ball: Ball, search: Search
    ) -> None:
        if len(rows):
            logits = oracle.exact_logits(ball.apply(x, delta))
            search.see(rows, delta, misclassified(logits, y), cross_entropy(logits, y), counts=True)
