"""Stability: how far runs part when one training example is replaced, beside the bounds; and the bound explorer."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields

import numpy as np

from freeat.files.documents import decoded
from freeat.reports.html.blocks import (
    Axis,
    Block,
    Cell,
    Curve,
    Explorer,
    Lines,
    Panel,
    Section,
    Series,
    Slider,
    Table,
)
from freeat.reports.html.gather import Json, Study
from freeat.reports.html.numbers import optional, seed_curve, with_interval
from freeat.reports.stability import ROOM
from freeat.reports.text import NOTHING, percent
from freeat.stability.constants import Constants
from freeat.stability.setting import Setting
from freeat.stability.summary import bound_curve, constants_of, problem_of
from freeat.theory.bounds import THEOREMS
from freeat.theory.problem import MEANINGS

UPDATES = Axis(key="updates", label="weight updates")
ESTIMATES = {
    "distance": "‖w − w′‖",
    "uniform_stability": "uniform stability",
    "mean_largest": "mean largest difference",
    "risk_gap": "gap of the robust risk",
}


def stability_section(studies: Sequence[Study]) -> Section:
    """The table, the distances with their bounds, and the loss differences of every study."""
    blocks: list[Block] = []
    for study in studies:
        if study.summary and study.summary["rows"]:
            blocks.append(_table(study, study.summary["rows"]))
        if study.cells:
            by_name = cells_by_algorithm(study)
            blocks += [_distances(study, by_name), _differences(study, by_name)]
    return Section(
        key="stability",
        title="Stability: twin runs",
        lead="Pairs of runs share initial weights, batches and random starts, and differ in one training "
        "example. How far their weights and losses part is what the theorems bound. Lines are means over "
        "the seeds, bands reach from the lowest to the highest.",
        blocks=blocks,
    )


def cells_by_algorithm(study: Study) -> dict[str, list[Json]]:
    """The cells at the largest n by algorithm, in the order of the summary."""
    largest = max(cell["n"] for cell in study.cells)
    shown = [cell for cell in study.cells if cell["n"] == largest]
    rows = (study.summary or {}).get("rows", ())
    names = dict.fromkeys(one["algorithm"] for one in (*rows, *shown))
    by_name = {name: [cell for cell in shown if cell["algorithm"] == name] for name in names}
    return {name: cells for name, cells in by_name.items() if cells}


def _size(by_name: Mapping[str, list[Json]]) -> int:
    return int(next(iter(by_name.values()))[0]["n"])


def _table(study: Study, rows: Sequence[Json]) -> Table:
    first = next((row for row in rows if row["seeds"]), rows[0])
    bound = ("bound",) if any(row["bound"] for row in rows) else ()
    return Table(
        caption=f"{study.name}: means over {first['seeds']} seeds and {first['neighbours']} neighbours, 95 % "
        "intervals over the seeds; a loss is one minus the probability of the true class",
        columns=("algorithm", "n", *ESTIMATES.values(), *bound, "robust train %", "robust test %"),
        rows=[_row(row, with_bound=bool(bound)) for row in rows],
        notes=_notes(rows),
    )


def _notes(rows: Sequence[Json]) -> list[str]:
    """What a reader must know before believing the table."""
    names = {id(row): f"{row['algorithm']} (n = {row['n']})" for row in rows}
    untrained = [names[id(row)] for row in rows if row["seeds"] and not row["trained"]]
    notes = [f"{names[id(row)]}: {row['reason']}" for row in rows if row.get("reason")]
    if untrained:
        notes.append(f"Not trained, so that stability is no merit: {', '.join(untrained)}.")
    notes += [f"The bounds use estimated constants: {r['constants']['caveat']}." for r in rows if r["bound"]]
    notes += [row["constants"]["no_beta"] for row in rows if row["constants"] and row["constants"]["no_beta"]]
    return list(dict.fromkeys(notes))


def _bound(limit: Json | None) -> Cell:
    if limit is None:
        return Cell(text=NOTHING)
    size = limit["log10_bound"]
    text = f"{10**size:.3g}" if abs(size) < 4 else f"10^{size:.3g}"
    return Cell(text=text, detail="vacuous" if limit["vacuous"] else "")


def _row(row: Json, *, with_bound: bool) -> list[str | Cell]:
    accuracies = [
        NOTHING if row[key] is None else percent(row[key]["value"]) for key in ("robust_train", "robust_test")
    ]
    return [
        row["algorithm"],
        str(row["n"]),
        *(with_interval(row[key]) for key in ESTIMATES),
        *([_bound(row["bound"])] if with_bound else []),
        *accuracies,
    ]


def _distances(study: Study, by_name: Mapping[str, list[Json]]) -> Lines:
    limits = _limits(study, by_name)
    log = bool(limits)
    series = []
    for name, cells in by_name.items():
        x = {"updates": [row["update"] for row in cells[0]["distances"]]}
        curves = []
        for place, key in enumerate(("d_w", "d_delta")):
            values = np.array([[np.mean(row[key]) for row in cell["distances"]] for cell in cells])
            curves.append(seed_curve(place, x, values, log=log and place == 0))
        series.append(Series(name=name, curves=[*curves, *limits.get(name, [])]))
    return Lines(
        title=f"{study.name}: distances, n = {_size(by_name)}",
        description=f"Distance of twin runs' weights and perturbations against updates of {', '.join(by_name)}"
        + (", with the bounds as thin lines" if log else ""),
        axes=[UPDATES],
        panels=[
            Panel(title="distance of the weights ‖w − w′‖" + (" (thin: bound)" if log else ""), log=log),
            Panel(title="distance of the perturbations ‖δ − δ′‖"),
        ],
        series=series,
        numbers=_numbers("Distances", ("‖w − w′‖", "‖δ − δ′‖"), series),
    )


def _limits(study: Study, by_name: Mapping[str, list[Json]]) -> dict[str, list[Curve]]:
    """The solved recursion's bound on the distance, where a theorem covers the setting; what is vacuous is cut off."""
    if study.setting is None:
        return {}
    known = {f.name for f in fields(Setting)}
    words = {name: value for name, value in study.setting.items() if name in known}
    found = {}
    for name, cells in by_name.items():
        setting = Setting(**words | {"n": cells[0]["n"]})
        if (curve := bound_curve(setting, name, constants_of(cells))) is not None:
            highest = ROOM * max(np.max(row["d_w"]) for cell in cells for row in cell["distances"])
            y = [value if 0 < value <= highest else None for value in curve[1]]
            found[name] = [Curve(panel=0, x={"updates": curve[0]}, y=y, limit=True)]
    return found


