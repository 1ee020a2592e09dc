"""Small networks for small machines, digits, and the stability experiments."""

import math
from collections import OrderedDict

from torch import nn

from freeat.models.layers import Form, classifier


def cnn(form: Form) -> nn.Sequential:
    """Four 3×3 convolutions of width w, 2w, 2w and 4w, the second and fourth with stride 2."""
    layers, width = form.layers, form.width
    net: OrderedDict[str, nn.Module] = OrderedDict()
    channels = form.shape[0]
    stem = (width, form.stem_kernel, form.stem_stride)
    plan = [stem, (2 * width, 3, 2), (2 * width, 3, 1), (4 * width, 3, 2)]
    for index, (outputs, kernel, stride) in enumerate(plan, start=1):
        net[f"conv{index}"] = layers.conv(channels, outputs, kernel, stride)
        net[f"norm{index}"] = layers.norm(outputs)
        net[f"activation{index}"] = layers.activation()
        channels = outputs
    return nn.Sequential(net | classifier(channels, form.classes))


def mlp(form: Form) -> nn.Sequential:
    """Two hidden layers on the flattened image."""
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            hidden1=nn.Linear(math.prod(form.shape), form.width),
            activation1=form.layers.activation(),
            hidden2=nn.Linear(form.width, form.width),
            activation2=form.layers.activation(),
            head=nn.Linear(form.width, form.classes),
        )
    )


def linear(form: Form) -> nn.Sequential:
    """A linear classifier on the flattened image."""
    return nn.Sequential(
        OrderedDict(flatten=nn.Flatten(), head=nn.Linear(math.prod(form.shape), form.classes))
    )
