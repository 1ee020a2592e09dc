"""The transfer matrix source × target over radii and splits, stored cell by cell, resumable."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from freeat.attacks.result import Attack
from freeat.evaluation.evaluate import Evaluation, device_and_dtype, joined
from freeat.evaluation.sanity import compare_cells
from freeat.evaluation.transfer import apply_to, weakness
from freeat.experiments.checking import check_model
from freeat.experiments.sweep_plan import (
    Cell,
    Plan,
    Trial,
    Watch,
    alike,
    architecture,
    check_distinct,
    gaps,
    home_of,
    homes,
    noted,
    numbered,
    same_model,
    unwatched,
)
from freeat.files.documents import plain
from freeat.runs.open import Opened
from freeat.runs.results import Cells
from freeat.runs.unfinished import until_published


def transfer_models(
    sources: Sequence[Opened],
    targets: Sequence[Opened],
    plan: Plan,
    *,
    folder: Path | None = None,
    probes: bool = True,
    watch: Watch = unwatched,
) -> dict[str, Any]:
    """The whole matrix, every perturbation computed once and only where a cell is missing.

    Targets that were trained on different images are each judged on their own, where training images are asked for.
    Where source and target are the same model the cell is as white-box as the attack, and is marked ``own``. The
    honesty checks of the models themselves are left out without ``probes``, for models that were checked before.
    """
    check_distinct(sources)
    check_distinct(targets)
    for attack in plan.attacks:
        weakness(attack)  # refused before anything is measured
    groups = [(split, group) for split in plan.splits for group in alike(targets, plan, split)]
    rows = (
        (source, group, trial)
        for source in sources
        for split, group in groups
        for trial in plan.trials(group[0], split)
    )
    total = len(sources) * len(groups) * len(plan.attacks) * len(plan.balls)
    cells = [
        cell
        for k, (source, group, trial) in enumerate(rows, start=1)
        for cell in _row(source, group, plan, trial, folder, numbered(watch, k, total))
    ]
    checks = [
        check
        for model in (_once([*sources, *targets]) if probes else ())
        for check in check_model(model, plan, Cells(home_of(model, folder)), watch)
    ]
    known = [cell for target in targets for cell in _white_box(target, plan, Cells(home_of(target, folder)))]
    checks += compare_cells(cells, known=known)
    return {
        "cells": cells,
        "gaps": gaps(cells),
        "checks": [asdict(check) for check in checks],
        "stored": homes(targets, folder),
    }


def _row(
    source: Opened,
    targets: Sequence[Opened],
    plan: Plan,
    trial: Trial,
    folder: Path | None,
    watch: Watch,
) -> list[Cell]:
    """One source against targets that are judged on the same images, in one split and ball."""
    split, images, attack, ball = trial.split, trial.images, trial.attack, trial.ball
    notes = [(*plan.notes(target, split), *weakness(attack)) for target in targets]
    of_source = {"source": source.digest, "source_architecture": architecture(source)}
    keys = [
        plan.identity("transfer", target, split=split, images=images, ball=ball, attack=attack) | of_source
        for target in targets
    ]
    stores = [Cells(home_of(target, folder)) for target in targets]
    found = [store.find(key) for store, key in zip(stores, keys, strict=True)]
    missing = [i for i, cell in enumerate(found) if cell is None]
    if missing:
        key = plan.identity("perturb", source, split=split, images=images, ball=ball, attack=attack)
        at_source = Cells(home_of(source, folder))
        with until_published(plan.unfinished(at_source, key, keep_delta=True)) as unfinished:
            parts = plan.parts(source, trial, watch, keep_delta=True, unfinished=unfinished)
            made, judged = _transferred(parts, [targets[i] for i in missing], trial, plan.batch_size)
            cost = {name: plain(made.outcomes())[name] for name in ("passes", "seconds", "queries")}
            for i, measurement in zip(missing, judged, strict=True):
                about = plan.facts(targets[i], trial) | _pair(source, targets[i], attack) | {"making": cost}
                found[i] = stores[i].store(keys[i], noted(about | plain(measurement.outcomes()), notes[i]))
    return [
        noted(cell, notes[i]) | _pair(source, targets[i], attack)
        for i, cell in enumerate(found)
        if cell is not None
    ]


def _transferred(
    parts: Iterable[Evaluation], targets: Sequence[Opened], trial: Trial, batch_size: int
) -> tuple[Evaluation, list[Evaluation]]:
    """What making the perturbations found, and what they do to each target, of which none is kept in the end."""
    made: list[Evaluation] = []
    judged: list[list[Evaluation]] = [[] for _ in targets]
    done = 0
    for part in parts:
        images = trial.images.take(torch.arange(done, done + len(part.y)))
        for target, measured in zip(targets, judged, strict=True):
            near = images.to(device_and_dtype(target.model)[0])
            measured.append(apply_to(target.model, near, part, trial.ball, batch_size=batch_size))
        made.append(replace(part, delta=None))
        done += len(part.y)
    one, *others = (joined(found, population=trial.population) for found in (made, *judged))
    return one, others


def _pair(source: Opened, target: Opened, attack: Attack) -> Cell:
    own = same_model(source, target)
    return {
        "model": target.name,
        "source": source.name,
        "attack": f"{attack.name} from {source.name}",
        "own": own,
        "black_box": attack.black_box or not own,
    }


def _once(models: Iterable[Opened]) -> list[Opened]:
    """Each model once, by the name it was given last; it may stand on both sides."""
    return list({(model.digest, architecture(model)): model for model in models}.values())


def _white_box(target: Opened, plan: Plan, store: Cells) -> Iterator[Cell]:
    """What is stored of the target under attacks of its own, on the very images it is judged on here."""
    for split in plan.splits:
        images, _ = plan.images(split, target)
        same = ("kind", "weights", "architecture", "split", "images", "index")
        key = plan.identity("attack", target, split=split, images=images, ball=plan.balls[0], attack=None)
        for cell in store.matching(**{name: key[name] for name in same}):
            if not cell["black_box"]:
                yield cell | {"model": target.name}
