"""The actual generalization gap, exactly: many seeds of one algorithm on a Gaussian mixture, trained as one stack.

Every seed has its own sample S, initial weights, batches and starts; the algorithms of a comparison share them. The
population risk is a formula for linear classifiers and an average over fresh draws for shallow nets.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from freeat.algorithms import Algorithm, make_algorithm, parse_algorithm
from freeat.algorithms.step import with_smoothing
from freeat.algorithms.strength import MeasuredObjective
from freeat.algorithms.vanilla import Vanilla
from freeat.compute.frozen import frozen
from freeat.compute.machine import uncompiled
from freeat.data.batches import Batches
from freeat.errors import InputError, unknown_name
from freeat.files.documents import identity_of, in_file_name, plain
from freeat.learner import Learner
from freeat.learner.schedules import Constant, Schedule, Vanishing
from freeat.objectives import BoundedLoss, CrossEntropy, Objective
from freeat.runs.build import build_modifiers
from freeat.runs.spec import SEMANTICS, TrainSpec, split_parts
from freeat.stability.instances import affine_maximum
from freeat.stability.mixture import (
    KINDS,
    Kind,
    LinearConstants,
    Mixture,
    RobustRisk,
    Surrogate,
    attacked_risk,
    initial_weights,
    linear_population_risk,
    linear_training_risk,
    make_model,
)
from freeat.stability.twins import Stack
from freeat.tasks.scheduler import DocumentTask, stop_or_report
from freeat.theory import absolute_step
from freeat.threat import NORMS, Ball, make_ball
from freeat.training.records import Callback

EXACT = "vanilla-exact"
WEAK = "vanilla-weak"
WEAK_REPLAY = "vanilla-weak-replay"
CONTROLS = (WEAK, WEAK_REPLAY)
"""Vanilla at the strength that Free's perturbations reach; and the same with each batch used as often as Free's."""
WITH_STEP = ("fast", "free")
"""The families of algorithms that ``alpha`` is for."""
RISKS = ("zero_one", "surrogate")
LARGEST = 1e15
"""The largest of a study's numbers: squares of it are finite."""


