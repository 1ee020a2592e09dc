"""What a white-box attack ascends: cross-entropy, the margin (CW) or the difference-of-logits ratio (DLR)."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from freeat.objectives import cross_entropy

LossName = Literal["ce", "margin", "dlr"]
LOSS_NAMES: tuple[str, ...] = get_args(LossName)
LogitLoss = Callable[[Tensor, Tensor], Tensor]  # logits (b, classes) and labels (b,) to one value each
DLR_CLASSES = 4


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """max_{k≠y} z_k − z_y of each image: positive where the model is wrong (Carlini and Wagner's loss)."""
    label = y.unsqueeze(-1)
    others = logits.scatter(-1, label, -torch.inf).amax(-1)
    return others - logits.gather(-1, label).squeeze(-1)


def dlr(logits: Tensor, y: Tensor) -> Tensor:
    """(max_{k≠y} z_k − z_y) / (z_(1) − z_(3)), z sorted downwards: the margin, whatever the scale of the logits."""
    top = logits.topk(3, dim=-1).values
    spread = top[..., 0] - top[..., 2]
    return margin(logits, y) / spread.clamp_min(torch.finfo(logits.dtype).tiny)


LOSSES: dict[str, LogitLoss] = {"ce": cross_entropy, "margin": margin, "dlr": dlr}


def defined_loss(name: LossName, classes: int) -> tuple[LossName, tuple[str, ...]]:
    """The loss that can be meant with so many classes, and a sentence where it is not the one asked for."""
    if name == "dlr" and classes < DLR_CLASSES:
        return "margin", (f"DLR is undefined with {classes} classes; the margin loss was used instead",)
    return name, ()
