"""Learning rates by weight update (the practice) and by batch (the theorems)."""

import math
from dataclasses import dataclass
from typing import Protocol

from freeat.errors import InputError, unknown_name


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Where a run is: the weight update about to be made (from 0), of how many, in which batch (from 1)."""

    update: int
    batch: int
    total: int

    @property
    def budget(self) -> int:
        """``total``, for a schedule that cannot do without it."""
        if self.total < 1:
            raise InputError("this schedule follows the budget of weight updates: give total_updates")
        return self.total


class Schedule(Protocol):
    """The learning rate of an update."""

    def __call__(self, clock: Clock) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The same rate throughout."""

    lr: float

    def __call__(self, clock: Clock) -> float:
        return self.lr


@dataclass(frozen=True, kw_only=True)
class Piecewise:
    """Divided by 10 when a half and when three quarters of the updates are done (epochs 100 and 150 of 200)."""

    lr: float
    milestones: tuple[float, ...] = (0.5, 0.75)
    factor: float = 0.1

    def __call__(self, clock: Clock) -> float:
        passed = sum(clock.update >= milestone * clock.budget for milestone in self.milestones)
        return float(self.lr * self.factor**passed)


@dataclass(frozen=True, kw_only=True)
class Cyclic:
    """Rises linearly to ``lr`` over the first ``peak`` of the updates, then falls linearly to zero."""

    lr: float
    peak: float = 0.4

    def __call__(self, clock: Clock) -> float:
        done = (clock.update + 1) / clock.budget
        return self.lr * (done / self.peak if done <= self.peak else (1 - done) / (1 - self.peak))


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Half a period of a cosine: ½·lr·(1 + cos(πt/T)) at update t = 0, …, T − 1."""

    lr: float

    def __call__(self, clock: Clock) -> float:
        return _cosine(self.lr, 0.0, clock.update / clock.budget)


@dataclass(frozen=True, kw_only=True)
class OneCycle:
    """From lr/25 up to ``lr`` over the first ``peak`` of the updates and down to lr/250,000, along cosines.

    The rates are those of ``torch.optim.lr_scheduler.OneCycleLR`` with T steps; the momentum stays.
    """

    lr: float
    peak: float = 0.3

    def __call__(self, clock: Clock) -> float:
        low, top, end = self.lr / 25, self.peak * clock.budget - 1, clock.budget - 1
        if clock.update <= top:
            return _cosine(low, self.lr, clock.update / top if top > 0 else 1.0)
        return _cosine(self.lr, low / 1e4, (clock.update - top) / (end - top))


def _cosine(start: float, end: float, done: float) -> float:
    """From ``start`` to ``end`` along half a period of a cosine."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * done))


@dataclass(frozen=True, kw_only=True)
class Vanishing:
    """c/t (Theorems 2 and 5) and c/(mt) (Theorem 4): t counts batches, one step for all m updates of a batch."""

    c: float
    m: int = 1

    def __call__(self, clock: Clock) -> float:
        return self.c / (self.m * clock.batch)


SCHEDULES = ("piecewise", "constant", "cyclic", "cosine", "one-cycle", "vanishing")


def make_schedule(name: str, lr: float, m: int) -> Schedule:
    """The schedule of that name; for ``vanishing``, lr is the theorems' c and m the updates per batch."""
    if not lr > 0:
        raise InputError(f"learning rate {lr:g} must be positive; 0.1 is usual for SGD")
    match name:
        case "piecewise":
            return Piecewise(lr=lr)
        case "constant":
            return Constant(lr=lr)
        case "cyclic":
            return Cyclic(lr=lr)
        case "cosine":
            return Cosine(lr=lr)
        case "one-cycle":
            return OneCycle(lr=lr)
        case "vanishing":
            return Vanishing(c=lr, m=m)
    raise unknown_name("schedule", name, SCHEDULES)
