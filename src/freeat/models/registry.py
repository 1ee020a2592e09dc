"""Networks by name, and models whose initial weights are a function of the seed.

A name is a base and any number of suffixes, in any order and any case::

    name    =  base { "-" suffix }
    base    =  resnet18 | resnet34 | resnet50 | preact-resnet18 | preact-resnet34 | wrn<depth>-<widen>
               | vgg11 | vgg13 | vgg16 | vgg19 | cnn | mlp | linear
    suffix  =  w<width>                      channels of the first stage (hidden units of the mlp)
               | s2 | s4                     a stem of stride 2 or 4: a quarter or a sixteenth of the work
               | bn | gn | nonorm            batch norm (as published), group norm, no norm
               | relu | softplus | silu      the activation

``resnet18-w16-s2`` is a ResNet-18 a quarter as wide behind a strided stem, ``wrn16-4`` a WRN-16-4. A suffix
that states a default is dropped from the canonical name: ``resnet18-bn-w64`` is ``resnet18``. The width
of a Wide-ResNet is part of its base. A new network is one function of a ``NetworkConfig`` and one line of ``_BASES``.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from freeat.errors import InputError, unknown_name
from freeat.models.imported import call_factory, find_factory, is_import_path, is_of_package
from freeat.models.networks import (
    Activation,
    BasicBlock,
    Bottleneck,
    Layers,
    NetworkConfig,
    Norm,
    cnn,
    linear,
    mlp,
    preact_resnet,
    resnet,
    vgg,
    wide_resnet,
)
from freeat.rng import layer_rng, stream_key

if TYPE_CHECKING:
    from freeat.models.normalize import Normalization
    from freeat.models.packages import InputAdapter

_SUFFIXES: dict[str, tuple[str, object]] = {
    "s2": ("stem_stride", 2),
    "s4": ("stem_stride", 4),
    "bn": ("norm", "batch"),
    "gn": ("norm", "group"),
    "nonorm": ("norm", "none"),
    "relu": ("activation", "relu"),
    "softplus": ("activation", "softplus"),
    "silu": ("activation", "silu"),
}
LARGEST = 2**31
"""Parameters of a named network."""
_WIDTH = re.compile(r"w([1-9][0-9]{0,3})")


class _Base(NamedTuple):
    """A network before its suffixes; ``open`` is what they may change."""

    about: str
    network: Callable[[NetworkConfig], nn.Module]
    width: int = 64
    open: frozenset[str] = frozenset({"width", "stem_stride", "norm", "activation"})


_BASES = {
    "resnet18": _Base(
        "ResNet-18 (the paper's for CIFAR)", partial(resnet, block=BasicBlock, depths=(2, 2, 2, 2))
    ),
    "resnet34": _Base("ResNet-34", partial(resnet, block=BasicBlock, depths=(3, 4, 6, 3))),
    "resnet50": _Base(
        "ResNet-50 (the paper's for Tiny-ImageNet)", partial(resnet, block=Bottleneck, depths=(3, 4, 6, 3))
    ),
    "preact-resnet18": _Base("PreAct-ResNet-18", partial(preact_resnet, depths=(2, 2, 2, 2))),
    "preact-resnet34": _Base("PreAct-ResNet-34", partial(preact_resnet, depths=(3, 4, 6, 3))),
    "vgg11": _Base("VGG-11", partial(vgg, depths=(1, 1, 2, 2, 2))),
    "vgg13": _Base("VGG-13", partial(vgg, depths=(2, 2, 2, 2, 2))),
    "vgg16": _Base("VGG-16", partial(vgg, depths=(2, 2, 3, 3, 3))),
    "vgg19": _Base("VGG-19 (the paper's for SVHN)", partial(vgg, depths=(2, 2, 4, 4, 4))),
    "cnn": _Base("four convolutions (for 8×8 digits up to 32×32)", cnn, width=32),
    "mlp": _Base("two hidden layers", mlp, width=256, open=frozenset({"width", "activation"})),
    "linear": _Base("a linear classifier", linear, width=0, open=frozenset()),
}
AUTO = "auto"
"""The name that stands for the network that fits the images, `network_for` their shape."""

_AUTO = ((16, "cnn"), (32, "resnet18"), (64, "resnet18-s2"), (math.inf, "resnet18-s4"))
"""The network for images up to a side in pixels."""
_WIDE = re.compile(r"wrn([1-9][0-9]{0,3})-([1-9][0-9]{0,3})")
_WIDE_EXAMPLES = ("wrn34-10", "wrn16-4")
_VARIANT_EXAMPLES = (
    "resnet18-w16",
    "resnet18-w16-s2",
    "resnet18-gn",
    "resnet18-softplus",
    "cnn-w16",
    "cnn-gn",
)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A parsed name; ``str`` gives its canonical form."""

    base: str
    width: int
    stem_stride: int = 1
    norm: Norm = "batch"
    activation: Activation = "relu"

    def __str__(self) -> str:
        suffixes = [
            f"w{self.width}" if self.width != _base(self.base).width else "",
            f"s{self.stem_stride}" if self.stem_stride != 1 else "",
            {"batch": "", "group": "gn", "none": "nonorm"}[self.norm],
            self.activation if self.activation != "relu" else "",
        ]
        return "-".join([self.base, *filter(None, suffixes)])

    @property
    def about(self) -> str:
        """One line for people: the base, and what the suffixes changed."""
        base = _base(self.base)
        changes = [
            f"width {self.width}" if self.width != base.width else "",
            f"stem of stride {self.stem_stride}" if self.stem_stride != 1 else "",
            {"batch": "", "group": "group norm", "none": "no norm"}[self.norm],
            f"{self.activation} activation" if self.activation != "relu" else "",
        ]
        return ", ".join([base.about, *filter(None, changes)])

    def network(self, *, classes: int, shape: tuple[int, int, int]) -> nn.Module:
        """The network, on torch's default device, drawn from its global generator; ``build`` sets both."""
        layers = Layers(norm_kind=self.norm, activation_kind=self.activation)
        config = NetworkConfig(
            shape=shape, classes=classes, width=self.width, stem_stride=self.stem_stride, layers=layers
        )
        return _base(self.base).network(config)


