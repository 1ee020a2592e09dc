"""Any model by one reference, as people write them.

::

    reference  =  run-folder [ "@" weights ]          e.g. runs/free-4, runs/free-4@ema, runs/free-4@best
                  | exported-folder                   e.g. exports/free-4
                  | "hf://" name [ "@" revision ]     an exported folder on the Hugging Face Hub
                  | network "@" weights-file          e.g. resnet18@robust.safetensors, timm:resnet18@robust.pt
                  | package.module:factory "@" weights-file

A weights file may be on the Hub too: ``timm:resnet18@hf://NAME@COMMIT`` is its ``model.safetensors`` there.
"""

import json
import logging
import os
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from freeat import models
from freeat.compute.machine import resolve_device
from freeat.data import DataSet
from freeat.data.preprocessing import Preprocessing
from freeat.errors import InputError
from freeat.evaluation.evaluate import device_and_dtype
from freeat.evaluation.evaluator import Scores
from freeat.evaluation.statistics import Limits
from freeat.files.documents import NewerFormat, in_file_name, read_document, sha256
from freeat.files.hub import HubModel, is_on_hub
from freeat.files.reading import LARGEST_DOCUMENT, refusing
from freeat.files.tensors import load_tensors
from freeat.models.imported import is_import_path, is_of_package, source_digest
from freeat.runs.build import build_network, default_normalization, package_of, weights_digest
from freeat.runs.folder import DataFacts, RunDescription, RunFolder
from freeat.runs.spec import TrainSpec

log = logging.getLogger(__name__)

MANIFEST, WEIGHTS, CARD, ONNX = "freeat.json", "model.safetensors", "README.md", "model.onnx"
FROM_HUB = {MANIFEST: LARGEST_DOCUMENT, WEIGHTS: 8 * models.LARGEST}
"""The files that are fetched from the Hub, and their largest sizes in bytes."""


@dataclass(frozen=True, kw_only=True)
class ExportedWeights:
    """Which weights of a run were exported (``model``, ``ema``, ``slow``, ``best``), with their digest and file."""

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
    clean_interval: Limits
    robust_accuracy: float
    robust_interval: Limits


