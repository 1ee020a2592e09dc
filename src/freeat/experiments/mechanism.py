"""Which part of Free matters: four arms, each of which differs from the one before it in one thing.

Vanilla; Vanilla at the strength that Free's perturbations reach; the same with each batch used m times, as Free's are;
and Free-m. Only the last minus the third tests the simultaneous update of weights and perturbations, which the paper's
theory is about.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from freeat.algorithms.registry import parse_algorithm
from freeat.errors import InputError
from freeat.evaluation.statistics import mean_std
from freeat.experiments.curves import ArmDifference, SeedRun, arm_difference
from freeat.experiments.tasks import TrainTask
from freeat.training.records import curve_of, record_of

PRESET = "mechanism"

SETTINGS: dict[str, Any] = {
    "algorithms": "vanilla-10,free-4",
    "seeds": "5",
    "data": "digits",
    "train_size": 600,
    "model": "cnn-w16",
    "norm": "l2",
    "eps": 0.6,
    "epochs": 40,
    "threads": 1,
    "eval_every": 10,
    "eval_size": 600,
    "strength": True,
}
"""The four arms on scikit-learn's handwritten digits."""


@dataclass(frozen=True, kw_only=True)
class AttackStrength:
    """The strength of a training attack over evaluations and seeds: means of the fields of ``Strength``."""

    size: float
    loss_increase: float
    margin_share: float


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A run of Vanilla at a first estimate of the weak arms' radius: Vanilla's own, times Free's strength over its own.

    Strength grows faster than the radius on some data, so the radius is read between this run and Vanilla.

    Args:
        vanilla: the strength of Vanilla at its own radius, over all seeds.
        radius, strength, seed: of the run.
    """

    vanilla: float
    radius: float
    strength: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class WeakRadius:
    """The radius at which Vanilla trains in the weak arms, where it lowers the margin as far as Free's perturbations.

    The length of δ would not do: Free's are nearly as long as Vanilla's from their random start on.

    Args:
        radius: the radius of the training; four digits of it.
        eps: the radius at which all arms are evaluated.
        strength: ``margin_share`` of Free, which is relative to ``eps``: the mean over the evaluations of its runs.
        seeds: these runs.
        calibration: the measurements that the radius follows from; None where it is ``eps`` times the strength.
    """

    radius: float
    eps: float
    strength: float
    seeds: tuple[int, ...]
    calibration: Calibration | None = None


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """The arms as tables name them, in order, the radius of the weak ones, and the differences of each and the next."""

    arms: tuple[str, ...]
    weak: WeakRadius
    differences: tuple[ArmDifference, ...] = ()


def pair_of(names: Sequence[str]) -> tuple[str, str]:
    """Vanilla and Free among the named algorithms; Vanilla-10 with Free's objective where only Free is named."""
    parsed = [parse_algorithm(name) for name in names]
    free = [name for name in parsed if name.family == "free"]
    vanilla = [name for name in parsed if name.family == "vanilla"]
    if len(free) == len(parsed) == 1:
        vanilla = [replace(free[0], family="vanilla", m=10)]
    same_objective = len(free) == len(vanilla) == 1 and free[0].objective == vanilla[0].objective
    if not same_objective or len(parsed) > 2:
        raise InputError(
            f"--preset {PRESET} --algorithms {','.join(names)}: name one Vanilla and one Free with the same objective, "
            "e.g. vanilla-10,free-8"
        )
    return str(vanilla[0]), str(free[0])


def arms_of(vanilla: str, free: str) -> tuple[str, str, str, str]:
    """The four arms as tables name them, in order."""
    return vanilla, f"{vanilla} weak", f"{vanilla} weak + replay", free


TESTS = ("the weaker attack", "the replayed batches", "the simultaneous update")
"""What each arm minus the arm before it tests."""


def strength_of(runs: Sequence[TrainTask]) -> AttackStrength | None:
    """The mean strength over the evaluations of runs after their first update; None where it was not measured.

    Before that update all arms have the same weights, which nothing was trained on.
    """
    found = [
        strength
        for run in runs
        for strength in {
            record.update: record.strength for record in run.folder.history() if record.update
        }.values()
        if strength is not None
    ]
    if not found:
        return None
    return AttackStrength(
        **{
            name: mean_std([getattr(one, name) for one in found])[0]
            for name in ("size", "loss_increase", "margin_share")
        }
    )


