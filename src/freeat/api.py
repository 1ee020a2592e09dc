"""Train a model in one call, and read the result of a run."""

import logging
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from freeat.algorithms import Algorithm, make_algorithm
from freeat.algorithms.step import check_members, threat_of, with_smoothing, without_warm_up
from freeat.attacks.pgd import Pgd
from freeat.compute.machine import arithmetic, resolve_device
from freeat.data import Augmentation, DataSet, load_data
from freeat.errors import InputError, wrong_type
from freeat.evaluation.evaluate import Gap
from freeat.learner.learner import check_model, check_optimizer
from freeat.learner.schedules import Schedule, make_schedule
from freeat.models import check_logits
from freeat.reports.text import run_remarks
from freeat.runs.build import build_evaluator, build_trainer
from freeat.runs.folder import RunFolder, RunResult
from freeat.runs.spec import EvalSpec, TrainSpec, short_name
from freeat.threat import Ball, check_ball
from freeat.training.checks import setting_warnings
from freeat.training.records import Callback, Record

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, repr=False)
class Trained:
    """A trained model with its evaluations, as ``freeat.train`` returns it.

    Args:
        model: The model that was passed to ``freeat.train``, with the last weights, in evaluation mode.
        result: The last record: clean and robust accuracy on both splits, with intervals, and the cost.
        history: All records, one for each evaluation, the last one included.
        averages: Models with averaged weights, by name: ``ema`` and ``slow``, where they were asked for.

    Example:
        >>> import freeat, torch
        >>> _ = torch.manual_seed(0)
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
        >>> trained = freeat.train(model, "digits", algorithm="fast", ball=freeat.L2(0.3), updates=40, device="cpu")
        >>> trained.result.update, len(trained.history) > 1
        (40, True)
        >>> trained.gap.low <= trained.gap.value <= trained.gap.high
        True
        >>> trained  # doctest: +ELLIPSIS
        <Trained: Sequential after 40 updates: robust train ...%, test ...%, gap ... points>
    """

    model: nn.Module
    result: Record
    history: list[Record]
    averages: dict[str, nn.Module] = field(default_factory=dict)

    @property
    def gap(self) -> Gap:
        """Robust training accuracy minus robust test accuracy, with its 95 % interval."""
        return self.result.gap

    def __repr__(self) -> str:
        train, test = (split.robust_accuracy for split in (self.result.train, self.result.test))
        accuracies = f"robust train {100 * train:.1f} %, test {100 * test:.1f} %, gap {self.gap}"
        return f"<Trained: {type(self.model).__name__} after {self.result.update} updates: {accuracies}>"


