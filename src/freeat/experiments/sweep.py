"""Campaigns: models under attacks, measured cell by cell, stored as they finish, resumable."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from freeat.errors import InputError
from freeat.evaluation.sanity import Check, compare_cells
from freeat.experiments.checking import check_model
from freeat.experiments.examples import examples_path, save_examples
from freeat.experiments.sweep_plan import (
    Cell,
    Plan,
    Trial,
    Watch,
    check_distinct,
    gaps,
    home_of,
    homes,
    noted,
    numbered,
    unwatched,
)
from freeat.files.documents import plain
from freeat.runs.open import Opened
from freeat.runs.results import Cells
from freeat.runs.unfinished import until_published


def attack_models(
    models: Sequence[Opened],
    plan: Plan,
    *,
    folder: Path | None = None,
    examples: bool = False,
    watch: Watch = unwatched,
) -> dict[str, Any]:
    """Every model under every attack; cells that are stored already are not measured again.

    Results go to ``folder``, by default to each model's own place; a live module has none and stores none.
    With ``examples`` the perturbed images are stored beside them. Returns cells, gaps and honesty checks.
    """
    check_distinct(models)
    if examples and any(home_of(model, folder) is None for model in models):
        raise InputError("adversarial examples need a place: give a folder (--out)")
    cells: list[Cell] = []
    checks: list[Check] = []
    total = len(models) * plan.size
    for model in models:
        store = Cells(home_of(model, folder))
        for trial in plan.trials(model):
            watched = numbered(watch, len(cells) + 1, total)
            cells.append(_cell(model, plan, trial, store, examples, watched))
        checks += check_model(model, plan, store, watch)
    checks += compare_cells(cells)
    return {
        "cells": cells,
        "gaps": gaps(cells),
        "checks": [asdict(check) for check in checks],
        "stored": homes(models, folder),
    }


def _cell(model: Opened, plan: Plan, trial: Trial, store: Cells, examples: bool, watch: Watch) -> Cell:
    split, images, attack, ball = trial.split, trial.images, trial.attack, trial.ball
    key = plan.identity("attack", model, split=split, images=images, ball=ball, attack=attack)
    notes = plan.notes(model, split)
    found = store.find(key)
    kept = examples_path(store.folder, found) if found and examples and store.folder else None
    if found is None or (kept is not None and not kept.is_file()):
        with until_published(plan.unfinished(store, key, keep_delta=examples)) as unfinished:
            measurement = plan.measure(model, trial, watch, keep_delta=examples, unfinished=unfinished)
            found = store.store(key, noted(plan.facts(model, trial) | plain(measurement.outcomes()), notes))
            if examples and store.folder is not None:
                kept = examples_path(store.folder, found)
                save_examples(kept, images, measurement, plan.data.classes)
    place = {} if kept is None else {"examples": str(kept)}
    return noted(found, notes) | {"model": model.name} | place
