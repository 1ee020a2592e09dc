"""A model lent to an attack: in a given mode, its weights frozen, and given back as it was."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torch import nn

from freeat.compute.fusion import folded
from freeat.compute.precision import true_fp32

Mode = Literal["eval", "train"]


@contextmanager
def frozen(model: nn.Module, mode: Mode) -> Iterator[None]:
    """The model in ``mode``, computing gradients for its input only; each layer's own mode is restored."""
    modules = [module for module in model.modules() if module.training != (mode == "train")]
    weights = [p for p in model.parameters() if p.requires_grad]
    for module in modules:
        module.training = mode == "train"
    for p in weights:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for module in modules:
            module.training = mode != "train"
        for p in weights:
            p.requires_grad_(True)


@contextmanager
def lent(model: nn.Module) -> Iterator[None]:
    """The model as an attack wants it: frozen, in evaluation mode, its batch norms folded away, fp32 being fp32."""
    with frozen(model, "eval"), folded(model), true_fp32():
        yield
