"""Stability: how far runs part when one training example is replaced, beside the bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from freeat.reports.html.blocks import Axis, Block, Cell, Curve, Lines, Panel, Section, Series, Table
from freeat.reports.html.gather import Json, Study
from freeat.reports.html.sections.sizes import positive
from freeat.reports.html.texts import with_interval
from freeat.reports.stability import ROOM
from freeat.reports.text import percent
from freeat.stability.setting import Setting
from freeat.stability.summary import bound_curve, constants_of

UPDATES = Axis(key="updates", label="weight updates")
ESTIMATES = {
    "distance": "‖w − w′‖",
    "uniform_stability": "uniform stability",
    "mean_largest": "mean largest difference",
    "risk_gap": "gap of the robust risk",
}


def stability_section(studies: Sequence[Study]) -> Section | None:
    """The table, the distances with their bounds, and the loss differences of every study."""
    blocks: list[Block] = []
    for study in studies:
        if study.summary and study.summary["rows"]:
            blocks.append(_table(study, study.summary["rows"]))
        if study.cells:
            by_name = cells_by_algorithm(study)
            blocks += [_distances(study, by_name), _differences(study, by_name)]
    if not blocks:
        return None
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
        return Cell(text="–")
    size = limit["log10_bound"]
    text = f"{10**size:.3g}" if abs(size) < 4 else f"10^{size:.3g}"
    return Cell(text=text, detail="vacuous" if limit["vacuous"] else "")


def _row(row: Json, *, with_bound: bool) -> list[str | Cell]:
    accuracies = [
        "–" if row[key] is None else percent(row[key]["value"]) for key in ("robust_train", "robust_test")
    ]
    return [
        row["algorithm"],
        str(row["n"]),
        *(with_interval(row[key]) for key in ESTIMATES),
        *([_bound(row["bound"])] if with_bound else []),
        *accuracies,
    ]


def _over_seeds(panel: int, x: Sequence[float], values: Any, *, log: bool) -> Curve:
    """Mean, lowest and highest over seeds of values (seeds, points)."""
    mean, low, high = values.mean(0), values.min(0), values.max(0)
    show = positive if log else list[float]
    several = len(values) > 1
    return Curve(
        panel=panel,
        x={"updates": list(x)},
        y=show(mean.tolist()),
        low=show(low.tolist()) if several else None,
        high=show(high.tolist()) if several else None,
    )


def _distances(study: Study, by_name: Mapping[str, list[Json]]) -> Lines:
    limits = _limits(study, by_name)
    log = bool(limits)
    series = []
    for name, cells in by_name.items():
        x = [row["update"] for row in cells[0]["distances"]]
        curves = []
        for place, key in enumerate(("d_w", "d_delta")):
            values = np.array([[np.mean(row[key]) for row in cell["distances"]] for cell in cells])
            curves.append(_over_seeds(place, x, values, log=log and place == 0))
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
        x = [probe["update"] for probe in cells[0]["probes"]]
        values = [np.array([[probe[key] for probe in cell["probes"]] for cell in cells]) for key in keys]
        curves = [_over_seeds(place, x, one, log=False) for place, one in enumerate(values)]
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
        rows += [[one.name, *("–" if v is None else f"{v:.4g}" for v in values)] for values in points]
    return Table(
        caption=f"{caption}, means over the seeds", columns=("algorithm", "update", *heads), rows=rows
    )
