"""Batch norms folded into the convolutions before them, while a frozen model is attacked.

In evaluation mode a batch norm is an affine map of each channel, so a convolution and the batch norm after it are one
convolution with other weights. The function is the same up to rounding, and the attack saves a walk through memory
in each direction for every pair.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from freeat.compute.tracing import consecutive


@contextmanager
def folded(model: nn.Module) -> Iterator[None]:
    """The model with its foldable batch norms folded away, and given back as it was.

    Its weights are frozen and it is in evaluation mode; a layer that is not stays as it is.
    """
    pairs = list(_foldable(model))
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


def _foldable(model: nn.Module) -> Iterator[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """The plain convolutions followed by a plain batch norm at rest, with nobody looking at what is between."""
    for conv, norm in consecutive(model):
        if type(conv) is nn.Conv2d and type(norm) is nn.BatchNorm2d:
            at_rest = not norm.training and norm.running_mean is not None and not conv.weight.requires_grad
            watched = any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in (conv, norm))
            plain = "forward" not in norm.__dict__ and not parametrize.is_parametrized(conv)
            if at_rest and plain and not watched:
                yield conv, norm


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
