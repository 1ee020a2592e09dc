"""Two runs side by side: the settings in which they differ, and how they do on the same test images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from freeat.compute.machine import arithmetic, resolve_device
from freeat.errors import InputError
from freeat.evaluation.statistics import paired
from freeat.experiments.blocks import StartProgress, no_progress
from freeat.experiments.evaluations import evaluate_models
from freeat.experiments.sweep import OTHER_DATA, Sweep
from freeat.runs.build import build_data, evaluation_attack
from freeat.runs.folder import RunFolder
from freeat.runs.inventory import StoredRun
from freeat.runs.open import open_model
from freeat.runs.results import StoredEvaluation
from freeat.runs.spec import EvalSpec
from freeat.threat import Ball, make_ball


class NotComparable(InputError):
    """Two runs that cannot be evaluated side by side; their settings still can be compared."""


@dataclass(frozen=True, kw_only=True)
class DifferingSetting:
    """A setting with both values."""

    setting: str
    first: Any
    second: Any


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """An accuracy of the first minus that of the second, with a 95 % interval, and the images right in one only."""

    first: float
    second: float
    difference: float
    low: float
    high: float
    only_first: int
    only_second: int


@dataclass(frozen=True, kw_only=True)
class PairedEvaluation:
    """Two models under one attack on the same test images; ``warnings`` are the sanity checks that failed."""

    data: str
    attack: str
    iterate: str
    norm: str
    eps: float
    n: int
    population: int
    robust: PairedDifference
    clean: PairedDifference
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RunDifference:
    """How two runs differ: in their settings, and on the same images, or the reason why they were not evaluated."""

    first: str
    second: str
    settings: tuple[DifferingSetting, ...]
    evaluated: PairedEvaluation | None = None
    reason: str | None = None


def differing_settings(first: RunFolder, second: RunFolder) -> tuple[DifferingSetting, ...]:
    """Every setting of training and evaluation in which two runs differ, with both values."""
    one, other = first.description, second.description
    differences = one.spec.differences(other.spec) + one.evaluation.differences(other.evaluation)
    return tuple(DifferingSetting(setting=name, first=own, second=its) for name, own, its in differences)


def evaluate_pair(
    first: StoredRun,
    second: StoredRun,
    *,
    asked: Mapping[str, Any],
    norm: str | None = None,
    n: int | None = None,
    device: str = "auto",
    data_dir: Path | None = None,
    trust_code: bool = False,
    watch: StartProgress = no_progress,
) -> PairedEvaluation:
    """Both models on the same sample of n test images: accuracies, and their difference with a 95 % paired interval.

    They are evaluated as the first run was, but for the settings of evaluation that are ``asked``, and ``norm``. What
    was measured before is found in the runs' folders.
    """
    check_comparable(first, second)
    ball, attack = (
        _ball(first, second, asked, norm),
        evaluation_attack(first.folder.evaluation.with_settings(asked)),
    )
    spec = first.folder.spec
    threads = first.folder.description.chosen.threads
    with arithmetic(threads=threads, deterministic=spec.deterministic):
        data = build_data(spec, data_dir=data_dir)
        first.folder.check_data(data, OTHER_DATA)
        models = [
            open_model(
                run.folder.path, data, device=resolve_device(device), name=run.key, trust_code=trust_code
            )
            for run in (first, second)
        ]
        sweep = Sweep(data=data, attacks=(attack,), balls=(ball,), n=n, seed=0)
        report = evaluate_models(models, sweep, watch=watch)
    one = report.results[0]
    return PairedEvaluation(
        data=one.data,
        attack=one.attack,
        iterate=one.iterate,
        norm=one.norm,
        eps=one.eps,
        n=one.n,
        population=one.population,
        robust=_difference(report.results, "robust_accuracy", "fooled"),
        clean=_difference(report.results, "clean_accuracy", "misclassified"),
        warnings=tuple(check.sentence for check in report.checks if not check.passed),
    )


def check_comparable(first: StoredRun, second: StoredRun) -> None:
    """Refuse two runs that have no weights, or no test images in common."""
    if first.folder.path.resolve() == second.folder.path.resolve():
        raise InputError(f"{first.key} and {second.key} are the same run: name two")
    for run in (first, second):
        if run.status != "finished":
            raise NotComparable(f"{run.key} is {run.status}, not finished: run it to its end first")
    one, other = (run.folder.description.data for run in (first, second))
    if one.digest != other.digest:
        raise NotComparable(f"other data ({one.name} | {other.name}), so no test images in common")


def _ball(first: StoredRun, second: StoredRun, asked: Mapping[str, Any], norm: str | None) -> Ball:
    """The ball in which both are evaluated: the one asked for, or that of both runs."""
    eps = EvalSpec.of(asked).eval_eps
    balls = {
        (norm or run.folder.spec.norm, run.folder.evaluation.radius(run.folder.spec) if eps is None else eps)
        for run in (first, second)
    }
    if len(balls) > 1:
        were = " and ".join(f"{norm} {radius:.4g}" for norm, radius in sorted(balls))
        raise NotComparable(f"they were evaluated at {were}: choose with --norm and --eps")
    return make_ball(*balls.pop())


def _difference(
    results: Sequence[StoredEvaluation],
    accuracy: Literal["robust_accuracy", "clean_accuracy"],
    wrong: Literal["fooled", "misclassified"],
) -> PairedDifference:
    """First minus second, over pairs of outcomes on the same images."""
    first, second = (set(getattr(result, wrong)) for result in results)
    p, q = (getattr(result, accuracy) for result in results)
    low, high = paired(len(second - first), len(first - second), results[0].n)
    return PairedDifference(
        first=p,
        second=q,
        difference=p - q,
        low=low,
        high=high,
        only_first=len(second - first),
        only_second=len(first - second),
    )
