"""Frozen eval mode: a model as an attack uses it, with conv–BN fusion by fx trace, restored afterwards.

In evaluation mode a batch norm is an affine map of each channel, so a convolution and the batch norm after it are one
convolution with other weights. The function is the same up to rounding, and the attack reads memory once less
in each direction for every pair.
"""

import copy
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrize

from freeat.compute.precision import true_fp32

Mode = Literal["eval", "train"]
Pairs = list[tuple[nn.Module, nn.Module]]
Parts = list[tuple[nn.Module, bool]]  # every layer inside, and whether it trains

_traced: "WeakKeyDictionary[nn.Module, tuple[Parts, Pairs]]" = WeakKeyDictionary()
_log = logging.getLogger(__name__)


@contextmanager
def frozen(model: nn.Module, mode: Mode) -> Iterator[None]:
    """The model computing gradients for its input only, in evaluation mode or, with ``train``, as each layer is.

    Each layer's own mode is restored.
    """
    modules = [module for module in model.modules() if module.training and mode == "eval"]
    weights = [p for p in model.parameters() if p.requires_grad]
    for module in modules:
        module.training = False
    for p in weights:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for module in modules:
            module.training = True
        for p in weights:
            p.requires_grad_(True)


@contextmanager
def frozen_eval(model: nn.Module) -> Iterator[None]:
    """The model frozen, in evaluation mode, with fused batch norms, and in true fp32."""
    with frozen(model, "eval"), fused(model), true_fp32():
        yield


@contextmanager
def fused(model: nn.Module) -> Iterator[None]:
    """The model with its batch norms fused into the convolutions before them, and restored afterwards.

    Its weights are frozen and it is in evaluation mode; a layer that is not stays as it is.
    """
    pairs = list(_fusable(model))
    weights = [(conv, conv.weight, conv.bias) for conv, _ in pairs]
    try:
        for conv, norm in pairs:
            conv.weight, conv.bias = _fused_weights(conv, norm)
            norm.__dict__["forward"] = _identity
        yield
    finally:
        for conv, weight, bias in weights:
            conv.weight, conv.bias = weight, bias
        for _, norm in pairs:
            norm.__dict__.pop("forward", None)


def _fusable(model: nn.Module) -> Iterator[tuple[nn.Conv2d, nn.BatchNorm2d | nn.SyncBatchNorm]]:
    """The plain convolutions followed by a plain batch norm in evaluation mode, without a hook on either.

    One that shares its statistics with other processes does so in training only.
    """
    for conv, norm in _consecutive(model):
        if type(conv) is nn.Conv2d and type(norm) in (nn.BatchNorm2d, nn.SyncBatchNorm):
            assert isinstance(norm, nn.BatchNorm2d | nn.SyncBatchNorm)
            at_rest = not norm.training and norm.running_mean is not None and not conv.weight.requires_grad
            hooked = any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in (conv, norm))
            plain = "forward" not in norm.__dict__ and not parametrize.is_parametrized(conv)
            if at_rest and plain and not hooked:
                yield conv, norm


@torch.no_grad()
def _fused_weights(
    conv: nn.Conv2d, norm: nn.BatchNorm2d | nn.SyncBatchNorm
) -> tuple[nn.Parameter, nn.Parameter]:
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


def _identity(x: Tensor) -> Tensor:
    return x


def _consecutive(model: nn.Module) -> Pairs:
    """Pairs of layers, each used once, of which only the second takes the output of the first.

    The forward is traced once for a model while its layers and their modes stay the same. One that cannot be
    traced, because what it does depends on values, has no pairs.
    """
    parts = [(module, module.training) for module in model.modules() if module is not model]
    cached = _traced.get(model)
    if cached is None or cached[0] != parts:
        cached = _traced[model] = (parts, _trace(model))
    return cached[1]


def _trace(model: nn.Module) -> Pairs:
    """The pairs of a model, by fx trace."""
    try:
        graph = fx.Tracer().trace(_traceable_copy(model))
    except Exception as error:  # a forward of any model may refuse a symbol in its own way
        _log.debug("the forward of %s cannot be traced: %s", type(model).__name__, error)
        return []
    return list(_pairs(graph, model))


def _traceable_copy(model: nn.Module) -> nn.Module:
    """A copy that shares the tensors: what the forward stores of a symbol reaches neither the model nor its hooks."""
    shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    copied = copy.deepcopy(model, shared)
    for module in copied.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    return copied


def _pairs(graph: fx.Graph, model: nn.Module) -> Iterator[tuple[nn.Module, nn.Module]]:
    layers = {node: model.get_submodule(str(node.target)) for node in graph.nodes if node.op == "call_module"}
    uses = Counter(map(id, layers.values()))
    for node in graph.nodes:  # a weight that the forward reads directly is a use of its layer
        if node.op == "get_attr":
            uses[id(model.get_submodule(str(node.target).rpartition(".")[0]))] += 1
    for second, layer in layers.items():
        first = second.args[0] if second.args else None
        if not isinstance(first, fx.Node) or first not in layers or len(first.users) > 1:
            continue
        if uses[id(layers[first])] == uses[id(layer)] == 1:
            yield layers[first], layer