@dataclass(frozen=True, kw_only=True)
class OnnxFacts:
    """The digest of ``model.onnx``, and how far its logits are from the model's on random images."""

    sha256: str
    largest_difference: float


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What it takes to build an exported model again, what it is for, and where it comes from.

    ``run`` holds the spec, the shape of images and the classes. Images are NCHW with pixels in [0, 1]. ``notes`` are
    the sanity checks that the model failed.
    """

    name: str
    run: RunDescription
    weights: ExportedWeights
    scores: Scores
    further: tuple[FurtherEvaluation, ...]
    collapsed: bool
    needs_code: bool
    licence: str | None
    preprocessing: Preprocessing
    onnx: OnnxFacts | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExportedFolder:
    """The files of an exported model."""

    path: Path

    @property
    def exists(self) -> bool:
        return (self.path / MANIFEST).is_file()

    @property
    def manifest(self) -> Manifest:
        """What is known of the model."""
        try:
            return read_document(self.path / MANIFEST, "export", Manifest)
        except NewerFormat:
            raise
        except InputError as error:
            raise InputError(f"{error}; export the run again") from None

    @property
    def description(self) -> RunDescription:
        """The run that it was exported from."""
        return self.manifest.run

    @property
    def spec(self) -> TrainSpec:
        """The settings of its training, resolved."""
        return self.description.resolved

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
    """A folder, network or factory (``where``), which weights it has, and the model of the Hub that either is from."""

    where: str
    weights: str = ""
    hub: HubModel | None = None

    @classmethod
    def of(cls, text: "str | Path | Reference") -> "Reference":
        """The reference that ``text`` means. The path of a folder that is there may contain an "@" itself.

        A model of the Hub is fetched, unless it was before.
        """
        if isinstance(text, Reference):
            return text
        text = str(text)
        if is_on_hub(text):
            hub = HubModel.of(text)
            return cls(str(_exported_on_hub(hub)), hub=hub)
        ends = (len(text), *(at for at in reversed(range(len(text))) if text[at] == "@"))
        for end in ends:
            if _stored_at(text[:end]) is not None:
                return cls(text[:end], text[end + 1 :])
        where, _, weights = text.partition("@")
        if is_on_hub(weights):
            hub = HubModel.of(weights)
            return cls(where, str(hub.fetch({WEIGHTS: FROM_HUB[WEIGHTS]}) / WEIGHTS), hub)
        return cls(where, weights)

    @property
    def folder(self) -> RunFolder | ExportedFolder | None:
        """The run or exported folder it points to, if it is there."""
        return _stored_at(self.where)

    @property
    def title(self) -> str:
        """The reference as messages name it."""
        if self.hub is not None:
            return str(self.hub)
        return f"{self.where}@{self.weights}" if self.weights else self.where

    @property
    def names_code(self) -> bool:
        """Whether it names a factory itself, rather than a folder that may name one."""
        return self.folder is None and is_import_path(self.where)

    @property
    def takes_arguments(self) -> bool:
        """Whether it names a factory, or a network of a package."""
        return self.folder is None and (is_import_path(self.where) or is_of_package(self.where))

    def check(self) -> None:
        """Refuse a reference to something that does not exist."""
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


def _exported_on_hub(hub: HubModel) -> Path:
    """The folder of an exported model that is on the Hub."""
    folder = hub.fetch(FROM_HUB)
    if not ExportedFolder(folder).exists:
        raise InputError(
            f"{hub} was not exported by freeat (it has no {MANIFEST}): name the network of its weights, "
            f"NETWORK@{hub}, for instance timm:NAME@…"
        )
    return folder


def weights_path(init_from: str) -> Path:
    """The run folder, exported folder or weights file to begin with; one of the Hub is fetched."""
    if not is_on_hub(init_from):
        return Path(init_from).expanduser()
    folder = HubModel.of(init_from).fetch(FROM_HUB)
    return folder if ExportedFolder(folder).exists else folder / WEIGHTS


def _stored_at(where: str) -> RunFolder | ExportedFolder | None:
    folders = (RunFolder(Path(where)), ExportedFolder(Path(where)))
    return next((folder for folder in folders if folder.exists), None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Opened:
    """A model to be evaluated, in evaluation mode.

    Args:
        name: Its name in reports.
        model: The module.
        digest: The digest of its weights.
        spec: The resolved settings of its training, where it comes from a run.
        trained_on: The data set that it was trained on, where that is known.
        made_by: The factory that built it, with its arguments and the digest of its source; empty for a built-in one.
        results: The folder for its evaluations, in the run's folder or beside its file; None for a live module.
    """

    name: str
    model: nn.Module
    digest: str
    spec: TrainSpec | None = None
    trained_on: DataFacts | None = None
    made_by: str = ""
    results: Path | None = None


def load(reference: str | Path | Reference, *, device: str = "cpu", trust_code: bool = False) -> nn.Module:
    """Load the model of a run folder, of an exported folder, or of one on the Hugging Face Hub.

    The model takes images (b, C, H, W) with pixels in [0, 1] and returns logits (b, classes), the same as the trained
    model. Its ``classes`` are the names in the order of the logits. Its ``preprocess`` turns image files, or images
    that Pillow has opened, into such images.

    Args:
        reference: A run folder, of which ``RUN@ema`` and ``RUN@best`` name other weights than the last, a folder
            written by ``freeat.export``, or ``hf://NAME@COMMIT`` for such a folder on the Hub (``freeat[hub]``).
        device: Where the model is put: ``cpu``, ``cuda``, ``mps`` or ``auto``.
        trust_code: Whether a model that was built by a user's factory may import it.

    Returns:
        The model in evaluation mode.

    Raises:
        InputError: The folder holds no model or not these weights, a file is damaged or of a newer version, the
            model needs code that is not trusted, or the Hub cannot be reached.

    Example:
        >>> import tempfile, torch, freeat
        >>> from freeat.cli.main import run
        >>> folder = tempfile.mkdtemp() + "/run"
        >>> settings = "--data digits --model linear --algorithm fast --norm l2 --eps 0.5 --updates 2 --final-size 8"
        >>> _ = run(["train", *settings.split(), "--out", folder])  # doctest: +ELLIPSIS
        fast ...
        >>> freeat.load(folder)(torch.rand(2, 1, 8, 8)).shape
        torch.Size([2, 10])
        >>> freeat.load(folder).classes[:3], freeat.load(folder).preprocess.height
        (('0', '1', '2'), 8)
    """
    parsed = Reference.of(reference)
    model, folder = stored_model(parsed, trust_code=trust_code), parsed.folder
    if model is None or folder is None:
        raise InputError(
            f"{reference} is neither an exported model (freeat.json) nor a run folder (run.json): "
            + (
                "name a folder inside it, as `freeat runs` lists them"
                if Path(str(reference)).is_dir()
                else "there is no such folder; `freeat runs` lists the runs"
            )
        )
    if any(hasattr(model, name) for name in ("classes", "preprocess")):  # your own model's attributes stay
        model = nn.Sequential(OrderedDict(model=model)).eval()
    data = folder.description.data
    preprocess = folder.manifest.preprocessing if isinstance(folder, ExportedFolder) else None
    vars(model).update(classes=data.classes, preprocess=preprocess or Preprocessing.of_shape(data.shape))
    return model.to(resolve_device(device))


def stored_model(reference: str | Path | Reference, *, trust_code: bool = False) -> nn.Module | None:
    """The model of a run or exported folder, on the CPU in evaluation mode; None for any other reference."""
    parsed = Reference.of(reference)
    folder = parsed.folder
    if folder is None:
        return None
    description = folder.description
    data = description.data
    weights = folder.weights(parsed.weights or "model")
    model = build_network(
        description.resolved,
        classes=len(data.classes),
        shape=data.shape,
        trust_code=trust_code,
        largest=sum(value.numel() for value in weights.values()),
        pretrained=False,
    )
    if description.chosen.package != (here := package_of(description.resolved)):
        log.warning(
            "%s was trained with %s and is opened with %s: its logits may differ",
            parsed.title,
            description.chosen.package,
            here,
        )
    fill(model, weights, parsed.title)
    return model.eval()


def fill(model: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Put stored weights into the model that they are of; others are refused."""
    own = model.state_dict()
    differing = own.keys() ^ weights.keys() or {
        name for name, value in own.items() if value.shape != weights[name].shape
    }
    if differing:
        raise InputError(
            f"{where}: its weights are not those of its model, {len(differing)} tensors differ, first "
            f"{min(differing)!r}: restore the folder, or train it again"
        )
    with refusing(where, "state dict"):
        model.load_state_dict(weights)


