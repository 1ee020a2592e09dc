"""Export of a run's model to a folder, which is written completely or not at all."""

import logging
import re
from dataclasses import fields
from pathlib import Path

import torch
from torch import nn

from freeat.data import Images
from freeat.data.catalogue import find_source
from freeat.data.preprocessing import Preprocessing
from freeat.errors import InputError
from freeat.evaluation.evaluate import check_finite, inconsistencies, logits_of
from freeat.evaluation.evaluator import Scores
from freeat.files.documents import atomic_folder, plain, sha256, to_json, write_document, write_text
from freeat.files.hub import HubModel, check_push, push
from freeat.files.tensors import save_tensors
from freeat.interop.card import model_card
from freeat.interop.onnx_file import write_onnx
from freeat.interop.prediction import CLASSES, PREPROCESSING
from freeat.models.imported import is_import_path
from freeat.runs.build import build_data, weights_digest
from freeat.runs.folder import RunFolder
from freeat.runs.open import (
    CARD,
    MANIFEST,
    ONNX,
    WEIGHTS,
    ExportedFolder,
    ExportedWeights,
    FurtherEvaluation,
    Manifest,
    OnnxFacts,
    stored_model,
)
from freeat.runs.results import RESULTS, Results

log = logging.getLogger(__name__)

CHECKED_IMAGES = 1000
"""Test images on which an exported model must have an answer, at most."""
ROBUSTBENCH = ("robustbench.json", "robustbench.md")
RANDOM_IMAGES = 64
"""Random images where the run's data are not here."""
BATCH = 100


def export(
    run: str | Path,
    out: str | Path | None = None,
    *,
    weights: str = "model",
    onnx: bool = False,
    robustbench: bool = False,
    trust_code: bool = False,
) -> Path:
    """Write the model of a finished run to a folder: safetensors, a manifest, a model card, on request ONNX.

    ``freeat.load`` reads the folder. It is written completely or not at all.

    Args:
        run: The run folder.
        out: The folder to write; by default ``exports/`` and the name of the run. An earlier export there is replaced.
        weights: ``"model"`` (the last), ``"ema"`` (the averaged), ``"slow"`` (of proximal training or SWA) or
            ``"best"`` (best on validation images).
        onnx: Also write ``model.onnx``, and compare its logits with the model's (needs ``freeat[onnx]``).
        robustbench: Also write a claim for RobustBench's leaderboard: ``robustbench.json`` and the text of its form.
        trust_code: Allow importing the run's model where it is your own code (``package.module:factory``).

    Returns:
        The folder that was written.

    Raises:
        InputError: The run is not finished, it has no such weights, ``out`` exists and is no export, the model's code
            is not trusted, or ONNX is not installed or gives other logits.

    Example:
        >>> import freeat
        >>> from freeat.cli.main import run
        >>> command = "train --model linear --algorithm fast --norm l2 --eps 0.3 --updates 4 --out runs/fast"
        >>> run(command.split())  # doctest: +ELLIPSIS
        fast after 4 updates, evaluated by pgd-10 ...
        0
        >>> folder = freeat.export("runs/fast", "exports/fast")
        >>> sorted(path.name for path in folder.iterdir())
        ['README.md', 'freeat.json', 'model.safetensors']
    """
    folder = RunFolder(Path(run))
    name = _name(folder.path.resolve()) + ("" if weights == "model" else f"-{weights}")
    target = Path("exports") / name if out is None else Path(out)
    if target.exists() and not ExportedFolder(target).exists:
        raise InputError(
            f"{target} exists and is not an exported model: choose another --out; nothing was touched"
        )
    description, scores = folder.description, _scores(folder, weights)
    model = stored_model(f"{folder.path}@{weights}", trust_code=trust_code)
    assert model is not None  # the folder has a description
    notes = _check_answers(model, folder)
    digest, source = weights_digest(model), find_source(description.data.name)
    preprocessing = Preprocessing.of_shape(description.data.shape)
    with atomic_folder(target) as unfinished:
        save_tensors(unfinished / WEIGHTS, model.state_dict(), {"run": description.identity})
        converted: OnnxFacts | None = None
        if onnx:
            facts = {
                CLASSES: to_json(description.data.classes, ensure_ascii=False),
                PREPROCESSING: to_json(plain(preprocessing), ensure_ascii=False),
            }
            error = write_onnx(model, unfinished / ONNX, description.data.shape, facts)
            converted = OnnxFacts(sha256=sha256(unfinished / ONNX), largest_difference=error)
        manifest = Manifest(
            name=name,
            run=description,
            weights=ExportedWeights(
                which=weights,
                update=folder.weights_update(weights),
                digest=digest,
                sha256=sha256(unfinished / WEIGHTS),
            ),
            scores=scores,
            further=_further(folder, digest),
            collapsed=bool(folder.result and folder.result.collapsed),
            needs_code=is_import_path(description.resolved.model),
            licence=source.licence if source else None,
            preprocessing=preprocessing,
            onnx=converted,
            notes=notes,
        )
        write_document(unfinished / MANIFEST, "export", manifest)
        write_text(unfinished / CARD, model_card(manifest))
        if robustbench:
            from freeat.interop.robustbench import robustbench_claim

            claim, form = robustbench_claim(manifest)
            write_text(unfinished / ROBUSTBENCH[0], to_json(plain(claim), ensure_ascii=False) + "\n")
            write_text(unfinished / ROBUSTBENCH[1], form)
    return target


