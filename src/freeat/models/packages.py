"""Networks of timm and torchvision by name: ``timm:vit_tiny_patch16_224``, ``torchvision:resnet18``.

A network is built for the classes of the data. Where it takes another size or more channels than the images have, a
layer in front of it fits them: images, and the radius of an attack, are those of the data. The normalization is that of
the network's published weights.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from freeat.errors import InputError, need
from freeat.models.head import replace_head
from freeat.models.imported import call_factory
from freeat.models.normalize import Normalization

CHANNELS = 3
"""What the networks take; grey images are repeated."""
PRETRAINED = "pretrained"
"""The argument that asks for the published weights."""
_NAME = re.compile(r"\w+(\.\w+)?", re.ASCII)
_OURS = {
    "num_classes": "follows from the data",
    "in_chans": "follows from the data",
    "features_only": "gives no logits",
    **dict.fromkeys(
        ("weights", "weights_backbone", "checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"),
        "is not taken from arguments: write pretrained=true, or --init-from FILE",
    ),
}  # fmt: skip
"""Arguments that are not passed on."""
_SIZES = {"timm": ("img_size",), "torchvision": ("image_size", "input_size")}
"""The arguments by which a network of fixed size is built for another."""
_FIXED = ("vit_", "maxvit")
"""Networks of torchvision that take one size only; it does not say so itself."""


class InputAdapter(nn.Module):
    """Images as a network takes them: grey ones repeated to three channels, resized (bilinear) to ``size``."""

    channels = CHANNELS

    def __init__(self, *, grey: bool, size: tuple[int, int] | None) -> None:
        super().__init__()
        self.grey, self.size = grey, size

    def forward(self, x: Tensor) -> Tensor:
        if self.grey:
            x = x.expand(-1, CHANNELS, -1, -1)
        if self.size is not None:
            x = nn.functional.interpolate(x, size=self.size, mode="bilinear", align_corners=False)
        return x

    def note(self, shape: tuple[int, int, int]) -> str:
        """What it does to images of this shape, as one sentence for people."""
        does = ["repeats grey images to three channels"] if self.grey else []
        if self.size is not None:
            does.append(
                f"resizes {shape[1]}×{shape[2]} images to {self.size[0]}×{self.size[1]}, which it needs"
            )
        return f"the model {' and '.join(does)}, in its first layer; ε is that of the {shape[1]}×{shape[2]} images."


@dataclass(frozen=True, kw_only=True)
class Published:
    """What a package says of a network: normalization, classes and classifiers of its weights, and its sizes.

    ``size`` is the only height and width that it takes, ``smallest`` the least; ``classifiers`` are empty where the
    package does not name them.
    """

    normalization: Normalization
    classes: int | None
    classifiers: tuple[str, ...] = ()
    size: tuple[int, int] | None
    smallest: tuple[int, int]


def package_network(
    text: str,
    *,
    classes: int,
    shape: tuple[int, int, int],
    args: Mapping[str, object],
    seed: int,
    pretrained: bool,
    largest: int,
) -> tuple[nn.Module, InputAdapter | None]:
    """The network with a head for the classes, and the layer that fits images of ``shape`` to it, if it needs one.

    Its published weights are fetched if ``args`` ask for them, unless other weights follow (``pretrained=False``).
    """
    package, name, module = _find(text)
    for argument in args.keys() & _OURS.keys():
        raise InputError(
            f"model {text!r}: its argument {argument} {_OURS[argument]}; leave it out of --model-args"
        )
    if shape[0] not in (1, CHANNELS):
        raise InputError(f"model {text!r} takes grey or RGB images, and these have {shape[0]} channels")
    asked = {key: value for key, value in args.items() if key != PRETRAINED}
    create = partial(_CREATE[package](module), name, num_classes=classes)
    _check_size(text, partial(create, **asked), largest)
    facts = _PUBLISHED[package](module, name)
    if pretrained and asks_for_weights(args):
        network = _with_weights(package, module, name, asked, classes, facts, seed)
    else:
        network = call_factory(text, create, asked)
    if getattr(network, "aux_logits", False):
        raise InputError(
            f"model {text!r} returns further logits while it trains: leave them out by --model-args aux_logits=false"
        )
    size = _size_for(facts, _SIZES[package], asked, shape[1:])
    grey = shape[0] < CHANNELS
    return network, InputAdapter(grey=grey, size=size) if grey or size is not None else None


def asks_for_weights(args: Mapping[str, object] | None) -> bool:
    """Whether arguments ask for the published weights."""
    return bool((args or {}).get(PRETRAINED))


def published(text: str) -> Published:
    """What the package of a network says of it."""
    package, name, module = _find(text)
    return _PUBLISHED[package](module, name)


def package_version(text: str) -> str:
    """The package of a network with its version: ``timm 1.0.31``."""
    package = text.partition(":")[0]
    module = need(package, extra=package, what=f"model {text!r}")
    return f"{package} {getattr(module, '__version__', 'of unknown version')}"


def _find(text: str) -> tuple[str, str, ModuleType]:
    """The package and name of a network, checked to be there, and the imported package."""
    package, _, name = text.partition(":")
    if not _NAME.fullmatch(name):
        raise InputError(f"model {text!r}: write the name of a network after {package}:, as it lists them")
    module = need(package, extra=package, what=f"model {text!r}")
    known = _LISTED[package](module)
    architecture = name.partition(".")[0]
    if architecture not in known:
        near = difflib.get_close_matches(architecture.lower(), known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise InputError(
            f"{package} {getattr(module, '__version__', '')} has no model {name!r}: {hint}"
            f"{_LIST_COMMANDS[package]} lists its {len(known)} models"
        )
    return package, name, module


def _size_for(
    published: Published, arguments: tuple[str, ...], args: Mapping[str, object], given: tuple[int, int]
) -> tuple[int, int] | None:
    """The size to which images must be resized; None where the network takes them as they are."""
    chosen = next((args[name] for name in arguments if name in args), None)
    if args.get("dynamic_img_size"):
        return None
    if chosen is not None:
        height, width = chosen if isinstance(chosen, list | tuple) else (chosen, chosen)
        size = int(height), int(width)
    elif published.size is not None:
        size = published.size
    else:
        size = max(given[0], published.smallest[0]), max(given[1], published.smallest[1])
    return None if size == given else size


def _check_size(text: str, make: Callable[[], Any], largest: int) -> None:
    """Refuse a network of more parameters, before any memory is taken for it."""
    try:
        with torch.device("meta"):
            found = sum(parameter.numel() for parameter in make().parameters())
    except Exception:  # what is wrong is said when the network is built
        return
    if found > largest:
        raise InputError(
            f"model {text!r} has {found} parameters, and at most {largest} are allowed: as many as its weights hold, "
            "where they are read"
        )


def _with_weights(
    package: str,
    module: ModuleType,
    name: str,
    args: Mapping[str, object],
    classes: int,
    facts: Published,
    seed: int,
) -> nn.Module:
    """The network with its published weights; a head for other classes is new."""
    text, create = f"{package}:{name}", partial(_CREATE[package](module), name)
    create = (
        partial(create, weights="DEFAULT") if package == "torchvision" else partial(create, pretrained=True)
    )
    if package == "timm":  # which replaces the head itself
        create = partial(create, num_classes=classes)
    try:
        network = call_factory(text, create, args)
    except InputError as error:
        raise InputError(
            f"{error}; its published weights are fetched from the network: where there is none, bring them as a file "
            "and write --init-from FILE instead of pretrained=true"
        ) from None
    return (
        replace_head(network, classes, seed)
        if package == "torchvision" and facts.classes != classes
        else network
    )


def _of_timm(module: ModuleType, name: str) -> Published:
    config = module.get_pretrained_cfg(name)
    if config is None:
        raise InputError(f"timm has no configuration for 'timm:{name}': leave out the part after the point")
    first = config.classifier or ()
    smallest = (config.min_input_size or (CHANNELS, 1, 1))[1:]
    return Published(
        normalization=Normalization(mean=tuple(config.mean), std=tuple(config.std)),
        classes=config.num_classes,
        classifiers=(first,) if isinstance(first, str) else tuple(first),
        size=_pair(config.input_size[1:]) if config.fixed_input_size else None,
        smallest=_pair(smallest),
    )


def _of_torchvision(module: ModuleType, name: str) -> Published:
    weights = module.models.get_model_weights(name).DEFAULT
    transforms, smallest = weights.transforms(), _pair(weights.meta["min_size"])
    return Published(
        normalization=Normalization(mean=tuple(transforms.mean), std=tuple(transforms.std)),
        classes=len(weights.meta["categories"]),
        size=smallest if name.startswith(_FIXED) else None,
        smallest=smallest,
    )


def _pair(size: Any) -> tuple[int, int]:
    height, width = size
    return int(height), int(width)


_CREATE: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "timm": lambda timm: timm.create_model,
    "torchvision": lambda torchvision: torchvision.models.get_model,
}
_PUBLISHED = {"timm": _of_timm, "torchvision": _of_torchvision}
_LISTED: dict[str, Callable[[Any], list[str]]] = {
    "timm": lambda timm: timm.list_models(),
    "torchvision": lambda torchvision: torchvision.models.list_models(module=torchvision.models),
}
_LIST_COMMANDS = {
    "timm": "timm.list_models()",
    "torchvision": "torchvision.models.list_models(module=torchvision.models)",
}
