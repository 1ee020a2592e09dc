"""The robust generalization gap of any PyTorch model, on any two samples."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from freeat.attacks.registry import parse_attack
from freeat.attacks.result import Attack
from freeat.data import DataSet, Images
from freeat.data.samples import Sample, blocks, sample_size
from freeat.errors import InputError
from freeat.evaluation.evaluate import (
    BATCH,
    Evaluation,
    Gap,
    Outcomes,
    Progress,
    device_and_dtype,
    evaluate,
    gap,
    joined,
    same_answer,
)
from freeat.evaluation.statistics import chance_remark
from freeat.models import check_logits
from freeat.rng import layer_rng, stream_key
from freeat.threat import Ball
from freeat.units import radius_text


@dataclass(frozen=True, kw_only=True)
class RobustGap:
    """Clean and robust accuracy of a model on training and test images, and the generalization gaps.

    Args:
        train: accuracies on the training images with 95 % intervals, whole and per class, and the outcome of every
            image.
        test: the same of the test images.
        attack: the name of the attack.
        norm: ``l2`` or ``linf``.
        eps: the radius of the ball.

    Example:
        >>> import freeat, torch
        >>> data = freeat.load_data("digits")
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
        >>> found = freeat.robust_gap(model, data, data, freeat.L2(0.5), attack="pgd-2", size=20)
        >>> found.gap.value == found.train.robust_accuracy - found.test.robust_accuracy
        True
    """

    train: Outcomes
    test: Outcomes
    attack: str
    norm: str
    eps: float

    @property
    def gap(self) -> Gap:
        """Robust training minus robust test accuracy: ``value``, and ``low`` and ``high`` of its 95 % interval."""
        return gap(self.train, self.test)

    @property
    def clean_gap(self) -> Gap:
        """The same of clean accuracy."""
        return gap(self.train, self.test, "clean_accuracy")

    @property
    def constant_answer(self) -> int | None:
        """The class that the model gives to every image, if it does: its gap is then no evidence."""
        return same_answer(self.train, self.test)

    def __str__(self) -> str:
        lines = [f"evaluated by {self.attack}, {self.norm} ε = {radius_text(self.eps)}"]
        for kind, train, test, found in (
            ("robust", self.train.robust_accuracy, self.test.robust_accuracy, self.gap),
            ("clean", self.train.clean_accuracy, self.test.clean_accuracy, self.clean_gap),
        ):
            lines.append(
                f"{kind:<6}  train {train:.1%}   test {test:.1%}   "
                f"gap {found.value:+.1%} [{found.low:+.1%}, {found.high:+.1%}]"
            )
        sizes = (f"{part.n} of {part.population}" for part in (self.train, self.test))
        lines.append("on {} training and {} test images".format(*sizes))
        if self.constant_answer is not None:
            lines.append(chance_remark("the model", 1))
        lines += dict.fromkeys((*self.train.notes, *self.test.notes))
        return "\n".join(lines)


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

    A sample is a loader of (x, y), a pair of tensors, a PyTorch data set, an `Images`, or a `DataSet`, of which the
    split is taken. The model's modes and every global random state are restored.

    Args:
        model: a module from images (b, C, H, W) in [0, 1] to logits, on any device and in any mode; a normalization
            is a part of the model.
        train: the training sample.
        test: the test sample.
        ball: the set Δ of perturbations.
        attack: an attack or its name, such as ``pgd-10``, ``square`` or ``autoattack``.
        size: the number of images of each sample to evaluate, which widens the interval; by default all. They are a
            random sample, with the classes in proportion; of a loader that shuffles, the first that it gives.
        seed: the seed of every draw.
        batch_size: the most images in one pass.
        progress: called with the number of images done, as they are done.

    Returns:
        Both evaluations, and the gaps of robust and of clean accuracy with 95 % intervals.

    Raises:
        InputError: images, labels or the ball do not fit the model, the attack is unknown, ``size`` is below 1, or
            ``size`` is given for a loader without a length.

    Example:
        >>> import freeat, torch
        >>> x, y = torch.rand(8, 3, 4, 4), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3))
        >>> found = freeat.robust_gap(model, (x, y), (x, y), freeat.Linf(8 / 255), attack="pgd-2")
        >>> found.gap.value, found.train.n
        (0.0, 8)
    """
    attack = parse_attack(attack) if isinstance(attack, str) else attack
    samples = {
        "train": train.train if isinstance(train, DataSet) else train,
        "test": test.test if isinstance(test, DataSet) else test,
    }
    if size is not None and size < 1:
        raise InputError(f"size {size}: evaluate at least 1 image of each sample")
    found = {}
    for split, sample in samples.items():
        with _undisturbed(device_and_dtype(model)[0], seed, sample):
            try:
                found[split] = _evaluated(model, sample, ball, attack, size, seed, batch_size, progress)
            except InputError as error:
                raise InputError(f"{split}: {error}") from None
    return RobustGap(**found, attack=attack.name, norm=ball.norm, eps=ball.eps)


def _evaluated(
    model: nn.Module,
    sample: Sample,
    ball: Ball,
    attack: Attack,
    size: int | None,
    seed: int,
    batch_size: int,
    progress: Progress | None,
) -> Outcomes:
    population = sample_size(sample)
    if size is not None and population is None:
        raise InputError(
            f"size {size} of a loader that does not say how many images it has: leave size out, or give a loader "
            "over a data set with a length"
        )
    parts: list[Evaluation] = []
    classes = 0
    for images in blocks(sample, size):
        classes = classes or _classes(model, images, ball)
        _check_labels(images, classes)
        parts.append(
            evaluate(
                model,
                images,
                attack,
                ball,
                classes=classes,
                seed=seed,
                batch_size=batch_size,
                progress=progress,
            )
        )
    return joined(parts, population=population if size is not None else None).outcomes()


def _classes(model: nn.Module, images: Images, ball: Ball) -> int:
    """The number of classes of the model; refuses images and a ball that do not fit it."""
    ball.check(images.shape)
    return check_logits(model, images.shape, None, device_and_dtype(model)[0])


def _check_labels(images: Images, classes: int) -> None:
    if (label := int(images.y.max())) >= classes:
        raise InputError(
            f"label {label} is out of range: the model has logits for classes 0 to {classes - 1}"
        )


@contextmanager
def _undisturbed(device: torch.device, seed: int, sample: Sample) -> Iterator[None]:
    """Loaders shuffle by a random stream of the seed; every global generator is restored afterwards."""
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
