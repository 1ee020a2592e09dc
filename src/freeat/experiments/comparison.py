"""Several algorithms and seeds on one data set: the runs, what comes out of them, and ready-made comparisons."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from freeat.algorithms.registry import AlgorithmName, parse_algorithm, settings_of
from freeat.algorithms.step import training_cost
from freeat.compute.machine import CpuClock, Provenance, arithmetic, resolve_device, usable_cores
from freeat.errors import InputError
from freeat.evaluation.statistics import mean_std
from freeat.experiments import mechanism
from freeat.experiments.budget import Budget, algorithm_of, label_of
from freeat.experiments.curves import ArmDifference, CurveSummary, SeedRun, arm_difference, summarize_curves
from freeat.experiments.mechanism import (
    AttackStrength,
    Mechanism,
    arm_differences,
    calibration_task,
    resolve_mechanism,
    runs_by_seed,
    strength_of,
    weak_tasks,
)
from freeat.experiments.tasks import TrainTask
from freeat.files.documents import check_output, read_document, write_document
from freeat.files.locks import check_unclaimed
from freeat.learner.distributed import SINGLE_PROCESS
from freeat.runs.build import build_awp, proximal_start
from freeat.runs.folder import RunFolder
from freeat.runs.run import RunOptions, assemble, check_finished, settle
from freeat.runs.spec import PLUS, EvalSpec, TrainSpec, parse_parts, short_name, split_parts, split_settings
from freeat.tasks import EndedTask
from freeat.training.records import Record, curve_of, record_of
from freeat.training.trainer import Plan, evaluation_cost, plan_training

FILE, CURVES, PARTS, TABLE, LOG = "comparison.json", "curves.png", "parts.png", "table.md", "log.txt"

DEMO: dict[str, Any] = {
    "algorithms": "erm,vanilla-10,fast,free-4,trades-10,free-trades-4",
    "seeds": "3",
    "data": "digits",
    "train_size": 600,
    "model": "cnn-w16",
    "norm": "l2",
    "eps": 0.6,
    "epochs": 75,
    "threads": 1,
    "eval_every": 30,
    "eval_size": 600,
}
"""The paper's effect on scikit-learn's handwritten digits, in minutes on two cores."""

PRESETS = {"demo": DEMO, mechanism.PRESET: mechanism.SETTINGS}

OF_ALGORITHMS = ("alpha", "start", "noise", "warmup", "coefficient")
"""Settings that a comparison shares among those of its algorithms that take them."""


def preset_settings(preset: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a preset that hold beside those given: its radius is of its norm, its epochs are a length."""
    ready = PRESETS[preset]
    other_norm = str(given.get("norm", ready["norm"])).lower() != ready["norm"]
    replaced = {"epochs": "updates" in given, "eps": other_norm}
    return {name: value for name, value in ready.items() if not replaced.get(name)}


@dataclass(frozen=True, kw_only=True)
class MeanStd:
    """A mean over the seeds and their standard deviation, which one seed does not have."""

    mean: float
    std: float | None


@dataclass(frozen=True, kw_only=True)
class AlgorithmSummary:
    """An algorithm of a comparison: its accuracies as shares, the cost of an average run, and its run folders.

    ``evaluation_share`` is the cost of the learning curve as a part of the training's. ``constant_answers`` counts the
    runs that give the same answer to every image. ``curves`` compares its learning curves with those of the first
    algorithm. ``weights`` are those whose accuracies it holds: ``model`` (the last), ``ema`` or ``slow``.
    """

    algorithm: str
    seeds: tuple[int, ...]
    robust_train: MeanStd
    robust_test: MeanStd
    robust_gap: MeanStd
    clean_train: MeanStd
    clean_test: MeanStd
    clean_gap: MeanStd
    seconds: float
    gradient_evaluations: int
    updates: int
    evaluation_share: float = 0.0
    collapsed: int
    above_chance: bool
    constant_answers: int = 0
    folders: tuple[str, ...]
    curves: CurveSummary | None = None
    arm: str | None = None
    weights: str = "model"
    strength: AttackStrength | None = None

    @property
    def label(self) -> str:
        """The algorithm, or the arm or parts where its settings are its own, as tables and figures name it."""
        return self.arm or short_name(self.algorithm)


