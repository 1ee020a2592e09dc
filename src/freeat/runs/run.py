"""A run in its folder: begun, resumed, or found finished."""

import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from freeat import models
from freeat.compute.frozen import frozen_eval
from freeat.compute.machine import CpuClock, arithmetic, provenance, resolve_device, resolve_threads
from freeat.compute.precision import Precision
from freeat.errors import InputError
from freeat.evaluation.evaluate import device_and_dtype, inconsistencies, logits_of
from freeat.files.locks import Busy, check_free, leased
from freeat.learner.distributed import ProcessGroup, join_process_group, launched_processes
from freeat.models.imported import is_of_package
from freeat.runs.build import (
    algorithm_source,
    build_ball,
    build_data,
    build_evaluator,
    build_model,
    build_trainer,
    default_normalization,
    evaluation_attack,
    package_of,
    resolve,
    resolve_evaluation,
    spec_warnings,
    start_from,
    weights_digest,
)
from freeat.runs.folder import DataFacts, MachineSettings, RunDescription, RunFolder, RunResult
from freeat.runs.spec import SEMANTICS, EvalSpec, TrainSpec
from freeat.training.loop import Diverged
from freeat.training.records import Callback, Callbacks, Record
from freeat.training.trainer import OnCollapse, Plan, Trainer, plan_training

log = logging.getLogger(__name__)

LOOKED_AT = 32
"""Images on which the model is looked at before its training."""

