"""A finished run judged again: its stored weights, with any evaluation spec."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from freeat.compute.machine import arithmetic, provenance, resolve_device
from freeat.data import DataSet, load
from freeat.files.documents import read_json, write_json
from freeat.runs.build import evaluation_attack, initial_model, make_judge
from freeat.runs.folder import FORMAT, RunFolder
from freeat.runs.initial import weights_digest
from freeat.runs.spec import EvalSpec

OTHER_DATA = (
    "judge the run on others with `freeat attack --data`: its test images may have become training images"
)


def open_run(
    folder: RunFolder, *, weights: str = "model", data_dir: Path | None = None, trust_code: bool = False
) -> tuple[nn.Module, DataSet]:
    """The model of a run with its stored weights, on the CPU in evaluation mode, and its data."""
    spec = folder.spec
    data = load(spec.data, data_dir=data_dir, seed=spec.seed, image_size=spec.image_size)
    model, _ = initial_model(spec.replaced(init_from=None), data, trust_code)
    model.load_state_dict(folder.weights(weights)[0])
    return model.eval(), data


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
    model, data = open_run(folder, weights=weights, data_dir=data_dir, trust_code=trust_code)
    folder.check_data(data.digest, OTHER_DATA)
    evaluation_attack(evaluation)
    key = {"weights": weights_digest(model), "data": data.digest, "evaluation": evaluation.words()}
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = folder.path / "evaluations" / f"{name}.json"
    if path.is_file():
        return read_json(path, format=FORMAT)
    with arithmetic(threads=description["chosen"]["threads"], deterministic=spec.deterministic):
        model = model.to(on).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        judge = make_judge(spec, evaluation, data, on)
        record = judge.record(model, evaluation.final_size)
    facts = {"update": folder.weights(weights)[1].get("update"), "notes": list(data.notes), "key": key}
    write_json(path, {**facts, **record, **provenance(on)}, format=FORMAT)
    return read_json(path, format=FORMAT)
