"""The library in a few lines of Python: train a model of your own, open a finished run."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from freeat.algorithms import Algorithm, make_algorithm
from freeat.algorithms.step import threat_of
from freeat.attacks.pgd import Pgd
from freeat.compute.machine import arithmetic, resolve_device
from freeat.compute.precision import Precision
from freeat.data import Augmentation, DataSet, load, parse_augmentation
from freeat.data.batches import Batches, updates_for
from freeat.errors import InputError, wrong_type
from freeat.evaluation.evaluator import Judge
from freeat.learner.learner import Learner, check_model, check_optimizer
from freeat.learner.schedules import Piecewise, Schedule
from freeat.models import check_logits
from freeat.runs.folder import RunFolder
from freeat.runs.judgement import open_run
from freeat.runs.spec import DEFAULT_EPOCHS
from freeat.threat import Ball, check_ball
from freeat.training.callbacks import Nobody, Watcher
from freeat.training.cautions import cautions
from freeat.training.memory import kept_near
from freeat.training.recorder import Record
from freeat.training.trainer import Fit

log = logging.getLogger(__name__)

load_data = load


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model with what was measured on the way; ``result`` is the last, full evaluation."""

    model: nn.Module
    result: Record
    history: list[Record]

    @property
    def gap(self) -> dict[str, float]:
        """Robust training minus robust test accuracy, with its 95 % interval."""
        gap: dict[str, float] = self.result["gap"]
        return gap


def train(
    model: nn.Module,
    data: DataSet | str | Path,
    *,
    algorithm: Algorithm | str,
    epochs: float | None = None,
    updates: int | None = None,
    batch_size: int = 128,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: Schedule | None = None,
    lr: float = 0.1,
    momentum: float = 0.9,
    weight_decay: float = 2e-4,
    augment: Augmentation | str | None = "auto",
    seed: int = 0,
    device: str = "auto",
    precision: str = "fp32",
    ball: Ball | None = None,
    attack: Pgd | None = None,
    eval_every: int | None = None,
    deterministic: bool = True,
    watcher: Watcher | None = None,
) -> Trained:
    """Train ``model`` in place with any algorithm on any data, and measure its robust generalization gap.

    It trains for so many ``epochs`` (30) or weight ``updates``. The model takes images (b, C, H, W) with pixels in
    [0, 1] and returns logits (b, classes). Without an ``optimizer`` it is trained by SGD as in the paper, with the
    learning rate divided by 10 at a half and at three quarters of the updates; with one, the learning rate follows
    ``schedule`` or is left alone. It is judged by ``attack`` (PGD-10) in ``ball``, by default the one it is trained
    against.
    """
    check_model(model)
    attack = Pgd() if attack is None else attack
    if not isinstance(attack, Pgd):
        raise wrong_type("attack", attack, "training is judged by PGD; pass freeat.Pgd(steps=10), say")
    algorithm, judged_in = _algorithm_in(algorithm, ball)
    data = data if isinstance(data, DataSet) else load(data)
    total = _total(epochs, updates, len(data.train), batch_size)
    if eval_every is not None and eval_every < 1:
        raise InputError(f"eval_every {eval_every}: must be at least 1, or None, which chooses")
    on = resolve_device(device)
    where = next(model.parameters()).device
    check_logits(model, data.shape, len(data.classes), where, images=data.glimpse)
    judged_in.check(data.shape)
    for caution in cautions(batch_size=batch_size, n=len(data.train)):
        log.warning("%s", caution)
    model = model.to(on).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if optimizer is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum, weight_decay=weight_decay)
        schedule = schedule or Piecewise(lr=lr)
    check_optimizer(optimizer)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not any(id(p) in held for p in model.parameters()):
        raise InputError("the optimizer holds no parameter of this model: make it from model.parameters()")
    chosen = parse_augmentation(augment, data.augment) if isinstance(augment, str) else augment
    fit = Fit(
        learner=Learner(
            model,
            optimizer,
            seed=seed,
            total_updates=total,
            schedule=schedule,
            precision=Precision(precision, on),
        ),
        algorithm=algorithm,
        batches=Batches(n=len(data.train), size=batch_size, seed=seed),
        judge=Judge(
            train=kept_near(data.train, on),
            test=kept_near(data.test, on),
            validation=None,
            augment=chosen,
            attack=attack,
            ball=judged_in,
            classes=len(data.classes),
            seed=seed,
            watches_collapse=threat_of(algorithm) is not None,
        ),
        augment=chosen,
        eval_every=eval_every,
        watcher=watcher or Nobody(),
    )
    with arithmetic(threads=torch.get_num_threads(), deterministic=deterministic):
        result = fit.run()
    return Trained(model=model.eval(), result=result, history=fit.history)


def _algorithm_in(algorithm: Algorithm | str, ball: Ball | None) -> tuple[Algorithm, Ball]:
    """The algorithm, also where it is named, and the ball in which its model is judged."""
    if ball is not None:
        check_ball(ball)
    if isinstance(algorithm, str):
        if ball is None:
            raise InputError(
                f"algorithm {algorithm!r} by name needs a ball: pass ball=freeat.Linf(8/255), say"
            )
        return make_algorithm(algorithm, ball), ball
    if isinstance(algorithm, type) or not hasattr(algorithm, "step"):
        remedy = "pass a name such as 'free-4', or an algorithm such as freeat.Free(ball=freeat.Linf(8/255))"
        raise wrong_type("algorithm", algorithm, remedy)
    judged_in = ball or threat_of(algorithm)
    if judged_in is None:
        raise InputError(
            "the algorithm has no ball of its own: say with ball=L2(0.5) in which one it is judged"
        )
    return algorithm, judged_in


def _total(epochs: float | None, updates: int | None, n: int, batch_size: int) -> int:
    """The weight updates that are asked for."""
    if epochs is not None and updates is not None:
        raise InputError(f"both epochs = {epochs:g} and updates = {updates} given: choose one")
    if updates is None:
        return updates_for(DEFAULT_EPOCHS if epochs is None else epochs, n, batch_size)
    if updates < 1:
        raise InputError(f"updates = {updates} must be at least 1")
    return updates


def load_run(
    folder: str | Path, *, weights: str = "model", data_dir: Path | None = None, trust_code: bool = False
) -> tuple[nn.Module, dict[str, Any]]:
    """The model of a run folder, ready to classify, and its stored result."""
    run = RunFolder(Path(folder))
    model, _ = open_run(run, weights=weights, data_dir=data_dir, trust_code=trust_code)
    return model, run.result or {}
