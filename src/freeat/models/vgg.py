"""VGG (Simonyan & Zisserman, 2015) in its CIFAR form: with norms, and one linear layer at the end."""

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from freeat.models.layers import Form, classifier


def vgg(form: Form, *, depths: Sequence[int]) -> nn.Sequential:
    """Stages of ``depths[i]`` convolutions, each ended by a 2×2 pool while the image has pixels to pool."""
    layers = form.layers
    channels, *sides = form.shape
    size = -(-min(sides) // form.stem_stride)
    net: OrderedDict[str, nn.Module] = OrderedDict()
    for stage, depth in enumerate(depths):
        outputs = form.width << min(stage, 3)  # the fifth stage is as wide as the fourth
        steps: list[nn.Module] = []
        for index in range(depth):
            kernel, stride = (form.stem_kernel, form.stem_stride) if stage == index == 0 else (3, 1)
            # The published networks keep this bias, idle before a batch norm; their parameter counts hold it.
            steps.append(layers.conv(channels, outputs, kernel, stride, bias=True))
            steps += [layers.norm(outputs), layers.activation()]
            channels = outputs
        if size >= 2:
            steps.append(nn.MaxPool2d(2))
            size //= 2
        net[f"stage{stage + 1}"] = nn.Sequential(*steps)
    return nn.Sequential(net | classifier(channels, form.classes))
