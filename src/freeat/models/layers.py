"""The layers all convolutional networks are made of: which norm, which activation, which initial weights."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal

from torch import nn

Norm = Literal["batch", "group", "none"]
Activation = Literal["relu", "softplus", "silu"]


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Makes the convolutions, norms and activations of one network.

    No activation works in place: double backward and ``vmap`` need what it would overwrite.
    """

    norm_kind: Norm = "batch"
    activation_kind: Activation = "relu"
    he_fan_out: bool = False  # convolutions start as in He et al. (2015), as published Wide-ResNets do

    def conv(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        *,
        bias: bool = False,
        closes_branch: bool = False,
    ) -> nn.Conv2d:
        """A convolution that keeps the image's size over its stride, with a bias where no norm gives one."""
        normed = self.norm_kind != "none"
        conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=bias or not normed)
        if self.he_fan_out or not normed:
            # Nothing restores the signal's scale without a norm, so the weights have to keep it.
            mode: Literal["fan_in", "fan_out"] = "fan_out" if normed else "fan_in"
            nn.init.kaiming_normal_(conv.weight, mode=mode, nonlinearity="relu")
            if conv.bias is not None:
                nn.init.zeros_(conv.bias)
        if closes_branch and not normed:
            # The signal would double with every residual block; it starts as the identity instead.
            nn.init.zeros_(conv.weight)
        return conv

    def norm(self, channels: int) -> nn.Module:
        match self.norm_kind:
            case "batch":
                return nn.BatchNorm2d(channels)
            case "group":
                return nn.GroupNorm(groups(channels), channels)
            case "none":
                return nn.Identity()

    def activation(self) -> nn.Module:
        match self.activation_kind:
            case "relu":
                return nn.ReLU()
            case "softplus":
                return nn.Softplus(
                    beta=10
                )  # close to ReLU, as in smooth adversarial training (Xie et al., 2020)
            case "silu":
                return nn.SiLU()


@dataclass(frozen=True, kw_only=True)
class Form:
    """What every named network is built from: its images (C, H, W), its classes, and the chosen variant."""

    shape: tuple[int, int, int]
    classes: int
    width: int
    stem_stride: int = 1
    layers: Layers = Layers()

    @property
    def stem_kernel(self) -> int:
        """3, or the 7 of ImageNet's networks where a stride of 4 would pass over pixels."""
        return 3 if self.stem_stride < 4 else 7


def groups(channels: int) -> int:
    """How many groups a group norm has: at most 32, of four channels or more.

    Groups of one or two channels would erase the signal where the image has shrunk to one pixel.
    """
    return next(g for g in range(min(32, max(1, channels // 4)), 0, -1) if channels % g == 0)


def classifier(channels: int, classes: int) -> OrderedDict[str, nn.Module]:
    """The end of every convolutional network: global average, then a linear layer."""
    return OrderedDict(pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), head=nn.Linear(channels, classes))
