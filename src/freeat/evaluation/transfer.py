"""Transferred attacks: perturbations made on one model, applied to another."""

import time

import torch
from torch import Tensor, nn

from freeat.attacks.autoattack import Fab, PyAutoAttack
from freeat.attacks.result import Attack
from freeat.compute import Cost
from freeat.compute.frozen import frozen_eval
from freeat.data import Augmentation, Images
from freeat.errors import InputError
from freeat.evaluation.evaluate import (
    BATCH,
    Evaluation,
    check_finite,
    concatenated,
    image_batches,
    inconsistencies,
    logits_of,
)
from freeat.threat import Ball


def weakness(attack: Attack) -> tuple[str, ...]:
    """What a report must say of this attack's transferred perturbations; refuses an attack that returns none."""
    if isinstance(attack, Fab | PyAutoAttack):
        raise InputError(
            f"{attack.name} gives no perturbation for an image it could not fool, and its transfers would look "
            "harmless: make them by PGD evaluated at its last iterate, e.g. --attack pgd-50 --iterate last"
        )
    if getattr(attack, "iterate", "worst") == "last":
        return ()
    return (
        f"{attack.name} stops at the first perturbation that fools its source, which barely does: these transfers are "
        "weaker than those of an attack that takes all its steps (PGD with --iterate last).",
    )


def apply_to(
    target: nn.Module,
    images: Images,
    made: Evaluation,
    ball: Ball,
    *,
    seed: int = 0,
    augment: Augmentation | None = None,
    batch_size: int = BATCH,
) -> Evaluation:
    """The evaluation of ``target`` under the perturbations of these images that were made on another model.

    They should come from an attack evaluated at its last iterate: the first iterate that fools the source barely
    does, and transfers badly. ``seed`` and ``augment`` are those they were made with. The notes of the attack are kept.
    A target whose logits are NaN or infinite is refused; one whose logits are no function of the image is noted.
    """
    found = []
    finite: list[Tensor] = []
    notes = dict.fromkeys(made.notes)
    began = time.perf_counter()
    with frozen_eval(target):
        for batch in image_batches(target, images, batch_size, seed=seed, augment=augment):
            x, y = batch.x, batch.y
            logits = logits_of(target, x)
            perturbed = logits_of(target, ball.apply(x, made.perturbations[batch.rows].to(x)))
            if not finite:
                notes |= dict.fromkeys(inconsistencies(target, x, logits))
            finite.append((logits.isfinite() & perturbed.isfinite()).all(-1))
            clean, predicted = logits.argmax(-1), perturbed.argmax(-1)
            columns = {
                "clean_predicted": clean,
                "clean_correct": clean == y,
                "robust_correct": predicted == y,
                "predicted": predicted,
            }
            found.append({name: column.cpu() for name, column in columns.items()})
    check_finite(torch.cat(finite))
    return Evaluation(
        index=images.index.cpu(),
        y=images.y.cpu(),
        **concatenated(found),
        cost=Cost(forward_passes=2 * len(images)),
        seconds=time.perf_counter() - began,
        notes=tuple(notes),
        classes=made.classes,
        population=made.population,
    )
