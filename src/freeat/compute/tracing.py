"""Which layer feeds which, read from the model's own forward."""

import copy
import logging
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from weakref import WeakKeyDictionary

from torch import fx, nn

Pairs = list[tuple[nn.Module, nn.Module]]
Parts = list[tuple[nn.Module, bool]]  # every layer inside, and whether it trains

_read: "WeakKeyDictionary[nn.Module, tuple[Parts, Pairs]]" = WeakKeyDictionary()
_log = logging.getLogger(__name__)


def consecutive(model: nn.Module) -> Pairs:
    """Layers of which the second takes the output of the first and nobody else does, each used once.

    The forward is followed symbolically, once for a model while its layers and their modes stay the same. One that
    cannot be followed, because what it does depends on the values it sees, has no pairs that could be vouched for.
    """
    parts = [(module, module.training) for module in model.modules() if module is not model]
    known = _read.get(model)
    if known is None or known[0] != parts:
        known = _read[model] = (parts, _pairs(model))
    return known[1]


def _pairs(model: nn.Module) -> Pairs:
    try:
        graph = fx.Tracer().trace(_understudy(model))
    except Exception as error:  # the forward is anybody's code, and may refuse a symbol in its own way
        _log.debug("the forward of %s cannot be followed: %s", type(model).__name__, error)
        return []
    return list(_of_graph(graph, model))


def _understudy(model: nn.Module) -> nn.Module:
    """A copy that shares the tensors: whatever the forward notes down of a symbol, neither model nor hooks see it."""
    shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    understudy = copy.deepcopy(model, shared)
    for module in understudy.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    return understudy


def _of_graph(graph: fx.Graph, model: nn.Module) -> Iterator[tuple[nn.Module, nn.Module]]:
    layers = {node: model.get_submodule(str(node.target)) for node in graph.nodes if node.op == "call_module"}
    uses = Counter(map(id, layers.values()))
    for node in graph.nodes:  # a weight that is read by hand is a use of its layer
        if node.op == "get_attr":
            uses[id(model.get_submodule(str(node.target).rpartition(".")[0]))] += 1
    for second, layer in layers.items():
        first = second.args[0] if second.args else None
        if not isinstance(first, fx.Node) or first not in layers or len(first.users) > 1:
            continue
        if uses[id(layers[first])] == uses[id(layer)] == 1:
            yield layers[first], layer
