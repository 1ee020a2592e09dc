"""Input normalization as a layer of the model, so that images and ε stay in pixel space."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from freeat.errors import InputError, unknown_name


@dataclass(frozen=True, kw_only=True)
class Normalization:
    """(x - mean) / std with one mean and one std per channel, or one of each for all channels."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.mean or len(self.mean) != len(self.std):
            raise InputError(
                f"normalization with {len(self.mean)} means and {len(self.std)} standard deviations: "
                "give as many of the one as of the other, one per channel"
            )
        if not all(map(math.isfinite, self.mean)):
            raise InputError(f"normalization mean {self.mean}: every mean must be a finite number")
        if not all(math.isfinite(std) and std > 0 for std in self.std):
            raise InputError(
                f"normalization std {self.std}: every standard deviation must be positive and finite"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """From a data set's name, or ``mean=0.49,0.48,0.45;std=0.25,0.24,0.26`` for images in [0, 1]."""
        if "=" not in text:
            try:
                mean, std = PRESETS[text.strip().lower()]
            except KeyError:
                raise unknown_name("normalization", text, PRESETS) from None
            return cls(mean=mean, std=std)
        pairs = [part.partition("=") for part in text.split(";")]
        if sorted(key.strip() for key, _, _ in pairs) != ["mean", "std"]:
            raise InputError(f"normalization {text!r}: write it as mean=0.49,0.48,0.45;std=0.25,0.24,0.26")
        return cls(**{key.strip(): _numbers(values) for key, _, values in pairs})

    def __str__(self) -> str:
        """The text that ``parse`` reads back, exactly."""
        mean, std = (",".join(map(repr, values)) for values in (self.mean, self.std))
        return f"mean={mean};std={std}"

    def same_layer(self, other: Self) -> bool:
        """Whether both are the same layer: its constants are kept in fp32."""
        pairs = ((self.mean, other.mean), (self.std, other.std))
        return all(torch.tensor(own).equal(torch.tensor(its)) for own, its in pairs)

    def layer(self, channels: int) -> "Normalize":
        """The layer for images with this many channels."""
        if len(self.mean) not in (1, channels):
            raise InputError(
                f"normalization with {len(self.mean)} channels for images with {channels}: "
                f"give {channels} means and standard deviations, or one of each"
            )
        return Normalize(self)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise InputError(f"normalization values {text!r}: give numbers separated by commas") from None


class Normalize(nn.Module):
    """The layer; its constants are buffers, so they move and are saved with the model."""

    mean: Tensor
    std: Tensor

    def __init__(self, normalization: Normalization) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(normalization.mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(normalization.std).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class Prepared(nn.Sequential):
    """A network (``model``) behind the layers that prepare its images: ``fit``, ``normalize``."""

    @classmethod
    def of(cls, network: nn.Module, **layers: nn.Module | None) -> nn.Module:
        """The network behind those of the layers that are given; without any, itself."""
        given = OrderedDict((name, layer) for name, layer in layers.items() if layer is not None)
        return cls(OrderedDict(**given, model=network)) if given else network

    def normalized(self, layer: Normalize) -> nn.Module:
        """The same network with this normalization."""
        return Prepared.of(network_of(self), fit=self._modules.get("fit"), normalize=layer)


def network_of(model: nn.Module) -> nn.Module:
    """The network behind the layers that prepare its images; itself where there are none."""
    return model.get_submodule("model") if isinstance(model, Prepared) else model


_Channels = tuple[float, ...]
PRESETS: dict[str, tuple[_Channels, _Channels]] = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "svhn": ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
    "tiny-imagenet": ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "mnist": ((0.1307,), (0.3081,)),
    "fashion-mnist": ((0.2860,), (0.3530,)),
    "digits": ((0.3053,), (0.3760,)),
}
