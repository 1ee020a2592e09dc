"""The one place where a spec becomes objects: data, model, algorithm, learner, judge."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from freeat import models
from freeat.algorithms import Algorithm, make_algorithm, parse_algorithm
from freeat.attacks.pgd import Pgd
from freeat.attacks.registry import parse_attack
from freeat.compute.precision import Precision
from freeat.data import DataSet, load, parse_augmentation
from freeat.data.batches import Batches, updates_for
from freeat.errors import InputError, unknown_name
from freeat.evaluation.evaluator import Judge
from freeat.learner import Learner
from freeat.learner.averaging import WeightAverage
from freeat.learner.distributed import SINGLE_PROCESS, ProcessGroup, check_in_step
from freeat.learner.schedules import make_schedule
from freeat.objectives import OBJECTIVES, Objective
from freeat.runs.folder import RunFolder
from freeat.runs.initial import start_from, weights_digest
from freeat.runs.spec import DEFAULT_EPOCHS, EvalSpec, TrainSpec
from freeat.runs.training_images import training_images
from freeat.threat import Ball, make_ball
from freeat.training.cautions import cautions
from freeat.training.memory import kept_near
from freeat.training.trainer import Fit, OnCollapse


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a run happens and how it behaves there; none of it changes a weight's meaning."""

    folder: Path
    device: str = "auto"
    data_dir: Path | None = None
    checkpoint_every: float = 60.0
    on_collapse: OnCollapse = "warn"
    trust_code: bool = False

    def __post_init__(self) -> None:
        if not self.checkpoint_every >= 0:
            raise InputError(
                f"--checkpoint-every {self.checkpoint_every:g} must not be negative; 0 is after every batch"
            )


def assemble(
    spec: TrainSpec, evaluation: EvalSpec, place: Place, device: torch.device, processes: ProcessGroup
) -> tuple[Fit, dict[str, Any]]:
    """The fit a spec describes, with the facts about its data and initial weights. Writes nothing."""
    ball = make_ball(spec.norm, spec.eps, (0.0, 1.0) if spec.box else None)
    evaluation_attack(evaluation)
    data = load(spec.data, data_dir=place.data_dir, seed=spec.seed, image_size=spec.image_size)
    ball.check(data.shape)
    judge = make_judge(spec, evaluation, data, device, processes)
    model, facts = initial_model(spec, data, place.trust_code)
    n = len(judge.train)
    updates = spec.updates or updates_for(spec.epochs or DEFAULT_EPOCHS, n, spec.batch_size)
    algorithm = training_algorithm(spec, ball, updates)
    if spec.carry and processes.size > 1:
        raise InputError(
            "--carry keeps δ by the slot in the batch, which several processes cannot share: use one"
        )
    batches = Batches(n=n, size=spec.batch_size, seed=spec.seed, sampling=spec.sampling)  # type: ignore[arg-type]
    learner = _learner(spec, model, algorithm, updates, device, processes)
    if any(isinstance(layer, nn.SyncBatchNorm) for layer in learner.model.modules()):
        check_in_step(batches, spec.micro_batch, processes.size)
    fit = Fit(
        learner=learner,
        algorithm=algorithm,
        batches=batches,
        judge=judge,
        augment=judge.augment,
        eval_every=evaluation.eval_every,
        eval_size=evaluation.eval_size,
        final_size=evaluation.final_size,
        folder=RunFolder(place.folder),
        checkpoint_every=place.checkpoint_every,
        on_collapse=place.on_collapse,
    )
    notes = _cautions(spec, evaluation, n)
    return fit, {"data": _data_facts(data, n), "updates": updates, "notes": list(notes), **facts}


def _cautions(spec: TrainSpec, evaluation: EvalSpec, n: int) -> tuple[str, ...]:
    judged_at = spec.eps if evaluation.eval_eps is None else evaluation.eval_eps
    used = _used(spec)
    steps = [
        ("step of the training attack", used.alpha, spec.eps),
        ("step of the evaluation attack", evaluation.eval_alpha, judged_at),
    ]
    unused = {name: value for name, value in spec.words().items() if name not in used.words()}
    return cautions(batch_size=spec.batch_size, n=n, steps=steps, unused=unused)


def _used(spec: TrainSpec) -> TrainSpec:
    """What the algorithm has a use for: ERM shares the settings of a comparison, but has no attack to set."""
    if parse_algorithm(spec.algorithm).adversarial:
        return spec
    return spec.replaced(alpha=None, start=None, warmup=0.0)


def _data_facts(data: DataSet, n: int) -> dict[str, Any]:
    return {
        "name": data.name,
        "digest": data.digest,
        "train": n,
        "test": len(data.test),
        "shape": list(data.shape),
        "classes": list(data.classes),
        "notes": list(data.notes),
    }


