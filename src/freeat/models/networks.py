"""The named networks in their CIFAR form, made of the same kinds of layers.

Residual networks (He et al., 2016a) with a 3×3 stem and no pool before the first stage, PreAct-ResNet (He et al.,
2016b), Wide-ResNet (Zagoruyko & Komodakis, 2016), VGG (Simonyan & Zisserman, 2015) with norms and one linear layer at
the end, and small networks for small machines, digits, and the stability experiments.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor, nn

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
                # Close to ReLU, as in smooth adversarial training (Xie et al., 2020).
                return nn.Softplus(beta=10)
            case "silu":
                return nn.SiLU()


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """What every named network is built from: its images (C, H, W), its classes, and the chosen variant."""

    shape: tuple[int, int, int]
    classes: int
    width: int
    stem_stride: int = 1
    layers: Layers = Layers()

    @property
    def stem_kernel(self) -> int:
        """3, or the 7 of ImageNet's networks where a stride of 4 would skip pixels."""
        return 3 if self.stem_stride < 4 else 7


def groups(channels: int) -> int:
    """The number of groups of a group norm: at most 32, of four channels or more.

    Groups of one or two channels would erase the signal where the image has shrunk to one pixel.
    """
    return next(g for g in range(min(32, max(1, channels // 4)), 0, -1) if channels % g == 0)


def classifier(channels: int, classes: int) -> OrderedDict[str, nn.Module]:
    """The end of every convolutional network: global average, then a linear layer."""
    return OrderedDict(pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), head=nn.Linear(channels, classes))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, outputs: int, stride: int, layers: Layers) -> None:
        super().__init__()
        self.conv1 = layers.conv(inputs, outputs, 3, stride)
        self.norm1 = layers.norm(outputs)
        self.conv2 = layers.conv(outputs, outputs, 3, closes_branch=True)
        self.norm2 = layers.norm(outputs)
        self.shortcut = _shortcut(inputs, outputs, stride, layers)
        self.activation = layers.activation()

    def forward(self, x: Tensor) -> Tensor:
        out = self.activation(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        result: Tensor = self.activation(out + self.shortcut(x))
        return result


class Bottleneck(nn.Module):
    """A narrow 3×3 convolution between two 1×1 ones, beside a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, outputs: int, stride: int, layers: Layers) -> None:
        super().__init__()
        narrow = outputs // self.expansion
        self.conv1 = layers.conv(inputs, narrow, 1)
        self.norm1 = layers.norm(narrow)
        self.conv2 = layers.conv(narrow, narrow, 3, stride)
        self.norm2 = layers.norm(narrow)
        self.conv3 = layers.conv(narrow, outputs, 1, closes_branch=True)
        self.norm3 = layers.norm(outputs)
        self.shortcut = _shortcut(inputs, outputs, stride, layers)
        self.activation = layers.activation()

    def forward(self, x: Tensor) -> Tensor:
        out = self.activation(self.norm1(self.conv1(x)))
        out = self.activation(self.norm2(self.conv2(out)))
        out = self.norm3(self.conv3(out))
        result: Tensor = self.activation(out + self.shortcut(x))
        return result


def _shortcut(inputs: int, outputs: int, stride: int, layers: Layers) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(OrderedDict(conv=layers.conv(inputs, outputs, 1, stride), norm=layers.norm(outputs)))


def stages(
    block: Callable[[int, int, int, Layers], nn.Module],
    *,
    stem: int,
    outputs: Sequence[int],
    depths: Sequence[int],
    layers: Layers,
) -> OrderedDict[str, nn.Module]:
    """Stage i: ``depths[i]`` blocks with ``outputs[i]`` channels; all but the first begin with stride 2."""
    named: OrderedDict[str, nn.Module] = OrderedDict()
    inputs = stem
    for stage, (channels, depth) in enumerate(zip(outputs, depths, strict=True)):
        first = block(inputs, channels, 1 if stage == 0 else 2, layers)
        rest = [block(channels, channels, 1, layers) for _ in range(depth - 1)]
        named[f"stage{stage + 1}"] = nn.Sequential(first, *rest)
        inputs = channels
    return named


def resnet(
    config: NetworkConfig, *, block: type[BasicBlock | Bottleneck], depths: Sequence[int]
) -> nn.Sequential:
    """A ResNet; each stage is twice as wide and half as large as the one before."""
    layers, width = config.layers, config.width
    outputs = [(width << stage) * block.expansion for stage in range(len(depths))]
    net: OrderedDict[str, nn.Module] = OrderedDict(
        stem=layers.conv(config.shape[0], width, config.stem_kernel, config.stem_stride),
        norm=layers.norm(width),
        activation=layers.activation(),
    )
    net |= stages(block, stem=width, outputs=outputs, depths=depths, layers=layers)
    return nn.Sequential(net | classifier(outputs[-1], config.classes))


class PreActBlock(nn.Module):
    """Norm and activation before each of two 3×3 convolutions; a projection starts after the first two."""

    def __init__(self, inputs: int, outputs: int, stride: int, layers: Layers) -> None:
        super().__init__()
        self.norm1 = layers.norm(inputs)
        self.conv1 = layers.conv(inputs, outputs, 3, stride)
        self.norm2 = layers.norm(outputs)
        self.conv2 = layers.conv(outputs, outputs, 3, closes_branch=True)
        same = stride == 1 and inputs == outputs
        self.projection = None if same else layers.conv(inputs, outputs, 1, stride)
        self.activation = layers.activation()

    def forward(self, x: Tensor) -> Tensor:
        first = self.activation(self.norm1(x))
        out = self.conv2(self.activation(self.norm2(self.conv1(first))))
        result: Tensor = out + (x if self.projection is None else self.projection(first))
        return result


def _preact_network(config: NetworkConfig, *, outputs: Sequence[int], depths: Sequence[int]) -> nn.Sequential:
    layers = config.layers
    net: OrderedDict[str, nn.Module] = OrderedDict(
        stem=layers.conv(config.shape[0], config.width, config.stem_kernel, config.stem_stride)
    )
    net |= stages(PreActBlock, stem=config.width, outputs=outputs, depths=depths, layers=layers)
    net |= OrderedDict(norm=layers.norm(outputs[-1]), activation=layers.activation())
    return nn.Sequential(net | classifier(outputs[-1], config.classes))


def preact_resnet(config: NetworkConfig, *, depths: Sequence[int]) -> nn.Sequential:
    """A PreAct-ResNet with its final norm; each stage is twice as wide and half as large as the last."""
    return _preact_network(
        config, outputs=[config.width << stage for stage in range(len(depths))], depths=depths
    )


def wide_resnet(config: NetworkConfig, *, depth: int, widen: int) -> nn.Sequential:
    """WRN-depth-widen: three stages of (depth - 4) / 6 blocks, ``widen`` times as wide as the stem."""
    net = _preact_network(
        replace(config, layers=replace(config.layers, he_fan_out=True)),
        outputs=[(config.width << stage) * widen for stage in range(3)],
        depths=[(depth - 4) // 6] * 3,
    )
    nn.init.zeros_(net.get_parameter("head.bias"))
    return net


def vgg(config: NetworkConfig, *, depths: Sequence[int]) -> nn.Sequential:
    """Stages of ``depths[i]`` convolutions, each ended by a 2×2 pool while the image has pixels to pool."""
    layers = config.layers
    channels, *sides = config.shape
    size = -(-min(sides) // config.stem_stride)
    net: OrderedDict[str, nn.Module] = OrderedDict()
    for stage, depth in enumerate(depths):
        outputs = config.width << min(stage, 3)  # the fifth stage is as wide as the fourth
        steps: list[nn.Module] = []
        for index in range(depth):
            kernel, stride = (config.stem_kernel, config.stem_stride) if stage == index == 0 else (3, 1)
            # The published networks keep this bias, idle before a batch norm; their parameter counts hold it.
            steps.append(layers.conv(channels, outputs, kernel, stride, bias=True))
            steps += [layers.norm(outputs), layers.activation()]
            channels = outputs
        if size >= 2:
            steps.append(nn.MaxPool2d(2))
            size //= 2
        net[f"stage{stage + 1}"] = nn.Sequential(*steps)
    return nn.Sequential(net | classifier(channels, config.classes))


def cnn(config: NetworkConfig) -> nn.Sequential:
    """Four 3×3 convolutions of width w, 2w, 2w and 4w, the second and fourth with stride 2."""
    layers, width = config.layers, config.width
    net: OrderedDict[str, nn.Module] = OrderedDict()
    channels = config.shape[0]
    stem = (width, config.stem_kernel, config.stem_stride)
    convolutions = [stem, (2 * width, 3, 2), (2 * width, 3, 1), (4 * width, 3, 2)]
    for index, (outputs, kernel, stride) in enumerate(convolutions, start=1):
        net[f"conv{index}"] = layers.conv(channels, outputs, kernel, stride)
        net[f"norm{index}"] = layers.norm(outputs)
        net[f"activation{index}"] = layers.activation()
        channels = outputs
    return nn.Sequential(net | classifier(channels, config.classes))


def mlp(config: NetworkConfig) -> nn.Sequential:
    """Two hidden layers on the flattened image."""
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            hidden1=nn.Linear(math.prod(config.shape), config.width),
            activation1=config.layers.activation(),
            hidden2=nn.Linear(config.width, config.width),
            activation2=config.layers.activation(),
            head=nn.Linear(config.width, config.classes),
        )
    )


def linear(config: NetworkConfig) -> nn.Sequential:
    """A linear classifier on the flattened image."""
    return nn.Sequential(
        OrderedDict(flatten=nn.Flatten(), head=nn.Linear(math.prod(config.shape), config.classes))
    )
