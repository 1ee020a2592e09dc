"""The transfer matrix source × target over radii and splits, stored cell by cell, resumable."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from freeat.attacks.cells import Cells
from freeat.attacks.honesty import compare_cells
from freeat.attacks.plan import (
    Cell,
    Plan,
    Trial,
    Watch,
    alike,
    architecture,
    check_distinct,
    facts,
    gaps,
    home_of,
    identity,
    noted,
    unwatched,
)
from freeat.attacks.transfer import apply_to
from freeat.attacks.verdict import Attack
from freeat.opening import Opened


def transfer_models(
    sources: Sequence[Opened],
    targets: Sequence[Opened],
    plan: Plan,
    *,
    folder: Path | None = None,
    watch: Watch = unwatched,
) -> dict[str, Any]:
    """The whole matrix, every perturbation computed once and only where a cell is missing.

    Targets that were trained on different images are each judged on their own, where training images are asked for.

    Where source and target have the same weights the cell is a white-box one, and is marked ``own``.
    """
    check_distinct(sources)
    check_distinct(targets)
    cells = [
        cell
        for source in sources
        for group in alike(targets, plan)
        for trial in plan.trials(group[0])
        for cell in _row(source, group, plan, trial, folder, watch)
    ]
    checks = compare_cells(cells)
    return {"cells": cells, "gaps": gaps(cells), "checks": [asdict(check) for check in checks]}


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
    of_source = {"source": source.digest, "source_architecture": architecture(source)}
    keys = [identity("transfer", t, split, images, attack, ball, plan.seed) | of_source for t in targets]
    stores = [Cells(home_of(target, folder)) for target in targets]
    found = [store.find(key) for store, key in zip(stores, keys, strict=True)]
    missing = [i for i, cell in enumerate(found) if cell is None]
    if missing:
        made = plan.measure(source, trial, watch, keep_delta=True)
        for i in missing:
            measurement = apply_to(targets[i].model, images, made, ball, batch_size=plan.batch_size)
            about = facts(targets[i], plan, trial) | _pair(source, targets[i], attack)
            found[i] = stores[i].store(
                keys[i], noted(about | measurement.summary(), plan.notes(targets[i]))
            )
    return [
        noted(cell, plan.notes(target)) | _pair(source, target, attack)
        for target, cell in zip(targets, found, strict=True)
        if cell is not None
    ]


def _pair(source: Opened, target: Opened, attack: Attack) -> Cell:
    own = target.digest == source.digest
    return {
        "model": target.name,
        "source": source.name,
        "attack": f"{attack.name} from {source.name}",
        "own": own,
        "black_box": not own,
    }
