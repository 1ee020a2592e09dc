"""How the gap falls with the number n of training images (the form of Figures 4 and 10), with fitted exponents."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from freeat.reports.html.blocks import Axis, Block, Curve, Lines, Panel, Section, Series, Table
from freeat.reports.html.gather import Json, Study
from freeat.reports.html.tasks import Group, Task, settings_of
from freeat.reports.html.texts import with_interval
from freeat.stability.exponents import fitted_exponent

MEASURES = {
    "distance": "distance ‖w − w′‖",
    "mean_largest": "largest loss difference, averaged",
    "risk_gap": "gap of the robust risk",
}
SWEPT = ("train_size", "epochs", "updates")
"""Settings that may differ along a line; T itself may not."""
N_AXIS = Axis(key="n", label="training images n", log=True)


def sizes_section(tasks: Sequence[Task], studies: Sequence[Study]) -> Section | None:
    """Of every task that was trained on several n, and of every study that swept it."""
    blocks: list[Block] = [chart for task in tasks if (chart := _of_task(task)) is not None]
    for study in studies:
        if rows := (study.summary or {}).get("exponents"):
            blocks += [_of_study(study, rows), _fits(study, rows)]
    if not blocks:
        return None
    return Section(
        key="sizes",
        title="Gap against n",
        lead="With the number of weight updates fixed, a stable algorithm's gap falls as n grows. A line is "
        "fitted to the logarithms: the gap goes with n to the power −a, with a 95 % interval of a by "
        "bootstrap over the seeds.",
        blocks=blocks,
    )


def positive(values: Sequence[float]) -> list[float | None]:
    """What a logarithmic axis can show."""
    return [float(value) if value > 0 else None for value in values]


def exponent(fit: Json | None) -> str:
    """A fitted exponent in words."""
    cell = with_interval(fit, 2)
    return f"a = {cell.text} {cell.detail}".strip()


def _of_task(task: Task) -> Lines | None:
    swept = {name: _gaps(_by_size(groups)) for name, groups in _sweeps(task).items()}
    lines = {name: (sizes, gaps) for name, (sizes, gaps) in swept.items() if len(sizes) > 1 and gaps}
    if not lines:
        return None
    series, rows = [], []
    for name, (sizes, gaps) in lines.items():
        fit = fitted_exponent(np.array(sizes, float), np.array(gaps))
        means = np.array(gaps).mean(0)
        curve = Curve(panel=0, x={"n": sizes}, y=positive(100 * means))
        series.append(Series(name=f"{name}: {exponent(fit)}", curves=[curve]))
        rows += [
            [name, str(n), f"{100 * gap:.1f}", exponent(fit)] for n, gap in zip(sizes, means, strict=True)
        ]
    columns = ("algorithm", "n", "robust gap (points)", "exponent")
    return Lines(
        title=task.title,
        description=f"Robust generalization gap against the number of training images of {', '.join(lines)}",
        axes=[N_AXIS],
        panels=[Panel(title="robust generalization gap", unit="points", log=True)],
        series=series,
        numbers=Table(caption="Gap against n as numbers", columns=columns, rows=rows),
    )


def _sweeps(task: Task) -> dict[str, list[Group]]:
    """Groups that differ in n only, the number of weight updates being fixed, by a name that tells them apart."""
    sweeps: dict[tuple[str, str], list[Group]] = {}
    for group in task.finished:
        run = group.runs[0]
        if run.spec.train_size is not None:
            fixed = {name: value for name, value in settings_of(run).items() if name not in SWEPT}
            updates = run.description.get("updates")
            sweeps.setdefault((group.algorithm, repr((fixed, updates))), []).append(group)
    several = [groups for groups in sweeps.values() if len(groups) > 1]
    names = Counter(groups[0].algorithm for groups in several)
    return {
        groups[0].algorithm if names[groups[0].algorithm] == 1 else f"{groups[0].label} and on": groups
        for groups in several
    }


def _by_size(groups: Sequence[Group]) -> dict[int, Group]:
    """The groups by n, ascending."""
    sizes = {int(group.runs[0].spec.train_size or 0): group for group in groups}
    return dict(sorted(sizes.items()))


def _gaps(groups: Mapping[int, Group]) -> tuple[list[int], list[list[float]]]:
    """The sizes, and the gaps of every seed that all sizes have: (seeds, sizes)."""
    by_seed = [
        {run.spec.seed: float(run.result["gap"]["value"]) for run in group.runs if run.result is not None}
        for group in groups.values()
    ]
    common = sorted(set.intersection(*(set(seeds) for seeds in by_seed)))
    return list(groups), [[seeds[seed] for seeds in by_seed] for seed in common]


def _of_study(study: Study, rows: Sequence[dict[str, Any]]) -> Lines:
    series = [
        Series(
            name=row["algorithm"],
            curves=[
                Curve(panel=place, x={"n": row["sizes"]}, y=positive(row[key]["means"]))
                for place, key in enumerate(MEASURES)
            ],
        )
        for row in rows
    ]
    numbers = [
        [row["algorithm"], str(n), *(f"{row[key]['means'][k]:.4g}" for key in MEASURES)]
        for row in rows
        for k, n in enumerate(row["sizes"])
    ]
    return Lines(
        title=f"{study.name}: twin runs",
        description=f"Distance, loss difference and risk gap against n of {', '.join(r['algorithm'] for r in rows)}",
        axes=[N_AXIS],
        panels=[Panel(title=title, log=True) for title in MEASURES.values()],
        series=series,
        numbers=Table(
            caption="Means over the seeds", columns=("algorithm", "n", *MEASURES.values()), rows=numbers
        ),
    )


def _fits(study: Study, rows: Sequence[dict[str, Any]]) -> Table:
    cells = [
        [
            row["algorithm"],
            *(with_interval(row[key], 2) for key in MEASURES),
            "–" if row["predicted"] is None else f"{row['predicted']:.3g}",
        ]
        for row in rows
    ]
    return Table(
        caption=f"{study.name}: fitted exponents a in n⁻ᵃ, and that of the bound",
        columns=("algorithm", *MEASURES.values(), "the bound's"),
        rows=cells,
    )