@dataclass(frozen=True, kw_only=True)
class FailedRun:
    """A run that failed, and why."""

    run: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The results of all runs; ``settings`` are those that they share, ``budget`` is what each may spend.

    ``parts`` are the algorithms with parts minus the same without. Where there are none, and no mechanism,
    ``differences`` are the algorithms minus the first one. ``provenance`` is that of the program that summarized the
    runs, which have their own.
    """

    algorithms: tuple[AlgorithmSummary, ...]
    failures: tuple[FailedRun, ...] = ()
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any]
    budget: Budget = field(default_factory=Budget)
    mechanism: Mechanism | None = None
    parts: tuple[ArmDifference, ...] = ()
    differences: tuple[ArmDifference, ...] = ()
    provenance: Provenance | None = None


Recipe = tuple[AlgorithmName, dict[str, float]]
"""An algorithm and the settings of the parts that are added to it."""


def recipes_of(algorithms: Sequence[str]) -> list[Recipe]:
    """The algorithms with their parts (``free-4+awp``), each once.

    An average changes no other weights, so that a recipe with one serves the same recipe without it.
    """
    found: list[Recipe] = []
    for text in algorithms:
        name, parts = split_parts(text)
        if (recipe := (parse_algorithm(name), parts)) not in found:
            found.append(recipe)
    averaged = [
        (name, {part: value for part, value in parts.items() if part != "ema"})
        for name, parts in found
        if "ema" in parts
    ]
    return [recipe for recipe in found if "ema" in recipe[1] or recipe not in averaged]


def first_label(spec: TrainSpec, algorithms: Sequence[str]) -> str:
    """The label of the runs of the first algorithm, which have the shared settings too."""
    name, parts = recipes_of(algorithms)[0]
    return replace(spec, algorithm=str(name), algorithm_args=None, **parts).label  # type: ignore[arg-type]


def comparison_tasks(
    spec: TrainSpec,
    evaluation: EvalSpec,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    options: RunOptions,
    algorithm_args: Mapping[str, Any] | None = None,
) -> list[TrainTask]:
    """A run per algorithm, with its parts, and seed; the costly algorithms first, so that no core waits at the end.

    Each algorithm receives those of the shared settings and ``algorithm_args`` that its class declares, and a note
    names the others. What no class declares is refused.
    """
    for text in algorithms:
        if twice := parse_parts(text.partition("+")[2] or "none").keys() & spec.settings().keys():
            option = sorted(twice)[0].replace("_", "-")
            raise InputError(
                f"--{option} holds for every run and {text!r} sets it too: leave --{option} out, and write its value "
                f"with the algorithm ({option}=VALUE)"
            )
    recipes = recipes_of(algorithms)
    names = [name for name, _ in recipes]
    given = {setting: value for setting, value in spec.settings().items() if setting in OF_ALGORITHMS}
    given |= algorithm_args or {}
    takes = {str(name): settings_of(name, trust_code=options.trust_code) for name in names}
    if foreign := given.keys() - frozenset().union(*takes.values()):
        shown = ", ".join(f"{setting} = {given[setting]}" for setting in sorted(foreign))
        raise InputError(f"{shown}: no algorithm of {', '.join(takes)} takes it; leave it out")
    if len({short_name(algorithm) for algorithm in takes}) < len(takes):
        raise InputError(
            f"algorithms {', '.join(takes)}: two have the same name in tables and figures; rename a class"
        )
    tasks = []
    for named, parts in recipes:
        algorithm, taken = str(named), takes[str(named)]
        own = {s: v for s, v in spec.settings().items() if s not in OF_ALGORITHMS or s in taken}
        own["algorithm_args"] = {o: v for o, v in (algorithm_args or {}).items() if o in taken}
        unused = ", ".join(f"{setting} = {value}" for setting, value in given.items() if setting not in taken)
        notes = (f"{short_name(algorithm)} does not take {unused}: its runs are without.",) if unused else ()
        own |= {"algorithm": algorithm, **parts}
        for seed in dict.fromkeys(seeds):
            # Friendly's step follows the radius it is evaluated at
            one, _ = split_settings({**own, **evaluation.settings(), "seed": seed})
            name = f"{one.label}/seed-{seed}"
            added = one.label.removeprefix(short_name(algorithm)).replace(PLUS, "-").replace(" ", "-")
            folder = options.folder / "runs" / f"{algorithm.replace(':', '.')}{added}"
            tasks.append(
                TrainTask(
                    name=name,
                    key=name,
                    spec=one,
                    evaluation=evaluation,
                    options=replace(options, folder=folder / f"seed-{seed}"),
                    notes=notes,
                    log=options.folder / LOG,
                )
            )
    return sorted(tasks, key=lambda task: -algorithm_of(task).cost.gradient_evaluations - bool(task.spec.awp))


def check_tasks(tasks: Sequence[TrainTask], jobs: int | None = None) -> Plan | None:
    """Refuse bad input before any run begins, and estimate what the unfinished ones take, ``jobs`` at a time.

    Writes nothing. The runs share their data and model, so one of them is assembled for all; finished runs need
    neither, but data that changed since would make rows that cannot be compared.
    """
    for task in tasks:
        task.folder.check(task.spec, task.evaluation)
        algorithm_of(task)
        resolve_device(task.options.device)
        if task.finished():
            check_finished(task.spec, task.options)
    unfinished = [task for task in tasks if not task.finished()]
    if not unfinished:
        return None
    first, clock = unfinished[0], CpuClock.now()
    settled = settle(first.spec, torch.device("cpu"))
    with arithmetic(threads=settled.threads or 1, deterministic=first.spec.deterministic):
        trainer, about = assemble(
            first.spec, first.evaluation, first.options, torch.device("cpu"), SINGLE_PROCESS, settled
        )
        others = clock.cores_of_others() if clock is not None else None
        plan = plan_training(trainer, about.resolved.model, others=others)

    def cost(task: TrainTask) -> float:
        spec, updates, per_epoch = task.spec, task.spec.updates or plan.updates, trainer.batches.per_epoch
        training = training_cost(algorithm_of(task), updates, build_awp(spec, updates, per_epoch))
        starts = [0] if spec.ema is not None else []
        starts += [proximal_start(spec, updates, per_epoch)] if spec.proximal is not None else []
        own = replace(trainer, learner=copy.copy(trainer.learner), algorithm=algorithm_of(task))
        own.learner.total_updates, own.eval_every = updates, task.evaluation.eval_every
        return training.total * trainer.batches.mean_size + evaluation_cost(own, starts)

    share = sum(map(cost, unfinished)) / cost(first)
    most = max(1, usable_cores() // (settled.threads or 1))
    at_once = min(len(unfinished), most, jobs or most)
    timed = plan.seconds if resolve_device(first.options.device).type == "cpu" else None
    seconds = None if timed is None else timed * share / at_once
    return replace(plan, runs=len(unfinished), at_once=at_once, seconds=seconds)


def summarize(
    done: Sequence[EndedTask[TrainTask]],
    algorithms: Sequence[str],
    settings: Mapping[str, Any] | None = None,
    budget: Budget | None = None,
    found: Mechanism | None = None,
) -> Comparison:
    """Mean and standard deviation over the seeds, per algorithm in the order given, or per arm.

    The averaged weights of a run have a row of their own, and the slow weights the row of their run.
    """
    names = found.arms if found else _labels(done, recipes_of(algorithms))
    by_label = {label: runs_of(done, label) for label in names}
    rows = [
        _row(label if found else runs[0].spec.label_of(weights), runs, weights)
        for label, runs in by_label.items()
        if runs
        for weights in runs[0].spec.weights[-1 if found else 0 :]
    ]
    shared: dict[str, AlgorithmSummary] = {}  # runs that differ in their average only share a row
    for row in sorted(rows, key=lambda row: -len(row.seeds)):
        shared.setdefault(row.label, row)
    rows = [row for row in rows if row is shared[row.label]]
    curves = summarize_curves([dict(zip(row.seeds, curves_of(row), strict=True)) for row in rows])
    rows = [replace(row, curves=own) for row, own in zip(rows, curves, strict=True)]
    results = [result for o in done if o.failure is None and (result := o.task.result()) is not None]
    own = (note for o in done for note in o.task.notes)
    parts = () if found else tuple(_part_differences(rows, done))
    return Comparison(
        algorithms=tuple(rows),
        failures=tuple(FailedRun(run=o.task.name, reason=o.failure) for o in done if o.failure is not None),
        notes=tuple(dict.fromkeys([*own, *(note for result in results for note in result.notes)])),
        settings=settings or {},
        budget=budget or Budget(),
        mechanism=found and replace(found, differences=arm_differences(by_label)),
        parts=parts,
        differences=() if found or parts else tuple(_algorithm_differences(rows, done)),
    )


Arm = tuple[str, dict[int, SeedRun]]
"""A row's label, and its runs by seed."""


