"""Runs and measurements that were never carried out: their files in a store, with numbers of the test's choosing."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from freeat.experiments.tasks import Accuracy, AttackTask, MeasurementDocument, Store, TrainTask, TransferTask
from freeat.files.documents import write_document
from freeat.runs.spec import EvalSpec, TrainSpec

TOTAL = 400
CLASSES = 10


def training(store: Path, algorithm: str, seed: int = 0, **words: Any) -> TrainTask:
    """A task of training; nothing is trained."""
    spec = TrainSpec.of({"data": "cifar10", "norm": "l2", "eps": 0.5, "updates": TOTAL, "seed": seed} | words)
    spec = spec.replaced(algorithm=algorithm)
    return Store(path=store.resolve()).task(f"{algorithm} seed {seed}", spec, EvalSpec())


def split(robust: float, clean: float = 0.9, n: int = 1000, population: int = 1000) -> dict[str, Any]:
    return {
        "n": n,
        "population": population,
        "robust_accuracy": robust,
        "clean_accuracy": clean,
        "classes": CLASSES,
        "clean_interval": [clean, clean],
        "robust_interval": [robust, robust],
        "per_class": [],
    }


def record(
    train: float, test: float, *, plain: float | None = None, update: int = TOTAL, **more: Any
) -> dict[str, Any]:
    """An evaluation; ``train`` is on augmented images, ``plain`` on the images as they are."""
    return {
        "kind": "evaluation",
        "update": update,
        "equivalent_epoch": update / 2,
        "train": split(train if plain is None else plain, 0.95),
        "train_augmented": split(train, 0.93),
        "test": split(test, 0.8),
        "seconds": 12.0,
        **more,
    }


def finish(run: TrainTask, final: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write the files of a finished run."""
    run.folder.path.mkdir(parents=True)
    for one in (*earlier, final):
        run.folder.append(dict(one))
    run.folder.publish_result(final)


def describe(run: TrainTask, **facts: Any) -> None:
    """Write what a run is and what made it."""
    about = {
        "data": {"name": "cifar10", "digest": "d" * 64, "shape": [3, 32, 32], "classes": []},
        "updates": TOTAL,
        "chosen": {"precision": "bf16", "device": "cpu", "threads": 1},
        "versions": {"freeat": "0.1.0"},
        "commit": "abc",
        "machine": {"processor": "one"},
    }
    run.folder.describe(run.spec, run.evaluation, about | facts)


def finish_measurement(
    task: AttackTask | TransferTask, accuracies: Mapping[tuple[str, float], float], n: int = 500, **facts: Any
) -> None:
    """Write a measurement whose models have these accuracies, by (key, radius)."""
    source = f" from {task.source.key}" if isinstance(task, TransferTask) else ""
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
    document = MeasurementDocument(**{"name": task.name, "weights": {}, "results": results} | facts)
    write_document(task.folder / "result.json", "measurement", document)
