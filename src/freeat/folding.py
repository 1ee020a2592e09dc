"""Batch norms folded into the convolutions before them, while a frozen model is attacked.

In evaluation mode a batch norm is an affine map of each channel, so a convolution and the batch norm after it are one
convolution with other weights. The function is the same up to rounding, and the attack saves a walk through memory
in each direction for every pair.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


@contextmanager
def folded(model: nn.Module) -> Iterator[None]:
    """The model with its foldable batch norms folded away, and given back as it was.

    Its weights are frozen and it is in evaluation mode; a layer that is not stays as it is.
    """
    pairs = [pair for pair in _pairs(model) if _may_fold(*pair)]
    weights = [(conv, conv.weight, conv.bias) for conv, _ in pairs]
    try:
        for conv, norm in pairs:
            conv.weight, conv.bias = _folded_weights(conv, norm)
            norm.__dict__["forward"] = _same
        yield
    finally:
        for conv, weight, bias in weights:
            conv.weight, conv.bias = weight, bias
        for _, norm in pairs:
            norm.__dict__.pop("forward", None)


def _pairs(model: nn.Module) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Modules of which the second takes the output of the first and nobody else does.

    That is plain in ``nn.Sequential``; a block whose forward says it tells of it by its ``folds``.
    """
    for module in model.modules():
        if type(module) is nn.Sequential:
            yield from pairwise(module)
        for first, second in getattr(type(module), "folds", ()):
            yield getattr(module, first), getattr(module, second)


def _may_fold(conv: nn.Module, norm: nn.Module) -> bool:
    """Whether these are a plain convolution and a plain batch norm at rest, and nobody looks at what is between."""
    if type(conv) is not nn.Conv2d or not isinstance(norm, nn.BatchNorm2d | nn.SyncBatchNorm):
        return False
    at_rest = not norm.training and norm.running_mean is not None and not conv.weight.requires_grad
    hooked = any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in (conv, norm))
    plain = "forward" not in norm.__dict__ and not parametrize.is_parametrized(conv)
    return at_rest and plain and not hooked


@torch.no_grad()
def _folded_weights(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[nn.Parameter, nn.Parameter]:
    """The weights and the bias of the one convolution that does what both do."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale: Tensor = torch.rsqrt(norm.running_var + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight
    bias = -norm.running_mean if conv.bias is None else conv.bias - norm.running_mean
    bias = bias * scale
    if norm.bias is not None:
        bias = bias + norm.bias
    weight = conv.weight * scale[:, None, None, None]
    return nn.Parameter(weight, requires_grad=False), nn.Parameter(bias, requires_grad=False)


def _same(x: Tensor) -> Tensor:
    return x