SOURCE_LINES = "source lines of the algorithm"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where a run is executed and how it behaves there; none of it determines the weights."""

    folder: Path
    device: str = "auto"
    data_dir: Path | None = None
    checkpoint_every: float = 60.0
    on_collapse: OnCollapse = "warn"
    trust_code: bool = False
    workers: int | None = None

    def __post_init__(self) -> None:
        if not self.checkpoint_every >= 0:
            raise InputError(
                f"--checkpoint-every {self.checkpoint_every:g} must not be negative; 0 is after every batch"
            )


def execute(
    spec: TrainSpec,
    evaluation: EvalSpec,
    options: RunOptions,
    *,
    callback: Callback | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    announce: Callable[[Plan], None] | None = None,
) -> RunResult | None:
    """Carry out the run in its folder, resume it, or return its result if it is finished.

    ``announce`` receives what the run will take, before it begins. Of several processes only the main one has a result.
    """
    clock = CpuClock.now()
    folder = RunFolder(options.folder)
    launched = launched_processes()
    with launched.failing_together():
        folder.check(spec, evaluation)
        result = folder.result
        if result is not None:
            check_finished(spec, options)
        else:
            check_free(folder.path)
    if launched.gather(result is not None)[0]:  # the folder of the main process is the run's
        return _stored(folder) if launched.is_main else None
    with launched.failing_together():
        device = resolve_device(options.device)
        stored = folder.description if folder.exists else None
        settled = settle(spec, device, stored)
    launched.check_same({"device": device.type}, "name one with --device on every machine, such as cpu")
    launched.check_same(
        {"precision": settled.precision}, "name one on every machine, --precision fp32 or --precision bf16"
    )
    assert settled.threads is not None
    with (
        arithmetic(threads=settled.threads, deterministic=spec.deterministic),
        join_process_group(device) as processes,
        ExitStack() as held,
    ):
        with processes.failing_together():
            trainer, description = assemble(spec, evaluation, options, device, processes, settled)
            if stored is not None and not _same_defaults(stored, description):
                trainer, description = assemble(
                    spec, stored.resolved_evaluation, options, device, processes, stored.resolved
                )
        processes.check_same(
            {
                "settings": description.identity[:12],
                "data": description.data.digest[:12],
                "initial weights": description.initial_weights[:12],
                SOURCE_LINES: (description.algorithm_source or "")[:12],
            },
            "start the same command with the same files on every machine",
        )
        trainer.callback, trainer.should_stop = callback or Callbacks(), should_stop
        with processes.failing_together():
            if processes.is_main:
                if announce is not None:
                    others = clock.cores_of_others() if clock is not None else None
                    announce(plan_training(trainer, description.resolved.model, others=others))
                for note in description.notes:
                    log.warning("%s", note)
                lease = held.enter_context(leased(folder.path))
                result = folder.result  # by another process, meanwhile
                if result is None:
                    trainer.may_write = lease.check
                    folder.remove_unfinished()
                    if folder.exists:
                        _check_resumable(folder, description)
                    else:
                        folder.describe(description)
        if processes.gather(result is not None)[0]:
            return result if processes.is_main else None
        if not processes.is_main:
            trainer.run()
            return None
        final = _train(trainer, folder)
        lease.check()
        folder.publish_result(
            RunResult(
                **vars(final),
                identity=spec.identity,
                weights=weights_digest(trainer.learner.model),
                notes=tuple(
                    dict.fromkeys((*description.data.notes, *description.notes, *_inconsistencies(trainer)))
                ),
            )
        )
        folder.checkpoints.clear()
    return folder.result


def _stored(folder: RunFolder) -> RunResult | None:
    """The result of a finished run, whose folder loses what a killed process left."""
    log.info("%s is finished already; its stored result is returned", folder.path)
    if folder.has_leftovers:
        with suppress(Busy, OSError), leased(folder.path):  # also where it is read-only
            folder.remove_unfinished()
            folder.checkpoints.clear()
    return folder.result


def _same_defaults(stored: RunDescription, now: RunDescription) -> bool:
    """Whether no default that a run follows has changed since it was begun."""
    return (stored.resolved, stored.resolved_evaluation) == (now.resolved, now.resolved_evaluation)


def settle(spec: TrainSpec, device: torch.device, stored: RunDescription | None = None) -> TrainSpec:
    """The spec with its threads and precision chosen: by this machine, or as in the run that was stored.

    A model of the Hub to begin from is named by its commit.
    """
    if stored is not None:
        begins = stored.resolved.init_from if spec.begins_on_hub else spec.init_from
        return replace(
            spec, threads=stored.chosen.threads, precision=stored.chosen.precision, init_from=begins
        )
    threads, precision = resolve_threads(spec.threads), Precision(spec.precision, device).name
    if spec.begins_on_hub:
        from freeat.files.hub import HubModel

        spec = replace(spec, init_from=str(HubModel.of(str(spec.init_from))))
    return replace(spec, threads=threads, precision=precision)


def resolve_network(spec: TrainSpec, shape: tuple[int, int, int]) -> TrainSpec:
    """The spec with the network that ``auto`` means: that of the run to begin from, else the one for this shape."""
    if spec.model != models.AUTO:
        return spec
    from freeat.runs.open import Reference, weights_path

    folder = Reference.of(weights_path(spec.init_from)).folder if spec.init_from else None
    if folder is not None:
        stored = folder.spec
        return replace(
            spec,
            model=stored.model,
            model_args=spec.model_args or stored.model_args,
            normalize=spec.normalize or stored.normalize,
        )
    return replace(spec, model=models.network_for(shape))


def assemble(
    spec: TrainSpec,
    evaluation: EvalSpec,
    options: RunOptions,
    device: torch.device,
    processes: ProcessGroup,
    settled: TrainSpec | None = None,
) -> tuple[Trainer, RunDescription]:
    """The trainer of a spec and the description of its run. Writes nothing.

    ``settled`` is the spec with settings chosen that it leaves open.
    """
    settled = settled or settle(spec, device)
    evaluation_attack(evaluation)
    data = build_data(settled, data_dir=options.data_dir, workers=options.workers)
    settled = resolve_network(settled, data.shape)
    build_ball(settled).check(data.shape)
    evaluator = build_evaluator(settled, evaluation, data, device, processes=processes)
    weights: dict[str, torch.Tensor] = {}
    if settled.init_from:
        if is_of_package(settled.model) and (settled.model_args or {}).get("pretrained"):
            raise InputError(
                f"--init-from {settled.init_from} and pretrained=true both give the weights to begin with: choose one"
            )
        from freeat.runs.open import initial_weights

        settled, weights = initial_weights(
            settled, classes=len(data.classes), shape=data.shape, trust_code=options.trust_code
        )
    elif settled.normalize is None and (found := default_normalization(settled.model)) is not None:
        settled = replace(settled, normalize=str(found))
    model = build_model(settled, data, trust_code=options.trust_code)
    if settled.init_from:
        fresh = start_from(model, weights, settled.init_from, classifiers=_classifiers(settled))
        source = Path(settled.init_from).name
    else:
        fresh, source = _published_mismatches(settled, model, len(data.classes)), "the published model"
    notes = spec_warnings(spec, evaluation, len(evaluator.train))
    if fresh:
        notes = (
            f"the head ({', '.join(fresh)}) is new, for {len(data.classes)} classes: "
            f"{source} has another number; all other weights are from there.",
            *notes,
        )
    if (fit := getattr(model, "fit", None)) is not None and is_of_package(settled.model):
        notes = (fit.note(data.shape), *notes)
    digest, parameters = weights_digest(model), models.parameter_count(model)
    trainer = build_trainer(
        settled, evaluation, evaluator, model, device, processes=processes, trust_code=options.trust_code
    )
    trainer.folder = RunFolder(options.folder)
    trainer.checkpoint_every, trainer.on_collapse = options.checkpoint_every, options.on_collapse
    n = len(evaluator.train)
    assert settled.threads is not None
    return trainer, RunDescription(
        identity=spec.identity,
        semantics=SEMANTICS,
        spec=spec,
        resolved=resolve(settled, trainer),
        evaluation=evaluation,
        resolved_evaluation=resolve_evaluation(evaluation, trainer),
        updates=trainer.learner.total_updates or 0,
        data=DataFacts(
            name=data.name,
            digest=data.digest,
            train=n,
            test=len(data.test),
            shape=data.shape,
            classes=tuple(data.classes),
            notes=tuple(data.notes),
            content=data.content,
        ),
        initial_weights=digest,
        new_head=tuple(fresh),
        parameters=parameters,
        algorithm_source=algorithm_source(spec, trust_code=options.trust_code),
        chosen=MachineSettings(
            threads=settled.threads,
            precision=settled.precision,
            device=device.type,
            processes=processes.size,
            torch=str(torch.__version__),
            package=package_of(settled),
        ),
        notes=(*notes, *_inconsistencies(trainer)),
        provenance=provenance(device),
    )


def _classifiers(spec: TrainSpec) -> tuple[str, ...]:
    """The classifiers of a package's network by the names that the package gives them."""
    if not is_of_package(spec.model):
        return ()
    from freeat.models.packages import published

    return published(spec.model).classifiers


