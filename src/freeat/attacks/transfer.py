"""Transferred attacks: perturbations made on one model, applied to another."""

import time

import torch
from torch import nn

from freeat.attacks.measurement import BATCH, Measurement, labels, measurement_of
from freeat.data import Images
from freeat.freezing import lent
from freeat.judged_batches import Columns, home, judged_batches
from freeat.learner import Passes
from freeat.threat import Ball


def apply_to(
    target: nn.Module, images: Images, made: Measurement, ball: Ball, *, batch_size: int = BATCH
) -> Measurement:
    """What the perturbations of these images that were made on another model do to this one.

    Make them with an attack judged at its last iterate: one that stops at the first iterate that fools its model
    has perturbations that barely do, and those transfer badly.
    """
    images = images.to(home(target)[0])
    found = Columns()
    began = time.perf_counter()
    with lent(target):
        for batch in judged_batches(target, images, batch_size):
            x, y = batch.x, batch.y
            clean = labels(target, x, torch.zeros_like(x), ball)
            predicted = labels(target, x, made.perturbations[batch.rows].to(x), ball)
            found.add(clean_correct=clean == y, robust_correct=predicted == y, predicted=predicted)
    return measurement_of(
        images,
        found,
        passes=Passes(forward=2 * len(images)),
        seconds=time.perf_counter() - began,
        classes=made.classes,
        population=made.population,
    )
