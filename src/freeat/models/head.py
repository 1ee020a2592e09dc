"""The logits of a classifier, which are checked, and its last layer, which is replaced for other classes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from freeat.errors import InputError
from freeat.models.registry import seeded


def check_logits(
    model: nn.Module,
    shape: tuple[int, int, int],
    classes: int | None,
    device: torch.device,
    *,
    images: Tensor | None = None,
) -> int:
    """Refuse a model that does not map images (b, C, H, W) on ``device`` to logits (b, classes).

    Returns the number of classes; with None it may be any. The model is applied to two ``images`` of the data, for
    which its logits must be finite; without them to two black ones, for which they may be anything.
    """
    dtypes = (parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
    tried = torch.zeros(2, *shape) if images is None else images
    tried = tried.to(device, next(dtypes, torch.float32))
    with torch.no_grad(), _evaluating(model):
        try:
            output = model(tried)
        except Exception as error:
            raise InputError(
                f"the model fails on images of shape {tuple(shape)} on {device}: "
                f"{type(error).__name__}: {error}; choose a model for this shape, or resize the images"
            ) from error
    if not isinstance(output, Tensor):
        raise InputError(
            f"the model returns {type(output).__name__}, not a tensor of logits: "
            "wrap it in a module whose forward returns the logits only"
        )
    if classes is None and output.ndim == 2 and output.shape[1] >= 2:
        classes = output.shape[1]
    if output.shape != (2, classes):
        raise InputError(
            f"the model returns shape {tuple(output.shape)} for 2 images, "
            f"but (2, {classes or 'classes'}) logits are needed: build it for {classes or 'your'} classes, with "
            "one row per image"
        )
    if not output.is_floating_point():
        raise InputError(
            f"the model returns {output.dtype}, not floating-point logits: return them before argmax"
        )
    if images is not None and (bad := int((~output.isfinite().all(-1)).sum())):
        raise InputError(
            f"the model returns logits that are NaN or infinite before it is trained, for {bad} of {len(output)} "
            "images: check for weights that are not finite, a division by zero or a logarithm in its forward pass"
        )
    if output.device.type != "meta" and _are_probabilities(output):
        raise InputError(
            "the model returns probabilities (rows between 0 and 1 that sum to 1), but logits are needed: "
            "remove its last softmax"
        )
    return output.size(1)


def _are_probabilities(output: Tensor) -> bool:
    rows = output.float()
    inside = bool(((rows >= 0) & (rows <= 1)).all())
    tolerance = 1e-5 if output.dtype in (torch.float32, torch.float64) else 1e-2
    return inside and bool(((rows.sum(1) - 1).abs() < tolerance).all())


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; afterwards every submodule is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def replace_head(model: nn.Module, classes: int, seed: int) -> nn.Module:
    """The model with a fresh last layer for ``classes``, changed in place unless that layer is all of it.

    The last layer is the linear layer or 1×1 convolution that was registered last.
    """
    found = head_of(model)
    if found is None:
        raise InputError(
            f"{type(model).__name__} has no linear layer or 1×1 convolution whose classes could be changed: "
            f"start from a model with {classes} classes"
        )
    name, old = found
    bias = old.bias is not None
    new: nn.Module
    with seeded(seed, "head"):
        if isinstance(old, nn.Linear):
            new = nn.Linear(old.in_features, classes, bias)
        else:
            new = nn.Conv2d(old.in_channels, classes, 1, bias=bias)
    new = new.to(old.weight.device, old.weight.dtype).train(old.training)
    if not name:
        return new
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, new)
    return model


def head_tensors(model: nn.Module, classifiers: Sequence[str] = ()) -> list[str]:
    """The names of the tensors of the last layer, or of the ``classifiers`` that the package of a network names."""
    from freeat.models.normalize import network_of

    network = network_of(model)
    if not classifiers:
        found = head_of(network)
        classifiers = () if found is None else (found[0],)
    prefix = "model." if network is not model else ""
    return [
        f"{prefix}{f'{layer}.{name}'.lstrip('.')}"
        for layer in classifiers
        for name in network.get_submodule(layer).state_dict()
    ]


def head_of(model: nn.Module) -> tuple[str, nn.Linear | nn.Conv2d] | None:
    """The last layer of a classifier with its name: the linear layer or 1×1 convolution that was registered last."""
    head: tuple[str, nn.Linear | nn.Conv2d] | None = None
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1)):
            head = name, module
    return head
