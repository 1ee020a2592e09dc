"""Runs and measurements that were never carried out: their files in a store, with numbers of the test's choosing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from freeat.algorithms.registry import parse_algorithm
from freeat.evaluation.evaluate import Summary
from freeat.experiments.tasks import Accuracy, Measurement, MeasurementDocument, Store, TrainTask
from freeat.files.documents import write_document
from freeat.runs.spec import EvalSpec, TrainSpec
from freeat.training.records import Record
from made_records import WEIGHTS, make_description, make_provenance, make_record, make_result, make_summary

TOTAL = 400
CLASSES = 10


def training(store: Path, algorithm: str, seed: int = 0, **settings: Any) -> TrainTask:
    """A task of training; nothing is trained."""
    spec = TrainSpec.of(
        {"data": "cifar10", "norm": "l2", "eps": 0.5, "updates": TOTAL, "seed": seed} | settings
    )
    spec = replace(spec, algorithm=algorithm)
    return Store(path=store.resolve()).task(f"{algorithm} seed {seed}", spec, EvalSpec())


def split(robust: float, clean: float = 0.9, n: int = 1000, population: int = 1000) -> Summary:
    return make_summary(robust, clean, n, population, CLASSES)


def record(
    train: float, test: float, *, plain: float | None = None, update: int = TOTAL, **more: Any
) -> Record:
    """An evaluation; ``train`` is on augmented images, ``plain`` on the images as they are."""
    return make_record(
        split(train if plain is None else plain, 0.95),
        split(test, 0.8),
        train_augmented=split(train, 0.93),
        update=update,
        equivalent_epoch=update / 2,
        **more,
    )


def finish(run: TrainTask, final: Record, earlier: Sequence[Record] = (), **facts: Any) -> None:
    """Write the files of a finished run."""
    run.folder.path.mkdir(parents=True)
    adversarial = parse_algorithm(run.spec.algorithm).adversarial
    *earlier, final = (replace(one, adversarial=adversarial) for one in (*earlier, final))
    for one in (*earlier, final):
        run.folder.append(one)
    run.folder.describe(make_description(run.spec, run.evaluation, updates=TOTAL))
    run.folder.publish_result(make_result(final, **facts))


def describe(run: TrainTask, **facts: Any) -> None:
    """Write what a run is and what made it."""
    run.folder.describe(make_description(run.spec, run.evaluation, updates=TOTAL, **facts))


def finish_measurement(
    task: Measurement, accuracies: Mapping[tuple[str, float], float], n: int = 500, **facts: Any
) -> None:
    """Write a measurement whose models have these accuracies, by (key, radius)."""
    source = f" from {task.source.key}" if task.source else ""
    results = tuple(
        Accuracy(
            model=model,
            split=split,
            eps=eps,
            attack=f"{task.attack}{source}",
            robust_accuracy=accuracy if split == "test" else 1.0,
            n=n,
        )
        for (model, eps), accuracy in accuracies.items()
        for split in ("train", "test")
    )
    weights = {run.key: WEIGHTS for run in task.runs}
    stated = {"name": task.name, "weights": weights, "results": results, "provenance": make_provenance()}
    document = MeasurementDocument(**stated | facts)
    write_document(task.path, "measurement", document)