def _arm(row: AlgorithmSummary, done: Sequence[EndedTask[TrainTask]]) -> Arm:
    own = [o.task for o in done if o.failure is None and str(o.task.options.folder) in row.folders]
    return row.label, runs_by_seed(own, row.weights)


def _algorithm_differences(
    rows: Sequence[AlgorithmSummary], done: Sequence[EndedTask[TrainTask]]
) -> Iterator[ArmDifference]:
    """Every row minus the first, paired by seed."""
    for row in rows[1:]:
        if (found := arm_difference(_arm(row, done), _arm(rows[0], done), "the algorithm")) is not None:
            yield found


def _part_differences(
    rows: Sequence[AlgorithmSummary], done: Sequence[EndedTask[TrainTask]]
) -> Iterator[ArmDifference]:
    """Every row of an algorithm minus the one of it with the fewest parts, paired by seed."""
    by_algorithm: dict[str, list[AlgorithmSummary]] = {}
    for row in rows:
        by_algorithm.setdefault(row.algorithm, []).append(row)
    for own in by_algorithm.values():
        plain, *others = sorted(own, key=lambda row: row.label.count(PLUS))
        for row in others:
            found = arm_difference(_arm(row, done), _arm(plain, done), _tested(row.label, plain.label))
            if found is not None:
                yield found


