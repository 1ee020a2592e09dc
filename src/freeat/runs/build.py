"""Builds the objects of a spec: data, images, model, algorithm, learner, evaluator, trainer."""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from freeat import models
from freeat.algorithms import Algorithm, make_algorithm, parse_algorithm
from freeat.algorithms.registry import algorithm_class, options_of, read_options
from freeat.algorithms.step import has_strength, threat_of, with_smoothing, without_warm_up
from freeat.attacks.pgd import Pgd
from freeat.attacks.registry import parse_attack
from freeat.compute.machine import compiled, uncompiled
from freeat.compute.precision import Precision
from freeat.data import Augmentation, DataSet, Images, load_data, parse_augmentation
from freeat.data.augmentation import NAMED
from freeat.data.batches import Batches, updates_for
from freeat.errors import InputError, unknown_name
from freeat.evaluation.evaluator import Evaluator
from freeat.learner import Learner
from freeat.learner.distributed import SINGLE_PROCESS, ProcessGroup, check_in_step
from freeat.learner.learner import micro_batches, refuses_one_image
from freeat.learner.schedules import Schedule, make_schedule
from freeat.models.imported import is_import_path, is_of_package, source_digest
from freeat.objectives import OBJECTIVES, CrossEntropy, Objective, coefficient_of
from freeat.runs.spec import DEFAULT_EPOCHS, EvalSpec, TrainSpec
from freeat.threat import Ball, make_ball
from freeat.training.checks import on_device_if_it_fits, setting_warnings
from freeat.training.trainer import Trainer

if TYPE_CHECKING:
    from freeat.learner.modifiers import WeightPerturbation
    from freeat.models.normalize import Normalization


def build_data(spec: TrainSpec, **where: Any) -> DataSet:
    """The data set a spec names; ``where`` may hold the ``data_dir`` and the ``workers``.

    The run's seed does not choose images: of data without a test split all runs have the same one.
    """
    return load_data(
        spec.data,
        image_size=spec.image_size,
        skip_unreadable=spec.skip_unreadable,
        stream=spec.stream,
        **where,
    )


def build_images(spec: TrainSpec, data: DataSet) -> tuple[Images, Images | None]:
    """The images to train on, and those held out for validation: the same for every seed."""
    train: Images = data.train
    validation: Images | None = None
    if spec.validation:
        held_out = int(spec.validation) if spec.validation >= 1 else spec.validation
        train, validation = train.split(held_out)
    if spec.train_size is not None:
        if spec.train_size > len(train):
            raise InputError(
                f"--train-size {spec.train_size} exceeds the {len(train)} training images of {data.name}"
            )
        train = train.subset(spec.train_size)
    return train, validation


def build_ball(spec: TrainSpec) -> Ball:
    """The ball a spec trains against."""
    return make_ball(spec.norm, spec.eps, (0.0, 1.0) if spec.box else None)


def build_batches(spec: TrainSpec, n: int) -> Batches:
    """The batches of a run on ``n`` training images."""
    return Batches(
        n=n,
        size=spec.batch_size,
        seed=spec.seed,
        sampling=spec.sampling,  # type: ignore[arg-type]
        replay=spec.replay,
    )


def build_algorithm(
    spec: TrainSpec, updates: int, *, objective: Objective | None = None, trust_code: bool = False
) -> Algorithm:
    """The algorithm a spec names, with its settings; ``objective`` replaces the one that it names.

    Settings that the algorithm's class does not declare are refused.
    """
    name = parse_algorithm(spec.algorithm)
    algorithm = make_algorithm(
        spec.algorithm,
        build_ball(spec),
        alpha=spec.alpha,
        start=spec.start,
        noise=spec.noise,
        objective=objective or _objective(spec),
        warmup_updates=round(spec.warmup * updates),
        trust_code=trust_code,
        **read_options(name, spec.algorithm_args or {}, trust_code=trust_code),
    )
    return with_smoothing(algorithm, spec.label_smoothing) if spec.label_smoothing else algorithm


def algorithm_source(spec: TrainSpec, *, trust_code: bool) -> str | None:
    """The digest of the source of an imported algorithm; None for one that is built in."""
    name = parse_algorithm(spec.algorithm)
    if not name.imported:
        return None
    algorithm_class(name, trust_code=trust_code)
    return source_digest(name.family)


