"""Small samples, models and learners that the tests of stability share."""

from collections.abc import Callable

import torch
from torch import nn

from freeat.algorithms import Algorithm, make_algorithm
from freeat.data import Images
from freeat.data.batches import Batches
from freeat.learner import Learner
from freeat.learner.schedules import Constant
from freeat.models import build
from freeat.stability import Twins, make_runs
from freeat.stability.twins import CoupledRuns
from freeat.threat import make_ball

SHAPE = (1, 4, 4)
CLASSES = 3
EPS = {"l2": 0.5, "linf": 0.1}


def some_images(n: int, seed: int = 0) -> Images:
    """Images whose class is their brightest corner."""
    g = torch.Generator().manual_seed(seed)
    x = (torch.rand(n, *SHAPE, generator=g) * 255).to(torch.uint8)
    return Images.of(x, x[:, 0, 0, :CLASSES].argmax(-1))


def some_twins(n: int = 12, replaced: tuple[int, ...] = (1, 4, 7)) -> Twins:
    return Twins(sample=some_images(n), replaced=replaced, replacements=some_images(len(replaced), seed=1))


def some_model(name: str = "mlp-w8-softplus", seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    return build(name, classes=CLASSES, shape=SHAPE, seed=seed).to(dtype)


def learner_of(updates: int, *, seed: int = 0, momentum: float = 0.9) -> Callable[[nn.Module], Learner]:
    def made(model: nn.Module) -> Learner:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum, weight_decay=1e-3)
        return Learner(model, optimizer, seed=seed, total_updates=updates, schedule=Constant(lr=0.1))

    return made


def some_runs(
    engine: str,
    twins: Twins,
    *,
    updates: int = 20,
    model: str = "mlp-w8-softplus",
    dtype: torch.dtype = torch.float64,
) -> CoupledRuns:
    return make_runs(engine, some_model(model, dtype=dtype), twins.members, learner_of(updates))


def some_batches(twins: Twins, size: int = 4) -> Batches:
    return Batches(n=len(twins.sample), size=size, seed=0, sampling="independent")


def algorithm_of(name: str, norm: str = "l2") -> Algorithm:
    return make_algorithm(name, make_ball(norm, EPS[norm]))
