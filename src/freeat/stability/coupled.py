"""Coupled runs: members that begin with the same weights and step on their own batches, stacked or separate."""

import copy
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from freeat.algorithms.step import Algorithm, StepRecord
from freeat.compute.frozen import frozen
from freeat.errors import unknown_name
from freeat.learner import Learner
from freeat.objectives import Model
from freeat.stability.stack import Stack, refuse_own_draws
from freeat.training.snapshot import restore_snapshot, take_snapshot

LearnerOf = Callable[[nn.Module], Learner]
Measure = Callable[[Model, Tensor, Tensor], tuple[Tensor, ...]]
"""From a model, images (..., b, C, H, W) and labels (..., b) to values of shape (..., b)."""


class CoupledRuns(Protocol):
    """K runs as one: every tensor has a leading axis K, whatever trains the members."""

    members: int

    @property
    def base(self) -> Learner:
        """A learner that knows how far all members are: its counts of batches and updates are theirs."""
        ...

    def step(self, algorithm: Algorithm, x: Tensor, y: Tensor, differs: Tensor) -> StepRecord:
        """One step of every member on its batch x[k], y[k].

        ``differs`` (K,) says which members' batches ever differed from member 0's, this one included.
        """
        ...

    def weights(self) -> Tensor:
        """(K, number of parameters)."""
        ...

    def measure(self, measure: Measure, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """What ``measure`` says of each member, in evaluation mode, on the same images: (K, b) each."""
        ...

    def member(self, k: int) -> nn.Module:
        """A copy of member k as a plain model."""
        ...


class StackedRuns:
    """All members in one ``Stack``."""

    def __init__(self, model: nn.Module, members: int, learner_of: LearnerOf) -> None:
        refuse_own_draws(model)
        self.members = members
        self._plain = copy.deepcopy(model)
        self._stack = Stack(model, members).train()
        self.base = learner_of(self._stack)

    def step(self, algorithm: Algorithm, x: Tensor, y: Tensor, differs: Tensor) -> StepRecord:
        return algorithm.step(self.base, x, y)

    def weights(self) -> Tensor:
        return self._stack.flat()

    def measure(self, measure: Measure, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        with frozen(self._stack, "eval"):
            return measure(self._stack, x.expand(self.members, *x.shape), y.expand(self.members, *y.shape))

    def member(self, k: int) -> nn.Module:
        model = copy.deepcopy(self._plain)
        with torch.no_grad():
            for own, stacked in zip(model.parameters(), self._stack.model.parameters(), strict=True):
                own.copy_(stacked[k])
        return model


class SeparateRuns:
    """A learner per member; members whose batches were all member 0's so far *are* member 0.

    A twin that has not met its replaced example has member 0's very bits, so it is not trained twice: it is
    copied off at the batch that makes it differ.
    """

    def __init__(self, model: nn.Module, members: int, learner_of: LearnerOf) -> None:
        refuse_own_draws(model)
        self.members = members
        self._learner_of = learner_of
        self.base = learner_of(copy.deepcopy(model).train())
        self._own: dict[int, Learner] = {}

    def step(self, algorithm: Algorithm, x: Tensor, y: Tensor, differs: Tensor) -> StepRecord:
        for k in differs.nonzero().flatten().tolist():
            if k not in self._own:
                self._own[k] = self._copied()
        shared = algorithm.step(self.base, x[0], y[0])
        records = [
            algorithm.step(self._own[k], x[k], y[k]) if k in self._own else shared
            for k in range(self.members)
        ]
        norms = [r.g_norms for r in records if r.g_norms is not None]
        return StepRecord(
            losses=torch.stack([r.losses for r in records]),
            delta=torch.stack([r.delta for r in records]),
            g_norms=torch.stack(norms, dim=1) if norms else None,
        )

    def weights(self) -> Tensor:
        shared = _flat(self.base.model)
        rows = [_flat(self._own[k].model) if k in self._own else shared for k in range(self.members)]
        return torch.stack(rows)

    def measure(self, measure: Measure, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        shared = self._measured(self.base, measure, x, y)
        columns = [
            self._measured(self._own[k], measure, x, y) if k in self._own else shared
            for k in range(self.members)
        ]
        return tuple(torch.stack(values) for values in zip(*columns, strict=True))

    def member(self, k: int) -> nn.Module:
        return copy.deepcopy(self._own.get(k, self.base).model)

    @staticmethod
    def _measured(learner: Learner, measure: Measure, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        with frozen(learner.model, "eval"):
            return measure(learner.model, x, y)

    def _copied(self) -> Learner:
        learner = self._learner_of(copy.deepcopy(self.base.model))
        restore_snapshot(learner, *take_snapshot(self.base))
        return learner


@torch.no_grad()
def _flat(model: nn.Module) -> Tensor:
    return torch.cat([p.flatten() for p in model.parameters()])


ENGINES: dict[str, type[StackedRuns | SeparateRuns]] = {"stacked": StackedRuns, "separate": SeparateRuns}


def make_runs(engine: str, model: nn.Module, members: int, learner_of: LearnerOf) -> CoupledRuns:
    """Coupled runs of ``members`` copies of the model, by the engine's name."""
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    return ENGINES[engine](model, members, learner_of)
