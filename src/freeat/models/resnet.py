"""Residual networks (He et al., 2016a) in their CIFAR form: a 3×3 stem and no pool before the first stage."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from freeat.models.layers import Form, Layers, classifier


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


def resnet(form: Form, *, block: type[BasicBlock | Bottleneck], depths: Sequence[int]) -> nn.Sequential:
    """A ResNet; each stage is twice as wide and half as large as the one before."""
    layers, width = form.layers, form.width
    outputs = [(width << stage) * block.expansion for stage in range(len(depths))]
    net: OrderedDict[str, nn.Module] = OrderedDict(
        stem=layers.conv(form.shape[0], width, form.stem_kernel, form.stem_stride),
        norm=layers.norm(width),
        activation=layers.activation(),
    )
    net |= stages(block, stem=width, outputs=outputs, depths=depths, layers=layers)
    return nn.Sequential(net | classifier(outputs[-1], form.classes))
