"""The cost of a reproduction: passes counted from the specs, times the seconds of a timed step of each network."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from freeat.algorithms import make_algorithm
from freeat.algorithms.step import training_cost
from freeat.attacks.pgd import Pgd
from freeat.attacks.registry import parse_attack
from freeat.attacks.square import Square
from freeat.compute import FORWARD_SHARE
from freeat.compute.machine import QUICK, arithmetic, quickest, resolve_device
from freeat.compute.precision import Precision
from freeat.data import load_data
from freeat.data.catalogue import available, find_source
from freeat.experiments.tasks import Measurement, PaperTask, TrainTask
from freeat.learner import Learner
from freeat.runs.build import build_algorithm, build_awp, build_ball, build_batches, build_network
from freeat.runs.spec import TrainSpec

SURVIVING = 0.5
"""The part of Square's queries that is made, roughly: an image that is fooled is queried no more."""

SANITY_GRADIENTS, SANITY_FORWARDS = 64 * 90, 64 * 120 + 256
"""Passes of the sanity checks that go with an attack (``evaluation.sanity``)."""

FEW = 4
"""A step is timed on a few images; on a whole batch where that takes no longer than a second."""


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """What the cost of a run depends on in its data."""

    n_train: int
    n_test: int
    shape: tuple[int, int, int]
    classes: int
    augmented: bool


def dataset_info(data: str, data_dir: Path | None) -> DatasetInfo:
    """Facts of a data set by name, from disk or else as published; of a path, as it is read."""
    source = find_source(data)
    if source is None:
        read = load_data(data, data_dir=data_dir)
        return DatasetInfo(
            n_train=len(read.train),
            n_test=len(read.test),
            shape=read.shape,
            classes=len(read.classes),
            augmented=read.augment is not None,
        )
    entry = next(entry for entry in available(data_dir) if entry.name == source.name)
    return DatasetInfo(
        n_train=entry.n_train,
        n_test=entry.n_test,
        shape=source.shape,
        classes=source.n_classes,
        augmented=source.augment is not None,
    )


@dataclass(frozen=True, kw_only=True)
class NetworkPasses:
    """Images sent through the network of a run: forward and backward, and forward only."""

    run: TrainTask
    gradient: float = 0.0
    forward: float = 0.0

    @property
    def total(self) -> float:
        """In forward–backward passes."""
        return self.gradient + FORWARD_SHARE * self.forward


def passes_of(task: PaperTask, info: DatasetInfo) -> Iterator[NetworkPasses]:
    """The passes of a task, by the runs on whose networks they are made."""
    if isinstance(task, TrainTask):
        yield training_passes(task, info)
        yield evaluation_passes(task, info)
        return
    yield _attack_passes(task, task.source or task.target, info)
    if task.source is None:
        yield NetworkPasses(run=task.target, gradient=SANITY_GRADIENTS, forward=SANITY_FORWARDS)
    else:
        images = _images(task, info)
        yield from (NetworkPasses(run=target, forward=2 * images) for target in task.targets)


def training_passes(run: TrainTask, info: DatasetInfo) -> NetworkPasses:
    """Passes of all weight updates of a run, as its algorithm declares them."""
    spec = run.spec
    assert spec.updates is not None
    algorithm = build_algorithm(spec, spec.updates)
    batches = build_batches(spec, spec.train_size or info.n_train)
    awp = build_awp(spec, spec.updates, batches.per_epoch)
    cost = training_cost(algorithm, spec.updates, awp)
    return NetworkPasses(
        run=run,
        gradient=cost.gradient_evaluations * batches.mean_size,
        forward=cost.forward_passes * batches.mean_size,
    )