@dataclass(frozen=True, kw_only=True)
class PopulationSettings:
    """One instance: the mixture, the classifier, the ball, the sample size, and how it is trained.

    ``eps`` is relative: ε / ‖μ‖ in the norm of the ball. ``alpha`` is the paper's relative step of Fast and Free,
    α_δ; None stands for their defaults. Each batch is used ``replay`` times in a row. With ``theorem`` the hypotheses
    of Theorems 2, 4 and 5 hold: bounded loss, steps c/t, truncated noise.
    """

    model: Kind = "linear"
    d: int = 50
    distance: float = 2.0
    sigma: float = 1.0
    norm: str = "l2"
    eps: float = 0.25
    n: int = 100
    updates: int = 2000
    batch_size: int = 10
    lr: float = 0.1
    alpha: float | None = None
    width: int = 16
    initial_scale: float = 0.5
    theorem: bool = False
    seeds: int = 100
    times: int = 16
    fresh: int = 2000
    attack_steps: int = 20
    replay: int = 1
    awp_from: float = 0.0
    proximal_from: float | None = None
    proximal_every: float = 1.0

    def __post_init__(self) -> None:
        for kind, value, known in (("norm", self.norm, NORMS), ("model", self.model, KINDS)):
            if value not in known:
                raise unknown_name(kind, value, known)
        counts = ("d", "updates", "batch_size", "seeds", "times", "width", "fresh", "attack_steps", "replay")
        for name in counts:
            if getattr(self, name) < 1:
                raise InputError(f"--{name.replace('_', '-')} {getattr(self, name)} must be at least 1")
        if not 1 <= self.batch_size <= self.n:
            raise InputError(f"--batch-size {self.batch_size} must lie between 1 and n = {self.n}")
        for name in ("eps", "lr", "initial_scale", "distance", "sigma"):
            if not 0 < getattr(self, name) <= LARGEST:
                raise InputError(
                    f"--{name.replace('_', '-')} {getattr(self, name):g} must be positive and at most {LARGEST:g}"
                )
        if self.alpha is not None and not 0 < self.alpha <= LARGEST:
            raise InputError(f"--alpha {self.alpha:g} must be positive: 1 moves δ by ε")
        if self.theorem and (self.model != "linear" or self.norm != "l2"):
            raise InputError(
                "--theorem: constants in closed form are known for linear models in the L2 ball only"
            )
        if self.theorem and self.replay > 1:
            raise InputError(
                f"--replay {self.replay}: the theorems draw every batch anew; leave it out, or --theorem"
            )
        TrainSpec(**self.part_times)
        if self.theorem:
            self.constants()

    @property
    def mixture(self) -> Mixture:
        return Mixture(d=self.d, distance=self.distance, sigma=self.sigma, truncated=self.theorem)

    @property
    def radius(self) -> float:
        """ε in input units."""
        coordinate = self.distance / math.sqrt(self.d)
        return self.eps * (self.distance if self.norm == "l2" else coordinate)

    @property
    def surrogate(self) -> Surrogate:
        return "logistic" if self.theorem else "probit"

    @property
    def ball(self) -> Ball:
        return make_ball(self.norm, self.radius, box=None)

    @property
    def marks(self) -> list[int]:
        """The weight updates at which risks are measured: 0, then evenly in log t up to T."""
        spaced = (
            [round(self.updates ** (k / (self.times - 1))) for k in range(self.times)]
            if self.times > 1
            else []
        )
        return sorted({0, *spaced, self.updates})

    @property
    def batches_per_epoch(self) -> int:
        return -(-self.n // self.batch_size)

    @property
    def part_times(self) -> dict[str, Any]:
        """When the parts of an arm begin, and how often slow weights take in the others, in epochs."""
        return {name: getattr(self, name) for name in ("awp_from", "proximal_from", "proximal_every")}

    def parts_of(self, arm: str) -> TrainSpec:
        """The parts of an arm, as settings of a training."""
        return TrainSpec(**{**self.part_times, **split_parts(arm)[1]})

    @property
    def facts(self) -> dict[str, Any]:
        """What identifies results on this instance: replay and the times of parts where they are not the usual."""
        usual = {name: getattr(PopulationSettings, name) for name in ("replay", *self.part_times)}
        return {
            name: value for name, value in plain(self).items() if name not in usual or value != usual[name]
        }

    def constants(self) -> LinearConstants:
        """The theorems' constants on this instance."""
        return LinearConstants(
            reach=self.mixture.reach,
            initial=self.initial_scale,
            eps=self.radius,
            c=self.lr,
            T=self.updates,
            b=self.batch_size,
            n=self.n,
        )

    def title(self) -> str:
        """The instance in one line."""
        step = "" if self.alpha is None else f", α_δ = {self.alpha:g}"
        return f"{self.model}, {self.norm}, d = {self.d}, n = {self.n}, ε/‖μ‖ = {self.eps:.4g}{step}"


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """Risks of every seed at every mark: lists [mark][seed].

    ``updates`` are the weight updates done at each mark. ``strength`` is the mean, over all passes that the weights
    descend, of how far δ lowers the margin, relative to the most that it can; None where it is not measured.
    """

    updates: list[int]
    train: dict[str, list[list[float]]]
    population: dict[str, list[list[float]]]
    strength: float | None
    error: float

    def __post_init__(self) -> None:
        risks = [*self.train.values(), *self.population.values()]
        seeds = {len(mark) for risk in risks for mark in risk}
        marks = {len(risk) for risk in risks} | {len(self.updates)}
        if self.train.keys() != self.population.keys() or len(seeds) != 1 or len(marks) != 1:
            raise InputError("the risks of a trajectory are not one number per mark and seed")


@dataclass(frozen=True, kw_only=True)
class PopulationResult:
    """What one arm did on one instance; ``matched`` is the Free arm whose control it is."""

    settings: PopulationSettings
    arm: str
    matched: str | None
    radius: float
    trajectory: Trajectory


def make_arm(arm: str, settings: PopulationSettings, ball: Ball) -> Algorithm:
    """The algorithm of an arm against ``ball``: a name as elsewhere, or Vanilla with the exact maximizer.

    Of the parts of an arm (``free-4+awp``) it has the label smoothing; the others are the learner's.
    """
    arm, parts = split_parts(arm)
    algorithm = _plain_arm(arm, settings, ball)
    if not parts:
        return algorithm
    if settings.theorem or arm in CONTROLS:
        what = "the theorems do not cover them" if settings.theorem else f"{arm} is a control of Free alone"
        raise InputError(f"{arm} with {', '.join(parts)}: {what}; leave them out")
    smoothing = parts.get("label_smoothing", 0.0)
    return with_smoothing(algorithm, smoothing) if smoothing else algorithm


def _plain_arm(arm: str, settings: PopulationSettings, ball: Ball) -> Algorithm:
    objective: Objective | None = BoundedLoss() if settings.theorem else None
    if arm == EXACT or arm in CONTROLS:
        if settings.model != "linear":
            if arm == EXACT:
                raise InputError(
                    f"{EXACT}: the exact maximizer is known for linear models only; use vanilla-10"
                )
            return make_algorithm("vanilla-10", ball, objective=objective)
        exact = Vanilla(ball=ball, maximizer=affine_maximum)
        return exact if objective is None else replace(exact, objective=objective)
    name = parse_algorithm(arm)
    if settings.theorem and name.objective != "ce":
        raise InputError(
            f"{arm} with --theorem: the theorems bound 1 − p_y, not {name.objective}; leave it out"
        )
    takes_step = settings.alpha is not None and name.family in WITH_STEP
    alpha = absolute_step(settings.alpha, ball.eps) if takes_step and settings.alpha is not None else None
    return make_algorithm(arm, ball, alpha=alpha, objective=objective)


def train_population(
    settings: PopulationSettings,
    arm: str,
    *,
    radius: float | None = None,
    replay: int = 1,
    on_update: Callable[[int, int], None] = lambda update, total: None,
) -> Trajectory:
    """Train every seed of an arm as one stack and measure risks at the marks; ``radius`` is that of the training."""
    k, n = settings.seeds, settings.n
    seeds = tuple(range(k))
    drawn = [settings.mixture.draw(n, seed, "sample") for seed in seeds]
    x, y = (torch.stack(parts) for parts in zip(*drawn, strict=True))
    stack = Stack(make_model(settings.model, settings.d, settings.width), k).train()
    start = [
        initial_weights(settings.model, settings.d, settings.width, settings.initial_scale, s) for s in seeds
    ]
    with torch.no_grad():
        for name, parameter in stack.model.named_parameters():
            parameter.copy_(torch.stack([weights[name] for weights in start]))
    ball = replace(settings.ball, eps=settings.radius if radius is None else radius)
    algorithm = make_arm(arm, settings, ball)
    own: Objective = getattr(algorithm, "objective", CrossEntropy())
    measure = MeasuredObjective(own, settings.ball, settings.batch_size)
    measures = own.loss_passes == 1
    if measures:
        algorithm = replace(algorithm, objective=measure)  # type: ignore[type-var]
    schedule: Schedule = (
        Vanishing(c=settings.lr, m=algorithm.updates_per_batch)
        if settings.theorem
        else Constant(lr=settings.lr)
    )
    parts = build_modifiers(settings.parts_of(arm), stack, settings.updates, settings.batches_per_epoch)
    if parts["awp"] is not None:  # the models of the mixture have neither biases nor norms
        parts["awp"] = replace(parts["awp"], every_tensor=True)
    learner = Learner(
        stack,
        uncompiled(torch.optim.SGD)(stack.parameters(), lr=settings.lr),
        member_seeds=seeds,
        total_updates=settings.updates,
        schedule=schedule,
        **parts,
    )
    batches = [
        Batches(
            n=n, size=settings.batch_size, seed=seed, sampling="independent", replay=settings.replay * replay
        )
        for seed in seeds
    ]
    risks = _Risks(settings, x, y)
    waiting = settings.marks
    members = torch.arange(k).unsqueeze(1)
    while True:
        if waiting and learner.updates >= waiting[0]:
            waiting = [mark for mark in waiting if mark > learner.updates]
            risks.measure(learner.result, learner.updates)
            on_update(learner.updates, settings.updates)
        if learner.updates_left <= 0:
            break
        rows = torch.stack([batch(learner.batches + 1) for batch in batches])
        algorithm.step(learner, x[members, rows], y[members, rows])
    return risks.trajectory(measure.margin_share if measures else None)


class _Risks:
    """Training and population risk of a stack, collected mark by mark."""

    def __init__(self, settings: PopulationSettings, x: Tensor, y: Tensor) -> None:
        self.settings, self.x, self.y = settings, x, y
        self.updates: list[int] = []
        self.seen: dict[str, list[RobustRisk]] = {"train": [], "population": []}
        if settings.model != "linear":
            fresh = [settings.mixture.draw(settings.fresh, seed, "fresh") for seed in range(settings.seeds)]
            self.fresh = tuple(torch.stack(parts) for parts in zip(*fresh, strict=True))

    def measure(self, stack: nn.Module, update: int) -> None:
        assert isinstance(stack, Stack)
        s = self.settings
        self.updates.append(update)
        if s.model == "linear":
            w = stack.flat()
            train = linear_training_risk(w, self.x, self.y, s.ball, s.surrogate)
            population = linear_population_risk(w, s.mixture, s.ball, s.surrogate)
        else:
            with frozen(stack, "eval"):
                train, population = (
                    attacked_risk(stack, x, y, s.ball, s.surrogate, steps=s.attack_steps, seed=0)
                    for x, y in ((self.x, self.y), self.fresh)
                )
        self.seen["train"].append(train)
        self.seen["population"].append(population)

    def trajectory(self, strength: float | None) -> Trajectory:
        def lists(side: str) -> dict[str, list[list[float]]]:
            return {risk: [getattr(seen, risk).tolist() for seen in self.seen[side]] for risk in RISKS}

        return Trajectory(
            updates=self.updates,
            train=lists("train"),
            population=lists("population"),
            strength=strength,
            error=max(seen.error for seen in self.seen["population"]),
        )


@dataclass(frozen=True, kw_only=True)
class PopulationTask(DocumentTask[PopulationResult]):
    """One arm on one instance: all seeds as one stack. A control needs the result of the Free arm it is matched to."""

    kind = "population result"
    document = PopulationResult

    settings: PopulationSettings
    arm: str
    folder: Path
    matched: str | None = None
    threads: int = 1

    @property
    def name(self) -> str:
        return f"{self.arm}: {self.settings.title()}"

    @property
    def key(self) -> str:
        return str(self.path)

    @property
    def free(self) -> "PopulationTask | None":
        """The task of the Free arm that a control is matched to."""
        return None if self.matched is None else replace(self, arm=self.matched, matched=None)

    @property
    def needs(self) -> tuple[str, ...]:
        return () if self.free is None else (self.free.key,)

    @property
    def path(self) -> Path:
        facts = {"settings": self.settings.facts, "arm": self.arm, "matched": self.matched}
        name = f"{in_file_name(self.arm)}-{identity_of({'semantics': SEMANTICS, **facts})}.json"
        return self.folder / "results" / name

    @property
    def leased_folder(self) -> Path:
        return self.path.with_suffix("")

    def compute(self, callback: Callback, should_stop: Callable[[], bool]) -> PopulationResult:
        """Train the arm from its beginning."""
        radius, replay = self._matched()
        on_update = stop_or_report(callback, should_stop)
        trajectory = train_population(
            self.settings, self.arm, radius=radius, replay=replay, on_update=on_update
        )
        return PopulationResult(
            settings=self.settings, arm=self.arm, matched=self.matched, radius=radius, trajectory=trajectory
        )

    def _matched(self) -> tuple[float, int]:
        """The radius of the training, and how often a batch is used."""
        if self.free is None:
            return self.settings.radius, 1
        result = self.free.result()
        assert result is not None, "the scheduler runs it first"
        strength = result.trajectory.strength
        if strength is None:
            raise InputError(
                f"{self.arm}: the strength of {self.free.arm} is not measured; match it to free-4, say"
            )
        m = parse_algorithm(self.free.arm).m or 1
        return self.settings.radius * strength, m if self.arm == WEAK_REPLAY else 1

    def described(self, result: PopulationResult) -> str:
        last = result.trajectory
        train, population = (
            sum(s["surrogate"][-1]) / len(s["surrogate"][-1]) for s in (last.train, last.population)
        )
        return f"surrogate risk: train {train:.4f}, population {population:.4f}, gap {population - train:.4f}"
