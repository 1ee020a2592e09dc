"""Campaigns: models under attacks, measured cell by cell, stored as they finish, resumable."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from freeat.attacks.cells import Cells
from freeat.attacks.examples import save_examples
from freeat.attacks.honesty import Check, compare_cells
from freeat.attacks.plan import (
    Cell,
    Plan,
    Trial,
    Watch,
    check_distinct,
    facts,
    gaps,
    home_of,
    identity,
    noted,
    unwatched,
)
from freeat.attacks.probe import probe
from freeat.errors import InputError
from freeat.files import in_file_name
from freeat.opening import Opened


def attack_models(
    models: Sequence[Opened],
    plan: Plan,
    *,
    folder: Path | None = None,
    examples: bool = False,
    watch: Watch = unwatched,
) -> dict[str, Any]:
    """Every model under every attack; cells that are stored already are not measured again.

    Results go to ``folder``, by default to ``attacks`` in a model's run folder; a model without one stores none.
    With ``examples`` the perturbed images are stored beside them. Returns cells, gaps and honesty checks.
    """
    check_distinct(models)
    if examples and any(home_of(model, folder) is None for model in models):
        raise InputError("adversarial examples need a place: give a folder (--out)")
    cells: list[Cell] = []
    checks: list[Check] = []
    for model in models:
        store = Cells(home_of(model, folder))
        cells += [_cell(model, plan, trial, store, examples, watch) for trial in plan.trials(model)]
        checks += _probes(model, plan, store, watch)
    checks += compare_cells(cells)
    return {"cells": cells, "gaps": gaps(cells), "checks": [asdict(check) for check in checks]}


def _cell(model: Opened, plan: Plan, trial: Trial, store: Cells, examples: bool, watch: Watch) -> Cell:
    key = identity("attack", model, trial.split, trial.images, trial.attack, trial.ball, plan.seed)
    about = facts(model, plan, trial)
    kept = examples_path(store.folder, about) if examples and store.folder is not None else None
    found = store.find(key)
    if found is None or (kept is not None and not kept.is_file()):
        measurement = plan.measure(model, trial, watch, keep_delta=kept is not None)
        if kept is not None:
            save_examples(kept, trial.images, measurement, plan.data.classes)
        found = store.store(key, noted(about | measurement.summary(), plan.notes(model)))
    return noted(found, plan.notes(model)) | {"model": model.name}


def examples_path(folder: Path, cell: Cell) -> Path:
    """Where the adversarial examples of a cell are stored."""
    words = (in_file_name(cell["model"]), cell["attack"], cell["norm"], f"{cell['eps']:.5f}", cell["split"])
    return folder / "examples" / f"{'-'.join(words)}.npz"


def _probes(model: Opened, plan: Plan, store: Cells, watch: Watch) -> list[Check]:
    """The checks of the model itself, at the smallest radius of each norm."""
    split = plan.splits[-1]
    images, _ = plan.images(split, model)
    positive = sorted((ball for ball in plan.balls if ball.eps > 0), key=lambda ball: -ball.eps)
    checks: list[Check] = []
    for ball in {ball.norm: ball for ball in positive}.values():
        key = identity("probe", model, split, images, None, ball, plan.seed)
        found = store.find(key)
        if found is None:
            progress = watch(f"{model.name}: honesty checks", 1)
            made = probe(model.model, images, ball, classes=len(plan.data.classes), seed=plan.seed)
            progress(1)
            found = store.store(key, {"checks": [asdict(check) for check in made]})
        made = [Check(**document) for document in found["checks"]]
        said = f"{model.name} ({type(ball).__name__})"
        checks += [replace(check, sentence=f"{said}: {check.sentence}") for check in made]
    return checks
