"""Runs by benchmark, and within it by everything but the seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from freeat.evaluation.matched import mean_interval
from freeat.evaluation.statistics import Limits, mean_std, wilson
from freeat.reports.html.gather import FoundRun
from freeat.reports.tables import TableCell, ball_text, percent_interval, percent_spread
from freeat.runs.folder import RunResult
from freeat.runs.spec import PARTS, TrainSpec
from freeat.units import radius_text

NAMED_ELSEWHERE = ("seed", "algorithm", "data", "model", "norm", "eps")
WITHOUT_EFFECT = ("threads", "precision", "micro_batch", "deterministic", "compile")
"""Settings that do not distinguish the groups of a benchmark: named elsewhere, or without effect on the result."""
PART_SETTINGS = {setting for setting, _ in PARTS.values()}
"""Settings that a label names already."""
LENGTHS = ("eps", "alpha")
"""Settings that are lengths in pixel space."""


@dataclass(frozen=True, kw_only=True)
class GroupMean:
    """A mean over seeds, its standard deviation, and a 95 % interval."""

    mean: float
    std: float | None
    low: float
    high: float

    def cell(self) -> TableCell:
        """Mean ± standard deviation with the interval beneath it, in percent."""
        return TableCell(
            text=percent_spread(self.mean, self.std), detail=percent_interval(self.low, self.high)
        )


def over_seeds(values: Sequence[float], own: Limits, *, least: float) -> GroupMean:
    """Student's interval of the mean of several seeds; a single run keeps its ``own``, that over its images."""
    mean, std = mean_std(list(values))
    found = mean_interval(np.array(values))
    if found.low is None or found.high is None:
        return GroupMean(mean=mean, std=std, low=own[0], high=own[1])
    return GroupMean(mean=mean, std=std, low=max(least, found.low), high=min(1.0, found.high))


@dataclass(frozen=True, kw_only=True)
class SeedGroup:
    """Runs that differ in nothing but their seed, one of each; ``repeats`` more have a seed that is there already."""

    label: str
    runs: Sequence[FoundRun]
    repeats: int = 0

    @property
    def finished(self) -> list[RunResult]:
        """The results; of unfinished runs there are none."""
        return [run.result for run in self.runs if run.result is not None]

    @property
    def algorithm(self) -> str:
        return self.runs[0].spec.algorithm

    @property
    def above_chance(self) -> bool:
        """Whether all finished runs are above chance."""
        return all(result.above_chance for result in self.finished)

    def accuracy(self, split: Literal["train", "test"], kind: Literal["robust", "clean"]) -> GroupMean:
        """Robust or clean accuracy on a split."""
        found = [result.train if split == "train" else result.test for result in self.finished]
        shares = [one.robust_accuracy if kind == "robust" else one.clean_accuracy for one in found]
        return over_seeds(shares, wilson(shares[0] * found[0].n, found[0].n), least=0.0)

    def gap(self) -> GroupMean:
        """The robust generalization gap."""
        gaps = [result.gap for result in self.finished]
        return over_seeds([gap.value for gap in gaps], (gaps[0].low, gaps[0].high), least=-1.0)

    def mean(self, of: Callable[[RunResult], float]) -> float:
        """The mean over the seeds of something in the results."""
        return mean_std([of(result) for result in self.finished])[0]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Data, network, norm and radius of evaluation, and the runs that were trained for them."""

    data: str
    model: str
    norm: str
    eps: float
    groups: Sequence[SeedGroup]

    @property
    def title(self) -> str:
        return f"{self.data}, {self.model}, {ball_text(self.norm, self.eps)}"

    @property
    def finished(self) -> list[SeedGroup]:
        return [group for group in self.groups if group.finished]


def benchmarks_of(runs: Sequence[FoundRun], order: Sequence[str] = ()) -> list[Benchmark]:
    """The runs by benchmark, then by everything but the seed; algorithms in ``order``, then as they come."""
    by_benchmark: dict[tuple[str, str, str, float], list[FoundRun]] = {}
    for view in (view for run in runs for view in run.views()):
        by_benchmark.setdefault(_benchmark_key(view), []).append(view)
    return [
        Benchmark(data=key[0], model=key[1], norm=key[2], eps=key[3], groups=_groups(own, order))
        for key, own in by_benchmark.items()
    ]


def _benchmark_key(run: FoundRun) -> tuple[str, str, str, float]:
    return (
        run.description.data.name,
        run.description.resolved.model,
        run.spec.norm,
        run.evaluation.radius(run.spec),
    )


def settings_of(run: FoundRun) -> dict[str, object]:
    """Settings that may distinguish two groups: those of the training, and the evaluation attack.

    An average beside the weights changes no others.
    """
    spec, evaluation = run.spec, run.evaluation
    left_out = (*NAMED_ELSEWHERE, *WITHOUT_EFFECT, *(() if run.weights == "ema" else ("ema",)))
    settings = {name: getattr(spec, name) for name in spec.fields() if name not in left_out}
    trained_at = {} if evaluation.eval_eps is None else {"eps": spec.eps}
    attack = {name: getattr(evaluation, name) for name in ("attack", "eval_start", "iterate")}
    return settings | trained_at | attack


def _groups(runs: Sequence[FoundRun], order: Sequence[str]) -> list[SeedGroup]:
    grouped: dict[str, list[FoundRun]] = {}
    for run in runs:
        grouped.setdefault(
            repr((run.spec.label_of(run.weights), run.spec.algorithm, settings_of(run))), []
        ).append(run)
    groups = list(grouped.values())
    varied = _varied([settings_of(own[0]) for own in groups])
    rank = {name: k for k, name in enumerate(order)}
    groups.sort(key=lambda own: (rank.get(own[0].spec.algorithm, len(rank)), *_rank(own[0].spec)))
    return [
        SeedGroup(label=_label(own[0], varied), runs=kept, repeats=len(own) - len(kept))
        for own, kept in zip(groups, map(_one_of_each_seed, groups), strict=True)
    ]


def _one_of_each_seed(runs: Sequence[FoundRun]) -> list[FoundRun]:
    """By seed; of several with the same, the first that is finished: a repeated run is no further draw."""
    by_seed: dict[int, FoundRun] = {}
    for run in sorted(runs, key=lambda run: run.result is None):
        by_seed.setdefault(run.spec.seed, run)
    return [by_seed[seed] for seed in sorted(by_seed)]


def _rank(spec: TrainSpec) -> tuple[str, int, int]:
    """The order of algorithms: by name, number of steps, and number of training images."""
    name, _, steps = spec.algorithm.rpartition("-")
    sort_key = (name, int(steps)) if steps.isdecimal() else (spec.algorithm, 0)
    return *sort_key, spec.train_size or 0


def _varied(settings: Sequence[Mapping[str, object]]) -> list[str]:
    """The settings in which any two groups differ."""
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if len({repr(one.get(name)) for one in settings}) > 1]


def _label(run: FoundRun, varied: Sequence[str]) -> str:
    settings = settings_of(run)
    extra = [
        f"{name.replace('_', ' ')} {_shown(name, value)}"
        for name in varied
        if name not in PART_SETTINGS and (value := settings.get(name)) is not None
    ]
    return ", ".join([run.spec.label_of(run.weights), *extra])


def _shown(name: str, value: object) -> str:
    """A setting as people write it: radii as fractions, other numbers without a needless ``.0``."""
    if not isinstance(value, float):
        return str(value)
    return radius_text(value) if name in LENGTHS else f"{value:g}"
