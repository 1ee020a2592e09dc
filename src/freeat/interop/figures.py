"""What was measured of a run's weights, gathered from its folder."""

from collections.abc import Iterator
from typing import Any

from freeat.errors import InputError
from freeat.evaluation.statistics import wilson
from freeat.files.documents import read_json
from freeat.runs import results as cells
from freeat.runs.folder import FORMAT, RunFolder
from freeat.training.records import Record

SPLITS = ("train", "test", "validation")
JUDGED_BY = ("attack", "iterate", "norm", "eps")
FIGURES = ("n", "population", "clean_accuracy", "robust_accuracy", "robust_interval")


def figures(folder: RunFolder, weights: str) -> dict[str, Any]:
    """The judgement that belongs to these weights: of the last, the averaged, or those best on validation."""
    record = _record(folder, weights)
    found = {name: record[name] for name in ("attack", "iterate", "norm", "eps", "gap", "clean_gap")}
    for split in SPLITS:
        if split in record:
            found[split] = _figures(record[split])
    return found


def further(folder: RunFolder, digest: str) -> list[dict[str, Any]]:
    """What ``freeat evaluate`` and ``freeat attack`` found of the weights with this digest on test images.

    Of one attack at one radius, the judgement of the most images.
    """
    rows = [*_evaluated(folder, digest), *_attacked(folder, digest)]
    most = {tuple(row[key] for key in JUDGED_BY): row for row in sorted(rows, key=lambda row: int(row["n"]))}
    return sorted(most.values(), key=lambda row: (row["norm"], row["eps"], row["robust_accuracy"]))


def _record(folder: RunFolder, weights: str) -> Record:
    result = folder.result
    if result is None:
        raise InputError(f"{folder.path} has not finished: run its command again, then export it")
    if weights == "best":
        best = [record for record in folder.history() if record.get("best")]
        if not best:
            raise InputError(f"{folder.path} has no best weights: train with --validation 0.1, say")
        return best[-1]
    return result | result["ema"] if weights == "ema" and "ema" in result else result


def _figures(split: dict[str, Any]) -> dict[str, Any]:
    clean = wilson(split["clean_accuracy"] * split["n"], split["n"])
    return {name: split[name] for name in FIGURES} | {"clean_interval": list(clean)}


def _evaluated(folder: RunFolder, digest: str) -> Iterator[dict[str, Any]]:
    for path in sorted((folder.path / "evaluations").glob("*.json")):
        document = read_json(path, format=FORMAT)
        if document["key"]["weights"] == digest:
            yield _row(document, document["test"])


def _attacked(folder: RunFolder, digest: str) -> Iterator[dict[str, Any]]:
    for path in sorted((folder.path / "attacks" / "cells").glob("*.json")):
        cell = read_json(path, format=cells.FORMAT)
        judged = cell.get("weights") == digest and cell.get("split") == "test" and "robust_accuracy" in cell
        if judged and _on_own_data(cell, folder):
            yield _row(cell, cell)


def _on_own_data(cell: dict[str, Any], folder: RunFolder) -> bool:
    """Whether a cell is of the run's own data; old ones know its name only."""
    if "data_digest" in cell:
        return bool(cell["data_digest"] == folder.data_digest)
    return bool(cell["data"] == folder.description["data"]["name"])


def _row(about: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    return {name: about[name] for name in JUDGED_BY} | {name: measured[name] for name in FIGURES}
