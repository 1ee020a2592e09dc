"""What a store holds of single runs: accuracies with the error that the images leave in them, and their origin."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from freeat.experiments.paper.catalogue import Experiment
from freeat.experiments.paper.documents import DataOrigin, MeasurementOrigin, RunOrigin, SeedMean
from freeat.experiments.paper.estimate import DIFFERENCE, PROPORTION, proportion_error, seed_mean
from freeat.experiments.paper.settings import NEAR
from freeat.experiments.tasks import TrainTask
from freeat.runs.build import build_algorithm
from freeat.runs.folder import RunResult
from freeat.training.records import Record

View = Literal["augmented", "plain"]
"""The training images: augmented as in the paper's tables, or plain as R_S is defined."""


def finished(runs: Iterable[TrainTask]) -> list[TrainTask]:
    """The runs that have a result which can be read."""
    return [run for run in runs if run.found() is not None]


def record_at(run: TrainTask, at: float) -> Record | None:
    """The evaluation after this part of the training; None where none was made close to it.

    Evaluations fall on the end of a batch, which Free holds for m updates.
    """
    if at >= 1:
        return run.found()
    records = list(run.folder.history())
    total = records[-1].update if records else 0
    best = min(records, key=lambda record: abs(record.update - at * total), default=None)
    held = build_algorithm(run.spec, updates=1).updates_per_batch
    return best if best is not None and abs(best.update - at * total) <= max(NEAR * total, held) else None


def reading(record: Record, column: str, view: View) -> tuple[float, float]:
    """A column of a table (``robust_train``, ``clean_gap``, …), and its standard error from the images.

    Training images that were all seen leave no error; test images represent the unseen.
    """
    kind, split = column.split("_")
    if split == "gap":
        (train, train_error), (test, test_error) = (
            reading(record, f"{kind}_{part}", view) for part in ("train", "test")
        )
        return train - test, math.hypot(train_error, test_error)
    if split == "test":
        part, population = record.test, None
    else:
        part = record.train_augmented if view == "augmented" and record.train_augmented else record.train
        population = part.population
    accuracy: float = getattr(part, f"{kind}_accuracy")
    return accuracy, proportion_error(accuracy, part.n, population)


def over_seeds(records: Sequence[Record], column: str, view: View, seeds: Sequence[int]) -> SeedMean:
    """A column over the records of these seeds."""
    values, errors = zip(*(reading(record, column, view) for record in records), strict=True)
    within = DIFFERENCE if column.endswith("_gap") else PROPORTION
    return seed_mean(values, errors, within, of_seeds=seeds)


def above_chance(record: Record) -> bool:
    """Whether the run had learnt by then: the accuracy it is trained for, and clean test accuracy, above chance.

    Both by their intervals. A run is trained for robust training accuracy; without an adversary, for clean.
    """
    return record.above_chance and record.test.above_chance("clean_accuracy")


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """Whether all models of some runs are above chance, and how many give the same answer to every image."""

    above_chance: bool
    constant_answers: int
    models: int


def learnt(records: Sequence[Record]) -> Learnt:
    """What runs had learnt by these records, one of each."""
    return Learnt(
        above_chance=all(map(above_chance, records)),
        constant_answers=sum(record.constant_answer is not None for record in records),
        models=len(records),
    )


def learnt_at_end(runs: Iterable[TrainTask]) -> Learnt:
    """What those of the runs that are finished had learnt."""
    return learnt(results_of(runs))


def results_of(runs: Iterable[TrainTask]) -> list[RunResult]:
    """The results of those of the runs that are finished."""
    return [result for run in runs if (result := run.found()) is not None]


def notes_of(runs: Iterable[TrainTask]) -> list[str]:
    """The notes of finished runs, each once: data that are not the published ones, settings to be wary of."""
    return list(dict.fromkeys(note for result in results_of(runs) for note in result.notes))


def origins(experiments: Iterable[Experiment]) -> tuple[dict[str, RunOrigin], dict[str, MeasurementOrigin]]:
    """The origin of each run, and of each finished measurement, by key."""
    runs: dict[str, RunOrigin] = {}
    measurements: dict[str, MeasurementOrigin] = {}
    for task in {task.key: task for experiment in experiments for task in experiment.tasks()}.values():
        if isinstance(task, TrainTask):
            runs[task.key] = _run_origin(task)
        elif (document := task.found()) is not None:
            measurements[task.key] = MeasurementOrigin(name=task.name, provenance=document.provenance)
    return runs, measurements


def _run_origin(run: TrainTask) -> RunOrigin:
    result = run.found()
    about = run.folder.description if result is not None else None
    return RunOrigin(
        name=run.name,
        spec=run.spec.settings(),
        seconds=result.seconds if result else None,
        chosen=about.chosen if about else None,
        data=DataOrigin(name=about.data.name, digest=about.data.digest) if about else None,
        notes=tuple(notes_of([run])),
        provenance=about.provenance if about else None,
    )