def initial_weights(
    spec: TrainSpec, *, classes: int, shape: tuple[int, int, int], trust_code: bool = False
) -> tuple[TrainSpec, dict[str, Tensor]]:
    """The weights that a spec begins with, under the names of its model, and the spec with their normalization.

    They are those of a run or exported folder, or of any weights file that can be evaluated. A normalization that the
    file holds becomes that of the spec.
    """
    from freeat.models.loading import weights_for
    from freeat.models.normalize import Normalization, Normalize, network_of

    assert spec.init_from is not None
    path = weights_path(spec.init_from)
    parsed = Reference.of(path)
    if parsed.folder is not None:
        return spec, parsed.folder.weights(parsed.weights or "model")
    if path.is_dir():
        raise InputError(f"{path} is neither a run folder (run.json) nor an exported model (freeat.json)")
    if not path.is_file():
        raise InputError(
            f"--init-from {path}: no such file or folder; give a run folder, an exported one, or a weights file"
        )
    bare = build_network(
        replace(spec, normalize=None), classes=classes, shape=shape, trust_code=trust_code, pretrained=False
    )
    network = network_of(bare)
    weights, found = weights_for(network, path)
    given = Normalization.parse(spec.normalize) if spec.normalize else None
    if found is not None and given is not None and not found.same_layer(given):
        raise InputError(f"{path} brings its own normalization ({found}): leave --normalize out")
    normalization = given or found or default_normalization(spec.model)
    if normalization is not None:
        spec = replace(spec, normalize=str(normalization))
    if normalization is None and network is bare:
        return spec, weights
    own = {} if normalization is None else Normalize(normalization).state_dict()
    return spec, {f"normalize.{name}": value for name, value in own.items()} | {
        f"model.{name}": value for name, value in weights.items()
    }


def open_model(
    reference: str | Path | Reference | nn.Module,
    data: DataSet,
    *,
    device: torch.device | str | None = None,
    args: Mapping[str, object] | None = None,
    normalize: str | None = None,
    name: str | None = None,
    trust_code: bool = False,
) -> Opened:
    """The model behind a reference, checked to return logits for the images of ``data``.

    ``args`` are for factories, ``normalize`` for weights files without a normalization. Without a ``device`` a live
    module stays where it is, and any other model is on the CPU.
    """
    if isinstance(reference, nn.Module):
        model, description, made_by, results = reference, None, "", None
    else:
        reference = parsed = Reference.of(reference)
        description = parsed.folder.description if parsed.folder else None
        if (stored := stored_model(parsed, trust_code=trust_code)) is not None:
            model = laid_out_for_evaluation(stored)
        else:
            model = file_model(
                parsed,
                classes=len(data.classes),
                shape=data.shape,
                args=args,
                normalize=normalize,
                trust_code=trust_code,
            )
        spec = description.resolved if description else None
        made_by = _factory(spec.model, spec.model_args) if spec else _factory(parsed.where, args)
        results = _results_folder(parsed)
    if device is not None:
        model = model.to(device)
    title = name or _title(reference)
    try:
        models.check_logits(model, data.shape, len(data.classes), device_and_dtype(model)[0])
    except InputError as error:
        raise InputError(f"{title}: {error}") from error
    return Opened(
        name=title,
        model=model,
        digest=weights_digest(model),
        spec=description.resolved if description else None,
        trained_on=description.data if description else None,
        made_by=made_by,
        results=results,
    )