def _differences(study: Study, by_name: Mapping[str, list[Json]]) -> Lines:
    keys = ("largest_difference", "mean_difference")
    series = []
    for name, cells in by_name.items():
        x = {"updates": [probe["update"] for probe in cells[0]["probes"]]}
        values = [np.array([[probe[key] for probe in cell["probes"]] for cell in cells]) for key in keys]
        curves = [seed_curve(place, x, one) for place, one in enumerate(values)]
        series.append(Series(name=name, curves=curves))
    return Lines(
        title=f"{study.name}: differences of the robust loss, n = {_size(by_name)}",
        description=f"Largest and mean difference of the robust loss of twin runs of {', '.join(by_name)}",
        axes=[UPDATES],
        panels=[
            Panel(title="largest over images and neighbours"),
            Panel(title="mean over images and neighbours"),
        ],
        series=series,
        numbers=_numbers("Loss differences", ("largest", "mean"), series),
    )


def _numbers(caption: str, heads: tuple[str, str], series: Sequence[Series]) -> Table:
    rows = []
    for one in series:
        first, second = (curve for curve in one.curves if not curve.limit)
        points = zip(first.x["updates"], first.y, second.y, strict=True)
        rows += [[one.name, *map(optional, values)] for values in points]
    return Table(
        caption=f"{caption}, means over the seeds", columns=("algorithm", "update", *heads), rows=rows
    )


SYMBOLS = {"beta": "β", "psi": "ψ", "eps": "ε", "alpha": "α_δ"}
RANGES: dict[str, tuple[float, float, float]] = {
    "eps": (0.5, 1e-3, 10),
    "m": (4, 1, 32),
    "alpha": (0.2, 1e-3, 10),
    "beta": (2, 1e-3, 1e3),
    "L": (1, 1e-3, 1e3),
    "L_w": (1, 1e-3, 1e3),
    "psi": (4, 1e-2, 1e6),
    "c": (0.1, 1e-4, 10),
    "b": (10, 1, 4096),
    "n": (1000, 10, 1e7),
    "T": (1000, 1, 1e7),
}
"""Where each slider begins, and its two ends."""
COUNTS = ("m", "b", "n", "T")


def explorer_section(studies: Sequence[Study]) -> Section:
    """Always there: it needs no results, but can begin with the constants that a study has measured."""
    sliders = [
        Slider(
            name=name,
            symbol=SYMBOLS.get(name, name),
            meaning=MEANINGS[name],
            value=value,
            low=low,
            high=high,
            whole=name in COUNTS,
        )
        for name, (value, low, high) in RANGES.items()
    ]
    explorer = Explorer(
        sliders=sliders,
        algorithms=[(name, theorem) for name, theorem in THEOREMS.items()],
        presets=[preset for study in studies for preset in _presets(study)],
    )
    return Section(
        key="explorer",
        title="Bound explorer",
        lead="The generalization bounds of Theorems 2 (Vanilla), 5 (Fast) and 4 (Free), recomputed as you move a"
        " slider. They hold for a loss in [0, 1], L2 balls and weight steps of at most c/t (for Free "
        "c/(mt)); above 1 a bound says nothing. α_δ is the paper's relative step: one attack step moves δ "
        "by α_δ·ε.",
        blocks=[explorer],
    )


def _presets(study: Study) -> list[tuple[str, dict[str, float]]]:
    """The measured constants of a study made as the theorems assume, for every algorithm with a bound."""
    if study.setting is None or study.summary is None:
        return []
    presets = []
    for row in study.summary["rows"]:
        setting = Setting(**{**study.setting, "n": row["n"]})
        constants = None if row["constants"] is None else decoded(row["constants"], Constants, study.name)
        covered = problem_of(setting, row["algorithm"], constants)
        if row["bound"] is None or covered is None:
            continue
        _, problem, run = covered
        if problem.eps > 0:  # no logarithmic slider has 0
            values = {name: value for name, value in (asdict(problem) | run).items() if value is not None}
            presets.append((f"{study.name}: {row['algorithm']}, n = {row['n']}", values))
    return presets
