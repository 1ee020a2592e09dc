"""Who takes part in ``benchmarks/training.py``: the library, plain loops, and ART's trainers.

Each is made ready for a problem and is then one function: a whole training step on the next batch.
"""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from plain_training import EPS, PLAIN, cropped
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from freeat.algorithms import make_algorithm
from freeat.compute.machine import arithmetic
from freeat.compute.precision import Precision
from freeat.data import CropFlip, Images
from freeat.data.batches import Batches
from freeat.learner import Learner
from freeat.models import build
from freeat.runs.build import make_optimizer
from freeat.runs.spec import TrainSpec
from freeat.threat import Linf
from freeat.training.loop import train

CPU = torch.device("cpu")
CLASSES, SHAPE = 10, (3, 32, 32)
Step = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What all contenders train: a network, an algorithm, a batch size."""

    model: str
    algorithm: str
    batch: int
    threads: int

    def network(self) -> tuple[nn.Module, torch.optim.SGD]:
        model = build(self.model, classes=CLASSES, shape=SHAPE).train()
        return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=2e-4)

    def data(self) -> tuple[Tensor, Tensor]:
        """Four batches of noise: speed does not depend on the images."""
        g = torch.Generator().manual_seed(0)
        x = torch.randint(256, (4 * self.batch, *SHAPE), generator=g, dtype=torch.uint8)
        return x, torch.randint(CLASSES, (len(x),), generator=g)


def ours(problem: Problem, precision: str) -> Step:
    x, y = problem.data()
    model, _ = problem.network()
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = make_optimizer(TrainSpec(lr=0.01, precision=precision), model)
    learner = Learner(model, optimizer, precision=Precision(precision, CPU))
    algorithm = make_algorithm(problem.algorithm, Linf(EPS))
    batches = Batches(n=len(x), size=problem.batch, seed=0)
    steps = train(learner, algorithm, Images.of(x, y), batches, CropFlip())

    return lambda: next(steps)


def plain(problem: Problem) -> Step:
    x, y = problem.data()
    model, optimizer = problem.network()
    loader = DataLoader(TensorDataset(x.float() / 255, y), batch_size=problem.batch, shuffle=True)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            for images, labels in loader:
                yield cropped(images), labels

    endless = batches()
    return lambda: PLAIN[problem.algorithm](model, optimizer, *next(endless))


class Opaque(nn.Module):
    """A network in a plain module: ART's trainers take an ``nn.Sequential`` apart and misread its first layer."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits


def art_trainer(problem: Problem) -> Step | None:
    """ART's trainer of the algorithm, one epoch of one batch; None where ART has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from art.attacks.evasion import ProjectedGradientDescent
        from art.defences import trainer
        from art.estimators.classification import PyTorchClassifier

    model, optimizer = problem.network()
    classifier = PyTorchClassifier(
        Opaque(model),
        nn.CrossEntropyLoss(),
        SHAPE,
        CLASSES,
        optimizer,
        clip_values=(0.0, 1.0),
        device_type="cpu",
    )
    match problem.algorithm:
        case "vanilla-10":
            chosen = trainer.AdversarialTrainerMadryPGD(classifier, eps=EPS, eps_step=EPS / 4, max_iter=10)
        case "fast":
            chosen = trainer.AdversarialTrainerFBFPyTorch(classifier, eps=EPS)
        case "trades-10":
            attack = ProjectedGradientDescent(
                classifier, eps=EPS, eps_step=EPS / 4, max_iter=10, num_random_init=1, verbose=False
            )
            chosen = trainer.AdversarialTrainerTRADESPyTorch(classifier, attack, beta=6.0)
        case "erm":
            chosen = classifier
        case _:
            return None
    x, y = (part[: problem.batch].numpy() for part in problem.data())
    images, labels = x.astype(np.float32) / 255, np.eye(CLASSES, dtype=np.float32)[y]

    def step() -> None:
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():  # its progress bars
            warnings.simplefilter("ignore")
            chosen.fit(images, labels, batch_size=problem.batch, nb_epochs=1)

    return step


def contenders(problem: Problem, precisions: list[str]) -> dict[str, Step]:
    """A ready step of each contender; a small batch has gone through each before."""
    makers: dict[str, Callable[[Problem], Step | None]] = {"plain fp32": plain}
    for precision in precisions:
        makers[f"freeat {precision}"] = partial(ours, precision=precision)
    makers["ART fp32"] = art_trainer
    ready: dict[str, Step] = {}
    small = replace(problem, batch=8)
    for name, make in makers.items():
        warm_up, step = make(small), make(problem)
        if warm_up is not None and step is not None:
            with setting(name, problem.threads):
                warm_up()
            ready[name] = step
    return ready


def setting(contender: str, threads: int) -> contextlib.AbstractContextManager[None]:
    """Our runs set their own flags, as they do in earnest; the others keep torch's."""
    if contender.startswith("freeat"):
        return arithmetic(threads=threads, deterministic=True)
    return contextlib.nullcontext()
