"""Two runs side by side: the settings in which they differ, and how they do on the same test images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from freeat.compute.machine import arithmetic, resolve_device
from freeat.data import load
from freeat.errors import InputError
from freeat.evaluation.statistics import paired
from freeat.experiments.sweep import attack_models
from freeat.experiments.sweep_plan import Cell, Plan, Watch, unwatched
from freeat.runs.build import evaluation_attack
from freeat.runs.folder import RunFolder
from freeat.runs.inventory import StoredRun
from freeat.runs.judgement import OTHER_DATA
from freeat.runs.open import open_model
from freeat.runs.spec import EvalSpec, TrainSpec
from freeat.threat import Ball, make_ball


class Unpaired(InputError):
    """Two runs that cannot be judged side by side; their settings still can be compared."""


def differing_settings(first: RunFolder, second: RunFolder) -> list[dict[str, Any]]:
    """Every setting of training and evaluation in which two runs differ, with both values."""
    pairs: list[tuple[TrainSpec | EvalSpec, TrainSpec | EvalSpec]] = [
        (first.spec, second.spec),
        (first.evaluation, second.evaluation),
    ]
    return [
        {"setting": name, "first": getattr(one, name), "second": getattr(other, name)}
        for one, other in pairs
        for name in one.settings()
        if getattr(one, name) != getattr(other, name)
    ]


def judged_pair(
    first: StoredRun,
    second: StoredRun,
    *,
    asked: Mapping[str, Any],
    norm: str | None = None,
    n: int | None = None,
    device: str = "auto",
    data_dir: Path | None = None,
    trust_code: bool = False,
    watch: Watch = unwatched,
) -> dict[str, Any]:
    """Both models on the first n test images: accuracies, and their difference with a 95 % paired interval.

    They are judged as the first run was, but for the settings of evaluation that are ``asked``, and ``norm``. What
    was measured before is found in the runs' folders.
    """
    check_comparable(first, second)
    ball, attack = _ball(first, second, asked, norm), evaluation_attack(first.folder.evaluation.asked(asked))
    spec = first.folder.spec
    threads = first.folder.description["chosen"]["threads"]
    with arithmetic(threads=threads, deterministic=spec.deterministic):
        data = load(spec.data, data_dir=data_dir, seed=spec.seed, image_size=spec.image_size)
        first.folder.check_data(data.digest, OTHER_DATA)
        models = [
            open_model(
                run.folder.path, data, device=resolve_device(device), name=run.key, trust_code=trust_code
            )
            for run in (first, second)
        ]
        plan = Plan(data=data, attacks=(attack,), balls=(ball,), n=n, seed=0)
        report = attack_models(models, plan, watch=watch)
    cells = report["cells"]
    about = {name: cells[0][name] for name in ("data", "attack", "iterate", "norm", "eps", "n", "population")}
    return {
        **about,
        "robust": _difference(cells, "robust_accuracy", "fooled"),
        "clean": _difference(cells, "clean_accuracy", "misclassified"),
        "warnings": [check["sentence"] for check in report["checks"] if not check["passed"]],
    }


def check_comparable(first: StoredRun, second: StoredRun) -> None:
    """Refuse two runs that have no weights, or no test images in common."""
    if first.folder.path.resolve() == second.folder.path.resolve():
        raise InputError(f"{first.key} and {second.key} are the same run: name two")
    for run in (first, second):
        if run.status != "finished":
            raise Unpaired(f"{run.key} is {run.status}, not finished: run it to its end first")
    one, other = (run.folder.description["data"] for run in (first, second))
    if one["digest"] != other["digest"]:
        raise Unpaired(f"other data ({one['name']} | {other['name']}), so no test images in common")


def _ball(first: StoredRun, second: StoredRun, asked: Mapping[str, Any], norm: str | None) -> Ball:
    """Where both are judged: as asked, or where both were judged."""
    eps = EvalSpec.of(asked).eval_eps
    balls = {
        (norm or run.folder.spec.norm, _judged_at(run.folder) if eps is None else eps)
        for run in (first, second)
    }
    if len(balls) > 1:
        were = " and ".join(f"{norm} {radius:.4g}" for norm, radius in sorted(balls))
        raise Unpaired(f"they were judged at {were}: choose with --norm and --eps")
    return make_ball(*balls.pop())


def _judged_at(folder: RunFolder) -> float:
    return folder.spec.eps if folder.evaluation.eval_eps is None else folder.evaluation.eval_eps


def _difference(cells: list[Cell], accuracy: str, wrong: str) -> dict[str, Any] | None:
    """First minus second, over pairs of outcomes on the same images; None where an old cell lacks them."""
    if any(wrong not in cell for cell in cells):
        return None
    first, second = (set(cell[wrong]) for cell in cells)
    n = cells[0]["n"]
    low, high = paired(len(second - first), len(first - second), n)
    return {
        "first": cells[0][accuracy],
        "second": cells[1][accuracy],
        "difference": cells[0][accuracy] - cells[1][accuracy],
        "low": low,
        "high": high,
        "only_first": len(second - first),
        "only_second": len(first - second),
    }
