"""RobustBench's form: ``load_model`` and ``benchmark``, for scripts that were written for it."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from freeat.attacks.measurement import measure
from freeat.attacks.names import parse_attack
from freeat.data import load
from freeat.machine import arithmetic, resolve_device
from freeat.opening import open_model
from freeat.threat import make_ball
from freeat.units import parse_radius

STANDARD_EPS = {"linf": "8/255", "l2": "0.5"}


def load_model(
    model_name: str | Path,
    dataset: str = "cifar10",
    *,
    data_dir: Path | str | None = None,
    model_args: Mapping[str, object] | None = None,
    normalize: str | None = None,
    trust_code: bool = False,
) -> nn.Module:
    """The model behind a reference (a run folder, NETWORK@FILE, package.module:factory@FILE), in evaluation mode."""
    data = load(dataset, data_dir=data_dir)
    return open_model(model_name, data, args=model_args, normalize=normalize, trust_code=trust_code).model


def benchmark(
    model: nn.Module,
    n_examples: int = 10_000,
    dataset: str = "cifar10",
    threat_model: str = "Linf",
    eps: float | str | None = None,
    device: torch.device | str | None = None,
    *,
    attack: str = "autoattack",
    batch_size: int = 256,
    data_dir: Path | str | None = None,
    seed: int = 0,
    deterministic: bool = True,
) -> tuple[float, float]:
    """(clean accuracy, robust accuracy) on the first ``n_examples`` test images, by AutoAttack unless told otherwise.

    ``eps`` is in pixel space; by default 8/255 (Linf) or 0.5 (L2). The model is moved to ``device``.
    With ``deterministic=False`` torch may compute as it finds fastest.
    """
    data = load(dataset, data_dir=data_dir)
    radius = STANDARD_EPS.get(threat_model.lower(), 0.0) if eps is None else eps
    ball = make_ball(threat_model, parse_radius(radius))
    ball.check(data.shape)
    place = resolve_device("auto") if device is None else torch.device(device)
    opened = open_model(model, data, device=place)
    images = data.test.take(torch.arange(min(n_examples, len(data.test))))
    with arithmetic(threads=torch.get_num_threads(), deterministic=deterministic):
        measured = measure(
            opened.model,
            images,
            parse_attack(attack),
            ball,
            classes=len(data.classes),
            seed=seed,
            population=len(data.test),
            batch_size=batch_size,
            keep_delta=False,
        ).summary()
    return measured["clean_accuracy"], measured["robust_accuracy"]