def _published_mismatches(spec: TrainSpec, model: torch.nn.Module, classes: int) -> list[str]:
    """The tensors of a head that is new because the published weights, asked for, have other classes."""
    if not is_of_package(spec.model):
        return []
    from freeat.models.packages import asks_for_weights, published

    if not asks_for_weights(spec.model_args) or published(spec.model).classes == classes:
        return []
    return models.head_tensors(model, _classifiers(spec))


def _inconsistencies(trainer: Trainer) -> list[str]:
    """Of the model as it is: answers that change, or that depend on the batch."""
    model, images = trainer.learner.model, trainer.evaluator.train.sample(LOOKED_AT)
    x = images.batch(torch.arange(len(images)))[0].to(*device_and_dtype(model))
    with frozen_eval(model):
        return inconsistencies(model, x, logits_of(model, x))


def check_finished(spec: TrainSpec, options: RunOptions) -> None:
    """Refuse a finished run if its data or the source of its imported algorithm have changed since.

    It does not need them any more: if they are missing, its result still stands.
    """
    folder = RunFolder(options.folder)
    try:
        source = algorithm_source(spec, trust_code=options.trust_code)
    except InputError as error:
        log.warning("%s is finished, and its algorithm is not here to compare: %s", folder.path, error)
    else:
        folder.check_same(SOURCE_LINES, folder.description.algorithm_source, source)
    try:
        data = build_data(spec, data_dir=options.data_dir)
    except InputError as error:
        log.warning("%s is finished, and its data are not here to compare: %s", folder.path, error)
        return
    folder.check_data(data)


def _train(trainer: Trainer, folder: RunFolder) -> Record:
    """Train to the end. A run that fails before it has saved anything frees its folder."""
    try:
        return trainer.run()
    except (InputError, Diverged) as failure:
        if empty := folder.empty:
            folder.reset()
        if not isinstance(failure, Diverged):
            raise
        kept = (
            "nothing was saved yet, so --out is free again" if empty else "what was saved before it is kept"
        )
        raise Diverged(failure.what, kept) from None


def _check_resumable(folder: RunFolder, now: RunDescription) -> None:
    """Refuse to resume a run with other data, weights or code; warn where the machine differs."""
    stored = folder.description
    folder.check_data(now.data)
    folder.check_same(SOURCE_LINES, stored.algorithm_source, now.algorithm_source)
    folder.check_same("initial weights", stored.initial_weights, now.initial_weights)
    for name, before in vars(stored.chosen).items():
        if before != (current := getattr(now.chosen, name)):
            log.warning(
                "%s was begun with %s %s and is resumed with %s: bits may differ",
                folder.path,
                name,
                before,
                current,
            )
