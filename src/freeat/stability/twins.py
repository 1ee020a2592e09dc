"""Twin runs: S and K neighbours S′, trained with the same weights, batches, augmentation and starts.

The K + 1 members are coupled: they begin with the same weights and step on their own batches, either stacked in one
module or as separate learners.
"""

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from freeat.algorithms.step import Algorithm, StepRecord
from freeat.compute.frozen import frozen
from freeat.data import Augmentation, Images
from freeat.data.batches import Batches
from freeat.data.images import seeded_order
from freeat.errors import InputError, unknown_name
from freeat.learner import Learner
from freeat.objectives import Model
from freeat.rng import StepRng
from freeat.threat import l2_norm
from freeat.training.snapshot import restore_snapshot, take_snapshot


@dataclass(frozen=True, kw_only=True, eq=False)
class Twins:
    """S and its K neighbours of Definition 1: in the k-th, row ``replaced[k]`` gives way to image k.

    Member 0 of the coupled runs trains on S, member k + 1 on the k-th neighbour.
    """

    sample: Images
    replaced: tuple[int, ...]
    replacements: Images

    def __post_init__(self) -> None:
        if len(self.replaced) != len(self.replacements) or not self.replaced:
            raise InputError(
                f"{len(self.replaced)} replaced examples and {len(self.replacements)} replacements: "
                "give one replacement for each, and at least one"
            )
        if not all(0 <= i < len(self.sample) for i in self.replaced):
            raise InputError(f"replaced rows {self.replaced}: must lie in 0 to {len(self.sample) - 1}")

    @classmethod
    def draw(cls, sample: Images, pool: Images, count: int, seed: int = 0) -> "Twins":
        """``count`` random rows of the sample, replaced by as many random images of ``pool``."""
        if not 1 <= count <= min(len(sample), len(pool)):
            raise InputError(
                f"{count} replaced examples: must lie between 1 and {min(len(sample), len(pool))}, the smaller of "
                f"the sample ({len(sample)}) and the pool of replacements ({len(pool)})"
            )
        rows = seeded_order(sample.index.cpu().numpy(), seed, "replaced")[:count]
        fresh = seeded_order(pool.index.cpu().numpy(), seed, "replacement")[:count]
        return cls(
            sample=sample,
            replaced=tuple(int(i) for i in rows),
            replacements=pool.take(torch.from_numpy(fresh)),
        )

    @property
    def members(self) -> int:
        """The runs: one on S and one per neighbour."""
        return 1 + len(self.replaced)

    @cached_property
    def both(self) -> Images:
        """S followed by the replacements."""
        return Images.joined(self.sample, self.replacements)

    @cached_property
    def originals(self) -> Images:
        """The examples of S that are replaced, in the order of the neighbours."""
        return self.sample.take(torch.tensor(self.replaced))

    def rows(self, rows: Tensor) -> Tensor:
        """The rows of ``both`` that each member sees where S's are ``rows`` (b,): (K + 1, b)."""
        own = torch.tensor((-1, *self.replaced)).unsqueeze(1)
        instead = torch.arange(self.members).unsqueeze(1) + len(self.sample) - 1
        return torch.where(rows == own, instead, rows)

    def first_batches(self, batches: Batches, count: int) -> list[int | None]:
        """For each neighbour, the first of ``count`` batches that holds the replaced example; None if none does."""
        first: dict[int, int] = {}
        for t in range(1, count + 1):
            for row in batches(t).tolist():
                first.setdefault(row, t)
        return [first.get(i) for i in self.replaced]


def outside(images: Images, sample: Images) -> Images:
    """The images that are not in the sample, by their numbers."""
    rows = np.flatnonzero(~np.isin(images.index.cpu().numpy(), sample.index.cpu().numpy()))
    if not len(rows):
        raise InputError(
            f"no image is left outside the sample of {len(sample)}: train on fewer (--train-size), so that some "
            "remain to replace examples"
        )
    return images.take(torch.from_numpy(rows))


