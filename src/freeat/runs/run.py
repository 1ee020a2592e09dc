"""A run carried out in its folder: begun, continued, or found finished."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from freeat.compute.machine import arithmetic, provenance, resolve_device, resolve_threads
from freeat.compute.precision import Precision
from freeat.data import load
from freeat.errors import InputError
from freeat.files.locks import Lease, check_free, leased
from freeat.learner.distributed import ProcessGroup, is_main_process, join_process_group
from freeat.runs.build import Place, assemble
from freeat.runs.folder import RunFolder
from freeat.runs.initial import weights_digest
from freeat.runs.spec import EvalSpec, TrainSpec
from freeat.training.callbacks import Nobody, Watcher
from freeat.training.loop import Diverged
from freeat.training.recorder import Record
from freeat.training.trainer import Fit

log = logging.getLogger(__name__)


def execute(
    spec: TrainSpec,
    evaluation: EvalSpec,
    place: Place,
    *,
    watcher: Watcher | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Carry the run out in its folder, or go on with it, or return its result if it is finished."""
    folder = RunFolder(place.folder)
    folder.check(spec, evaluation)
    if (result := folder.result) is not None:
        check_finished(spec, place)
        log.info("%s is finished already; its stored result is returned", folder.path)
        return result if is_main_process() else {}
    check_free(folder.path)
    device = resolve_device(place.device)
    spec_now = _settled(spec, folder, device)
    assert spec_now.threads is not None
    with (
        arithmetic(threads=spec_now.threads, deterministic=spec.deterministic),
        join_process_group(device) as processes,
    ):
        fit, facts = assemble(spec_now, evaluation, place, device, processes)
        fit.watcher, fit.should_stop = watcher or Nobody(), should_stop
        if not processes.is_main:
            if not processes.any(False):
                fit.run()
            return {}
        for note in facts["notes"]:
            log.warning("%s", note)
        with _claimed(folder) as lease:
            if processes.any(folder.result is not None):  # by another process, meanwhile
                return folder.result or {}
            fit.may_write = lease.check
            folder.tidy()
            _introduce(folder, spec, evaluation, facts, spec_now, device, processes)
            final = _carried_out(fit, folder)
            lease.check()
            notes = [*facts["data"]["notes"], *facts["notes"]]
            about = {"identity": spec.identity, "weights": weights_digest(fit.learner.model), "notes": notes}
            folder.publish_result(final | about)
            folder.checkpoints.clear()
    return folder.result or {}


def check_finished(spec: TrainSpec, place: Place) -> None:
    """Refuse a finished run whose data changed since. It needs them no more: where they are gone it stands."""
    folder = RunFolder(place.folder)
    try:
        data = load(spec.data, data_dir=place.data_dir, seed=spec.seed, image_size=spec.image_size)
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


def _carried_out(fit: Fit, folder: RunFolder) -> Record:
    """Train to the end. A run that fails before it has anything to keep gives its folder back, for a better one."""
    try:
        return fit.run()
    except (InputError, Diverged) as failure:
        if fruitless := folder.fruitless:
            folder.withdraw()
        if not isinstance(failure, Diverged):
            raise
        kept = (
            "nothing was saved yet, so --out is free again"
            if fruitless
            else "what was saved before it is kept"
        )
        raise Diverged(failure.what, kept) from None


def _settled(spec: TrainSpec, folder: RunFolder, device: torch.device) -> TrainSpec:
    """What is left to the machine made definite: once, and then as the run has stored it."""
    if folder.exists:
        chosen = folder.description["chosen"]
        return spec.replaced(threads=chosen["threads"], precision=chosen["precision"])
    threads = resolve_threads(spec.threads)
    return spec.replaced(threads=threads, precision=Precision(spec.precision, device).name)


def _introduce(
    folder: RunFolder,
    spec: TrainSpec,
    evaluation: EvalSpec,
    facts: dict[str, Any],
    settled: TrainSpec,
    device: torch.device,
    processes: ProcessGroup,
) -> None:
    """Describe a new run, or make sure that an old one is being continued on the same ground."""
    chosen = {
        "threads": settled.threads,
        "precision": settled.precision,
        "device": device.type,
        "world_size": processes.size,
        "torch": torch.__version__,
    }
    if not folder.exists:
        folder.describe(spec, evaluation, {**facts, "chosen": chosen, **provenance(device)})
        return
    stored = folder.description
    folder.check_data(facts["data"]["digest"])
    folder.check_same("initial weights", stored["initial_weights"], facts["initial_weights"])
    for name, before in stored["chosen"].items():
        if before != chosen[name]:
            log.warning(
                "%s was begun with %s %s and goes on with %s: bits may differ",
                folder.path,
                name,
                before,
                chosen[name],
            )