def parse(name: str) -> Architecture:
    """The network that ``name`` means."""
    parts = name.lower().split("-")
    for length in range(len(parts), 0, -1):
        base_name = "-".join(parts[:length])
        if base_name in _BASES or _WIDE.fullmatch(base_name):
            break
    else:
        raise unknown_name("model", name, [AUTO, *_BASES, *_WIDE_EXAMPLES])
    base = _base(base_name)
    chosen: dict[str, Any] = {}
    for suffix in parts[length:]:
        key, value = _parse_suffix(suffix, base_name, base)
        if key in chosen:
            raise InputError(
                f"model {name!r} sets its {key.replace('_', ' ')} twice: keep one of the two suffixes"
            )
        chosen[key] = value
    return Architecture(base=base_name, **({"width": base.width} | chosen))


def _base(name: str) -> _Base:
    wide = _WIDE.fullmatch(name)
    if wide is None:
        return _BASES[name]
    depth, widen = int(wide[1]), int(wide[2])
    if depth < 10 or depth % 6 != 4:
        raise InputError(
            f"model {name!r} has depth {depth}, but a Wide-ResNet's is 6n + 4: "
            "choose 10, 16, 22, 28, 34, …, for instance wrn34-10"
        )
    return _Base(
        f"WRN-{depth}-{widen}",
        partial(wide_resnet, depth=depth, widen=widen),
        width=16,
        open=frozenset({"stem_stride", "norm", "activation"}),
    )


def _parse_suffix(suffix: str, base_name: str, base: _Base) -> tuple[str, object]:
    """The setting that a suffix changes, and its value."""
    width = _WIDTH.fullmatch(suffix)
    key, value = ("width", int(width[1])) if width else _SUFFIXES.get(suffix, ("", None))
    if key in base.open:
        return key, value
    if not base.open:
        raise InputError(f"model {base_name!r} takes no suffix, but has {suffix!r}: leave it out")
    fitting = [known for known, (opened, _) in _SUFFIXES.items() if opened in base.open]
    example = ["w16"] if "width" in base.open else []
    raise unknown_name(f"suffix of model {base_name!r}", suffix, example + fitting)


def network_for(shape: tuple[int, int, int]) -> str:
    """The network that ``auto`` means for images of ``shape`` (C, H, W), by their longer side.

    A strided stem keeps the work per image near that of 32×32.
    """
    side = max(shape[1:])
    return next(name for largest, name in _AUTO if side <= largest)


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """A named network and its description."""

    name: str
    about: str


def catalogue() -> list[ModelInfo]:
    """The networks by name, with examples of what suffixes make of them."""
    names = [*_BASES, *_WIDE_EXAMPLES, *_VARIANT_EXAMPLES]
    return [ModelInfo(name=name, about=parse(name).about) for name in names]


