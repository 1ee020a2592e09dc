"""Adversarial examples to look at: the image, its perturbation magnified, and what the model was shown."""

from pathlib import Path
from typing import Any

import numpy as np

from freeat.errors import InputError
from freeat.experiments.examples import AdversarialExamples
from freeat.reports.plots import save_figure, styled

ROWS = 8


def draw_examples(path: Path, examples: AdversarialExamples, *, rows: int = ROWS, title: str = "") -> None:
    """A row per image: original, perturbation magnified, adversarial, with true and given labels.

    Shown are the first images that the attack turned from right to wrong; where there are fewer, others follow.
    """
    import matplotlib.pyplot as plt

    shown = chosen(examples, rows)
    with styled(**{"axes.grid": False}):
        figure, axes = plt.subplots(
            len(shown), 3, figsize=(4.2, 1.45 * len(shown) + 0.4), layout="constrained", squeeze=False
        )
        for line, i in zip(axes, shown, strict=True):
            _draw_row(line, examples, i)
        if title:
            figure.suptitle(title, fontsize=10.5)
        save_figure(figure, path)


def chosen(examples: AdversarialExamples, rows: int) -> list[int]:
    """The images to show: first those that the attack turned from right to wrong, then others."""
    turned = examples.turned_wrong
    if not len(turned):
        raise InputError("no adversarial examples to draw: the file holds no images")
    return [int(i) for i in np.argsort(~turned, kind="stable")[:rows]]


def views(examples: AdversarialExamples, i: int) -> list[tuple[np.ndarray, str]]:
    """Image i, its perturbation magnified, and what the model was shown, each with a caption; values in [0, 1].

    An image that the model gets wrong without any perturbation is marked: no attack is needed there.
    """
    x, delta, classes = examples.x[i], examples.delta[i], examples.classes
    largest = float(np.abs(delta).max())
    factor = 0.5 / largest if largest else 1.0
    given = "right" if examples.predicted[i] == examples.y[i] else f"given: {classes[examples.predicted[i]]}"
    true = f"true: {classes[examples.y[i]]}"
    return [
        (_displayable(x), true if examples.clean_correct[i] else f"{true}\n(wrong when clean)"),
        (_displayable(0.5 + factor * delta), f"perturbation × {factor:.3g}"),
        (_displayable(np.clip(x + delta, 0, 1)), given),
    ]


def _draw_row(axes: Any, examples: AdversarialExamples, i: int) -> None:
    for axis, (picture, caption) in zip(axes, views(examples, i), strict=True):
        axis.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axis.set_title(caption, fontsize=8)
        axis.axis("off")


def _displayable(picture: np.ndarray) -> np.ndarray:
    """(C, H, W) as matplotlib and PIL want it: colours last, or one plane where there are not three channels."""
    return np.moveaxis(picture, 0, -1) if len(picture) == 3 else picture.mean(0)