def build_network(
    spec: TrainSpec,
    *,
    classes: int,
    shape: tuple[int, int, int],
    trust_code: bool = False,
    largest: int = models.LARGEST,
    pretrained: bool = True,
) -> nn.Module:
    """The network a spec names with the initial weights of its seed, on the CPU; one of more parameters is refused.

    Published weights that the spec asks for are fetched, unless others follow (``pretrained=False``).
    """
    normalization = None
    if spec.normalize:
        from freeat.models.normalize import Normalization

        normalization = Normalization.parse(spec.normalize)
    return models.build(
        spec.model,
        classes=classes,
        shape=shape,
        args=spec.model_args,
        normalize=normalization or default_normalization(spec.model),
        seed=spec.seed,
        trust_code=trust_code,
        largest=largest,
        pretrained=pretrained,
    )


def default_normalization(model: str) -> "Normalization | None":
    """The normalization of a model where none is given: that of the published weights of a package's network."""
    if not is_of_package(model):
        return None
    from freeat.models.packages import published

    return published(model).normalization


def package_of(spec: TrainSpec) -> str:
    """The package of a spec's network with the version installed here; empty for any other model."""
    if not is_of_package(spec.model):
        return ""
    from freeat.models.packages import package_version

    return package_version(spec.model)


def build_model(spec: TrainSpec, data: DataSet, *, trust_code: bool = False) -> nn.Module:
    """The network a spec names for these data, checked to return their logits; ``init_from`` is the caller's."""
    classes = len(data.classes)
    model = build_network(spec, classes=classes, shape=data.shape, trust_code=trust_code)
    models.check_logits(model, data.shape, classes, torch.device("cpu"), images=data.example_batch)
    return model


def start_from(
    model: nn.Module, weights: Mapping[str, Tensor], source: str, *, classifiers: Sequence[str] = ()
) -> list[str]:
    """Load weights of another run or file into the model; returns the names of tensors that keep fresh values.

    Those are the tensors of the last layer, or of the layers named, where their shape does not fit: another number of
    classes.
    """
    own = model.state_dict()
    missing, unknown = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    if missing or unknown:
        what = f"lack {missing[0]!r}" if missing else f"have {unknown[0]!r}"
        raise InputError(f"the weights in {source} {what} unlike the model: they belong to another --model")
    mismatched = [name for name in own if own[name].shape != weights[name].shape]
    head = models.head_tensors(model, classifiers)
    if not set(mismatched) <= set(head):
        name = next(name for name in mismatched if name not in head)
        raise InputError(
            f"{name} is {tuple(weights[name].shape)} in {source} and {tuple(own[name].shape)} in the model: "
            "only the head may differ; use the same --model and --model-args"
        )
    model.load_state_dict({name: own[name] if name in mismatched else weights[name] for name in own})
    return mismatched


