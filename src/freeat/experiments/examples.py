"""Adversarial examples as a file that anybody can read: arrays in an ``.npz``."""

import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from freeat.data import Images
from freeat.errors import InputError
from freeat.evaluation.evaluate import Evaluation
from freeat.files.documents import FORMATS, atomic, check_format, identity_of, in_file_name
from freeat.runs.results import StoredEvaluation

Examples = dict[str, Any]


def examples_path(folder: Path, result: StoredEvaluation) -> Path:
    """Where the adversarial examples of a stored evaluation lie; another evaluation has another place."""
    words = (
        in_file_name(result.model),
        in_file_name(result.attack),
        result.norm,
        f"{result.eps:.5f}",
        result.split,
    )
    return folder / "examples" / f"{'-'.join(words)}-{identity_of(result.identity)[:8]}.npz"


def save_examples(path: Path, images: Images, evaluation: Evaluation, classes: tuple[str, ...]) -> None:
    """The images x, their perturbations δ, their labels, those given to x + δ, and whether x itself was right.

    ``x`` and ``delta`` are (n, C, H, W) float32 with pixels in [0, 1]; x + δ, cut to [0, 1], is what was evaluated.
    """
    x, y = images.to("cpu").batch(evaluation.index.new_tensor(range(len(images))))
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            format=np.int64(FORMATS["examples"]),
            x=x.contiguous().numpy(),
            delta=evaluation.perturbations.float().contiguous().numpy(),
            y=y.numpy(),
            predicted=evaluation.labels.numpy(),
            clean_correct=evaluation.clean_correct.numpy(),
            index=evaluation.index.numpy(),
            classes=np.array(classes),
        )


def load_examples(path: Path) -> Examples:
    """What ``save_examples`` wrote, as arrays by name."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
            number = int(found["format"])
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        raise InputError(
            f"{path} is not a file of adversarial examples ({error}): delete it, and evaluate with --examples again"
        ) from None
    check_format(path, number, FORMATS["examples"])
    return found
