"""The settings of a study, and the result of its twin runs of one algorithm, sample size and seed."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from freeat.algorithms import parse_algorithm
from freeat.algorithms.registry import algorithm_class, options_of
from freeat.algorithms.step import Algorithm, StepRecord, threat_of
from freeat.data import DataSet, Images, parse_augmentation
from freeat.errors import InputError, unknown_name
from freeat.learner import Learner
from freeat.objectives import BoundedLoss, Objective
from freeat.runs.build import (
    build_algorithm,
    build_ball,
    build_batches,
    build_data,
    build_learner,
    build_model,
    proximal_start,
)
from freeat.runs.spec import TrainSpec, split_parts
from freeat.stability.constants import Constants, constants_under_attack
from freeat.stability.probes import ProbeAttack
from freeat.stability.twins import (
    CoupledRuns,
    Twins,
    delta_distances,
    make_runs,
    outside,
    train_twins,
    weight_distances,
)
from freeat.training.records import GradientNorms, NormCounts, Record

MODES = ("theorem", "ordinary")


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """What all twin runs of a study have in common.

    ``theorem``: plain SGD with steps c/t (Free c/(mt)), c = ``lr``; batches drawn independently; no box, no
    augmentation; the bounded loss 1 − p_y. ``ordinary``: momentum and weight decay, shuffled epochs, a piecewise
    rate, the box, augmentation (``auto``: the data set's default) and each algorithm's own loss. Every algorithm
    receives those of ``algorithm_args`` that its class declares. Parts begin at the epochs ``awp_from`` and
    ``proximal_from``; slow weights take in the others every ``proximal_every`` epochs.
    """

    data: str = "digits"
    model: str = "mlp-w64-softplus"
    mode: str = "ordinary"
    norm: str = "l2"
    eps: float
    updates: int = 500
    batch_size: int = 32
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 2e-4
    augment: str = "auto"
    replay: int = 1
    replaced: int = 16
    probes: int = 128
    attack_steps: int = 20
    eval_size: int = 300
    times: int = 40
    probe_times: int = 5
    constant_points: int = 16
    sample_seed: int = 0
    algorithm_args: dict[str, Any] | None = None
    image_size: int | None = None
    skip_unreadable: bool = False
    awp_from: float = 0.0
    proximal_from: float | None = None
    proximal_every: float = 1.0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise unknown_name("mode", self.mode, MODES)
        counts = ("replaced", "probes", "attack_steps", "eval_size", "times", "probe_times")
        for name, least in (*((name, 1) for name in counts), ("constant_points", 0)):
            if getattr(self, name) < least:
                raise InputError(f"--{name.replace('_', '-')} {getattr(self, name)} must be at least {least}")
        if self.theorem and self.replay > 1:
            raise InputError(
                f"--replay {self.replay}: the theorems draw every batch anew; leave it out, or --theorem"
            )
        # Refuses what a spec or a ball refuses.
        build_ball(self.spec("erm", n=max(2, self.batch_size), seed=0))

    @property
    def theorem(self) -> bool:
        return self.mode == "theorem"

    def args_of(self, algorithm: str, *, trust_code: bool = False) -> dict[str, Any]:
        """Those of ``algorithm_args`` that the algorithm's class declares."""
        if not self.algorithm_args:
            return {}
        name = parse_algorithm(split_parts(algorithm)[0])
        takes = options_of(algorithm_class(name, trust_code=trust_code))
        return {name: value for name, value in self.algorithm_args.items() if name in takes}

    def spec(self, algorithm: str, *, n: int, seed: int, trust_code: bool = False) -> TrainSpec:
        """The training of the member on S, as any run describes it; the algorithm may have parts: ``free-4+awp``."""
        name, parts = split_parts(algorithm)
        if self.batch_size > n:
            raise InputError(f"--batch-size {self.batch_size} exceeds the {n} examples of S: take fewer")
        return TrainSpec(
            data=self.data,
            image_size=self.image_size,
            skip_unreadable=self.skip_unreadable,
            train_size=n,
            augment="none" if self.theorem else self.augment,
            model=self.model,
            algorithm=name,
            algorithm_args=self.args_of(algorithm, trust_code=trust_code) or None,
            norm=self.norm,
            eps=self.eps,
            box=not self.theorem,
            updates=self.updates,
            batch_size=self.batch_size,
            sampling="independent" if self.theorem else "epochs",
            replay=self.replay,
            lr=self.lr,
            schedule="vanishing" if self.theorem else "piecewise",
            momentum=0.0 if self.theorem else self.momentum,
            weight_decay=0.0 if self.theorem else self.weight_decay,
            seed=seed,
            awp_from=self.awp_from,
            proximal_from=self.proximal_from,
            proximal_every=self.proximal_every,
            **parts,  # type: ignore[arg-type]
        )

    def beginning(self, algorithm: str, n: int) -> int:
        """The update at which the weights begin that are compared: 0, or the first of the slow ones."""
        spec = self.spec(algorithm, n=n, seed=0)
        if spec.proximal is None:
            return 0
        return proximal_start(spec, self.updates, build_batches(spec, n).per_epoch)

    def load(self, data_dir: Path | None) -> DataSet:
        """The data set that S and the unseen images are of."""
        spec = TrainSpec(data=self.data, image_size=self.image_size, skip_unreadable=self.skip_unreadable)
        return build_data(spec, data_dir=data_dir)

    def sample(self, train: Images, n: int) -> Images:
        """S: n of the training images."""
        return train.subset(n, self.sample_seed)

    def evaluated(self, sample: Images) -> Images:
        """The images of S on which robust training accuracy is evaluated."""
        return sample.sample(self.eval_size, self.sample_seed)

    def algorithm(self, spec: TrainSpec, *, trust_code: bool = False) -> Algorithm:
        """The algorithm of a spec, with the bounded loss where theorems are meant and cross-entropy was."""
        bounded = self.theorem and parse_algorithm(spec.algorithm).objective == "ce"
        objective = BoundedLoss() if bounded else None
        return build_algorithm(spec, self.updates, objective=objective, trust_code=trust_code)


class TwinSetup:
    """The objects of the twin runs of one algorithm, sample size and seed."""

    def __init__(
        self,
        settings: StudySettings,
        data: DataSet,
        algorithm: str,
        *,
        n: int,
        seed: int,
        device: torch.device,
        trust_code: bool = False,
    ) -> None:
        self.settings, self.device, self._trust_code = settings, device, trust_code
        self.data, self.name = data, algorithm
        self.spec = settings.spec(algorithm, n=n, seed=seed, trust_code=trust_code)
        self.ball = build_ball(self.spec)
        self.ball.check(data.shape)
        self.algorithm = settings.algorithm(self.spec, trust_code=trust_code)
        self.batches = build_batches(self.spec, n)
        self.augment = parse_augmentation(self.spec.augment, data.augment)
        train = data.train.to(device)
        sample = settings.sample(train, n)
        self.twins = Twins.draw(sample, outside(train, sample), settings.replaced, settings.sample_seed)
        self.test = data.test.to(device)

    @property
    def objective(self) -> Objective | None:
        """The loss h of the theorems; None for an algorithm with a loss of its own."""
        return getattr(self.algorithm, "objective", None)

    def model(self) -> nn.Module:
        """The initial model."""
        return build_model(self.spec, self.data, trust_code=self._trust_code).to(self.device)

    def learner(self, model: nn.Module) -> Learner:
        """What trains one model or a stack."""
        return build_learner(
            self.spec,
            model,
            self.algorithm,
            self.settings.updates,
            self.device,
            per_epoch=self.batches.per_epoch,
        )


@dataclass(frozen=True, kw_only=True)
class Distances:
    """d^w and d^δ of every neighbour after an update."""

    update: int
    d_w: tuple[float, ...]
    d_delta: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ProbeRecord:
    """Differences of max_δ h between S and its neighbours, and every member's robust accuracy and risk."""

    update: int
    largest_difference: float
    mean_difference: float
    robust_train: tuple[float, ...]
    robust_test: tuple[float, ...]
    risk_train: tuple[float, ...]
    risk_test: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class GradientRecord(NormCounts):
    """The counts of ‖∇_δ h‖ at an update."""

    update: int


def gradient_records(history: Iterable[Record]) -> list[GradientRecord]:
    """The counts that the records of a run hold."""
    return [
        GradientRecord(update=record.update, **vars(record.gradient_norms))
        for record in history
        if record.gradient_norms is not None
    ]


@dataclass(frozen=True, kw_only=True)
class TwinResult:
    """What K twins and their base showed. Of runs that diverged, only the update at which that was seen.

    ``t0``: for each neighbour the first update that used the replaced example, None if none did; ``differences``:
    the signed differences of max_δ h at the end, (neighbours, probes).
    """

    algorithm: str
    n: int
    seed: int
    engine: str
    seconds: float
    replaced: tuple[int, ...]
    diverged: int | None = None
    t0: tuple[int | None, ...] = ()
    distances: tuple[Distances, ...] = ()
    probes: tuple[ProbeRecord, ...] = ()
    differences: tuple[tuple[float, ...], ...] = ()
    gradient_norms: tuple[GradientRecord, ...] = ()
    constants: Constants | None = None

    def __post_init__(self) -> None:
        if self.diverged is not None:
            return
        probed = [(one.robust_train, one.robust_test, one.risk_train, one.risk_test) for one in self.probes]
        shown = (
            *(self.replaced, self.t0, self.distances, self.probes, self.differences),
            *(one.d_w for one in self.distances),
            *(of_members for one in probed for of_members in one),
            *self.differences,
        )
        if self.n < 1 or not all(shown):
            raise ValueError(
                "twin runs that did not diverge show distances and differences of every neighbour"
            )


def converged(results: Sequence[TwinResult]) -> list[TwinResult]:
    """The results of runs that stayed finite."""
    return [result for result in results if result.diverged is None]


def spread(count: int, total: int) -> set[int]:
    """``count`` of the numbers 1, …, total, evenly spread, the last among them."""
    return {round(total * k / min(count, total)) for k in range(1, min(count, total) + 1)}


class TwinRecorder:
    """Measures the runs at chosen batches and keeps what it finds."""

    def __init__(self, setup: TwinSetup) -> None:
        settings, twins = setup.settings, setup.twins
        self.setup = setup
        self.batches = -(-settings.updates // setup.algorithm.updates_per_batch)
        fresh = setup.test.sample(settings.probes, settings.sample_seed)
        self.probe_images = Images.joined(fresh, twins.originals, twins.replacements)
        self.train = settings.evaluated(twins.sample)
        self.test = setup.test.sample(settings.eval_size, settings.sample_seed + 1)
        self.probe = ProbeAttack(ball=setup.ball, steps=settings.attack_steps, seed=setup.spec.seed)
        self.distances: list[Distances] = []
        self.probes: list[ProbeRecord] = []
        self.gradients: list[GradientRecord] = []
        self.differences: Tensor | None = None
        self.diverged: int | None = None
        self.constants: Constants | None = None
        self._norms = GradientNorms()
        self._due = spread(settings.times, self.batches)
        self._probe_due = spread(settings.probe_times, self.batches)

    def record(self, runs: CoupledRuns, step: StepRecord) -> None:
        """After a batch. Numbers that are not finite are not recorded, but the update at which that was seen is."""
        batch, update = runs.base.batches, runs.base.updates
        if step.g_norms is not None:
            self._norms.add(step.g_norms[:, 0].cpu())
        if batch in self._due:
            d_w, d_delta = tuple(weight_distances(runs)), tuple(delta_distances(step))
            if not all(math.isfinite(d) for d in (*d_w, *d_delta)):
                self.diverged = update
                return
            self.distances.append(Distances(update=update, d_w=d_w, d_delta=d_delta))
            if (taken := self._norms.take()) is not None:
                self.gradients.append(GradientRecord(update=update, **vars(taken)))
        if batch in self._probe_due:
            self._probe(runs, update)

    def _probe(self, runs: CoupledRuns, update: int) -> None:
        at_probes = self.probe(runs, self.probe_images).bounded
        train, test = (self.probe(runs, images) for images in (self.train, self.test))
        if not all(bool(losses.isfinite().all()) for losses in (at_probes, train.bounded, test.bounded)):
            self.diverged = update
            return
        self.differences = at_probes[:1] - at_probes[1:]
        self.probes.append(
            ProbeRecord(
                update=update,
                largest_difference=float(self.differences.abs().max()),
                mean_difference=float(self.differences.abs().double().mean()),
                robust_train=tuple(train.robust_accuracy),
                robust_test=tuple(test.robust_accuracy),
                risk_train=tuple(train.bounded.double().mean(1).tolist()),
                risk_test=tuple(test.bounded.double().mean(1).tolist()),
            )
        )
        points, objective = self.setup.settings.constant_points, self.setup.objective
        if points and objective is not None:
            ball = None if threat_of(self.setup.algorithm) is None else self.setup.ball
            images, seed = self.train.sample(points), self.setup.spec.seed
            here = constants_under_attack(runs.member(0), objective, images, ball, seed, steps=5, starts=True)
            self.constants = here if self.constants is None else self.constants.merged(here)
            if not self.constants.finite:
                self.diverged = update

    def result(self, engine: str, seconds: float) -> TwinResult:
        """All that was recorded."""
        spec, twins = self.setup.spec, self.setup.twins
        m = self.setup.algorithm.updates_per_batch
        about = partial(
            TwinResult,
            algorithm=self.setup.name,
            n=len(twins.sample),
            seed=spec.seed,
            engine=engine,
            seconds=seconds,
            replaced=twins.replaced,
            diverged=self.diverged,
        )
        if self.diverged is not None:
            return about()
        assert self.differences is not None
        constants = self.constants
        if constants is not None and self.gradients:
            count = sum(sum(row.bins.values()) for row in self.gradients)
            constants = constants.with_gradients(self.gradients[-1].smallest_so_far, count)
        first = twins.first_batches(self.setup.batches, self.batches)
        return about(
            t0=tuple(None if t is None else (t - 1) * m + 1 for t in first),
            distances=tuple(self.distances),
            probes=tuple(self.probes),
            differences=tuple(map(tuple, self.differences.tolist())),
            gradient_norms=tuple(self.gradients),
            constants=constants,
        )


def run_twins(
    setup: TwinSetup, engine: str, *, on_update: Callable[[int, int], None] = lambda update, total: None
) -> TwinResult:
    """Train the twins to the end and return what was recorded; ``on_update`` receives the updates done and T."""
    begun = time.monotonic()
    recorder = TwinRecorder(setup)
    runs = make_runs(engine, setup.model(), setup.twins.members, setup.learner)
    for step in train_twins(runs, setup.algorithm, setup.twins, setup.batches, setup.augment):
        recorder.record(runs, step)
        on_update(runs.base.updates, setup.settings.updates)
        if recorder.diverged is not None:
            break
    return recorder.result(engine, time.monotonic() - begun)
