"""From a name to a model whose weights are a pure function of the seed."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn

from freeat.errors import InputError
from freeat.models.imported import call_factory, find_factory, is_import_path
from freeat.models.names import parse
from freeat.models.normalize import Normalization
from freeat.rng import stream_key


def build(
    name: str,
    *,
    classes: int,
    shape: tuple[int, int, int],
    args: Mapping[str, object] | None = None,
    normalize: Normalization | None = None,
    seed: int = 0,
    trust_code: bool = False,
) -> nn.Module:
    """The model ``name`` for images of ``shape`` (C, H, W), on the CPU, in float32.

    ``name`` follows the grammar of ``freeat.models.names``, or is an import path ``package.module:factory``.
    A factory is called with ``args`` and nothing else, and only with ``trust_code``; its weights follow the
    seed as far as it draws them from torch's CPU generator.
    """
    _check_problem(classes, shape)
    if is_import_path(name):
        factory = find_factory(name, trust_code=trust_code)
        make = partial(call_factory, name, factory, args or {})
    elif args:
        raise InputError(
            f"model {name!r} takes no arguments, but was given {dict(args)}: its variants are suffixes "
            "of its name (see `freeat models`); arguments are for package.module:factory"
        )
    else:
        make = partial(parse(name).network, classes=classes, shape=shape)
    with seeded(seed, "initial weights"):
        model = make()
    model = model.to("cpu", torch.float32)
    if normalize is None:
        return model
    return nn.Sequential(OrderedDict(normalize=normalize.layer(shape[0]), model=model))


@contextmanager
def seeded(seed: int, purpose: str) -> Iterator[None]:
    """Inside, modules are made on the CPU, in float32, from a stream of their own; outside, nothing changes.

    Initializers read torch's global CPU generator, so it is saved and restored. ``torch.manual_seed`` would
    reseed the generators of the accelerators too.
    """
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(stream_key(seed, purpose))
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


def parameter_count(model: nn.Module) -> int:
    """How many numbers training may change."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def size(name: str, *, classes: int = 10, shape: tuple[int, int, int] = (3, 32, 32)) -> int:
    """The parameter count of a named network, found without allocating it."""
    _check_problem(classes, shape)
    with torch.device("meta"):
        return parameter_count(parse(name).network(classes=classes, shape=shape))


def _check_problem(classes: int, shape: tuple[int, int, int]) -> None:
    if classes < 2:
        raise InputError(f"a classifier for {classes} classes: give at least 2")
    if len(shape) != 3 or min(shape) < 1:
        raise InputError(f"images of shape {tuple(shape)}: give (channels, height, width), all at least 1")
