"""The Square attack: a random search that queries the model's scores and never its gradient."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from freeat.attacks.result import AttackResult, Oracle, Search
from freeat.compute.precision import PRECISIONS
from freeat.errors import InputError, unknown_name
from freeat.objectives import Model, cross_entropy, margin
from freeat.rng import ImageRng, reading_is_free, to_device
from freeat.threat import L2, Ball, Linf

BLOCK = 256
COMPACT_EVERY = 32
"""The queries after which fooled images leave a batch that is not on the CPU: to know them is to wait."""
TINY = 1e-12
HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
"""The queries after which the part of the image that a move changes is halved."""
ROUGH = (
    "Square was guided by {} scores, which round small gains away: in fp32 it may leave fewer images right."
)


@dataclass(frozen=True, kw_only=True)
class Square:
    """Square attack (Andriushchenko et al., 2020) on the margin loss, with AutoAttack's constants.

    An image takes at most ``queries`` queries, the clean image not counted, and no more once it is fooled.
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
        oracle = Oracle(f, self.precision, x)
        search = Search(oracle, x, y)
        queries = torch.zeros_like(y)
        search.confirm(search.all_rows, x, torch.zeros_like(x))
        rows = search.all_rows if with_loss else search.all_rows[~search.fooled]
        if len(rows):
            self._search(search, x, y, ball, rng, rows, queries, until_fooled=not with_loss)
        notes = () if oracle.exact else (ROUGH.format(oracle.precision.name),)
        return search.result(with_loss=with_loss, queries=queries, notes=notes)

    def _search(
        self,
        search: Search,
        x: Tensor,
        y: Tensor,
        ball: Ball,
        rng: ImageRng,
        rows: Tensor,
        queries: Tensor,
        *,
        until_fooled: bool,
    ) -> None:
        """The random search on the images ``rows``, which shrink as images are fooled."""
        _, c, h, w = x.shape
        move = moves(ball, (c, h, w))
        x, y = x[rows], y[rows]
        draws = SquareDraws(rng.select(rows.tolist()) if until_fooled else rng, move.per_query, x)
        best = torch.zeros_like(x)
        height = torch.full_like(x[:, 0, 0, 0], -torch.inf)
        compact_every = 1 if reading_is_free(x) else COMPACT_EVERY
        for t in range(self.queries):
            if t == 0:
                raw = move.first(draws.start(move.first_shape()))
            else:
                raw = move.propose(best, self.part(t - 1), draws.query())
            delta = ball.confine(x, ball.project(raw))
            x_adv = ball.apply(x, delta)
            logits = search.oracle.logits(x_adv)
            queries[rows] += ~search.fooled[rows] if until_fooled else 1
            wrong = search.oracle.wrong(x_adv, y, logits)
            search.update(rows, delta, cross_entropy(logits, y), wrong)
            score = margin(logits, y)
            better = score > height
            height = torch.where(better, score, height)
            best = torch.where(better[:, None, None, None], delta, best)
            if until_fooled and (t + 1) % compact_every == 0 and bool(search.fooled[rows].any()):
                still = (~search.fooled[rows]).nonzero().squeeze(-1)
                if not len(still):
                    return
                rows, x, y, best, height = rows[still], x[still], y[still], best[still], height[still]
                draws.keep(still.tolist())


class SquareDraws:
    """Uniform draws in [0, 1) for the queries of a set of images that may shrink, made in blocks of queries.

    Every query has the same number of draws, whether or not it uses them all: what query t of image i draws depends
    on nothing else.
    """

    def __init__(self, rng: ImageRng, per_query: int, like: Tensor) -> None:
        self._rng = rng
        self._per_query = per_query
        self._like = like
        self._block = like.new_empty((len(rng.images), 0, per_query))
        self._queries = 0

    def start(self, shape: tuple[int, ...]) -> Tensor:
        """Draws of ``shape`` for each image's first guess: (n, *shape)."""
        return self._rng.uniform("square-start", self._like, shape)

    def query(self) -> Tensor:
        """The draws of the next query: (n, per_query)."""
        number, at = divmod(self._queries, BLOCK)
        if at == 0:
            self._block = self._rng.at(number).uniform("square", self._like, (BLOCK, self._per_query))
        self._queries += 1
        return self._block[:, at]

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these of the images only."""
        self._rng = self._rng.select(rows)
        self._block = self._block[to_device(torch.as_tensor(rows, dtype=torch.int64), self._block.device)]


def moves(ball: Ball, shape: tuple[int, int, int]) -> "LinfMoves | L2Moves":
    """The first guess and the moves in the ball's norm; what they return is not yet confined to the box.

    Every image has a window, a sign and an orientation of its own. Windows are uniform over all positions where
    they fit. The published code shares them between the images of a batch and never uses the last row and column; on
    one image the laws are otherwise the same.
    """
    if isinstance(ball, Linf):
        return LinfMoves(ball.eps, shape)
    if isinstance(ball, L2):
        return L2Moves(ball.eps, shape)
    raise InputError(f"the Square attack works in L2 and Linf balls, not in {type(ball).__name__}")


def _signs(draws: Tensor) -> Tensor:
    return torch.where(draws < 0.5, -1.0, 1.0).to(draws.dtype)


def _first(draws: Tensor, side: int, s: int) -> Tensor:
    """First row (or column) of a window of side s: uniform over the positions where it fits."""
    return (draws * (side - s + 1)).long().clamp_max(side - s)


class LinfMoves:
    """δ = ±ε everywhere: vertical stripes at first, then one square at a time set to a sign per channel."""

    def __init__(self, eps: float, shape: tuple[int, int, int]) -> None:
        self.eps = eps
        self.shape = shape
        self.per_query = 2 + shape[0]

    def first_shape(self) -> tuple[int, ...]:
        return self.shape[0], 1, self.shape[2]

    def first(self, draws: Tensor) -> Tensor:
        return (self.eps * _signs(draws)).expand(-1, *self.shape)

    def propose(self, delta: Tensor, p: float, draws: Tensor) -> Tensor:
        _, h, w = self.shape
        s = min(max(round(math.sqrt(p * h * w)), 1), h, w)
        inside = _window(draws[:, 0], h, s).unsqueeze(2) & _window(draws[:, 1], w, s).unsqueeze(1)
        return torch.where(inside.unsqueeze(1), self.eps * _signs(draws[:, 2:])[:, :, None, None], delta)


def _window(draws: Tensor, side: int, s: int) -> Tensor:
    """Which of the ``side`` rows (or columns) are in each image's window: (n, side)."""
    offset = torch.arange(side, device=draws.device) - _first(draws, side, s).unsqueeze(1)
    return (offset >= 0) & (offset < s)


