"""The library in a few lines of Python: train a model of your own, read the result of a run."""

import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from freeat.algorithms import Algorithm, make_algorithm
from freeat.algorithms.step import threat_of
from freeat.attacks.pgd import Pgd
from freeat.compute.machine import arithmetic, resolve_device
from freeat.data import Augmentation, DataSet, load
from freeat.errors import InputError, wrong_type
from freeat.evaluation.evaluate import Gap
from freeat.learner.learner import check_model, check_optimizer
from freeat.learner.schedules import Schedule
from freeat.models import check_logits
from freeat.runs.build import build_evaluator, build_trainer
from freeat.runs.folder import RunFolder, RunResult
from freeat.runs.spec import EvalSpec, TrainSpec
from freeat.threat import Ball, check_ball
from freeat.training.checks import cautions
from freeat.training.records import Callback, Record

log = logging.getLogger(__name__)

load_data = load


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model with what was measured on the way; ``result`` is the last, full evaluation."""

    model: nn.Module
    result: Record
    history: list[Record]

    @property
    def gap(self) -> Gap:
        """Robust training minus robust test accuracy, with its 95 % interval."""
        return self.result.gap


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
    callback: Callback | None = None,
) -> Trained:
    """Train ``model`` in place with any algorithm on any data, and measure its robust generalization gap.

    It trains for so many ``epochs`` (30) or weight ``updates``. The model takes images (b, C, H, W) with pixels in
    [0, 1] and returns logits (b, classes). Without an ``optimizer`` it is trained by SGD as in the paper, with the
    learning rate divided by 10 at a half and at three quarters of the updates; with one, the learning rate follows
    ``schedule`` or is left alone. It is evaluated by ``attack`` (PGD-10) in ``ball``, by default the one it is trained
    against.
    """
    check_model(model)
    if attack is not None and not isinstance(attack, Pgd):
        raise wrong_type("attack", attack, "training is evaluated by PGD; pass freeat.Pgd(steps=10), say")
    algorithm, evaluated_in = _algorithm_in(algorithm, ball)
    data = data if isinstance(data, DataSet) else load(data)
    spec = TrainSpec(
        epochs=epochs,
        updates=updates,
        batch_size=batch_size,
        lr=lr,
        momentum=momentum,
        weight_decay=weight_decay,
        seed=seed,
        precision=precision,
        deterministic=deterministic,
    )
    evaluation = EvalSpec(eval_every=eval_every)
    on = resolve_device(device)
    where = next(model.parameters()).device
    check_logits(model, data.shape, len(data.classes), where, images=data.example_batch)
    evaluated_in.check(data.shape)
    for caution in cautions(batch_size=batch_size, n=len(data.train)):
        log.warning("%s", caution)
    if optimizer is not None:
        check_optimizer(optimizer)
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not any(id(p) in held for p in model.parameters()):
            raise InputError(
                "the optimizer holds no parameter of this model: make it from model.parameters()"
            )
    evaluator = build_evaluator(
        spec, evaluation, data, on, algorithm=algorithm, attack=attack, ball=evaluated_in, augment=augment
    )
    trainer = build_trainer(
        spec, evaluation, evaluator, model, on, algorithm=algorithm, optimizer=optimizer, schedule=schedule
    )
    if callback is not None:
        trainer.callback = callback
    with arithmetic(threads=torch.get_num_threads(), deterministic=deterministic):
        result = trainer.run()
    return Trained(model=trainer.learner.model.eval(), result=result, history=trainer.history)


def _algorithm_in(algorithm: Algorithm | str, ball: Ball | None) -> tuple[Algorithm, Ball]:
    """The algorithm, also where it is named, and the ball in which its model is evaluated."""
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
    evaluated_in = ball or threat_of(algorithm)
    if evaluated_in is None:
        raise InputError(
            "the algorithm has no ball of its own: say with ball=L2(0.5) in which one it is evaluated"
        )
    return algorithm, evaluated_in


def load_result(run: str | Path) -> RunResult:
    """What was measured of the finished run in a folder: the last record of its history, with its identity."""
    folder = RunFolder(Path(run))
    result = folder.result
    if result is None:
        folder.check_exists()
        raise InputError(f"{folder.path} is not finished: run the same command again to go on")
    return result