def make_judge(
    spec: TrainSpec,
    evaluation: EvalSpec,
    data: DataSet,
    device: torch.device,
    processes: ProcessGroup = SINGLE_PROCESS,
) -> Judge:
    """What judges the models of a spec: its splits, and the attack and radius asked for."""
    ball = make_ball(spec.norm, spec.eps if evaluation.eval_eps is None else evaluation.eval_eps)
    ball.check(data.shape)
    train, validation = training_images(data, spec)
    return Judge(
        train=kept_near(train, device),
        test=kept_near(data.test, device),
        validation=kept_near(validation, device) if validation is not None else None,
        augment=parse_augmentation(spec.augment, data.augment),
        attack=evaluation_attack(evaluation),
        ball=ball,
        classes=len(data.classes),
        seed=spec.seed,
        watches_collapse=parse_algorithm(spec.algorithm).adversarial,
        processes=processes,
    )


def evaluation_attack(evaluation: EvalSpec) -> Pgd:
    """The PGD attack by which a run is judged."""
    attack = parse_attack(
        evaluation.attack,
        iterate=evaluation.iterate,  # type: ignore[arg-type]
        alpha=evaluation.eval_alpha,
    )
    if not isinstance(attack, Pgd):
        raise InputError(
            f"--attack {evaluation.attack!r}: training is judged by PGD, written pgd-10 or pgd-50-10 "
            "(steps, restarts); other attacks are for `freeat attack`"
        )
    return attack


def training_algorithm(spec: TrainSpec, ball: Ball, updates: int) -> Algorithm:
    """The algorithm a spec names, with its settings."""
    spec = _used(spec)
    return make_algorithm(
        spec.algorithm,
        ball,
        alpha=spec.alpha,
        start=spec.start,
        objective=_objective(spec),
        warmup_updates=round(spec.warmup * updates),
        **{name: value for name, value in spec.words().items() if name in ("tau", "omega", "carry")},
    )


def initial_model(spec: TrainSpec, data: DataSet, trust_code: bool) -> tuple[nn.Module, dict[str, Any]]:
    """The model before its first update, on the CPU, and the facts about its weights."""
    model = models.build(
        spec.model,
        classes=len(data.classes),
        shape=data.shape,
        args=spec.model_args,
        normalize=models.Normalization.parse(spec.normalize) if spec.normalize else None,
        seed=spec.seed,
        trust_code=trust_code,
    )
    fresh = start_from(model, spec.init_from) if spec.init_from else []
    classes, cpu = len(data.classes), torch.device("cpu")
    models.check_logits(model, data.shape, classes, cpu, images=data.glimpse)
    return model, {
        "initial_weights": weights_digest(model),
        "new_head": fresh,
        "parameters": models.parameter_count(model),
    }


def _learner(
    spec: TrainSpec,
    model: nn.Module,
    algorithm: Algorithm,
    updates: int,
    device: torch.device,
    processes: ProcessGroup,
) -> Learner:
    model = model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if processes.size > 1 and device.type == "cuda":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return Learner(
        model,
        _optimizer(spec, model),
        seed=spec.seed,
        total_updates=updates,
        schedule=make_schedule(spec.schedule, spec.lr, algorithm.updates_per_batch),
        precision=Precision(spec.precision, device),
        micro_batch=spec.micro_batch,
        processes=processes,
        average=WeightAverage(model, spec.ema) if spec.ema is not None else None,
        forward=torch.compile(model) if spec.compile else None,
    )


def _optimizer(spec: TrainSpec, model: nn.Module) -> torch.optim.Optimizer:
    match spec.optimizer:
        case "sgd":
            return torch.optim.SGD(
                model.parameters(), lr=spec.lr, momentum=spec.momentum, weight_decay=spec.weight_decay
            )
        case "adamw":
            return torch.optim.AdamW(model.parameters(), lr=spec.lr, weight_decay=spec.weight_decay)
    raise unknown_name("optimizer", spec.optimizer, ("sgd", "adamw"))


def _objective(spec: TrainSpec) -> Objective | None:
    """The named objective with another coefficient, where one is given."""
    if spec.coefficient is None:
        return None
    name = parse_algorithm(spec.algorithm).objective
    if name == "ce":
        raise InputError(
            f"--coefficient {spec.coefficient:g}: cross-entropy has none; it is for trades, alp and mart"
        )
    setting = {"trades": "lam", "alp": "weight", "mart": "weight"}[name]
    return OBJECTIVES[name](**{setting: spec.coefficient})
