"""The series of a figure: curves, accuracies against the radius, gaps against n, gradient norms."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from freeat.experiments.paper.estimate import (
    PROPORTION,
    Cell,
    Estimate,
    exponent,
    proportion_error,
    seed_cell,
)
from freeat.experiments.paper.experiment import Entry, Experiment
from freeat.experiments.paper.records import (
    Record,
    above_chance,
    all_above_chance,
    evaluations,
    finished,
    over_seeds,
    record_at,
)
from freeat.experiments.tasks import Measurement, Training, Transferring
from freeat.runs.reading import found_result

Series = dict[str, Any]
TENTHS = 10
"""Bins of gradient norms per decade."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The panel a series is drawn in."""

    data: str
    norm: str
    panel: str


def gather_figure(experiment: Experiment) -> dict[str, Any]:
    """A figure of a reproduction; what has no finished run or measurement is absent."""
    panels: dict[Place, list[Series]] = {}
    for place, series in SERIES[experiment.kind](experiment.entries):
        panels.setdefault(place, []).append(series)
    return {
        "name": experiment.name,
        "title": experiment.title,
        "kind": experiment.kind,
        "panels": [vars(place) | {"series": series} for place, series in panels.items()],
    }


def _place(entry: Entry, panel: str | None = None) -> Place:
    return Place(data=entry.data, norm=entry.norm, panel=entry.panel if panel is None else panel)


def curves(entries: Sequence[Entry]) -> Iterator[tuple[Place, Series]]:
    """Figures 1, 5, 11: robust errors and their gap against the updates, on the augmented view as the paper's."""
    for entry in entries:
        histories = {run: evaluations(run) for run in finished(entry.runs)}
        if histories:
            yield (
                _place(entry),
                {
                    "label": entry.label,
                    "above_chance": all_above_chance(histories),
                    **_curve(list(histories.values())),
                    "collapse": [_collapse(run, history) for run, history in histories.items()],
                },
            )


def _curve(histories: Sequence[Sequence[Record]]) -> Series:
    points = list(zip(*histories, strict=False))  # the points that all seeds have
    columns = {
        name: [over_seeds(point, f"robust_{name}", "augmented") for point in points]
        for name in ("train", "test", "gap")
    }
    first = histories[0][: len(points)]
    return {
        "epochs": [record["equivalent_epoch"] for record in first],
        "updates": [record["update"] for record in first],
        "train": [1 - cell["mean"] for cell in columns["train"]],
        "test": [1 - cell["mean"] for cell in columns["test"]],
        "gap": [cell["mean"] for cell in columns["gap"]],
        **_errors(columns["gap"]),
        "images": [record["test"]["n"] for record in first],
    }


def _errors(column: Sequence[Cell]) -> Series:
    """What a series keeps of its cells besides their means, point by point."""
    kept = {name: [cell[name] for cell in column] for name in ("low", "high", "std", "image_error")}
    seeds = [cell["seeds"] for cell in column]
    return {**kept, "seeds_at": seeds, "seeds": min(seeds)}


def _collapse(run: Training, history: Sequence[Record]) -> dict[str, Any]:
    """How much of its best robust training accuracy a run has at the end, and whether it was seen to collapse.

    ``learnt``: it was above chance at some point; a run that never was has nothing to lose.
    """
    robust = [record["train"]["robust_accuracy"] for record in history]
    return {
        "left": robust[-1] / max(robust) if max(robust) else 1.0,
        "seen": any(record.get("collapsed") for record in history),
        "learnt": any(above_chance(run, record) for record in history),
    }


def radii(entries: Sequence[Entry]) -> Iterator[tuple[Place, Series]]:
    """Figures 2, 3, 6 to 9: accuracy against the radius, over the seeds that were measured."""
    for entry in entries:
        panels: dict[str, list[Mapping[str, Any]]] = {}
        opened: dict[str, set[Training]] = {}
        for measurement in entry.measurements:
            for panel, cell in _cells(entry, measurement):
                panels.setdefault(panel, []).append(cell)
                opened.setdefault(panel, set()).update(_opened(entry, measurement))
        for panel, found in panels.items():
            learnt = {"above_chance": all_above_chance(opened[panel])}
            yield _place(entry, panel), {"label": entry.label, **learnt, **_against_radius(found)}


