"""What a finished run says at a point of its training: accuracies, gaps, and the error the images leave in them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from freeat.algorithms.registry import parse_algorithm
from freeat.evaluation.statistics import chance, wilson
from freeat.experiments.paper.estimate import DIFFERENCE, PROPORTION, Cell, proportion_error, seed_cell
from freeat.experiments.paper.settings import NEAR
from freeat.experiments.tasks import Training
from freeat.runs.reading import found_result

Record = Mapping[str, Any]
View = Literal["augmented", "plain"]
"""How the training images are seen: augmented as in the paper's tables, or plain as R_S is defined."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One run at one point: a value, and its standard error from the images."""

    value: float
    image_error: float


def finished(runs: Sequence[Training]) -> list[Training]:
    """The runs that have a result which can be read."""
    return [run for run in runs if found_result(run) is not None]


def evaluations(run: Training) -> list[Record]:
    """The evaluations of a run in the order of its updates, the final one last."""
    return [record for record in run.folder.history() if record.get("kind") in ("evaluation", "final")]


def record_at(run: Training, at: float) -> Record | None:
    """The evaluation after this part of the training; None where none was made close to it.

    Evaluations fall on the end of a batch, which Free holds for m updates.
    """
    if at >= 1:
        return found_result(run)
    records = evaluations(run)
    total = records[-1]["update"] if records else 0
    best = min(records, key=lambda record: abs(record["update"] - at * total), default=None)
    name = parse_algorithm(run.spec.algorithm)
    held = name.m or 1 if name.family == "free" else 1
    return best if best is not None and abs(best["update"] - at * total) <= max(NEAR * total, held) else None


def reading(record: Record, column: str, view: View) -> Reading:
    """A column of a table (``robust_train``, ``clean_gap``, …) as the record has it."""
    kind, split = column.split("_")
    if split == "gap":
        train, test = (reading(record, f"{kind}_{part}", view) for part in ("train", "test"))
        return Reading(
            value=train.value - test.value, image_error=math.hypot(train.image_error, test.image_error)
        )
    if split == "test":
        part = record["test"]
        return _proportion(part, kind, population=None)
    part = record.get("train_augmented", record["train"]) if view == "augmented" else record["train"]
    return _proportion(part, kind, population=part["population"])


def _proportion(part: Mapping[str, Any], kind: str, population: int | None) -> Reading:
    """Training images that were all seen leave no error; test images stand for the unseen."""
    p = part[f"{kind}_accuracy"]
    return Reading(value=p, image_error=proportion_error(p, part["n"], population))


def over_seeds(records: Sequence[Record], column: str, view: View) -> Cell:
    """A column over the seeds' records."""
    readings = [reading(record, column, view) for record in records]
    within = DIFFERENCE if column.endswith("_gap") else PROPORTION
    return seed_cell([r.value for r in readings], [r.image_error for r in readings], within)


def cells(records: Sequence[Record], columns: Sequence[str], view: View) -> dict[str, Cell]:
    """Every column over the seeds' records."""
    return {column: over_seeds(records, column, view) for column in columns}


def above_chance(run: Training, record: Record) -> bool:
    """Whether the run had learnt by then: the training accuracy it strives for and clean test accuracy above chance.

    Both by their intervals. A model trained without an adversary strives for clean accuracy.
    """
    strives_for = "clean" if parse_algorithm(run.spec.algorithm).family == "erm" else "robust"
    for split, kind in (("train", strives_for), ("test", "clean")):
        n = record[split]["n"]
        if wilson(record[split][f"{kind}_accuracy"] * n, n)[0] <= chance(record):
            return False
    return True


def all_above_chance(runs: Iterable[Training]) -> bool:
    """Whether all of these that are finished had learnt at their end."""
    return all(above_chance(run, result) for run in runs if (result := found_result(run)) is not None)