def weights_digest(model: nn.Module) -> str:
    """SHA-256 of all weights and statistics."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def build_learner(
    spec: TrainSpec,
    model: nn.Module,
    algorithm: Algorithm,
    updates: int,
    device: torch.device,
    *,
    per_epoch: int,
    processes: ProcessGroup = SINGLE_PROCESS,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: Schedule | None = None,
) -> Learner:
    """The learner of a model that is on its device already: optimizer, schedule, precision, parts.

    ``per_epoch`` is the number of batches in an epoch, by which the parts know their epochs.

    An ``optimizer`` given here replaces the spec's, and its rate follows the ``schedule`` given with it, or stays.
    """
    if optimizer is None:
        optimizer = make_optimizer(spec, model)
        schedule = schedule or make_schedule(spec.schedule, spec.lr, algorithm.updates_per_batch)
    return Learner(
        model,
        optimizer,
        seed=spec.seed,
        total_updates=updates,
        schedule=schedule,
        precision=Precision(spec.precision, device),
        micro_batch=spec.micro_batch,
        processes=processes,
        **build_modifiers(spec, model, updates, per_epoch),
        forward=compiled(model) if spec.compile else None,
    )


def build_modifiers(spec: TrainSpec, model: nn.Module, updates: int, per_epoch: int) -> dict[str, Any]:
    """What a spec adds to the learner of a model, whatever the algorithm."""
    parts: dict[str, Any] = {"clip_grad": spec.clip_grad, "awp": build_awp(spec, updates, per_epoch)}
    if spec.proximal is None and spec.ema is None:
        return parts
    from freeat.learner.modifiers import ProximalTerm, WeightAverage

    if spec.proximal is not None:
        first = proximal_start(spec, updates, per_epoch)
        every = max(1, round(spec.proximal_every * per_epoch))
        if first + every > updates:
            raise InputError(
                f"--proximal takes in no weights: it begins at update {first} and looks every {every}, of {updates} "
                "updates; lower --proximal-from or --proximal-every, or train longer"
            )
        parts["proximal"] = ProximalTerm(WeightAverage(model, 1.0, first=first, every=every), spec.proximal)
    if spec.ema is not None:
        parts["average"] = WeightAverage(model, spec.ema)
    return parts


def proximal_start(spec: TrainSpec, updates: int, per_epoch: int) -> int:
    """The weight updates before the slow weights begin."""
    return updates // 2 if spec.proximal_from is None else round(spec.proximal_from * per_epoch)


def build_awp(spec: TrainSpec, updates: int, per_epoch: int) -> "WeightPerturbation | None":
    """The adversarial weight perturbation of a spec."""
    if spec.awp == 0:
        return None
    from freeat.learner.modifiers import WeightPerturbation

    first = round(spec.awp_from * per_epoch)
    if first >= updates:
        raise InputError(
            f"--awp-from {spec.awp_from:g}: its update {first} comes after the last of {updates}; begin earlier"
        )
    return WeightPerturbation(gamma=spec.awp, first=first)


def build_evaluator(
    spec: TrainSpec,
    evaluation: EvalSpec,
    data: DataSet,
    device: torch.device,
    *,
    processes: ProcessGroup = SINGLE_PROCESS,
    algorithm: Algorithm | None = None,
    attack: Pgd | None = None,
    ball: Ball | None = None,
    augment: Augmentation | str | None = "auto",
) -> Evaluator:
    """The evaluator of a spec: its splits, attack and radius; arguments replace those of the spec."""
    ball = ball or make_ball(spec.norm, evaluation.radius(spec))
    ball.check(data.shape)
    train, validation = build_images(spec, data)
    chosen = spec.augment if augment == "auto" else augment
    adversarial = parse_algorithm(spec.algorithm).adversarial
    if algorithm is not None:
        adversarial = threat_of(algorithm) is not None
    return Evaluator(
        train=on_device_if_it_fits(train, device),
        test=on_device_if_it_fits(data.test, device),
        validation=on_device_if_it_fits(validation, device) if validation is not None else None,
        augment=parse_augmentation(chosen, data.augment) if isinstance(chosen, str) else chosen,
        attack=attack or evaluation_attack(evaluation),
        ball=ball,
        classes=len(data.classes),
        seed=spec.seed,
        watches_collapse=adversarial,
        processes=processes,
    )


def evaluation_attack(evaluation: EvalSpec) -> Pgd:
    """The PGD attack that evaluates a run."""
    if not is_import_path(evaluation.attack):
        attack = parse_attack(
            evaluation.attack,
            iterate=evaluation.iterate,  # type: ignore[arg-type]
            alpha=evaluation.eval_alpha,
            start=evaluation.eval_start,  # type: ignore[arg-type]
        )
        if isinstance(attack, Pgd):
            if evaluation.eval_start not in (None, attack.start):
                raise InputError(
                    f"--eval-start {evaluation.eval_start}: {attack.name} starts at the image itself; leave it out"
                )
            return attack
    raise InputError(
        f"--attack {evaluation.attack!r}: training is evaluated by PGD, written pgd-10 or pgd-50-10 "
        "(steps, restarts); other attacks are for `freeat evaluate`"
    )


def build_trainer(
    spec: TrainSpec,
    evaluation: EvalSpec,
    evaluator: Evaluator,
    model: nn.Module,
    device: torch.device,
    *,
    processes: ProcessGroup = SINGLE_PROCESS,
    algorithm: Algorithm | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    schedule: Schedule | None = None,
    trust_code: bool = False,
) -> Trainer:
    """The trainer of a model on the evaluator's training images; arguments replace what the spec names."""
    n = len(evaluator.train)
    updates = spec.updates or updates_for(spec.epochs or DEFAULT_EPOCHS, n, spec.batch_size)
    algorithm = algorithm or build_algorithm(spec, updates, trust_code=trust_code)
    if getattr(without_warm_up(algorithm), "carry", False) and processes.size > 1:
        raise InputError(
            "carry keeps δ by the slot in the batch, which several processes cannot share: use one process"
        )
    model = model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    batches = build_batches(spec, n)
    if processes.size > 1 and device.type == "cuda":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    if any(isinstance(layer, nn.SyncBatchNorm) for layer in model.modules()):
        check_in_step(batches, spec.micro_batch, processes.size)
    _check_single(model, batches, spec.micro_batch, processes, evaluator.train.shape)
    return Trainer(
        learner=build_learner(
            spec,
            model,
            algorithm,
            updates,
            device,
            per_epoch=batches.per_epoch,
            processes=processes,
            optimizer=optimizer,
            schedule=schedule,
        ),
        algorithm=algorithm,
        batches=batches,
        evaluator=evaluator,
        augment=evaluator.augment,
        eval_every=evaluation.eval_every,
        eval_size=evaluation.eval_size,
        final_size=evaluation.final_size,
        measures_strength=evaluation.strength and has_strength(algorithm),
    )


