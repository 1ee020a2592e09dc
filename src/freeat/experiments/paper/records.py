"""What a store says of single runs: accuracies with the error the images leave in them, and what made them."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from freeat.algorithms.registry import parse_algorithm
from freeat.evaluation.evaluate import Summary
from freeat.evaluation.statistics import wilson
from freeat.experiments.paper.catalogue import Experiment
from freeat.experiments.paper.documents import DataOrigin, MeasurementOrigin, RunOrigin, SeedMean
from freeat.experiments.paper.estimate import DIFFERENCE, PROPORTION, proportion_error, seed_mean
from freeat.experiments.paper.settings import NEAR
from freeat.experiments.tasks import AttackTask, PaperTask, TrainTask, TransferTask
from freeat.runs.build import build_algorithm
from freeat.training.records import Record

View = Literal["augmented", "plain"]
"""How the training images are seen: augmented as in the paper's tables, or plain as R_S is defined."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One run at one point: a value, and its standard error from the images."""

    value: float
    image_error: float


def finished(runs: Sequence[TrainTask]) -> list[TrainTask]:
    """The runs that have a result which can be read."""
    return [run for run in runs if run.found() is not None]


def evaluations(run: TrainTask) -> list[Record]:
    """The evaluations of a run in the order of its updates, the final one last."""
    return list(run.folder.history())


def record_at(run: TrainTask, at: float) -> Record | None:
    """The evaluation after this part of the training; None where none was made close to it.

    Evaluations fall on the end of a batch, which Free holds for m updates.
    """
    if at >= 1:
        return run.found()
    records = evaluations(run)
    total = records[-1].update if records else 0
    best = min(records, key=lambda record: abs(record.update - at * total), default=None)
    held = build_algorithm(run.spec, updates=1).updates_per_batch
    return best if best is not None and abs(best.update - at * total) <= max(NEAR * total, held) else None


def reading(record: Record, column: str, view: View) -> Reading:
    """A column of a table (``robust_train``, ``clean_gap``, …) as the record has it."""
    kind, split = column.split("_")
    if split == "gap":
        train, test = (reading(record, f"{kind}_{part}", view) for part in ("train", "test"))
        return Reading(
            value=train.value - test.value, image_error=math.hypot(train.image_error, test.image_error)
        )
    if split == "test":
        return _proportion(record.test, kind, population=None)
    part = record.train_augmented if view == "augmented" and record.train_augmented else record.train
    return _proportion(part, kind, population=part.population)


def _proportion(part: Summary, kind: str, population: int | None) -> Reading:
    """Training images that were all seen leave no error; test images stand for the unseen."""
    p = getattr(part, f"{kind}_accuracy")
    return Reading(value=p, image_error=proportion_error(p, part.n, population))


def over_seeds(records: Sequence[Record], column: str, view: View) -> SeedMean:
    """A column over the seeds' records."""
    readings = [reading(record, column, view) for record in records]
    within = DIFFERENCE if column.endswith("_gap") else PROPORTION
    return seed_mean([r.value for r in readings], [r.image_error for r in readings], within)


def means(records: Sequence[Record], columns: Sequence[str], view: View) -> dict[str, SeedMean]:
    """Every column over the seeds' records."""
    return {column: over_seeds(records, column, view) for column in columns}


def above_chance(run: TrainTask, record: Record) -> bool:
    """Whether the run had learnt by then: the training accuracy it strives for and clean test accuracy above chance.

    Both by their intervals. A model trained without an adversary strives for clean accuracy.
    """
    strives_for = "robust" if parse_algorithm(run.spec.algorithm).adversarial else "clean"
    parts = ((record.train, strives_for), (record.test, "clean"))
    return all(
        wilson(getattr(part, f"{kind}_accuracy") * part.n, part.n)[0] > record.chance for part, kind in parts
    )


def all_above_chance(runs: Iterable[TrainTask]) -> bool:
    """Whether all of these that are finished had learnt at their end."""
    return all(above_chance(run, result) for run in runs if (result := run.found()) is not None)


def describe_runs(experiments: Iterable[Experiment]) -> dict[str, RunOrigin]:
    """Of each run its settings, what was chosen for it, data, making, notes and time."""
    return {task.key: _run(task) for task in _tasks(experiments) if isinstance(task, TrainTask)}


def _run(run: TrainTask) -> RunOrigin:
    result = run.found()
    about = run.folder.description if result is not None else None
    made_by = about.provenance if about else None
    return RunOrigin(
        name=run.name,
        spec=run.spec.settings(),
        seconds=result.seconds if result else None,
        chosen=about.chosen if about else None,
        data=DataOrigin(name=about.data.name, digest=about.data.digest) if about else None,
        notes=tuple(notes_of([run])),
        commit=made_by.commit if made_by else None,
        versions=made_by.versions if made_by else None,
        machine=made_by.machine if made_by else None,
    )


def describe_measurements(experiments: Iterable[Experiment]) -> dict[str, MeasurementOrigin]:
    """The finished measurements by key: what they are called, and what made them."""
    found = {
        task.key: (task.name, task.found())
        for task in _tasks(experiments)
        if isinstance(task, AttackTask | TransferTask)
    }
    return {
        key: MeasurementOrigin(
            name=name,
            commit=result.provenance.commit,
            versions=result.provenance.versions,
            machine=result.provenance.machine,
        )
        for key, (name, result) in found.items()
        if result is not None
    }


def _tasks(experiments: Iterable[Experiment]) -> Iterator[PaperTask]:
    """Every task once."""
    yield from {task.key: task for e in experiments for task in e.tasks()}.values()


def notes_of(runs: Iterable[TrainTask]) -> list[str]:
    """What finished runs want to be known, each note once: data that stand in for others, settings to be wary of."""
    results = [result for run in runs if (result := run.found()) is not None]
    return list(dict.fromkeys(note for result in results for note in result.notes))
