"""Any model by one reference, as people write them.

::

    reference  =  run-folder [ "@" weights ]          e.g. runs/free-4, runs/free-4@ema, runs/free-4@best
                  | exported-folder                   e.g. exports/free-4
                  | network "@" weights-file          e.g. resnet18@robust.safetensors
                  | package.module:factory "@" weights-file
"""

import json
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from freeat import models
from freeat.compute.machine import resolve_device
from freeat.data import DataSet
from freeat.errors import InputError
from freeat.evaluation.evaluate import device_and_dtype
from freeat.evaluation.evaluator import Scores
from freeat.evaluation.statistics import Interval
from freeat.files.documents import NewerFormat, read_document, sha256
from freeat.files.tensors import load_tensors
from freeat.models.imported import is_import_path, source_digest
from freeat.runs.build import build_network, weights_digest
from freeat.runs.folder import RunDescription, RunFolder
from freeat.runs.spec import TrainSpec

log = logging.getLogger(__name__)

MANIFEST, WEIGHTS, CARD, ONNX = "freeat.json", "model.safetensors", "README.md", "model.onnx"


@dataclass(frozen=True, kw_only=True)
class ExportedWeights:
    """Which weights of a run were exported (``model``, ``ema`` or ``best``), with their digest and their file's."""

    which: str
    update: int
    digest: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class FurtherEvaluation:
    """An evaluation of the exported weights on test images, besides that of the training."""

    attack: str
    iterate: str
    norm: str
    eps: float
    n: int
    population: int
    clean_accuracy: float
    clean_interval: Interval
    robust_accuracy: float
    robust_interval: Interval


