"""A run's model, exported: the folder is written whole or not at all."""

import re
from pathlib import Path
from typing import Any

from freeat.data.sources import find_source
from freeat.errors import InputError
from freeat.evaluation.evaluator import Scores
from freeat.files.documents import plain, sha256, whole_folder, write_json, write_text
from freeat.files.tensors import save_tensors
from freeat.interop.card import model_card
from freeat.interop.onnx_file import write_onnx
from freeat.models import parameter_count
from freeat.models.imported import is_import_path
from freeat.runs.build import weights_digest
from freeat.runs.folder import RunFolder
from freeat.runs.open import CARD, FORMAT, MANIFEST, ONNX, WEIGHTS, ExportedFolder, stored_model
from freeat.runs.results import RESULTS, Results

EVALUATED_BY = ("attack", "iterate", "norm", "eps")
FIGURES = (
    "n",
    "population",
    "clean_accuracy",
    "clean_interval",
    "robust_accuracy",
    "robust_interval",
)


def export(
    run: str | Path,
    out: str | Path | None = None,
    *,
    weights: str = "model",
    onnx: bool = False,
    trust_code: bool = False,
) -> Path:
    """Write the model of a finished run to a folder: safetensors, a manifest, a model card, on request ONNX.

    ``weights`` are ``model`` (the last), ``ema`` or ``best``. An earlier export at ``out`` is replaced, anything else
    is refused. ``freeat.load`` gets the model back.
    """
    folder = RunFolder(Path(run))
    name = _name(folder.path.resolve()) + ("" if weights == "model" else f"-{weights}")
    target = Path("exports") / name if out is None else Path(out)
    if target.exists() and not ExportedFolder(target).exists:
        raise InputError(
            f"{target} exists and is not an exported model: choose another --out; nothing was touched"
        )
    description, measured = folder.description, _figures(folder, weights)
    stored = stored_model(f"{folder.path}@{weights}", trust_code=trust_code)
    assert stored is not None  # described above, so it is there
    digest = weights_digest(stored.model)
    with whole_folder(target) as place:
        save_tensors(place / WEIGHTS, stored.model.state_dict(), {"run": description.identity})
        manifest = _manifest(folder, plain(description), name, weights) | {
            "parameters": parameter_count(stored.model),
            "figures": measured,
            "further": _further(folder, digest),
        }
        manifest["weights"] |= {"digest": digest, "sha256": sha256(place / WEIGHTS)}
        if onnx:
            error = write_onnx(stored.model, place / ONNX, stored.shape)
            manifest["onnx"] = {"sha256": sha256(place / ONNX), "largest_difference": error}
        write_json(place / MANIFEST, manifest, format=FORMAT)
        write_text(place / CARD, model_card(manifest))
    return target


def _name(run: Path) -> str:
    """The run's folder; of one of several seeds also what they are seeds of, so that no two exports share a name."""
    return f"{run.parent.name}-{run.name}" if re.fullmatch(r"seed-\d+", run.name) else run.name


def _manifest(folder: RunFolder, run: dict[str, Any], name: str, weights: str) -> dict[str, Any]:
    """What it takes to build the model again, what it is for, and where it comes from."""
    spec, data = folder.spec, run["data"]
    source = find_source(data["name"])
    return {
        "name": name,
        "model": {
            "network": spec.model,
            "args": spec.model_args,
            "normalize": spec.normalize,
            "needs_code": is_import_path(spec.model),
        },
        "input": {"shape": data["shape"], "layout": "NCHW", "range": [0.0, 1.0]},
        "classes": data["classes"],
        "threat": {"norm": spec.norm, "eps": spec.eps},
        "weights": {"which": weights, "update": folder.weights_update(weights)},
        "data": {
            **{key: data[key] for key in ("name", "digest", "train", "test", "notes")},
            "licence": source.licence if source else None,
        },
        "training": {
            "identity": run["identity"],
            "algorithm": spec.algorithm,
            "spec": spec.settings(),
            "evaluation": folder.evaluation.settings(),
            "updates": run["updates"],
            "collapsed": bool(folder.result and folder.result.collapsed),
            "chosen": run["chosen"],
            **run["provenance"],
        },
    }


def _figures(folder: RunFolder, weights: str) -> dict[str, Any]:
    """The evaluation that belongs to these weights: of the last, the averaged, or those best on validation."""
    record = _record(folder, weights)
    found = {name: plain(getattr(record, name)) for name in (*EVALUATED_BY, "gap", "clean_gap")}
    for name, split in record.splits.items():
        if name != "train_augmented":
            found[name] = {key: plain(getattr(split, key)) for key in FIGURES}
    return found


def _further(folder: RunFolder, digest: str) -> list[dict[str, Any]]:
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


def _record(folder: RunFolder, weights: str) -> Scores:
    result = folder.result
    if result is None:
        raise InputError(f"{folder.path} has not finished: run its command again, then export it")
    if weights == "best":
        best = [record for record in folder.history() if record.best]
        if not best:
            raise InputError(f"{folder.path} has no best weights: train with --validation 0.1, say")
        return best[-1]
    return result.ema if weights == "ema" and result.ema is not None else result
