"""Where the Square attack looks next: random squares in the Linf ball, moved mass in the L2 ball.

Every image has a place, a sign and an orientation of its own. Places are uniform over all those where the
window fits. The published code shares them between the images of a batch and never uses the last row and
column; on one image the laws are otherwise the same.
"""

import math
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from freeat.errors import InputError
from freeat.threat import L2, Ball, Linf

TINY = 1e-12


class Moves(Protocol):
    """The first guess and the moves in one norm; what they return is not yet confined to the box."""

    per_query: int

    def first(self, draws: Tensor) -> Tensor: ...

    def first_shape(self) -> tuple[int, ...]: ...

    def propose(self, delta: Tensor, p: float, draws: Tensor) -> Tensor: ...


def moves(ball: Ball, shape: tuple[int, int, int]) -> Moves:
    """The moves that fit the ball's norm."""
    if isinstance(ball, Linf):
        return LinfMoves(ball.eps, shape)
    if isinstance(ball, L2):
        return L2Moves(ball.eps, shape)
    raise InputError(f"the Square attack knows the L2 and Linf balls, not {type(ball).__name__}")


def _signs(draws: Tensor) -> Tensor:
    return torch.where(draws < 0.5, -1.0, 1.0).to(draws.dtype)


def _place(draws: Tensor, side: int, s: int) -> Tensor:
    """First row (or column) of a window of side s: uniform over the places where it fits."""
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
    offset = torch.arange(side, device=draws.device) - _place(draws, side, s).unsqueeze(1)
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
        bumps = _bumps(s).to(draws)[(draws[:, :, 0] < 0.5).long()].unsqueeze(2)
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
        i = torch.arange(h, device=row.device) - _place(row, h, s).unsqueeze(1)
        j = torch.arange(w, device=row.device) - _place(column, w, s).unsqueeze(1)
        inside = ((i >= 0) & (i < s)).unsqueeze(2) & ((j >= 0) & (j < s)).unsqueeze(1)
        values = _bumps(s).to(row)[
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
def _bumps(s: int) -> Tensor:
    """The bump η of side s, upright and lying: (2, s, s), norm 1. Its two halves have opposite signs."""
    upper, lower = _pyramid(s // 2, s), _pyramid(s - s // 2, s)
    upright = torch.cat([upper, -lower])
    upright /= torch.linalg.vector_norm(upright)
    return torch.stack([upright, upright.T])


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