def push_export(folder: str | Path, name: str, *, private: bool = False) -> HubModel:
    """Push an exported folder to the Hugging Face Hub as one commit, which is returned.

    Args:
        folder: The exported folder.
        name: ``OWNER/NAME`` on the Hub. It is made if it is not there; an earlier export there is replaced.
        private: Make a new model private.

    Raises:
        InputError: The folder is no export, the name is wrong or that of something else, no user is logged in, or the
            Hub cannot be reached.
    """
    exported = ExportedFolder(Path(folder))
    if not exported.exists:
        raise InputError(f"{folder} is not an exported model: write one with `freeat export RUN`")
    check_push(name, marker=MANIFEST)
    return push(exported.path, name, replaced=(ONNX, *ROBUSTBENCH), private=private)


def _check_answers(model: nn.Module, folder: RunFolder) -> tuple[str, ...]:
    """Refuse a model that has no answer for some of the run's test images; for random ones where those are not here.

    Returns warnings about answers that are no function of the image.
    """
    description = folder.description
    try:
        data = build_data(description.resolved)
        folder.check_data(data)
    except InputError as error:
        log.warning("the exported model is checked on %d random images only: %s", RANDOM_IMAGES, error)
        shape = description.data.shape
        x = torch.rand(RANDOM_IMAGES, *shape, generator=torch.Generator().manual_seed(0))
        images = Images(x=x, y=torch.zeros(len(x), dtype=torch.int64), index=torch.arange(len(x)))
        which = "random images"
    else:
        images = data.test.sample(CHECKED_IMAGES)
        which = f"test images of {data.name}"
    rows = torch.split(torch.arange(len(images)), BATCH)
    finite = torch.cat([logits_of(model, images.batch(some)[0]).isfinite().all(-1) for some in rows])
    check_finite(finite, which)
    log.info("the exported model has finite logits on %d %s", len(finite), which)
    x = images.batch(rows[0])[0]
    notes = tuple(inconsistencies(model, x, logits_of(model, x)))
    for note in notes:
        log.warning("%s", note)
    return notes


def _name(run: Path) -> str:
    """The name of the run folder; for one of several seeds with its parent's, so that no two exports share a name."""
    return f"{run.parent.name}-{run.name}" if re.fullmatch(r"seed-\d+", run.name) else run.name


def _further(folder: RunFolder, digest: str) -> tuple[FurtherEvaluation, ...]:
    """Stored evaluations of the weights with this digest on the run's own test images.

    For each attack and radius it is the evaluation on the most images.
    """
    stored = Results(folder.path / RESULTS).evaluations(kind="evaluation", weights=digest, split="test")
    names = [field.name for field in fields(FurtherEvaluation)]
    rows = [
        FurtherEvaluation(**{name: getattr(one, name) for name in names})
        for one in stored
        if one.data_digest == folder.data_digest
    ]
    rows.sort(key=lambda row: row.n)
    most = {(row.attack, row.iterate, row.norm, row.eps): row for row in rows}
    return tuple(sorted(most.values(), key=lambda row: (row.norm, row.eps, row.robust_accuracy)))


def _scores(folder: RunFolder, weights: str) -> Scores:
    """The evaluation of these weights: the last, the averaged, the slow, or the best on validation images."""
    result = folder.result
    if result is None:
        raise InputError(f"{folder.path} has not finished: run its command again, then export it")
    if weights == "best":
        best = [record for record in folder.history() if record.best]
        if not best:
            raise InputError(f"{folder.path} has no best weights: train with --validation 0.1, say")
        return _bare(best[-1])
    scores: Scores | None = None if weights == "model" else getattr(result, weights, None)
    return _bare(result) if scores is None else scores


def _bare(record: Scores) -> Scores:
    """The scores of a record, without the rest of it."""
    return Scores(**{field.name: getattr(record, field.name) for field in fields(Scores)})
