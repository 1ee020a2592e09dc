"""A finished run judged again: its stored weights, with any evaluation spec."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from freeat.compute.machine import arithmetic, provenance, resolve_device
from freeat.files.documents import read_json, write_json
from freeat.runs.build import build_data, build_evaluator, evaluation_attack, weights_digest
from freeat.runs.folder import FORMAT, RunFolder
from freeat.runs.open import load
from freeat.runs.spec import EvalSpec

OTHER_DATA = (
    "judge the run on others with `freeat attack --data`: its test images may have become training images"
)


def judge_run(
    folder: RunFolder,
    evaluation: EvalSpec,
    *,
    weights: str = "model",
    device: str = "auto",
    data_dir: Path | None = None,
    trust_code: bool = False,
) -> dict[str, Any]:
    """Clean and robust risk of a run's weights under ``evaluation``; found in the folder if it was asked before."""
    on = resolve_device(device)
    description = folder.description
    spec = folder.spec
    data = build_data(spec, data_dir=data_dir)
    folder.check_data(data.digest, OTHER_DATA)
    model = load(f"{folder.path}@{weights}", trust_code=trust_code)
    evaluation_attack(evaluation)
    key = {"weights": weights_digest(model), "data": data.digest, "evaluation": evaluation.words()}
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = folder.path / "evaluations" / f"{name}.json"
    if path.is_file():
        return read_json(path, format=FORMAT)
    with arithmetic(threads=description["chosen"]["threads"], deterministic=spec.deterministic):
        model = model.to(on).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        judge = build_evaluator(spec, evaluation, data, on)
        record = judge.record(model, evaluation.final_size)
    facts = {"update": folder.weights_update(weights), "notes": list(data.notes), "key": key}
    write_json(path, {**facts, **record, **provenance(on)}, format=FORMAT)
    return read_json(path, format=FORMAT)