def train(
    model: nn.Module,
    data: DataSet | str | Path,
    *,
    algorithm: Algorithm | str,
    trust_code: bool = False,
    augment: Augmentation | str | None = "auto",
    epochs: float | None = None,
    updates: int | None = None,
    batch_size: int = 128,
    replay: int = 1,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: Schedule | str | None = None,
    lr: float | None = None,
    momentum: float = 0.9,
    weight_decay: float = 2e-4,
    label_smoothing: float = 0.0,
    clip_grad: float | None = None,
    awp: float = 0.0,
    awp_from: float = 0.0,
    proximal: float | None = None,
    proximal_from: float | None = None,
    proximal_every: float = 1.0,
    swa: bool = False,
    ema: float | None = None,
    ball: Ball | None = None,
    attack: Pgd | None = None,
    eval_every: int | None = None,
    seed: int = 0,
    device: str = "auto",
    precision: str = "fp32",
    deterministic: bool = True,
    callback: Callback | None = None,
) -> Trained:
    """Train a model in place with any algorithm on any data, and measure its robust generalization gap.

    The parameters come in six groups: what is trained (``model`` to ``augment``), how long (``epochs`` to
    ``replay``), the optimizer (``optimizer`` to ``weight_decay``), parts that are added to any algorithm
    (``label_smoothing`` to ``ema``), threat model and evaluation (``ball`` to ``eval_every``), and the machine
    (``seed`` to ``callback``).

    Args:
        model: A module that maps images (b, C, H, W) with pixels in [0, 1] to logits (b, classes).
        data: A data set, its name (``freeat data list``), or a path that ``freeat.load_data`` accepts.
        algorithm: An algorithm such as ``freeat.Free(m=4, ball=freeat.Linf(8/255))``, or its name, such as
            ``"free-4"`` or ``"package.module:Class"``. A name needs a ``ball``.
        trust_code: Import the class of such a path, which runs its code.
        augment: Augmentation of the training images: ``"none"``, ``"crop"``, ``"flip"``, ``"crop-flip"``,
            ``"random-resized-crop"``, a function of images and rng, None for none, or ``"auto"``, the usual one of the
            data set.
        epochs: Number of epochs at one weight update per batch; 30 by default. An algorithm with m updates per batch
            visits every image epochs/m times.
        updates: Number of weight updates T, instead of ``epochs``.
        batch_size: Images per batch.
        replay: How many times in a row a batch is used, with a new start of the attack each time; every use is a weight
            update.
        optimizer: An optimizer over ``model.parameters()``; by default SGD with the three settings below.
        schedule: Learning rate of each update: ``"piecewise"`` (the default: ``lr``, divided by 10 after a half and
            after three quarters of the updates), ``"constant"``, ``"cyclic"``, ``"cosine"``, ``"one-cycle"``,
            ``"vanishing"``, or a function of ``freeat.learner.schedules.Clock``. An ``optimizer`` of your own keeps
            its learning rate by default.
        lr: Learning rate of the default optimizer, 0.1 by default, and peak of a schedule by name, by default the
            rate that an ``optimizer`` of your own has.
        momentum: Momentum of the default optimizer.
        weight_decay: Weight decay of the default optimizer.
        label_smoothing: The part of every label that the training loss spreads over all classes.
        clip_grad: The length to which longer gradients of the weights are shortened.
        awp: The relative size γ of the adversarial weight perturbation; 0.01 is usual.
        awp_from: The epoch at which it begins.
        proximal: The coefficient ρ that draws the weights to slow ones (Moreau-envelope training); 5e-4 is usual.
        proximal_from: The epoch at which slow weights begin; by default half of the training.
        proximal_every: Epochs between two weights that the slow weights take in.
        swa: Stochastic weight averaging, which is ``proximal=0``.
        ema: The decay of an exponential average of the weights. Averages are evaluated beside the last weights
            (``result.ema``, ``result.slow``).
        ball: The perturbations that an algorithm given by name trains against, and that the model is evaluated against;
            by default the ball of the algorithm.
        attack: The attack of the evaluations; by default PGD-10 with its worst iterate.
        eval_every: Weight updates between two evaluations; by default 12 evaluations follow that at update 0, on at
            least 128 images of each split. ``result.evaluation_share`` is their cost as a part of the training's: of a
            cheap algorithm such as Free it may exceed 1.
        seed: Seed of every random draw: batches, augmentation, starts of the attacks.
        device: ``"cpu"``, ``"cuda"``, ``"mps"``, or ``"auto"`` for the fastest present.
        precision: ``"fp32"``, ``"bf16"``, ``"fp16"``, or ``"auto"`` for bf16 where the hardware has it.
        deterministic: Give the same bits in every run on this machine; False may be faster.
        callback: An object with the methods of ``freeat.training.records.Callback``, called after each batch and each
            evaluation.

    Returns:
        The model with the records of its evaluations; the last is of all images of both splits.

    Raises:
        InputError: An argument is of the wrong type or out of range, the model's output does not fit the data, or the
            optimizer does not hold the model's parameters. Nothing is trained then.

    Example:
        >>> import freeat, torch
        >>> _ = torch.manual_seed(0)
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
        >>> algorithm = freeat.Free(m=4, ball=freeat.L2(0.3))
        >>> trained = freeat.train(model, "digits", algorithm=algorithm, updates=80, device="cpu")
        >>> trained.result.test.robust_accuracy > 0.5
        True
    """
    check_model(model)
    if attack is not None and not isinstance(attack, Pgd):
        raise wrong_type("attack", attack, "training is evaluated by PGD; pass freeat.Pgd(steps=10), say")
    trained_by = algorithm
    algorithm, evaluated_in = _algorithm_in(algorithm, ball, trust_code)
    if optimizer is not None:
        check_optimizer(optimizer)
    rate = 0.1 if lr is None else lr
    if isinstance(schedule, str):
        peak = rate if optimizer is None or lr is not None else float(optimizer.param_groups[0]["lr"])
        schedule = make_schedule(schedule, peak, algorithm.updates_per_batch)
    elif schedule is not None and (isinstance(schedule, type) or not callable(schedule)):
        remedy = "pass a name such as 'cosine', or a function of the clock (freeat.learner.schedules.Clock)"
        raise wrong_type("schedule", schedule, remedy)
    if label_smoothing:
        algorithm = with_smoothing(algorithm, label_smoothing)
    data = data if isinstance(data, DataSet) else load_data(data)
    spec = TrainSpec(
        epochs=epochs,
        updates=updates,
        batch_size=batch_size,
        replay=replay,
        lr=rate,
        momentum=momentum,
        weight_decay=weight_decay,
        label_smoothing=label_smoothing,
        clip_grad=clip_grad,
        awp=awp,
        awp_from=awp_from,
        proximal=proximal,
        proximal_from=proximal_from,
        proximal_every=proximal_every,
        swa=swa,
        ema=ema,
        seed=seed,
        precision=precision,
        deterministic=deterministic,
    )
    evaluation = EvalSpec(eval_every=eval_every)
    target = resolve_device(device)
    current = next(model.parameters()).device
    check_logits(model, data.shape, len(data.classes), current, images=data.example_batch)
    evaluated_in.check(data.shape)
    for warning in setting_warnings(batch_size=batch_size, n=len(data.train)):
        log.warning("%s", warning)
    if optimizer is not None:
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not any(id(p) in held for p in model.parameters()):
            raise InputError(
                "the optimizer holds no parameter of this model: make it from model.parameters()"
            )
    evaluator = build_evaluator(
        spec, evaluation, data, target, algorithm=algorithm, attack=attack, ball=evaluated_in, augment=augment
    )
    trainer = build_trainer(
        spec,
        evaluation,
        evaluator,
        model,
        target,
        algorithm=algorithm,
        optimizer=optimizer,
        schedule=schedule,
    )
    if callback is not None:
        trainer.callback = callback
    with arithmetic(threads=torch.get_num_threads(), deterministic=deterministic):
        result = trainer.run()
    for remark in run_remarks(_label(trained_by, algorithm), result, ()):
        log.warning("%s", remark)
    return Trained(
        model=trainer.learner.model.eval(),
        result=result,
        history=trainer.history,
        averages={name: average.model for name, average in trainer.learner.averages.items()},
    )