class Stack(nn.Module):
    """K copies of ``model`` that train side by side: images (K, b, C, H, W) to logits (K, b, classes).

    Elementwise optimizers, losses averaged over b and summed over K, and norms over the last three axes keep the
    members apart, so every algorithm trains a stack as it trains one model. Buffers are common to all members.
    """

    is_stack = True

    def __init__(self, model: nn.Module, members: int) -> None:
        if members < 1:
            raise InputError(f"a stack of {members} models: must have at least 1 member")
        refuse_running_statistics(model)
        super().__init__()
        self.members = members
        self.model = copy.deepcopy(model)
        for p in self.model.parameters():
            p.data = p.data.expand(members, *p.shape).clone()

    def forward(self, x: Tensor) -> Tensor:
        buffers = dict(self.model.named_buffers())

        def one(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
            output: Tensor = functional_call(self.model, {**buffers, **parameters}, (x,))
            return output

        logits: Tensor = vmap(one)(dict(self.model.named_parameters()), x)
        return logits

    @torch.no_grad()
    def flat(self) -> Tensor:
        """Every member's weights as one row: (K, number of parameters)."""
        return torch.cat([p.flatten(1) for p in self.model.parameters()], dim=1)


def refuse_running_statistics(model: nn.Module) -> None:
    """Refuse layers that keep statistics of the batches they saw: in a stack they would mix the members."""
    for name, module in model.named_modules():
        if getattr(module, "running_mean", None) is not None:
            raise InputError(
                f"layer {name!r} ({type(module).__name__}) keeps running statistics, which do not stack: choose "
                "the model with group norm or none (suffix -gn or -nonorm), or train the runs separately"
            )


def refuse_own_draws(model: nn.Module) -> None:
    """Refuse layers that draw from the global generator: coupled runs would not share those draws."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            raise InputError(
                f"layer {name!r} ({type(module).__name__}, p = {module.p:g}) draws its own random numbers, which "
                "coupled runs cannot share: set p = 0, or choose a model without dropout"
            )


LearnerOf = Callable[[nn.Module], Learner]
Measure = Callable[[Model, Tensor, Tensor], tuple[Tensor, ...]]
"""From a model, images (..., b, C, H, W) and labels (..., b) to values of shape (..., b)."""


class StackedRuns:
    """K runs as one, in a ``Stack``; every tensor has a leading axis K.

    ``base`` is a learner whose counts of batches and updates are those of all members.
    """

    def __init__(self, model: nn.Module, members: int, learner_of: LearnerOf) -> None:
        self.members = members
        self._plain = copy.deepcopy(model)
        self.base = learner_of(Stack(model, members).train())

    @property
    def _stack(self) -> Stack:
        """The stack that comes out of the training: of averaged weights, where they are averaged."""
        stack = self.base.result
        assert isinstance(stack, Stack)
        return stack

    def step(self, algorithm: Algorithm, x: Tensor, y: Tensor, differs: Tensor) -> StepRecord:
        """One step of every member on its batch x[k], y[k].

        ``differs`` (K,) marks the members whose batches ever differed from member 0's, this one included.
        """
        return algorithm.step(self.base, x, y)

    def weights(self) -> Tensor:
        """(K, number of parameters)."""
        return self._stack.flat()

    def measure(self, measure: Measure, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """The values of ``measure`` for each member, in evaluation mode, on the same images: (K, b) each."""
        stack = self._stack
        with frozen(stack, "eval"):
            return measure(stack, x.expand(self.members, *x.shape), y.expand(self.members, *y.shape))

    def member(self, k: int) -> nn.Module:
        """A copy of member k as a plain model."""
        model = copy.deepcopy(self._plain)
        with torch.no_grad():
            for own, stacked in zip(model.parameters(), self._stack.model.parameters(), strict=True):
                own.copy_(stacked[k])
        return model


class SeparateRuns:
    """The same with a learner per member; members whose batches were all member 0's so far *are* member 0.

    A twin that has not met its replaced example has member 0's very bits, so it is not trained twice: it is
    copied off at the batch that makes it differ.
    """

    def __init__(self, model: nn.Module, members: int, learner_of: LearnerOf) -> None:
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
        shared = _flat(self.base.result)
        rows = [_flat(self._own[k].result) if k in self._own else shared for k in range(self.members)]
        return torch.stack(rows)

    def measure(self, measure: Measure, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        shared = self._measured(self.base, measure, x, y)
        columns = [
            self._measured(self._own[k], measure, x, y) if k in self._own else shared
            for k in range(self.members)
        ]
        return tuple(torch.stack(values) for values in zip(*columns, strict=True))

    def member(self, k: int) -> nn.Module:
        return copy.deepcopy(self._own.get(k, self.base).result)

    @staticmethod
    def _measured(learner: Learner, measure: Measure, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        with frozen(learner.result, "eval"):
            return measure(learner.result, x, y)

    def _copied(self) -> Learner:
        learner = self._learner_of(copy.deepcopy(self.base.model))
        restore_snapshot(learner, *take_snapshot(self.base))
        return learner


@torch.no_grad()
def _flat(model: nn.Module) -> Tensor:
    return torch.cat([p.flatten() for p in model.parameters()])


CoupledRuns = StackedRuns | SeparateRuns
ENGINES: dict[str, type[CoupledRuns]] = {"stacked": StackedRuns, "separate": SeparateRuns}


def make_runs(engine: str, model: nn.Module, members: int, learner_of: LearnerOf) -> CoupledRuns:
    """Coupled runs of ``members`` copies of the model, by the engine's name."""
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    refuse_own_draws(model)
    return ENGINES[engine](model, members, learner_of)


TIMED_MEMBERS = 4
"""Separate runs cost the same each, so the time of a few gives that of all."""
TIMED_BATCHES = 4
MARGIN = 0.8
"""Stacking must save this much to be chosen: where both cost the same, separate runs need less memory."""


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """The faster engine and the seconds a batch took with each; ``reason`` where there was no choice."""

    engine: str
    seconds_per_batch: dict[str, float]
    reason: str | None = None


def choose_engine(
    model: nn.Module, members: int, learner_of: LearnerOf, algorithm: Algorithm, x: Tensor, y: Tensor
) -> EngineChoice:
    """Step throw-away copies of the runs on the batch (x, y) with both engines, and take the faster one."""
    try:
        refuse_running_statistics(model)
    except InputError as refusal:
        return EngineChoice(engine="separate", seconds_per_batch={}, reason=str(refusal))
    timed = {"stacked": members, "separate": min(members, TIMED_MEMBERS)}
    runs = {name: make_runs(name, model, k, learner_of) for name, k in timed.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(TIMED_BATCHES):  # in turns, so that a busy machine slows both alike
        for name, own in runs.items():
            if own.base.updates_left > 0:
                times[name].append(_seconds(own, algorithm, x, y))
    # The first batch warms up, where the budget allows more than one.
    seconds = {name: min(seen[1:] or seen) * members / timed[name] for name, seen in times.items()}
    stacks = seconds["stacked"] < MARGIN * seconds["separate"]
    return EngineChoice(engine="stacked" if stacks else "separate", seconds_per_batch=seconds)


def _seconds(runs: CoupledRuns, algorithm: Algorithm, x: Tensor, y: Tensor) -> float:
    """How long a batch takes."""
    k = runs.members
    begun = time.perf_counter()
    runs.step(algorithm, x.expand(k, *x.shape), y.expand(k, *y.shape), torch.ones(k, dtype=torch.bool))
    runs.weights().sum().item()  # waits for the device
    return time.perf_counter() - begun


def train_twins(
    runs: CoupledRuns,
    algorithm: Algorithm,
    twins: Twins,
    batches: Batches,
    augment: Augmentation | None = None,
) -> Iterator[StepRecord]:
    """Train all members until the budget of weight updates is spent; yields each batch's record, (K + 1, b, …)."""
    differs = torch.zeros(twins.members, dtype=torch.bool)
    dtype = next(runs.base.model.parameters()).dtype
    while runs.base.updates_left > 0:
        t = runs.base.batches + 1
        rows = twins.rows(batches(t))
        differs |= (rows != rows[0]).any(1)
        rng = StepRng(runs.base.seed, (batches.drawn(t),), rows.shape[1], 0)
        x, y = twins.both.batch(rows, augment, rng)
        yield runs.step(algorithm, x.to(dtype), y, differs)


def weight_distances(runs: CoupledRuns) -> list[float]:
    """d^w = ‖w − w′‖ of every neighbour."""
    weights = runs.weights()
    return [float(d) for d in (weights[1:] - weights[:1]).cpu().double().norm(dim=1)]


def delta_distances(record: StepRecord) -> list[float]:
    """d^δ = the batch's mean of ‖δ_j − δ_j′‖₂ of every neighbour."""
    return [float(d) for d in l2_norm(record.delta[1:] - record.delta[:1]).cpu().double().mean(1)]
