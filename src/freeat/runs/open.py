"""Any model by one reference: a run or exported folder, a network or factory with a weights file, or a live module."""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from freeat import models
from freeat.compute.machine import resolve_device
from freeat.data import DataSet
from freeat.errors import InputError
from freeat.evaluation.evaluate import device_and_dtype
from freeat.models.imported import is_import_path, source_digest
from freeat.models.loading import load_weights
from freeat.runs.folder import RunFolder
from freeat.runs.initial import weights_digest
from freeat.runs.references import Reference
from freeat.runs.spec import TrainSpec
from freeat.runs.titles import titles

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class Stored:
    """A model whose folder knows how it is built, on the CPU in evaluation mode.

    ``trained_on`` is the digest of the data set it was trained on, where that is known.
    """

    model: nn.Module
    spec: TrainSpec
    trained_on: str | None
    shape: tuple[int, int, int]
    classes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Opened:
    """A model to be judged, in evaluation mode; ``spec`` where it comes from a run of ours.

    ``trained_on`` is the digest of the data set it was trained on, where that is known; ``made_by`` the factory that
    built it with its arguments, for one that is not of ours; ``home`` the folder for what is measured of it, in the
    run's folder or beside its file: a live module has none.
    """

    name: str
    model: nn.Module
    digest: str
    spec: TrainSpec | None = None
    trained_on: str | None = None
    made_by: str = ""
    home: Path | None = None


def load(reference: str | Path, *, device: str = "cpu", trust_code: bool = False) -> nn.Module:
    """The model of an exported folder or of a run folder (RUN, RUN@ema, RUN@best), ready to classify.

    It takes images (b, C, H, W) with pixels in [0, 1] and returns logits, the very ones of the trained model. One that
    was made by a factory of yours is built only with ``trust_code``.
    """
    stored = stored_model(reference, trust_code=trust_code)
    if stored is None:
        raise InputError(
            f"{reference} is neither an exported model (freeat.json) nor a run folder (run.json)"
        )
    return stored.model.to(resolve_device(device))


def stored_model(reference: str | Path, *, trust_code: bool = False) -> Stored | None:
    """The model of a run or exported folder; None where the reference points to neither."""
    asked = Reference.of(reference)
    folder, weights = asked.folder, asked.weights
    if folder is None:
        return None
    if isinstance(folder, RunFolder):
        return _of_run(folder, weights or "model", trust_code)
    if weights:
        raise InputError(f"{reference}: an exported folder holds one set of weights; leave @{weights} out")
    return Stored(
        model=folder.model(trust_code=trust_code),
        spec=folder.spec,
        trained_on=folder.manifest.get("data", {}).get("digest"),
        shape=folder.shape,
        classes=tuple(folder.manifest["classes"]),
    )


def open_model(
    reference: str | Path | nn.Module,
    data: DataSet,
    *,
    device: torch.device | str | None = None,
    args: Mapping[str, object] | None = None,
    normalize: str | None = None,
    name: str | None = None,
    trust_code: bool = False,
) -> Opened:
    """The model behind a reference, checked to return logits for the images of ``data``.

    ``args`` are for factories, ``normalize`` for weights files that bring none; a folder knows its own. Without a
    ``device`` a live module stays where it is, and any other model is on the CPU.
    """
    stored: Stored | None = None
    if isinstance(reference, nn.Module):
        model = reference
    elif stored := stored_model(reference, trust_code=trust_code):
        model = judgeable(stored.model)
    else:
        model = file_model(
            reference,
            classes=len(data.classes),
            shape=data.shape,
            args=args,
            normalize=normalize,
            trust_code=trust_code,
        )
    if device is not None:
        model = model.to(device)
    models.check_logits(model, data.shape, len(data.classes), device_and_dtype(model)[0], images=data.glimpse)
    return Opened(
        name=name or _title(reference),
        model=model,
        digest=weights_digest(model),
        spec=stored.spec if stored else None,
        trained_on=stored.trained_on if stored else None,
        made_by="" if isinstance(reference, nn.Module) else _maker(reference, stored, args),
        home=None if isinstance(reference, nn.Module) else _home(reference),
    )


def _maker(reference: str | Path, stored: Stored | None, args: Mapping[str, object] | None) -> str:
    """A factory, its arguments and the text of its module; a network of ours is told by its layers."""
    named, given = (
        (stored.spec.model, stored.spec.model_args) if stored else (Reference.of(reference).where, args)
    )
    if not is_import_path(named):
        return ""
    return f"{named} {json.dumps(dict(given or {}), sort_keys=True, default=repr)} {source_digest(named)}"


def _home(reference: str | Path) -> Path | None:
    """``attacks`` in a run folder, NAME.attacks beside an exported folder or a weights file; None if none can be made.

    What was exported stays as it is: it was made to be given away.
    """
    asked = Reference.of(reference)
    if isinstance(asked.folder, RunFolder):
        place = asked.folder.path / "attacks"
    elif asked.folder is not None:
        exported = asked.folder.path.resolve()
        place = exported.with_name(f"{exported.name}.attacks")
    else:
        file = Path(asked.weights)
        place = file.with_name(f"{file.stem}.attacks")
    return place if os.access(place if place.exists() else place.parent, os.W_OK) else None


def file_model(
    reference: str | Path,
    *,
    classes: int,
    shape: tuple[int, int, int],
    args: Mapping[str, object] | None = None,
    normalize: str | None = None,
    trust_code: bool = False,
) -> nn.Module:
    """A network or factory with the weights of a file, for images of ``shape``, on the CPU in evaluation mode."""
    asked = Reference.of(reference)
    check_found(asked)
    bare = models.build(asked.where, classes=classes, shape=shape, args=args, trust_code=trust_code)
    model = load_weights(bare, asked.weights, channels=shape[0])
    if normalize and model is not bare:
        log.warning("%s brings its own normalization; %s is not put in front of it", asked.weights, normalize)
    elif normalize:
        model = nn.Sequential(models.Normalization.parse(normalize).layer(shape[0]), model)
    return judgeable(model)


def check_found(asked: Reference) -> None:
    """Refuse a reference that leads nowhere."""
    if asked.folder is not None:
        return
    if not asked.weights:
        known = "it exists, but has no run.json" if Path(asked.where).exists() else "no such folder"
        raise InputError(
            f"model {asked.where!r} is not a run folder ({known}): give a run or exported folder, or a network with "
            "its weights as resnet18@FILE or package.module:factory@FILE"
        )
    if not Path(asked.weights).exists():
        raise InputError(f"weights {asked.weights}: no such file")


def judgeable(model: nn.Module) -> nn.Module:
    """The model in evaluation mode, its weights laid out as attacks are fastest."""
    laid_out: nn.Module = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return laid_out.eval()


def run_spec(reference: str | Path) -> TrainSpec | None:
    """The spec of the run a reference points to or was exported from, None where it is neither."""
    folder = Reference.of(reference).folder
    return None if folder is None else folder.spec


def _title(reference: str | Path | nn.Module) -> str:
    if isinstance(reference, nn.Module):
        return type(reference).__name__
    return titles([str(reference)])[0]


def _of_run(folder: RunFolder, weights: str, trust_code: bool) -> Stored:
    spec, facts = folder.spec, folder.description["data"]
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
    return Stored(
        model=model.eval(),
        spec=spec,
        trained_on=facts["digest"],
        shape=(channels, height, width),
        classes=tuple(facts["classes"]),
    )
