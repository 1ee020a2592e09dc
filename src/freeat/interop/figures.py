"""What was measured of a run's weights, gathered from its folder."""

from typing import Any

from freeat.errors import InputError
from freeat.files.documents import plain
from freeat.runs.folder import RunFolder
from freeat.runs.results import RESULTS, Results
from freeat.training.records import Record

SPLITS = ("train", "test", "validation")
EVALUATED_BY = ("attack", "iterate", "norm", "eps")
FIGURES = (
    "n",
    "population",
    "clean_accuracy",
    "clean_interval",
    "robust_accuracy",
    "robust_interval",
)


def figures(folder: RunFolder, weights: str) -> dict[str, Any]:
    """The evaluation that belongs to these weights: of the last, the averaged, or those best on validation."""
    record = _record(folder, weights)
    found = {name: record[name] for name in ("attack", "iterate", "norm", "eps", "gap", "clean_gap")}
    for split in SPLITS:
        if split in record:
            found[split] = {name: record[split][name] for name in FIGURES}
    return found


def further(folder: RunFolder, digest: str) -> list[dict[str, Any]]:
    """What ``freeat evaluate`` found of the weights with this digest on the run's own test images.

    Of one attack at one radius, the evaluation on the most images.
    """
    stored = Results(folder.path / RESULTS).evaluations(kind="evaluation", weights=digest, split="test")
    rows = [plain(one) for one in stored if one.data_digest == folder.data_digest]
    rows = [{name: row[name] for name in (*EVALUATED_BY, *FIGURES)} for row in rows]
    most = {
        tuple(row[key] for key in EVALUATED_BY): row for row in sorted(rows, key=lambda row: int(row["n"]))
    }
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
