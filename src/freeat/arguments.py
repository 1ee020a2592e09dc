"""Arguments of the Python interface, refused with a remedy where they are of another kind than is needed."""

import torch
from torch import Tensor, nn

from freeat.errors import InputError, wrong_type
from freeat.threat import Ball


def check_model(model: object) -> None:
    """A module that has something to train."""
    if not isinstance(model, nn.Module):
        raise wrong_type("model", model, "pass a torch.nn.Module, built and not its class or name")
    if next(model.parameters(), None) is None:
        raise InputError(f"model is a {type(model).__name__} without parameters: there is nothing to train")


def check_optimizer(optimizer: object) -> None:
    """A torch optimizer, or one that a framework has wrapped."""
    if not hasattr(optimizer, "param_groups"):
        remedy = "pass a torch optimizer, such as torch.optim.SGD(model.parameters(), lr=0.1)"
        raise wrong_type("optimizer", optimizer, remedy)


def check_ball(ball: object) -> None:
    """A ball, not a bare radius."""
    if not isinstance(ball, Ball):
        remedy = "pass a ball with its radius, such as freeat.Linf(8/255) or freeat.L2(0.5)"
        raise wrong_type("ball", ball, remedy)


def check_attack(attack: object) -> None:
    """An attack, not its name or class."""
    if isinstance(attack, type) or not callable(attack):
        raise wrong_type("attack", attack, "pass an attack, such as freeat.Pgd(steps=10)")


def check_batch(x: Tensor, box: tuple[float, float] | None) -> None:
    """A batch of images as floats, with their pixels in the box; None looks at no pixel."""
    if x.ndim < 4 or not x.is_floating_point():
        raise InputError(
            f"a batch of shape {tuple(x.shape)} and type {x.dtype}: give images (b, C, H, W) as floats, bytes as x/255"
        )
    if box is None or x.is_meta or not x.numel():
        return
    low, high = (float(v) for v in torch.aminmax(x.detach()))
    if not (low >= box[0] and high <= box[1]):  # NaN fails both comparisons
        raise InputError(
            f"pixels between {low:g} and {high:g}, but the ball's box is [{box[0]:g}, {box[1]:g}]: scale the images "
            "into it and put a normalization inside the model, or give the ball box=None"
        )
