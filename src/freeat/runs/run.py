"""A run carried out in its folder: begun, continued, or found finished."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from freeat import models
from freeat.algorithms.registry import resolved
from freeat.compute.machine import arithmetic, provenance, resolve_device, resolve_threads
from freeat.compute.precision import Precision
from freeat.errors import InputError
from freeat.files.locks import Lease, check_free, leased
from freeat.learner.distributed import ProcessGroup, is_main_process, join_process_group
from freeat.runs.build import (
    algorithm_source,
    build_ball,
    build_data,
    build_evaluator,
    build_model,
    build_trainer,
    evaluation_attack,
    spec_cautions,
    start_from,
    weights_digest,
)
from freeat.runs.folder import DataFacts, MachineSettings, RunDescription, RunFolder, RunResult
from freeat.runs.open import stored_weights
from freeat.runs.spec import EvalSpec, TrainSpec
from freeat.training.loop import Diverged
from freeat.training.records import Callback, Callbacks, Record
from freeat.training.trainer import OnCollapse, Trainer

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
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


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What is known of a run before its first update."""

    data: DataFacts
    updates: int
    initial_weights: str
    new_head: tuple[str, ...]
    parameters: int
    algorithm: Mapping[str, Any]
    algorithm_source: str | None
    notes: tuple[str, ...]


def execute(
    spec: TrainSpec,
    evaluation: EvalSpec,
    options: RunOptions,
    *,
    callback: Callback | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> RunResult | None:
    """Carry out the run in its folder, resume it, or return its result if it is finished.

    Of several processes only the main one has a result.
    """
    folder = RunFolder(options.folder)
    folder.check(spec, evaluation)
    if (result := folder.result) is not None:
        check_finished(spec, options)
        log.info("%s is finished already; its stored result is returned", folder.path)
        return result if is_main_process() else None
    check_free(folder.path)
    device = resolve_device(options.device)
    spec_now = _settled(spec, folder, device)
    assert spec_now.threads is not None
    with (
        arithmetic(threads=spec_now.threads, deterministic=spec.deterministic),
        join_process_group(device) as processes,
    ):
        trainer, facts = assemble(spec_now, evaluation, options, device, processes)
        trainer.callback, trainer.should_stop = callback or Callbacks(), should_stop
        if not processes.is_main:
            if not processes.any(False):
                trainer.run()
            return None
        for note in facts.notes:
            log.warning("%s", note)
        with _claimed(folder) as lease:
            if processes.any(folder.result is not None):  # by another process, meanwhile
                return folder.result
            trainer.may_write = lease.check
            folder.tidy()
            _introduce(folder, spec, evaluation, facts, spec_now, device, processes)
            final = _carried_out(trainer, folder)
            lease.check()
            folder.publish_result(
                RunResult(
                    **vars(final),
                    identity=spec.identity,
                    weights=weights_digest(trainer.learner.model),
                    notes=(*facts.data.notes, *facts.notes),
                )
            )
            folder.checkpoints.clear()
    return folder.result


def assemble(
    spec: TrainSpec, evaluation: EvalSpec, options: RunOptions, device: torch.device, processes: ProcessGroup
) -> tuple[Trainer, RunFacts]:
    """The trainer a spec describes, with the facts about its data and initial weights. Writes nothing."""
    evaluation_attack(evaluation)
    data = build_data(spec, data_dir=options.data_dir)
    build_ball(spec).check(data.shape)
    evaluator = build_evaluator(spec, evaluation, data, device, processes=processes)
    model = build_model(spec, data, trust_code=options.trust_code)
    fresh = start_from(model, stored_weights(spec.init_from), spec.init_from) if spec.init_from else []
    digest, parameters = weights_digest(model), models.parameter_count(model)
    trainer = build_trainer(
        spec, evaluation, evaluator, model, device, processes=processes, trust_code=options.trust_code
    )
    trainer.folder = RunFolder(options.folder)
    trainer.checkpoint_every, trainer.on_collapse = options.checkpoint_every, options.on_collapse
    n = len(evaluator.train)
    return trainer, RunFacts(
        data=DataFacts(
            name=data.name,
            digest=data.digest,
            train=n,
            test=len(data.test),
            shape=data.shape,
            classes=tuple(data.classes),
            notes=tuple(data.notes),
        ),
        updates=trainer.learner.total_updates or 0,
        initial_weights=digest,
        new_head=tuple(fresh),
        parameters=parameters,
        algorithm=resolved(trainer.algorithm),
        algorithm_source=algorithm_source(spec, trust_code=options.trust_code),
        notes=spec_cautions(spec, evaluation, n),
    )


def check_finished(spec: TrainSpec, options: RunOptions) -> None:
    """Refuse a finished run whose data, or the source of whose imported algorithm, changed since.

    It needs them no more: where they are gone it stands.
    """
    folder = RunFolder(options.folder)
    try:
        source = algorithm_source(spec, trust_code=options.trust_code)
    except InputError as error:
        log.warning("%s is finished, and its algorithm is not here to compare: %s", folder.path, error)
    else:
        folder.check_algorithm(source)
    try:
        data = build_data(spec, data_dir=options.data_dir)
    except InputError as error:
        log.warning("%s is finished, and its data are not here to compare: %s", folder.path, error)
        return
    folder.check_data(data.digest)


@contextmanager
def _claimed(folder: RunFolder) -> Iterator[Lease]:
    """The folder, made if need be, with the right to write it; one that stays empty is removed again."""
    made = not folder.path.exists()
    folder.claim()
    try:
        with leased(folder.path) as lease:
            yield lease
    finally:
        if made:
            with suppress(OSError):  # it is empty only where the run never began
                folder.path.rmdir()


def _carried_out(trainer: Trainer, folder: RunFolder) -> Record:
    """Train to the end. A run that fails before it has anything to keep gives its folder back, for a better one."""
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


def _settled(spec: TrainSpec, folder: RunFolder, device: torch.device) -> TrainSpec:
    """What is left to the machine made definite: once, and then as the run has stored it."""
    if folder.exists:
        chosen = folder.description.chosen
        return spec.replaced(threads=chosen.threads, precision=chosen.precision)
    threads = resolve_threads(spec.threads)
    return spec.replaced(threads=threads, precision=Precision(spec.precision, device).name)


def _introduce(
    folder: RunFolder,
    spec: TrainSpec,
    evaluation: EvalSpec,
    facts: RunFacts,
    settled: TrainSpec,
    device: torch.device,
    processes: ProcessGroup,
) -> None:
    """Describe a new run, or make sure that an old one is being continued on the same ground."""
    assert settled.threads is not None
    chosen = MachineSettings(
        threads=settled.threads,
        precision=settled.precision,
        device=device.type,
        processes=processes.size,
        torch=str(torch.__version__),
    )
    if not folder.exists:
        folder.describe(
            RunDescription(
                **vars(facts),
                identity=spec.identity,
                spec=spec,
                evaluation=evaluation,
                chosen=chosen,
                provenance=provenance(device),
            )
        )
        return
    stored = folder.description
    folder.check_data(facts.data.digest)
    folder.check_algorithm(facts.algorithm_source)
    folder.check_resolved(facts.algorithm)
    folder.check_same("initial weights", stored.initial_weights, facts.initial_weights)
    for name, before in vars(stored.chosen).items():
        if before != (now := getattr(chosen, name)):
            log.warning(
                "%s was begun with %s %s and is resumed with %s: bits may differ",
                folder.path,
                name,
                before,
                now,
            )
