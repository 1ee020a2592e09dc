"""Pre-activation networks: PreAct-ResNet (He et al., 2016b), Wide-ResNet (Zagoruyko & Komodakis, 2016)."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from freeat.models.layers import Form, Layers, classifier
from freeat.models.resnet import stages


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


def _network(form: Form, *, outputs: Sequence[int], depths: Sequence[int]) -> nn.Sequential:
    layers = form.layers
    net: OrderedDict[str, nn.Module] = OrderedDict(
        stem=layers.conv(form.shape[0], form.width, form.stem_kernel, form.stem_stride)
    )
    net |= stages(PreActBlock, stem=form.width, outputs=outputs, depths=depths, layers=layers)
    net |= OrderedDict(norm=layers.norm(outputs[-1]), activation=layers.activation())
    return nn.Sequential(net | classifier(outputs[-1], form.classes))


def preact_resnet(form: Form, *, depths: Sequence[int]) -> nn.Sequential:
    """A PreAct-ResNet with its final norm; each stage is twice as wide and half as large as the last."""
    return _network(form, outputs=[form.width << stage for stage in range(len(depths))], depths=depths)


def wide_resnet(form: Form, *, depth: int, widen: int) -> nn.Sequential:
    """WRN-depth-widen: three stages of (depth - 4) / 6 blocks, ``widen`` times as wide as the stem."""
    net = _network(
        replace(form, layers=replace(form.layers, he_fan_out=True)),
        outputs=[(form.width << stage) * widen for stage in range(3)],
        depths=[(depth - 4) // 6] * 3,
    )
    nn.init.zeros_(net.get_parameter("head.bias"))
    return net