def _tested(label: str, plain: str) -> str:
    """The parts that one label has and another lacks; what they replace is named too."""
    own, theirs = (text.split(PLUS)[1:] for text in (label, plain))
    added, replaced = (
        PLUS.join(p for p in one if p not in other) for one, other in ((own, theirs), (theirs, own))
    )
    return f"{added} instead of {replaced}" if replaced else added


def _labels(done: Sequence[EndedTask[TrainTask]], recipes: Sequence[Recipe]) -> list[str]:
    """The labels of the runs, in the order of the recipes; each run is of the most specific recipe that fits."""

    def rank(spec: TrainSpec) -> int:
        fits = [
            (len(parts), -k)
            for k, (name, parts) in enumerate(recipes)
            if str(name) == spec.algorithm and all(getattr(spec, part) == parts[part] for part in parts)
        ]
        return -max(fits)[1]

    tasks = sorted((ended.task for ended in done), key=lambda task: rank(task.spec))
    return list(dict.fromkeys(label_of(task) for task in tasks))


def runs_of(done: Sequence[EndedTask[TrainTask]], label: str) -> list[TrainTask]:
    """The finished runs of an algorithm or arm, by seed."""
    runs = (o.task for o in done if o.failure is None and label_of(o.task) == label)
    return sorted(runs, key=lambda run: run.spec.seed)


def _row(label: str, runs: Sequence[TrainTask], weights: str) -> AlgorithmSummary:
    results = [record_of(result, weights) for run in runs if (result := run.result()) is not None]

    def over_seeds(part: str, key: str) -> MeanStd:
        mean, std = mean_std([getattr(getattr(result, part), key) for result in results])
        return MeanStd(mean=mean, std=std)

    return AlgorithmSummary(
        algorithm=runs[0].spec.algorithm,
        arm=None if label == short_name(runs[0].spec.algorithm) else label,
        weights=weights,
        strength=strength_of(runs),
        seeds=tuple(run.spec.seed for run in runs),
        robust_train=over_seeds("train", "robust_accuracy"),
        robust_test=over_seeds("test", "robust_accuracy"),
        robust_gap=over_seeds("gap", "value"),
        clean_train=over_seeds("train", "clean_accuracy"),
        clean_test=over_seeds("test", "clean_accuracy"),
        clean_gap=over_seeds("clean_gap", "value"),
        seconds=mean_std([result.seconds for result in results])[0],
        gradient_evaluations=results[0].gradient_evaluations,
        updates=results[0].update,
        evaluation_share=mean_std([result.evaluation_share for result in results])[0],
        collapsed=sum(result.collapsed for result in results),
        above_chance=all(result.above_chance for result in results),
        constant_answers=sum(result.constant_answer is not None for result in results),
        folders=tuple(str(run.options.folder) for run in runs),
    )


