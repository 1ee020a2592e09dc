"""The robust generalization gap of any PyTorch model, on any two samples."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from freeat.attacks.registry import parse_attack
from freeat.attacks.verdict import Attack
from freeat.data import DataSet, Images
from freeat.data.samples import Sample, blocks, sample_size
from freeat.errors import InputError
from freeat.evaluation.batches import home
from freeat.evaluation.evaluate import gap
from freeat.evaluation.measurement import BATCH, Measurement, Progress, joined, measure
from freeat.models import check_logits
from freeat.rng import layer_rng, stream_key
from freeat.threat import Ball


@dataclass(frozen=True, kw_only=True)
class RobustGap:
    """How a model did on training and on test images, clean and attacked, and how far the two part.

    ``train`` and ``test`` hold accuracies with 95 % intervals, whole and per class, as plain numbers.
    """

    train: dict[str, Any]
    test: dict[str, Any]
    attack: str
    norm: str
    eps: float

    @property
    def gap(self) -> dict[str, float]:
        """Robust training minus robust test accuracy: ``value``, and ``low`` and ``high`` of its 95 % interval."""
        return gap(self.train, self.test)

    @property
    def clean_gap(self) -> dict[str, float]:
        """The same of clean accuracy."""
        return gap(self.train, self.test, "clean_accuracy")

    def summary(self) -> dict[str, Any]:
        """Everything as one plain document."""
        return {**asdict(self), "gap": self.gap, "clean_gap": self.clean_gap}

    def __str__(self) -> str:
        lines = [f"judged by {self.attack}, {self.norm} ε = {self.eps:.4g}"]
        for word, difference in (("robust", self.gap), ("clean", self.clean_gap)):
            key = f"{word}_accuracy"
            lines.append(
                f"{word:<6}  train {self.train[key]:.1%}   test {self.test[key]:.1%}   "
                f"gap {difference['value']:+.1%} [{difference['low']:+.1%}, {difference['high']:+.1%}]"
            )
        sizes = (f"{part['n']} of {part['population']}" for part in (self.train, self.test))
        return "\n".join([*lines, "on {} training and {} test images".format(*sizes)])


def robust_gap(
    model: nn.Module,
    train: Sample | DataSet,
    test: Sample | DataSet,
    ball: Ball,
    *,
    attack: Attack | str = "pgd-10",
    size: int | None = None,
    seed: int = 0,
    batch_size: int = BATCH,
    progress: Progress | None = None,
) -> RobustGap:
    """Clean and robust accuracy of ``model`` on both samples, and its robust generalization gap with an interval.

    The model maps images (b, C, H, W) in [0, 1] to logits, on any device and in any mode; a normalization
    belongs into the model. A sample is a loader of (x, y), a pair of tensors, a PyTorch data set, an `Images`,
    or a `DataSet`, which stands for its split. With ``size``, that many images of each are judged, and the interval
    says so. The model's modes and every global random state are afterwards as they were.
    """
    attack = parse_attack(attack) if isinstance(attack, str) else attack
    samples = {
        "train": train.train if isinstance(train, DataSet) else train,
        "test": test.test if isinstance(test, DataSet) else test,
    }
    if size is not None and size < 1:
        raise InputError(f"size {size}: judge at least 1 image of each sample")
    judged = {}
    for split, sample in samples.items():
        with _undisturbed(home(model)[0], seed, sample):
            try:
                judged[split] = _judge(model, sample, ball, attack, size, seed, batch_size, progress)
            except InputError as error:
                raise InputError(f"{split}: {error}") from None
    return RobustGap(**judged, attack=attack.name, norm=ball.norm, eps=ball.eps)


def _judge(
    model: nn.Module,
    sample: Sample,
    ball: Ball,
    attack: Attack,
    size: int | None,
    seed: int,
    batch_size: int,
    progress: Progress | None,
) -> dict[str, Any]:
    population = sample_size(sample)
    if size is not None and population is None:
        raise InputError(
            f"size {size} of a loader that does not say how many images it has: leave size out, or give a loader "
            "over a data set with a length"
        )
    parts: list[Measurement] = []
    classes = 0
    for images in blocks(sample, size):
        classes = classes or _classes(model, images, ball)
        _check_labels(images, classes)
        parts.append(
            measure(
                model,
                images,
                attack,
                ball,
                classes=classes,
                seed=seed,
                batch_size=batch_size,
                progress=progress,
                keep_delta=False,
            )
        )
    return joined(parts, population=population if size is not None else None).summary()


def _classes(model: nn.Module, images: Images, ball: Ball) -> int:
    """The number of classes the model tells apart; refuses images and a ball that do not fit it."""
    ball.check(images.shape)
    return check_logits(model, images.shape, None, home(model)[0])


def _check_labels(images: Images, classes: int) -> None:
    if (label := int(images.y.max())) >= classes:
        raise InputError(
            f"label {label} is out of range: the model has logits for classes 0 to {classes - 1}"
        )


@contextmanager
def _undisturbed(device: torch.device, seed: int, sample: Sample) -> Iterator[None]:
    """Loaders shuffle by a stream of their own; outside, no generator has moved."""
    own = getattr(sample, "generator", None)
    before = own.get_state() if own is not None else None
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with layer_rng(device, stream_key(seed, "loader")):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        if own is not None and before is not None:
            own.set_state(before)
