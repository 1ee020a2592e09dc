"""A run's model, exported: the folder is written whole or not at all."""

import re
from dataclasses import fields
from pathlib import Path

from freeat.data.catalogue import find_source
from freeat.errors import InputError
from freeat.evaluation.evaluator import Scores
from freeat.files.documents import sha256, whole_folder, write_document, write_text
from freeat.files.tensors import save_tensors
from freeat.interop.card import model_card
from freeat.interop.onnx_file import write_onnx
from freeat.models.imported import is_import_path
from freeat.runs.build import weights_digest
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
    description, scores = folder.description, _scores(folder, weights)
    stored = stored_model(f"{folder.path}@{weights}", trust_code=trust_code)
    assert stored is not None  # described above, so it is there
    digest, source = weights_digest(stored.model), find_source(description.data.name)
    with whole_folder(target) as place:
        save_tensors(place / WEIGHTS, stored.model.state_dict(), {"run": description.identity})
        converted: OnnxFacts | None = None
        if onnx:
            error = write_onnx(stored.model, place / ONNX, stored.shape)
            converted = OnnxFacts(sha256=sha256(place / ONNX), largest_difference=error)
        manifest = Manifest(
            name=name,
            run=description,
            weights=ExportedWeights(
                which=weights,
                update=folder.weights_update(weights),
                digest=digest,
                sha256=sha256(place / WEIGHTS),
            ),
            scores=scores,
            further=_further(folder, digest),
            collapsed=bool(folder.result and folder.result.collapsed),
            needs_code=is_import_path(description.spec.model),
            licence=source.licence if source else None,
            onnx=converted,
        )
        write_document(place / MANIFEST, "export", manifest)
        write_text(place / CARD, model_card(manifest))
    return target


def _name(run: Path) -> str:
    """The run's folder; of one of several seeds also what they are seeds of, so that no two exports share a name."""
    return f"{run.parent.name}-{run.name}" if re.fullmatch(r"seed-\d+", run.name) else run.name


def _further(folder: RunFolder, digest: str) -> tuple[FurtherEvaluation, ...]:
    """What ``freeat evaluate`` found of the weights with this digest on the run's own test images.

    Of one attack at one radius, the evaluation on the most images.
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
    """The evaluation that belongs to these weights: of the last, the averaged, or those best on validation."""
    result = folder.result
    if result is None:
        raise InputError(f"{folder.path} has not finished: run its command again, then export it")
    if weights == "best":
        best = [record for record in folder.history() if record.best]
        if not best:
            raise InputError(f"{folder.path} has no best weights: train with --validation 0.1, say")
        return _bare(best[-1])
    return result.ema if weights == "ema" and result.ema is not None else _bare(result)


def _bare(record: Scores) -> Scores:
    """The scores of a record, without the rest of it."""
    return Scores(**{field.name: getattr(record, field.name) for field in fields(Scores)})