def _label(given: Algorithm | str, algorithm: Algorithm) -> str:
    """The algorithm as it was named, or its class."""
    return short_name(given) if isinstance(given, str) else type(without_warm_up(algorithm)).__name__


def _algorithm_in(algorithm: Algorithm | str, ball: Ball | None, trust_code: bool) -> tuple[Algorithm, Ball]:
    """The algorithm, made where it is given by name, and the ball in which its model is evaluated."""
    if ball is not None:
        check_ball(ball)
    if isinstance(algorithm, str):
        if ball is None:
            raise InputError(
                f"algorithm {algorithm!r} by name needs a ball: pass ball=freeat.Linf(8/255), say"
            )
        return make_algorithm(algorithm, ball, trust_code=trust_code), ball
    if isinstance(algorithm, type | int | float | None):
        remedy = "pass a name such as 'free-4', or an algorithm such as freeat.Free(ball=freeat.Linf(8/255))"
        raise wrong_type("algorithm", algorithm, remedy)
    check_members(type(algorithm).__name__, algorithm)
    evaluated_in = ball or threat_of(algorithm)
    if evaluated_in is None:
        raise InputError(
            "the algorithm has no ball of its own: say with ball=L2(0.5) in which one it is evaluated"
        )
    return algorithm, evaluated_in


def load_result(run: str | Path) -> RunResult:
    """Read the result of a finished run.

    Args:
        run: The run folder.

    Returns:
        The last record of the run (accuracies with intervals, gap, cost) with the run's identity and notes.

    Raises:
        InputError: The folder holds no run, or the run is not finished.

    Example:
        >>> import freeat
        >>> from freeat.cli.main import run
        >>> command = "train --model linear --algorithm fast --norm l2 --eps 0.3 --updates 4 --out runs/fast"
        >>> run(command.split())  # doctest: +ELLIPSIS
        fast after 4 updates, evaluated by pgd-10 ...
        0
        >>> result = freeat.load_result("runs/fast")
        >>> result.update, result.test.robust_accuracy <= result.test.clean_accuracy
        (4, True)
    """
    folder = RunFolder(Path(run))
    result = folder.result
    if result is None:
        folder.check_exists()
        raise InputError(f"{folder.path} is not finished: run the same command again to resume it")
    return result