def _cells(entry: Entry, measurement: Measurement) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The cells of a measurement that belong to an entry, with the panel they are drawn in.

    A measurement may hold other series too. Perturbations made elsewhere and applied to the entry's own runs have a
    panel for each algorithm they come from.
    """
    panel = entry.panel
    if isinstance(measurement, Transferring) and not entry.targets:
        panel = f"from {measurement.source.spec.algorithm}"
    result = found_result(measurement)
    for cell in result["results"] if result else ():
        if cell["split"] == "test" and cell["model"] in entry.judged:
            yield panel, cell


def _opened(entry: Entry, measurement: Measurement) -> Iterator[Training]:
    """The runs that an entry's part of a measurement says something about: whose model was judged, or attacked."""
    made_on = measurement.source if isinstance(measurement, Transferring) else None
    yield from (run for run in measurement.runs if run == made_on or run.key in entry.judged)


def _against_radius(found: Sequence[Mapping[str, Any]]) -> Series:
    by_eps: dict[float, list[float]] = {}
    for cell in found:
        by_eps.setdefault(cell["eps"], []).append(cell["robust_accuracy"])
    n = min(cell["n"] for cell in found)
    column = [
        seed_cell(values, [proportion_error(p, n) for p in values], PROPORTION)
        for _, values in sorted(by_eps.items())
    ]
    return {
        "eps": sorted(by_eps),
        "accuracy": [cell["mean"] for cell in column],
        **_errors(column),
        "n": n,
        "attack": found[0]["attack"].split(" from ")[0],
    }


def sizes(entries: Sequence[Entry]) -> Iterator[tuple[Place, Series]]:
    """Figures 4, 10: the gap against the number of training images, and its exponent."""
    by_series: dict[tuple[Place, str], dict[int, Cell]] = {}
    learnt: dict[tuple[Place, str], bool] = {}
    for entry in entries:
        records = [r for run in finished(entry.runs) if (r := record_at(run, entry.at)) is not None]
        if records and entry.n is not None:
            series = _place(entry), entry.label
            by_series.setdefault(series, {})[entry.n] = over_seeds(records, "robust_gap", "augmented")
            learnt[series] = learnt.get(series, True) and all_above_chance(entry.runs)
    for (place, label), column in by_series.items():
        numbers = sorted(column)
        ordered = [column[n] for n in numbers]
        fitted = exponent(numbers, [Estimate.of_cell(cell) for cell in ordered])
        yield (
            place,
            {
                "label": label,
                "above_chance": learnt[place, label],
                "n": numbers,
                "gap": [cell["mean"] for cell in ordered],
                **_errors(ordered),
                "exponent": _with_interval(fitted),
            },
        )


def _with_interval(estimate: Estimate | None) -> dict[str, float] | None:
    if estimate is None:
        return None
    low, high = estimate.interval()
    return {"value": estimate.value, "low": low, "high": high}


def norms(entries: Sequence[Entry]) -> Iterator[tuple[Place, Series]]:
    """Figure 12: how many images had which ‖∇_δ h‖ when, over all seeds, and the smallest so far."""
    for entry in entries:
        histories = {
            run: history
            for run in finished(entry.runs)
            if (history := [record for record in evaluations(run) if record.get("gradient_norms")])
        }
        if histories:
            learnt = {"above_chance": all_above_chance(histories)}
            yield _place(entry), {"label": entry.label, **learnt, **_heat(list(histories.values()))}


def _heat(histories: Sequence[Sequence[Record]]) -> Series:
    points = list(zip(*histories, strict=False))
    bins = sorted(
        {int(k) for point in points for record in point for k in record["gradient_norms"]["bins"]}
    ) or [0]
    places = range(bins[0], bins[-1] + 1)

    def counted(point: Sequence[Record]) -> list[int]:
        return [sum(record["gradient_norms"]["bins"].get(str(k), 0) for record in point) for k in places]

    return {
        "updates": [point[0]["update"] for point in points],
        "bins": [k / TENTHS for k in range(bins[0], bins[-1] + 2)],
        "counts": [counted(point) for point in points],
        "smallest": [min(r["gradient_norms"]["smallest_so_far"] for r in point) for point in points],
        "smallest_of_seeds": [history[-1]["gradient_norms"]["smallest_so_far"] for history in histories],
        "seeds": len(histories),
    }


SERIES: Mapping[str, Callable[[Sequence[Entry]], Iterator[tuple[Place, Series]]]] = {
    "curves": curves,
    "radius": radii,
    "size": sizes,
    "norms": norms,
}