def check_folder(folder: Path, settings: Mapping[str, Any]) -> None:
    """Refuse a folder that holds something else: a file, a run, or a comparison in other settings.

    Other algorithms and seeds may join a comparison; its settings may not change.
    """
    if (folder / FILE).is_file():
        found = read_comparison(folder).settings
        if found != settings:
            changed = sorted(k for k in found.keys() | settings.keys() if found.get(k) != settings.get(k))
            raise InputError(
                f"{folder} holds a comparison in other settings ({', '.join(changed)}): choose another --out"
            )
    else:  # it may be left from a comparison that was killed before it was stored
        check_unclaimed(folder, "is not a comparison", "runs", LOG)
    check_output(*(folder / name for name in (FILE, CURVES, PARTS, TABLE, LOG)))


def weak_arms(
    folder: Path,
    settings: Mapping[str, Any],
    done: Sequence[EndedTask[TrainTask]],
    algorithms: Sequence[str],
    run: Callable[[list[TrainTask]], list[EndedTask[TrainTask]]],
) -> tuple[Mechanism | None, list[EndedTask[TrainTask]]]:
    """Run the weak arms of the finished runs of Vanilla and Free; none where either has no finished run.

    Their radius is resolved once, with a calibration run, and stored before their first run begins: a comparison that
    is resumed has the same. A calibration run that fails is all that has ended then.
    """
    vanilla, free = algorithms
    ended = [o.task for o in done if o.failure is None]
    strong, weaker = (
        sorted((task for task in ended if task.spec.algorithm == name), key=lambda task: task.spec.seed)
        for name in (vanilla, free)
    )
    if not strong or not weaker:
        return None, []
    begun = _begun(folder, settings)
    found = begun.mechanism
    if found is None:
        calibration = calibration_task(strong, weaker)
        check_tasks([calibration])
        tried = run([calibration])
        if any(o.failure is not None for o in tried):
            return None, tried
        found = resolve_mechanism(strong, weaker, calibration)
    tasks = weak_tasks(strong, found.weak, m=parse_algorithm(free).m or 1)
    check_tasks(tasks)
    write_comparison(folder, replace(begun, mechanism=found))
    return found, run(tasks)


def stored_budget(folder: Path) -> Budget | None:
    """The budget that a comparison began with."""
    return read_comparison(folder).budget if (folder / FILE).is_file() else None


def keep_budget(folder: Path, settings: Mapping[str, Any], budget: Budget) -> None:
    """Store a resolved budget before the first run begins: a comparison that is resumed has the same."""
    if budget.kind == "updates":
        return
    write_comparison(folder, replace(_begun(folder, settings), budget=budget))


def _begun(folder: Path, settings: Mapping[str, Any]) -> Comparison:
    """What the folder holds of the comparison so far."""
    return (
        read_comparison(folder) if (folder / FILE).is_file() else Comparison(algorithms=(), settings=settings)
    )


def write_comparison(folder: Path, comparison: Comparison) -> None:
    """Store the comparison in its folder."""
    write_document(folder / FILE, "comparison", comparison)


def read_comparison(folder: Path) -> Comparison:
    """The comparison stored in a folder, validated."""
    return read_document(folder / FILE, "comparison", Comparison)


def curves_of(row: AlgorithmSummary) -> list[list[Record]]:
    """The learning curves of an algorithm's runs, of its weights."""
    return [curve_of(RunFolder(Path(folder)).history(), row.weights) for folder in row.folders]
