"""Transferred attacks: perturbations made on one model, applied to others."""

import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from freeat.attacks.measurement import BATCH, Measurement, Progress, home, labels, measure
from freeat.attacks.verdict import Attack
from freeat.data import Images
from freeat.freezing import lent
from freeat.learner import Passes
from freeat.threat import Ball


def apply_to(
    target: nn.Module,
    images: Images,
    delta: Tensor,
    ball: Ball,
    *,
    classes: int,
    population: int | None = None,
    batch_size: int = BATCH,
) -> Measurement:
    """What perturbations δ of these images, made elsewhere, do to a model."""
    device, dtype = home(target)
    images = images.to(device)
    clean, predicted = [], []
    began = time.perf_counter()
    with lent(target):
        for rows in torch.split(torch.arange(len(images)), batch_size):
            x, _ = images.batch(rows)
            x = x.to(dtype)
            clean.append(labels(target, x, torch.zeros_like(x), ball).cpu())
            predicted.append(labels(target, x, delta[rows].to(x), ball).cpu())
    y = images.y.cpu()
    return Measurement(
        index=images.index.cpu(),
        y=y,
        clean_correct=torch.cat(clean) == y,
        robust_correct=torch.cat(predicted) == y,
        predicted=torch.cat(predicted),
        delta=None,
        queries=None,
        passes=Passes(forward=2 * len(images)),
        seconds=time.perf_counter() - began,
        notes=(),
        classes=classes,
        population=population or len(images),
    )


def transfer(
    source: nn.Module,
    targets: Sequence[nn.Module],
    images: Images,
    attack: Attack,
    ball: Ball,
    *,
    classes: int,
    seed: int = 0,
    population: int | None = None,
    batch_size: int = BATCH,
    progress: Progress | None = None,
) -> Iterator[Measurement]:
    """Each target's fate under the perturbations of one source, which are computed once.

    Use an attack judged at its last iterate: one that stops at the first iterate that fools the source has
    perturbations that barely do, and those transfer badly.
    """
    made = measure(
        source, images, attack, ball, classes=classes, seed=seed, batch_size=batch_size, progress=progress
    )
    assert made.delta is not None
    for target in targets:
        yield apply_to(
            target, images, made.delta, ball, classes=classes, population=population, batch_size=batch_size
        )
