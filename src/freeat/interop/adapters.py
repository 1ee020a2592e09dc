"""Adapters of freeat's models to foolbox, ART and RobustBench.

Each takes a live model, or a reference to a run folder (RUN, RUN@ema, RUN@slow, RUN@best), an exported one, or one on
the Hub (hf://NAME@COMMIT). Images are in [0, 1] in all of them, so radii mean the same.
"""

from pathlib import Path
from typing import Any

from torch import nn

from freeat.compute.machine import resolve_device
from freeat.errors import InputError, need
from freeat.evaluation.evaluate import device_and_dtype
from freeat.models import check_logits
from freeat.runs.open import Reference, load

Model = nn.Module | str | Path | Reference


def as_foolbox(model: Model, *, device: str | None = None, trust_code: bool = False) -> Any:
    """The model as a ``foolbox.PyTorchModel``."""
    foolbox = need("foolbox", extra="peers", what="a foolbox model")
    made = as_robustbench(model, device=device, trust_code=trust_code)
    return foolbox.PyTorchModel(made, bounds=(0, 1), device=device_and_dtype(made)[0])


def as_art(
    model: Model,
    *,
    shape: tuple[int, int, int] | None = None,
    device: str | None = None,
    trust_code: bool = False,
) -> Any:
    """The model as ART's ``PyTorchClassifier``; a live model's ``shape`` (C, H, W) must be given."""
    art = need("art.estimators.classification", extra="peers", what="an ART classifier")
    model = model if isinstance(model, nn.Module) else Reference.of(model)
    folder = None if isinstance(model, nn.Module) else model.folder
    images = shape or (folder.description.data.shape if folder else None)
    if images is None:
        raise InputError("a live model does not define the shape of its images: give shape=(C, H, W)")
    made = as_robustbench(model, device=device, trust_code=trust_code)
    current = device_and_dtype(made)[0]
    return art.PyTorchClassifier(
        model=made,
        loss=nn.CrossEntropyLoss(),
        input_shape=images,
        nb_classes=check_logits(made, images, None, current),
        clip_values=(0.0, 1.0),
        device_type="gpu" if current.type == "cuda" else "cpu",
    )


def as_robustbench(model: Model, *, device: str | None = None, trust_code: bool = False) -> nn.Module:
    """The model as RobustBench's ``benchmark`` and AutoAttack take it: in evaluation mode, with images in [0, 1].

    A live model stays on its device unless a ``device`` is given, and is set to evaluation mode.
    """
    made = model if isinstance(model, nn.Module) else load(model, trust_code=trust_code)
    target = device_and_dtype(made)[0] if device is None else resolve_device(device)
    return made.to(target).eval()