def _factory(path: str, args: Mapping[str, object] | None) -> str:
    """A factory with its arguments and the digest of its source; empty for a built-in network.

    Of a package's network, the version of the package stands for the source.
    """
    if is_of_package(path):
        from freeat.models.packages import package_version

        return f"{path} {json.dumps(dict(args or {}), sort_keys=True, default=repr)} {package_version(path)}"
    if not is_import_path(path):
        return ""
    return f"{path} {json.dumps(dict(args or {}), sort_keys=True, default=repr)} {source_digest(path)}"


def _results_folder(reference: Reference) -> Path | None:
    """``results`` in a run folder, NAME.results beside an exported folder or a weights file; None if not writable.

    An exported folder stays as it was written. Those of a model of the Hub are in ``exports``, not in the Hub's cache.
    """
    if reference.hub is not None:
        results = Path("exports") / f"{in_file_name(_hub_title(reference.hub))}.results"
    elif isinstance(reference.folder, RunFolder):
        results = reference.folder.path / "results"
    elif reference.folder is not None:
        exported = reference.folder.path.resolve()
        results = exported.with_name(f"{exported.name}.results")
    else:
        file = Path(reference.weights)
        results = file.with_name(f"{file.stem}.results")
    existing = next(path for path in (results.absolute(), *results.absolute().parents) if path.exists())
    return results if os.access(existing, os.W_OK) else None


def _hub_title(hub: HubModel) -> str:
    return f"{hub.name}@{hub.commit[:12]}"


def file_model(
    reference: str | Path | Reference,
    *,
    classes: int,
    shape: tuple[int, int, int],
    args: Mapping[str, object] | None = None,
    normalize: str | None = None,
    trust_code: bool = False,
) -> nn.Module:
    """A network or factory with the weights of a file, for images of ``shape``, on the CPU in evaluation mode."""
    from freeat.models.loading import load_weights

    parsed = Reference.of(reference)
    parsed.check()
    bare = models.build(
        parsed.where, classes=classes, shape=shape, args=args, trust_code=trust_code, pretrained=False
    )
    channels = 3 if is_of_package(parsed.where) else shape[0]
    model = load_weights(bare, parsed.weights, channels=channels)
    if normalize and model is not bare:
        log.warning(
            "%s brings its own normalization; %s is not put in front of it", parsed.weights, normalize
        )
    elif model is bare and (normalize or is_of_package(parsed.where)):
        from freeat.models.normalize import Normalization, Prepared

        chosen = Normalization.parse(normalize) if normalize else default_normalization(parsed.where)
        assert chosen is not None  # a package's network has one
        layer = chosen.layer(channels)
        model = model.normalized(layer) if isinstance(model, Prepared) else nn.Sequential(layer, model)
    return laid_out_for_evaluation(model)


def laid_out_for_evaluation(model: nn.Module) -> nn.Module:
    """The model in evaluation mode, its weights laid out as attacks are fastest."""
    laid_out: nn.Module = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return laid_out.eval()


def _title(reference: str | Path | Reference | nn.Module) -> str:
    return type(reference).__name__ if isinstance(reference, nn.Module) else titles([reference])[0]


def titles(references: Sequence[str | Path | Reference], *, taken: Collection[str] = ()) -> list[str]:
    """A name for every reference: ``seed-0``, or ``free-4/seed-0`` where others end in ``seed-0`` too.

    References to the same weights have the same name, and none has one of those already ``taken``. References that
    no part of a path distinguishes are named by its last part.
    """
    paths = [_path_parts(reference) for reference in references]
    return [_shortest(path, {*paths} - {path}, taken) for path in paths]


def _shortest(path: tuple[str, ...], others: Collection[tuple[str, ...]], taken: Collection[str]) -> str:
    """The shortest end of a path that no other path has."""
    for length in range(1, len(path) + 1):
        title = "/".join(path[-length:])
        if title not in taken and all(path[-length:] != other[-length:] for other in others):
            return title
    return path[-1]


def _path_parts(reference: str | Path | Reference) -> tuple[str, ...]:
    """The parts of the path of a model's weights; which weights of a run folder is written after its last part."""
    parsed = Reference.of(reference)
    if parsed.hub is not None:
        return tuple(_hub_title(parsed.hub).split("/"))
    if parsed.folder is not None:
        path = parsed.folder.path.resolve()
        path = path.with_name(f"{path.name}@{parsed.weights}") if parsed.weights else path
    else:
        file = Path(parsed.weights).absolute()
        path = file.with_name(file.stem)
    return path.relative_to(path.anchor).parts