def _check_single(
    model: nn.Module,
    batches: Batches,
    micro_batch: int | None,
    processes: ProcessGroup,
    shape: tuple[int, int, int],
) -> None:
    """Refuse passes of one image where a batch norm has then a single value per channel."""
    for total in batches.sizes:
        shares = [replace(processes, rank=rank).share(total) for rank in range(processes.size)]
        passes = [micro_batches(own.stop - own.start, micro_batch, join=True) for own in shares]
        if any(rows.stop - rows.start == 1 for own in passes for rows in own):
            break
    else:
        return
    one = torch.zeros(1, *shape, device=next(model.parameters()).device)
    if (error := refuses_one_image(copy.deepcopy(model).train(), one, processes)) is None:
        return
    if processes.size == 1:
        raise InputError(
            f"batches of 1 image: the batch norms of the model need more ({error}); take --batch-size 2 or more, "
            "a larger --micro-batch, or a model with group norm"
        )
    raise InputError(
        f"a batch of {total} images gives one of {processes.size} processes 1 image at a time: the batch norms of the "
        f"model need more ({error}); take a larger --batch-size or --micro-batch, another --train-size, fewer "
        "processes, or a model with group norm"
    )


def resolve(spec: TrainSpec, trainer: Trainer) -> TrainSpec:
    """The spec with what its defaults, the algorithm's and the data's have come to in its trainer.

    An imported algorithm keeps its own defaults: its source is a part of the run. An augmentation without a name
    stays ``auto``: it follows from the data, which are a part of the run too.
    """
    names = (name for name, augmentation in NAMED.items() if augmentation == trainer.augment)
    updates, per_epoch = trainer.learner.total_updates or 0, trainer.batches.per_epoch
    spec = replace(spec, epochs=None, updates=updates, augment=next(names, spec.augment))
    if spec.proximal is not None:
        spec = replace(spec, proximal_from=proximal_start(spec, updates, per_epoch) / per_epoch)
    if parse_algorithm(spec.algorithm).imported:
        return spec
    algorithm = without_warm_up(trainer.algorithm)
    objective = getattr(algorithm, "objective", None) or CrossEntropy()
    coefficient = coefficient_of(objective)
    return replace(
        spec,
        alpha=getattr(algorithm, "step_size", None),
        start=getattr(algorithm, "start", None),
        noise=getattr(algorithm, "noise_radii", None),
        coefficient=None if coefficient is None else getattr(objective, coefficient),
        algorithm_args={name: getattr(algorithm, name) for name in options_of(type(algorithm))} or None,
    )


def resolve_evaluation(evaluation: EvalSpec, trainer: Trainer) -> EvalSpec:
    """The evaluation with the radius, step, start and curve that its defaults have come to in its trainer."""
    attack, ball, curve = trainer.evaluator.attack, trainer.evaluator.ball, trainer.evaluations
    return replace(
        evaluation,
        eval_eps=ball.eps,
        eval_alpha=attack.step_size(ball),
        eval_start=attack.start,
        eval_every=curve.every,
        eval_size=curve.size,
    )


def spec_warnings(spec: TrainSpec, evaluation: EvalSpec, n: int) -> tuple[str, ...]:
    """Warnings about settings that are allowed but seldom intended."""
    steps = [
        ("step of the training attack", spec.alpha, spec.eps),
        ("step of the evaluation attack", evaluation.eval_alpha, evaluation.radius(spec)),
    ]
    return setting_warnings(batch_size=spec.batch_size, n=n, steps=steps)


def make_optimizer(spec: TrainSpec, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a spec for a model that is on its device already."""
    match spec.optimizer:
        case "sgd":
            # The same bits in one pass over the weights. It takes gradient and momentum to be laid out in memory as the
            # weights are, which a resumed run promises of contiguous ones only, and it would unscale fp16 itself.
            fused = spec.precision != "fp16" and all(
                p.device.type == "cpu" and p.is_contiguous() for p in model.parameters()
            )
            return uncompiled(torch.optim.SGD)(
                model.parameters(),
                lr=spec.lr,
                momentum=spec.momentum,
                weight_decay=spec.weight_decay,
                fused=fused or None,
            )
        case "adamw":
            return uncompiled(torch.optim.AdamW)(
                model.parameters(), lr=spec.lr, weight_decay=spec.weight_decay
            )
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
    objective = OBJECTIVES[name]
    return objective(**{str(coefficient_of(objective)): spec.coefficient})
