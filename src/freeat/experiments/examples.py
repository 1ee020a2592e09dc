"""Adversarial examples as a file that anybody can read: arrays in an ``.npz``."""

import io
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch

from freeat.data import Augmentation, Images
from freeat.errors import InputError
from freeat.evaluation.evaluate import Evaluation, viewed
from freeat.files.documents import FORMATS, NewerFormat, check_format, identity_of, in_file_name, write_bytes
from freeat.files.npz import read_npz_arrays
from freeat.runs.results import StoredEvaluation


@dataclass(frozen=True, kw_only=True, eq=False)
class AdversarialExamples:
    """The images x, their perturbations δ, their labels, those given to x + δ, and whether x itself was right.

    ``x`` and ``delta`` are (n, C, H, W) float32 with pixels in [0, 1]; x + δ, cut to [0, 1], is what was evaluated.
    """

    x: np.ndarray
    delta: np.ndarray
    y: np.ndarray
    predicted: np.ndarray
    clean_correct: np.ndarray
    index: np.ndarray
    classes: np.ndarray

    def __post_init__(self) -> None:
        n, images = len(np.atleast_1d(self.y)), (self.x, self.delta)
        labels = (self.y, self.predicted, self.clean_correct, self.index)
        if any(one.shape != (n,) or one.dtype.kind not in "iub" for one in labels):
            raise InputError("its labels are not one number per image")
        if any(
            one.ndim != 4 or one.shape != (n, *self.x.shape[1:]) or one.dtype.kind != "f" for one in images
        ):
            raise InputError("its images and perturbations are not of one shape (n, C, H, W)")
        if 0 in self.x.shape[1:] or self.clean_correct.dtype != bool:
            raise InputError("its images have no pixels, or it is not known which were right")
        named = self.classes.ndim == 1 and self.classes.dtype.kind == "U"
        if not named or any(not 0 <= int(k) < len(self.classes) for k in (*self.y, *self.predicted)):
            raise InputError("its labels have no class names")

    @property
    def turned_wrong(self) -> np.ndarray:
        """Which images are classified correctly without the attack only."""
        return np.asarray(self.clean_correct & (self.predicted != self.y))


def examples_path(folder: Path, result: StoredEvaluation) -> Path:
    """The file of the adversarial examples of a stored evaluation; no two evaluations share one."""
    parts = (
        in_file_name(result.model),
        in_file_name(result.attack),
        result.norm,
        f"{result.eps:.5f}",
        result.split,
    )
    return folder / "examples" / f"{'-'.join(parts)}-{identity_of(result.identity)[:8]}.npz"


def save_examples(
    path: Path,
    images: Images,
    evaluation: Evaluation,
    classes: tuple[str, ...],
    *,
    seed: int = 0,
    augment: Augmentation | None = None,
) -> None:
    """Store the adversarial examples of an evaluation of these images, with its seed and augmentation."""
    x, y = viewed(images.to("cpu"), seed, augment, torch.arange(len(images)))
    arrays = io.BytesIO()
    np.savez_compressed(
        arrays,
        format=np.int64(FORMATS["examples"]),
        x=x.contiguous().numpy(),
        delta=evaluation.perturbations.float().contiguous().numpy(),
        y=y.numpy(),
        predicted=evaluation.labels.numpy(),
        clean_correct=evaluation.clean_correct.numpy(),
        index=evaluation.index.numpy(),
        classes=np.array(classes),
    )
    write_bytes(path, arrays.getvalue())


def load_examples(path: Path) -> AdversarialExamples:
    """What ``save_examples`` wrote."""
    try:
        names = [one.name for one in fields(AdversarialExamples)]
        arrays = read_npz_arrays(path, ("format", *names))
        number = arrays.pop("format", None)
        check_format(
            path, int(number) if number is not None and number.size == 1 else None, FORMATS["examples"]
        )
        if missing := [name for name in names if name not in arrays]:
            raise InputError(f"it has no {', '.join(missing)}")
        return AdversarialExamples(**arrays)
    except NewerFormat:
        raise
    except (InputError, ValueError, TypeError) as error:
        raise InputError(
            f"{path} is not a file of adversarial examples ({error}): delete it, and evaluate with --examples again"
        ) from None