class L2Moves:
    """δ on the sphere: a grid of bumps at first, then the mass of one window is moved into a bump in another."""

    def __init__(self, eps: float, shape: tuple[int, int, int]) -> None:
        self.eps = eps
        self.shape = shape
        self.per_query = 5 + shape[0]

    def first_shape(self) -> tuple[int, ...]:
        rows, columns = (side // self._tile for side in self.shape[1:])
        return rows * columns, 1 + self.shape[0]

    @property
    def _tile(self) -> int:
        return max(min(self.shape[1:]) // 5, 1)

    def first(self, draws: Tensor) -> Tensor:
        c, h, w = self.shape
        s = self._tile
        rows, columns = h // s, w // s
        bumps = _bumps(s, draws.device, draws.dtype)[(draws[:, :, 0] < 0.5).long()].unsqueeze(2)
        tiles = bumps * _signs(draws[:, :, 1:])[..., None, None]  # (n, rows·columns, c, s, s)
        grid = (
            tiles.view(-1, rows, columns, c, s, s)
            .permute(0, 3, 1, 4, 2, 5)
            .reshape(-1, c, rows * s, columns * s)
        )
        delta = grid.new_zeros((len(draws), c, h, w))
        top, left = (h - rows * s) // 2, (w - columns * s) // 2
        delta[:, :, top : top + rows * s, left : left + columns * s] = grid
        return self._on_sphere(delta)

    def propose(self, delta: Tensor, p: float, draws: Tensor) -> Tensor:
        c, h, w = self.shape
        s = max(round(math.sqrt(p * h * w)), 3)
        s = min(s + 1 - s % 2, h, w)
        here, bump = self._bump(s, draws[:, 0], draws[:, 1], draws[:, 4])
        there = _window(draws[:, 2], h, s).unsqueeze(2) & _window(draws[:, 3], w, s).unsqueeze(1)
        here, there = here.unsqueeze(1), there.unsqueeze(1)
        size = torch.linalg.vector_norm(delta, dim=(1, 2, 3), keepdim=True)
        mass = torch.where(here | there, delta, 0).square().sum((2, 3), keepdim=True)
        budget = ((self.eps**2 - size.square()).clamp_min(0) / c + mass).sqrt()
        old = torch.where(here, delta, 0)
        new = bump.unsqueeze(1) * _signs(draws[:, 5:])[:, :, None, None] + old / (_channel_norm(old) + TINY)
        new = new * (budget / (_channel_norm(new) + TINY))
        return self._on_sphere(torch.where(here, new, torch.where(there, 0, delta)))

    def _bump(self, s: int, row: Tensor, column: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
        """Each image's window (n, H, W) and the bump in it."""
        _, h, w = self.shape
        i = torch.arange(h, device=row.device) - _first(row, h, s).unsqueeze(1)
        j = torch.arange(w, device=row.device) - _first(column, w, s).unsqueeze(1)
        inside = ((i >= 0) & (i < s)).unsqueeze(2) & ((j >= 0) & (j < s)).unsqueeze(1)
        values = _bumps(s, row.device, row.dtype)[
            (turn < 0.5).long()[:, None, None],
            i.clamp(0, s - 1).unsqueeze(2),
            j.clamp(0, s - 1).unsqueeze(1),
        ]
        return inside, torch.where(inside, values, 0)

    def _on_sphere(self, delta: Tensor) -> Tensor:
        size = torch.linalg.vector_norm(delta, dim=(1, 2, 3), keepdim=True)
        scale: Tensor = self.eps / (size + TINY)
        return delta * scale


def _channel_norm(v: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(v, dim=(2, 3), keepdim=True)
    return norms


@lru_cache(maxsize=64)
def _bumps(s: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The bump η of side s, upright and lying: (2, s, s), norm 1. Its two halves have opposite signs.

    It is computed in float64 on the CPU, and sent to the device once: a copy waits.
    """
    upper, lower = _pyramid(s // 2, s), _pyramid(s - s // 2, s)
    upright = torch.cat([upper, -lower])
    upright /= torch.linalg.vector_norm(upright)
    return torch.stack([upright, upright.T]).to(device, dtype)


def _pyramid(height: int, width: int) -> Tensor:
    """Nested rectangles around the centre, the k-th adding 1/(k + 1)²; norm 1."""
    heap = torch.zeros((height, width), dtype=torch.float64)
    top, left = height // 2, width // 2
    for k in range(max(top, left) + 1):
        rows = slice(max(top - k, 0), min(top + k + 1, height))
        columns = slice(max(left - k, 0), min(left + k + 1, width))
        heap[rows, columns] += 1 / (k + 1) ** 2
    norm: Tensor = torch.linalg.vector_norm(heap)
    return heap / norm.clamp_min(TINY)
