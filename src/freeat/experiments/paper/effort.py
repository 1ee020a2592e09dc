"""What a task costs, counted in images sent through a network, before it is begun."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from freeat.algorithms.registry import AlgorithmName, parse_algorithm
from freeat.attacks.pgd import Pgd
from freeat.attacks.registry import parse_attack
from freeat.attacks.square import Square
from freeat.data import load
from freeat.data.batches import Batches
from freeat.data.catalogue import available
from freeat.data.sources import find_source
from freeat.experiments.paper.experiment import Piece
from freeat.experiments.tasks import Attacking, Measurement, Training, Transferring
from freeat.runs.spec import EvalSpec

SURVIVING = 0.5
"""The part of Square's queries that is asked, roughly: an image that is fooled is asked about no more."""

PROBE = 64 * 85
"""Passes of the honesty checks that go with an attack (``attacks.probe``)."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Images sent through a network, by what was asked of it.

    While training: ``attack``, δ's gradient; ``weights``, that of w; ``both``; ``forward``, none. While judging,
    in fp32: ``judged``, δ's gradient; ``asked``, none.
    """

    attack: float = 0.0
    weights: float = 0.0
    both: float = 0.0
    forward: float = 0.0
    judged: float = 0.0
    asked: float = 0.0

    def __add__(self, other: Self) -> "Work":
        return Work(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __mul__(self, times: float) -> "Work":
        return Work(**{f.name: getattr(self, f.name) * times for f in fields(self)})

    @property
    def passes(self) -> float:
        """Forward and backward passes of single images; a forward pass alone counts a third."""
        return self.attack + self.weights + self.both + self.judged + (self.forward + self.asked) / 3


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What the cost of a run depends on in its data."""

    n_train: int
    n_test: int
    shape: tuple[int, int, int]
    classes: int
    augmented: bool


def ground_of(data: str, data_dir: Path | None) -> Ground:
    """Of a data set by name, as it lies here or else as it was published; of a path, as it is read."""
    source = find_source(data)
    if source is None:
        read = load(data, data_dir=data_dir)
        return Ground(
            n_train=len(read.train),
            n_test=len(read.test),
            shape=read.shape,
            classes=len(read.classes),
            augmented=read.augment is not None,
        )
    entry = next(entry for entry in available(data_dir) if entry.name == source.name)
    return Ground(
        n_train=entry.n_train,
        n_test=entry.n_test,
        shape=source.shape,
        classes=source.n_classes,
        augmented=source.augment is not None,
    )


def work_of(task: Piece, ground: Ground) -> Iterator[tuple[Training, Work]]:
    """The work of a task, with the run on whose network it is done."""
    match task:
        case Training():
            yield task, training_work(task, ground) + judging_work(task, ground)
        case Attacking():
            yield task.target, _attack_work(task, ground) + Work(judged=PROBE, asked=PROBE)
        case Transferring():
            images = min(task.n, ground.n_test) * len(task.radii) * len(task.splits)
            yield task.source, _attack_work(task, ground)
            yield from ((target, Work(asked=2 * images)) for target in task.targets)


def per_update(name: AlgorithmName) -> Work:
    """Of one weight update on one image. Friendly's attack is counted as if no image stopped early."""
    two_branches = name.objective == "trades"
    match name.family:
        case "erm":
            return Work(weights=1)
        case "free":
            return Work(both=1, weights=int(two_branches))
        case "fast":
            return Work(attack=1, weights=1)
    return Work(attack=name.m or 1, weights=1 + two_branches, forward=int(two_branches))


def training_work(run: Training, ground: Ground) -> Work:
    """Of all weight updates of a run."""
    spec = run.spec
    assert spec.updates is not None
    batches = Batches(n=spec.train_size or ground.n_train, size=spec.batch_size, seed=spec.seed)
    images = spec.updates * batches.mean_size
    return per_update(parse_algorithm(spec.algorithm)) * images


def judging_work(run: Training, ground: Ground) -> Work:
    """Of a run's evaluations: at the points of its curve, and at the end."""
    spec, evaluation = run.spec, run.evaluation
    assert spec.updates is not None
    assert evaluation.eval_every is not None
    n = spec.train_size or ground.n_train
    views = 2 if ground.augmented else 1
    points = (spec.updates - 1) // evaluation.eval_every
    images = 0
    for size, times in ((evaluation.eval_size, points), (evaluation.final_size, 1)):
        images += times * (views * min(size or n, n) + min(size or ground.n_test, ground.n_test))
    return _evaluation(evaluation) * images


def _evaluation(evaluation: EvalSpec) -> Work:
    attack = parse_attack(evaluation.attack)
    assert isinstance(attack, Pgd)
    return Work(judged=attack.steps * attack.restarts, asked=attack.restarts + 2)


def _attack_work(task: Measurement, ground: Ground) -> Work:
    images = min(task.n, ground.n_test) * len(task.radii) * len(task.splits)
    match parse_attack(task.attack):
        case Pgd(steps=steps, restarts=restarts):
            return Work(judged=steps * restarts, asked=2) * images
        case Square(queries=queries):
            return Work(asked=SURVIVING * queries) * images
    raise AssertionError(f"{task.attack}: no figure of the paper uses it")