def evaluation_passes(run: TrainTask, info: DatasetInfo) -> NetworkPasses:
    """Passes of a run's evaluations: at the points of its curve, and at the end."""
    spec, evaluation = run.spec, run.evaluation
    assert spec.updates is not None
    assert evaluation.eval_every is not None
    n = spec.train_size or info.n_train
    augmented = info.augmented if spec.augment == "auto" else spec.augment != "none"
    views = 2 if augmented else 1
    every = evaluation.eval_every
    points = 1 + spec.updates // every if every < spec.updates else 0
    images = 0
    for size, times in ((evaluation.eval_size, points), (evaluation.final_size, 1)):
        images += times * (views * min(size or n, n) + min(size or info.n_test, info.n_test))
    images *= 1 + (spec.ema is not None) + (spec.proximal is not None)
    attack = parse_attack(evaluation.attack)
    assert isinstance(attack, Pgd)
    return NetworkPasses(
        run=run,
        gradient=attack.steps * attack.restarts * images,
        forward=(attack.restarts + 2) * images,
    )


def _attack_passes(task: Measurement, run: TrainTask, info: DatasetInfo) -> NetworkPasses:
    images = _images(task, info)
    match parse_attack(task.attack):
        case Pgd(steps=steps, restarts=restarts):
            return NetworkPasses(run=run, gradient=steps * restarts * images, forward=2 * images)
        case Square(queries=queries):
            return NetworkPasses(run=run, forward=SURVIVING * queries * images)
    raise AssertionError(f"{task.attack}: no figure of the paper uses it")


def _images(task: Measurement, info: DatasetInfo) -> int:
    return min(task.n, info.n_test) * len(task.radii)


@dataclass(frozen=True, kw_only=True)
class TaskCost:
    """What one task costs; ``absent`` where its data set is not on this machine."""

    name: str
    passes: float
    seconds: float
    finished: bool = False
    absent: bool = False


class Estimator:
    """Multiplies counted passes by one timed step per network. Every network and data set is examined once."""

    def __init__(self, *, data_dir: Path | None, device: str) -> None:
        self.data_dir, self.device = data_dir, device
        self._infos: dict[str, DatasetInfo] = {}
        self._seconds: dict[tuple[str, str], float] = {}

    def set_info(self, data: str, info: DatasetInfo) -> None:
        """Use this information on a data set, without reading it."""
        self._infos[data] = info

    def passes(self, task: PaperTask) -> list[NetworkPasses]:
        run = task if isinstance(task, TrainTask) else task.target
        return list(passes_of(task, self._info(run.spec.data)))

    def total(self, task: PaperTask) -> float:
        """Forward–backward passes of a task."""
        return sum(part.total for part in self.passes(task))

    def cost(self, task: PaperTask, *, finished: bool = False, absent: bool = False) -> TaskCost:
        seconds = sum(part.total * self._per_pass(part.run.spec) for part in self.passes(task))
        return TaskCost(
            name=task.name, passes=self.total(task), seconds=seconds, finished=finished, absent=absent
        )

    def _info(self, data: str) -> DatasetInfo:
        if data not in self._infos:
            self._infos[data] = dataset_info(data, self.data_dir)
        return self._infos[data]

    def _per_pass(self, spec: TrainSpec) -> float:
        network = (spec.model, spec.data)
        if network not in self._seconds:
            self._seconds[network] = seconds_per_pass(spec, self._info(spec.data), self.device)
        return self._seconds[network]


def seconds_per_pass(spec: TrainSpec, info: DatasetInfo, device: str) -> float:
    """Seconds of a forward–backward pass of one image: half a step of Fast, which makes one for δ and one for w."""
    on = resolve_device(device)
    with arithmetic(threads=spec.threads or torch.get_num_threads(), deterministic=spec.deterministic):
        model = build_network(spec, classes=info.classes, shape=info.shape)
        model = model.to(on).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=spec.momentum)
        learner = Learner(model, optimizer, seed=0, precision=Precision(spec.precision, on))
        algorithm = make_algorithm("fast", build_ball(spec))

        def seconds_of(b: int) -> float:
            generator = torch.Generator().manual_seed(0)
            x = torch.rand((b, *info.shape), generator=generator)
            y = torch.randint(info.classes, (b,), generator=generator)
            x, y = x.to(on, memory_format=torch.channels_last), y.to(on)
            return quickest(lambda: algorithm.step(learner, x, y), on)

        seconds, images = seconds_of(FEW), FEW
        if seconds * spec.batch_size / FEW < QUICK:
            seconds, images = seconds_of(spec.batch_size), spec.batch_size
    return seconds / (2 * images)