def margin_share_of(runs: Sequence[TrainTask]) -> float:
    """The mean strength of finished runs as a number that is not 0."""
    found = strength_of(runs)
    if found is None or not found.margin_share > 0:
        raise InputError(
            f"--preset {PRESET}: the perturbations of {runs[0].spec.label} do not lower the margin, so that no radius "
            "follows from them; train it longer"
        )
    return found.margin_share


def calibration_task(vanilla: Sequence[TrainTask], free: Sequence[TrainTask]) -> TrainTask:
    """Vanilla with its first seed at a radius where it would be as strong as Free, were strength proportional to it.

    The same runs of Vanilla and Free always give the same calibration; its folder is named by its radius.
    """
    ratio = margin_share_of(free) / margin_share_of(vanilla)
    task = vanilla[0]
    radius = four_digits(task.spec.eps * ratio)
    arm = arms_of(task.spec.label, "")[1]
    return _at_radius(task, f"{arm} calibration {radius:g}", radius, task.evaluation.radius(task.spec))


def resolve_mechanism(
    vanilla: Sequence[TrainTask], free: Sequence[TrainTask], calibration: TrainTask
) -> Mechanism:
    """The arms, and the radius of the weak ones, from finished runs of Vanilla, Free and the calibration."""
    strength, eps = margin_share_of(free), vanilla[0].spec.eps
    measured = Calibration(
        vanilla=margin_share_of(vanilla),
        radius=calibration.spec.eps,
        strength=margin_share_of([calibration]),
        seed=calibration.spec.seed,
    )
    weak = WeakRadius(
        radius=radius_at(strength, (measured.radius, measured.strength), (eps, measured.vanilla)),
        eps=free[0].evaluation.radius(free[0].spec),
        strength=strength,
        seeds=tuple(run.spec.seed for run in free),
        calibration=measured,
    )
    return Mechanism(arms=arms_of(vanilla[0].spec.label, free[0].spec.label), weak=weak)


def radius_at(strength: float, first: tuple[float, float], second: tuple[float, float]) -> float:
    """The radius with this strength, where strength is a power of the radius through two points (radius, strength).

    The power is at least 1/2 and at most 2: points that nearly coincide do not determine it.
    """
    apart = math.log(second[0] / first[0])
    power = math.log(second[1] / first[1]) / apart if apart else 1.0
    return four_digits(first[0] * (strength / first[1]) ** (1 / min(max(power, 0.5), 2.0)))


def four_digits(value: float) -> float:
    """A number rounded to four significant digits."""
    return float(f"{value:.4g}")


def weak_tasks(vanilla: Sequence[TrainTask], weak: WeakRadius, m: int) -> list[TrainTask]:
    """Both weak arms of every run of Vanilla: the same data, initial weights and length, evaluated at the same ε."""
    return [
        _at_radius(task, arm, weak.radius, weak.eps, replay)
        for task in vanilla
        for arm, replay in zip(arms_of(task.spec.label, "")[1:-1], (1, m), strict=True)
    ]


def _at_radius(task: TrainTask, arm: str, radius: float, eval_eps: float, replay: int = 1) -> TrainTask:
    """The task with another radius of training, under the name of an arm and in its folder."""
    spec = task.spec
    alpha = None if spec.alpha is None else spec.alpha * radius / spec.eps
    name = f"{arm}/seed-{spec.seed}"
    folder = task.options.folder.parents[1] / arm.replace(" + ", "-").replace(" ", "-")
    return replace(
        task,
        name=name,
        key=name,
        spec=replace(spec, eps=radius, alpha=alpha, replay=spec.replay * replay),
        evaluation=replace(task.evaluation, eval_eps=eval_eps),
        options=replace(task.options, folder=folder / f"seed-{spec.seed}"),
    )


def runs_by_seed(runs: Sequence[TrainTask], weights: str = "model") -> dict[int, SeedRun]:
    """The finished runs by their seeds, with the scores of these weights, from where they begin."""
    return {
        run.spec.seed: SeedRun(
            final=record_of(result, weights),
            history=curve_of(run.folder.history(), weights),
        )
        for run in runs
        if (result := run.result()) is not None
    }


def arm_differences(arms: Mapping[str, Sequence[TrainTask]]) -> tuple[ArmDifference, ...]:
    """Every arm minus the one before it, over the seeds that both have finished, with the weights of its label."""
    own = [
        (label, runs_by_seed(runs, runs[0].spec.weights[-1]) if runs else {}) for label, runs in arms.items()
    ]
    pairs = zip(own[1:], own, TESTS, strict=False)
    found = (arm_difference(arm, reference, tests) for arm, reference, tests in pairs)
    return tuple(difference for difference in found if difference is not None)