def build(
    name: str,
    *,
    classes: int,
    shape: tuple[int, int, int],
    args: Mapping[str, object] | None = None,
    normalize: "Normalization | None" = None,
    seed: int = 0,
    trust_code: bool = False,
    largest: int = LARGEST,
    pretrained: bool = True,
) -> nn.Module:
    """The model ``name`` for images of ``shape`` (C, H, W), on the CPU, in float32.

    ``name`` follows the grammar above, or is ``auto``, the name of a package's network (``timm:resnet18``), or an
    import path ``package.module:factory``. A factory is called with ``args`` and nothing else, and only with
    ``trust_code``; its weights follow the seed as far as it draws them from torch's CPU generator. A package's network
    has its published weights if ``args`` ask for them, but for ``pretrained=False``: other weights follow.
    """
    _check_problem(classes, shape)
    name = network_for(shape) if name == AUTO else name
    if name.startswith("hf://"):
        raise InputError(
            f"model {name!r}: a model on the Hub gives weights to begin with: write --init-from {name}"
        )
    if is_of_package(name):
        from freeat.models.packages import package_network

        make_fitted = partial(
            package_network,
            name,
            classes=classes,
            shape=shape,
            args=args or {},
            seed=seed,
            pretrained=pretrained,
            largest=largest,
        )
        return _prepared(make_fitted, shape[0], normalize, seed)
    make: Callable[[], nn.Module]
    if is_import_path(name):
        factory = find_factory(name, trust_code=trust_code)
        make = partial(call_factory, name, factory, args or {})
    elif args:
        raise InputError(
            f"model {name!r} takes no arguments, but was given {dict(args)}: its variants are suffixes "
            "of its name (see `freeat models`); arguments are for package.module:factory, timm: and torchvision:"
        )
    else:
        make = partial(parse(name).network, classes=classes, shape=shape)
        _check_size(name, classes, shape, largest)
    return _prepared(lambda: (make(), None), shape[0], normalize, seed)


def _prepared(
    make: "Callable[[], tuple[nn.Module, InputAdapter | None]]",
    channels: int,
    normalize: "Normalization | None",
    seed: int,
) -> nn.Module:
    """The network that ``make`` draws from the seed, behind the layers that prepare its images."""
    with seeded(seed, "initial weights"):
        network, fit = make()
    network = network.to("cpu", torch.float32)
    if normalize is None and fit is None:
        return network
    from freeat.models.normalize import Prepared

    layer = None if normalize is None else normalize.layer(channels if fit is None else fit.channels)
    return Prepared.of(network, fit=fit, normalize=layer)


@contextmanager
def seeded(seed: int, purpose: str) -> Iterator[None]:
    """Inside, modules are made on the CPU, in float32, from a random stream of their own; outside, nothing changes.

    Initializers read torch's global CPU generator, which `layer_rng` saves and restores.
    """
    dtype = torch.get_default_dtype()
    cpu = torch.device("cpu")
    with layer_rng(cpu, stream_key(seed, purpose)), cpu:
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


def parameter_count(model: nn.Module) -> int:
    """The number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def size(name: str, *, classes: int = 10, shape: tuple[int, int, int] = (3, 32, 32)) -> int:
    """The parameter count of a named network, found without allocating it."""
    _check_problem(classes, shape)
    architecture = parse(name)
    try:
        with torch.device("meta"):
            return parameter_count(architecture.network(classes=classes, shape=shape))
    except (RuntimeError, TypeError, OverflowError) as error:
        reason = str(error).splitlines()[0][:100]
        raise InputError(
            f"model {name!r} cannot be built for {classes} classes and images of shape {shape}: {reason}"
        ) from None


def _check_size(name: str, classes: int, shape: tuple[int, int, int], largest: int) -> None:
    """Refuse a named network of more parameters, before any memory is taken for it."""
    found = size(name, classes=classes, shape=shape)
    if found > largest:
        raise InputError(
            f"model {name!r} for {classes} classes and images of shape {shape} has {found} parameters, and at most "
            f"{largest} are allowed: as many as its weights hold, where they are read"
        )


def _check_problem(classes: int, shape: tuple[int, int, int]) -> None:
    if classes < 2:
        raise InputError(f"a classifier for {classes} classes: give at least 2")
    if len(shape) != 3 or min(shape) < 1:
        raise InputError(f"images of shape {tuple(shape)}: give (channels, height, width), all at least 1")
