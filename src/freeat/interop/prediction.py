"""Classes of images: by the model of a run or exported folder, or by an exported ONNX file alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from freeat.data.preprocessing import Preprocessing, read_image_files
from freeat.data.readers.pixels import is_image
from freeat.errors import InputError, need
from freeat.evaluation.evaluate import check_finite, device_and_dtype
from freeat.files.documents import decoded
from freeat.files.reading import check_regular, parse_json, refusing
from freeat.runs.open import load

BATCH = 64
CLASSES, PREPROCESSING = "freeat.classes", "freeat.preprocessing"
"""The keys of an ONNX file's metadata."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The classes that a model finds most probable for an image, by the softmax of its logits."""

    image: str
    label: str
    probability: float
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """A model with all that it takes to use it."""

    logits: Callable[[Tensor], Tensor]
    classes: tuple[str, ...]
    preprocess: Preprocessing

    def __call__(self, read: Sequence[Path], pixels: Sequence[Tensor], *, top: int = 3) -> list[Prediction]:
        """The classes of images from their pixels, in batches."""
        found = []
        for first in range(0, len(read), BATCH):
            logits = self.logits(torch.cat(list(pixels[first : first + BATCH])))
            check_finite(logits.isfinite().all(-1))
            shares, places = logits.float().softmax(1).cpu().topk(min(top, len(self.classes)))
            for file, row, where in zip(
                read[first : first + BATCH], shares.tolist(), places.tolist(), strict=True
            ):
                best = tuple((self.classes[k], share) for k, share in zip(where, row, strict=True))
                found.append(Prediction(image=str(file), label=best[0][0], probability=best[0][1], top=best))
        return found


def open_predictor(reference: str, *, device: str = "cpu", trust_code: bool = False) -> Predictor:
    """The predictor of a run folder, an exported folder, or an ONNX file that was exported."""
    if reference.endswith(".onnx"):
        return _of_onnx(Path(reference))
    model: Any = load(reference, device=device, trust_code=trust_code)
    where = device_and_dtype(model)[0]

    def logits(x: Tensor) -> Tensor:
        with torch.no_grad():
            out: Tensor = model(x.to(where))
        return out

    return Predictor(logits=logits, classes=model.classes, preprocess=model.preprocess)


def _of_onnx(path: Path) -> Predictor:
    if not path.is_file():
        raise InputError(f"{path}: no such file; write one with `freeat export RUN --onnx`")
    check_regular(path)
    runtime = need("onnxruntime", extra="onnx", what="prediction from ONNX")
    with refusing(path, "ONNX file"):
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        facts = session.get_modelmeta().custom_metadata_map
    if CLASSES not in facts or PREPROCESSING not in facts:
        raise InputError(
            f"{path} does not say its classes and preprocessing: write it again with `freeat export RUN --onnx`"
        )

    where = f"{path}: its metadata"
    classes = decoded(parse_json(facts[CLASSES], where), tuple[str, ...], where)
    preprocess = decoded(parse_json(facts[PREPROCESSING], where), Preprocessing, where)

    def logits(x: Tensor) -> Tensor:
        with refusing(path, "ONNX file of a classifier"):
            (found,) = session.run(["logits"], {"images": x.numpy()})
            return torch.from_numpy(found).view(len(x), len(classes))

    return Predictor(logits=logits, classes=classes, preprocess=preprocess)


def image_files(paths: Sequence[Path]) -> list[Path]:
    """The files among the paths, and the images below the folders among them, by name; hidden ones are left out."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(
                file
                for file in path.rglob("*")
                if is_image(file.name) and file.is_file() and not _is_hidden(file.relative_to(path))
            )
            if not inside:
                raise InputError(f"{path}: a folder without images")
            files += inside
        elif path.exists():
            files.append(path)
        else:
            raise InputError(f"{path}: no such image")
    return files


def _is_hidden(path: Path) -> bool:
    """Whether it, or a folder on the way to it, is hidden: such files are no images of a training folder either."""
    return any(part.startswith(".") for part in path.parts)


def predict(
    reference: str,
    paths: Sequence[Path],
    *,
    top: int = 3,
    skip_unreadable: bool = False,
    device: str = "cpu",
    trust_code: bool = False,
) -> tuple[list[Prediction], list[str]]:
    """The classes of images, and why some of them cannot be read."""
    predictor = open_predictor(reference, device=device, trust_code=trust_code)
    read, pixels, reasons = read_image_files(
        predictor.preprocess, image_files(paths), skip_unreadable=skip_unreadable
    )
    return predictor(read, pixels, top=top), reasons
