"""Any model by one reference: a run folder, a network or factory with a weights file, or a live module.

::

    reference  =  run-folder [ "@" weights ]          e.g. runs/free-4, runs/free-4@ema, runs/free-4@best
                  | network "@" weights-file          e.g. resnet18@robust.safetensors
                  | package.module:factory "@" weights-file
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from freeat import models
from freeat.data import DataSet
from freeat.errors import InputError
from freeat.initial import weights_digest
from freeat.models.loading import load_weights
from freeat.spec import TrainSpec
from freeat.store import RunFolder


@dataclass(frozen=True, kw_only=True, eq=False)
class Opened:
    """A model to be judged, in evaluation mode; ``spec`` and ``folder`` where it comes from a run of ours."""

    name: str
    model: nn.Module
    digest: str
    spec: TrainSpec | None = None
    folder: Path | None = None


def open_model(
    reference: str | Path | nn.Module,
    data: DataSet,
    *,
    device: torch.device | str = "cpu",
    args: Mapping[str, object] | None = None,
    normalize: str | None = None,
    name: str | None = None,
    trust_code: bool = False,
) -> Opened:
    """The model behind a reference, checked to return logits for the images of ``data``.

    ``args`` and ``normalize`` are for networks and factories; a run folder knows its own.
    """
    device = torch.device(device)
    spec, folder = None, None
    if isinstance(reference, nn.Module):
        model, title = reference, type(reference).__name__
    else:
        where, _, weights = str(reference).partition("@")
        if RunFolder(Path(where)).exists:
            folder = Path(where)
            spec = RunFolder(folder).spec
            model = _of_run(RunFolder(folder), spec, weights or "model", trust_code)
            title = folder.resolve().name + (f"@{weights}" if weights else "")
        else:
            model, title = _of_file(where, weights, data, args or {}, normalize, trust_code)
    model = model.to(device)
    if not isinstance(reference, nn.Module):
        model = model.to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    models.check_logits(model, data.shape, len(data.classes), device)
    return Opened(name=name or title, model=model, digest=weights_digest(model), spec=spec, folder=folder)


def run_spec(reference: str | Path) -> TrainSpec | None:
    """The spec of the run a reference points to, None where it is no run."""
    folder = RunFolder(Path(str(reference).partition("@")[0]))
    return folder.spec if folder.exists else None


def _of_run(folder: RunFolder, spec: TrainSpec, weights: str, trust_code: bool) -> nn.Module:
    facts = folder.description["data"]
    channels, height, width = facts["shape"]
    model = models.build(
        spec.model,
        classes=len(facts["classes"]),
        shape=(channels, height, width),
        args=spec.model_args,
        normalize=models.Normalization.parse(spec.normalize) if spec.normalize else None,
        seed=spec.seed,
        trust_code=trust_code,
    )
    model.load_state_dict(folder.weights(weights)[0])
    return model


def _of_file(
    network: str,
    file: str,
    data: DataSet,
    args: Mapping[str, object],
    normalize: str | None,
    trust_code: bool,
) -> tuple[nn.Module, str]:
    if not file:
        known = "it exists, but has no run.json" if Path(network).exists() else "no such folder"
        raise InputError(
            f"model {network!r} is not a run folder ({known}): give a run folder, or a network with its "
            "weights as resnet18@FILE or package.module:factory@FILE"
        )
    model = models.build(
        network, classes=len(data.classes), shape=data.shape, args=args, trust_code=trust_code
    )
    bare = model
    model = load_weights(bare, file, channels=data.shape[0])
    if normalize:
        if model is not bare:
            raise InputError(f"{file} brings its own normalization: leave --normalize out")
        layer = models.Normalization.parse(normalize).layer(data.shape[0])
        model = nn.Sequential(layer, model)
    return model, Path(file).stem