@dataclass(frozen=True, kw_only=True)
class OnnxFacts:
    """The digest of ``model.onnx``, and how far its logits are from the model's on random images."""

    sha256: str
    largest_difference: float


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What it takes to build an exported model again, what it is for, and where it comes from.

    ``run`` holds the spec, the shape of images and the classes. Images are NCHW with pixels in [0, 1].
    """

    name: str
    run: RunDescription
    weights: ExportedWeights
    scores: Scores
    further: tuple[FurtherEvaluation, ...]
    collapsed: bool
    needs_code: bool
    licence: str | None
    onnx: OnnxFacts | None = None


@dataclass(frozen=True)
class ExportedFolder:
    """The files of an exported model."""

    path: Path

    @property
    def exists(self) -> bool:
        return (self.path / MANIFEST).is_file()

    @property
    def manifest(self) -> Manifest:
        """Everything that is known of the model."""
        try:
            return read_document(self.path / MANIFEST, "export", Manifest)
        except NewerFormat:
            raise
        except InputError as error:
            raise InputError(f"{error}; export the run again") from None

    @property
    def spec(self) -> TrainSpec:
        """The settings of its training, resolved."""
        return self.manifest.run.resolved

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of the images the model takes."""
        return self.manifest.run.data.shape

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits."""
        return self.manifest.run.data.classes

    @property
    def data_digest(self) -> str | None:
        """The digest of the data it was trained on."""
        return self.manifest.run.data.digest

    def weights(self, name: str = "model") -> dict[str, Tensor]:
        """The weights, checked to be those that were exported."""
        if name != "model":
            raise InputError(
                f"{self.path}@{name}: an exported folder holds one set of weights; leave @{name} out"
            )
        path = self.path / WEIGHTS
        if not path.is_file():
            raise InputError(f"{path} is missing: copy the whole exported folder, or export the run again")
        if sha256(path) != self.manifest.weights.sha256:
            raise InputError(f"{path} is not the file that was exported (its SHA-256 differs): copy it again")
        return load_tensors(path)[0]


@dataclass(frozen=True)
class Reference:
    """Where a model is, or what it is made by, and which weights it has."""

    where: str
    weights: str = ""

    @classmethod
    def of(cls, text: str | Path) -> Self:
        """The reference that ``text`` means. The path of a folder that is there may contain an "@" itself."""
        text = str(text)
        ends = (len(text), *(at for at in reversed(range(len(text))) if text[at] == "@"))
        for end in ends:
            if _stored_at(text[:end]) is not None:
                return cls(text[:end], text[end + 1 :])
        where, _, weights = text.partition("@")
        return cls(where, weights)

    @property
    def folder(self) -> RunFolder | ExportedFolder | None:
        """The run or exported folder it points to, if it is there."""
        return _stored_at(self.where)

    @property
    def names_code(self) -> bool:
        """Whether it names a factory itself, rather than a folder that may name one."""
        return self.folder is None and is_import_path(self.where)

    def check(self) -> None:
        """Refuse a reference that leads nowhere."""
        if self.folder is not None:
            return
        if not self.weights:
            known = "it exists, but has no run.json" if Path(self.where).exists() else "no such folder"
            raise InputError(
                f"model {self.where!r} is not a run folder ({known}): give a run or exported folder, or a network with "
                "its weights as resnet18@FILE or package.module:factory@FILE"
            )
        if not Path(self.weights).exists():
            raise InputError(f"weights {self.weights}: no such file")


def _stored_at(where: str) -> RunFolder | ExportedFolder | None:
    folders = (RunFolder(Path(where)), ExportedFolder(Path(where)))
    return next((folder for folder in folders if folder.exists), None)


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
    """A model to be evaluated, in evaluation mode; ``spec`` where it comes from a run of ours.

    ``trained_on`` is the digest of the data set it was trained on, where that is known; ``made_by`` the factory that
    built it with its arguments, for one that is not of ours; ``results`` the folder for what is evaluated of it, in the
    run's folder or beside its file: a live module has none.
    """

    name: str
    model: nn.Module
    digest: str
    spec: TrainSpec | None = None
    trained_on: str | None = None
    made_by: str = ""
    results: Path | None = None


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
    folder = asked.folder
    if folder is None:
        return None
    spec, classes, shape = folder.spec, folder.classes, folder.shape
    model = build_network(spec, classes=len(classes), shape=shape, trust_code=trust_code)
    model.load_state_dict(folder.weights(asked.weights or "model"))
    return Stored(model=model.eval(), spec=spec, trained_on=folder.data_digest, shape=shape, classes=classes)


def stored_weights(reference: str | Path) -> dict[str, Tensor]:
    """The weights of a run or exported folder, or of a .safetensors file."""
    asked = Reference.of(Path(reference).expanduser())
    if asked.folder is not None:
        return asked.folder.weights(asked.weights or "model")
    path = Path(reference).expanduser()
    if path.is_dir():
        raise InputError(f"{path} is neither a run folder (run.json) nor an exported model (freeat.json)")
    return load_tensors(path)[0]


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
        model = laid_out_for_evaluation(stored.model)
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
    models.check_logits(
        model, data.shape, len(data.classes), device_and_dtype(model)[0], images=data.example_batch
    )
    return Opened(
        name=name or _title(reference),
        model=model,
        digest=weights_digest(model),
        spec=stored.spec if stored else None,
        trained_on=stored.trained_on if stored else None,
        made_by="" if isinstance(reference, nn.Module) else _maker(reference, stored, args),
        results=None if isinstance(reference, nn.Module) else _results_folder(reference),
    )


def _maker(reference: str | Path, stored: Stored | None, args: Mapping[str, object] | None) -> str:
    """A factory, its arguments and the text of its module; a network of ours is told by its layers."""
    named, given = (
        (stored.spec.model, stored.spec.model_args) if stored else (Reference.of(reference).where, args)
    )
    if not is_import_path(named):
        return ""
    return f"{named} {json.dumps(dict(given or {}), sort_keys=True, default=repr)} {source_digest(named)}"


def _results_folder(reference: str | Path) -> Path | None:
    """``results`` in a run folder, NAME.results beside an exported folder or a weights file; None if none can be made.

    What was exported stays as it is: it was made to be given away.
    """
    asked = Reference.of(reference)
    if isinstance(asked.folder, RunFolder):
        place = asked.folder.path / "results"
    elif asked.folder is not None:
        exported = asked.folder.path.resolve()
        place = exported.with_name(f"{exported.name}.results")
    else:
        file = Path(asked.weights)
        place = file.with_name(f"{file.stem}.results")
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
    from freeat.models.loading import load_weights

    asked = Reference.of(reference)
    asked.check()
    bare = models.build(asked.where, classes=classes, shape=shape, args=args, trust_code=trust_code)
    model = load_weights(bare, asked.weights, channels=shape[0])
    if normalize and model is not bare:
        log.warning("%s brings its own normalization; %s is not put in front of it", asked.weights, normalize)
    elif normalize:
        from freeat.models.normalize import Normalization

        model = nn.Sequential(Normalization.parse(normalize).layer(shape[0]), model)
    return laid_out_for_evaluation(model)


def laid_out_for_evaluation(model: nn.Module) -> nn.Module:
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


@dataclass(frozen=True)
class _Location:
    """Where a model's weights lie: the parts of a path, and which of the weights there."""

    parts: tuple[str, ...]
    weights: str = ""

    def end(self, length: int) -> str:
        return "/".join(self.parts[-length:]) + self.weights


def titles(references: Sequence[str], *, taken: Collection[str] = ()) -> list[str]:
    """A name for every reference: ``seed-0``, or ``free-4/seed-0`` where others end in ``seed-0`` too.

    References to the same weights have the same name, and none has one of those already ``taken``. What no part of a
    path tells apart keeps its last one.
    """
    locations = [_location(reference) for reference in references]
    return [_shortest(location, {*locations} - {location}, taken) for location in locations]


def _shortest(location: _Location, others: Collection[_Location], taken: Collection[str]) -> str:
    for length in range(1, len(location.parts) + 1):
        title = location.end(length)
        if title not in taken and all(title != other.end(length) for other in others):
            return title
    return location.end(1)


def _location(reference: str) -> _Location:
    asked = Reference.of(reference)
    if asked.folder is not None:
        return _Location(_parts(asked.folder.path.resolve()), f"@{asked.weights}" if asked.weights else "")
    file = Path(asked.weights).absolute()
    return _Location(_parts(file.parent / file.stem))


def _parts(path: Path) -> tuple[str, ...]:
    return path.relative_to(path.anchor).parts
