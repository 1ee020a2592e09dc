"""Stability: how far runs part when one training example is replaced, beside the bounds; and the bound explorer."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from freeat.reports.charts import ChartAxis, ChartPanel, ChartSeries, Curve, LineChart, seed_curve
from freeat.reports.html.blocks import Block, BoundExplorer, Section, Slider
from freeat.reports.html.gather import FoundStudy
from freeat.reports.stability import ROOM
from freeat.reports.tables import NOTHING, ReportTable, TableCell, number_text, percent, with_interval
from freeat.stability.results import TwinResult
from freeat.stability.summary import MeasuredBound, SummaryRow, applicable_bound, constants_of
from freeat.theory.bounds import THEOREMS
from freeat.theory.problem import MEANINGS

UPDATES = ChartAxis(key="updates", label="weight updates")
ESTIMATES = ("‖w − w′‖", "uniform stability", "mean largest difference", "gap of the robust risk")
ByAlgorithm = Mapping[str, list[TwinResult]]


def stability_section(studies: Sequence[FoundStudy]) -> Section:
    """The table, the distances with their bounds, and the loss differences of every study."""
    blocks: list[Block] = []
    for study in studies:
        if study.summary and study.summary.rows:
            blocks.append(_table(study, study.summary.rows))
        if study.results:
            by_name = results_by_algorithm(study)
            blocks += [_distances(study, by_name), _differences(study, by_name)]
    return Section(
        key="stability",
        title="Stability: twin runs",
        lead="Pairs of runs share initial weights, batches and random starts, and differ in one training "
        "example. How far their weights and losses part is what the theorems bound. Lines are means over "
        "the seeds, bands reach from the lowest to the highest.",
        blocks=blocks,
    )


def results_by_algorithm(study: FoundStudy) -> dict[str, list[TwinResult]]:
    """The results at the largest n by algorithm, in the order of the summary."""
    largest = max(result.n for result in study.results)
    shown = [result for result in study.results if result.n == largest]
    rows = study.summary.rows if study.summary else ()
    names = dict.fromkeys([*(row.algorithm for row in rows), *(result.algorithm for result in shown)])
    by_name = {name: [result for result in shown if result.algorithm == name] for name in names}
    return {name: results for name, results in by_name.items() if results}


def _size(by_name: ByAlgorithm) -> int:
    return next(iter(by_name.values()))[0].n


def _table(study: FoundStudy, rows: Sequence[SummaryRow]) -> ReportTable:
    first = next((row for row in rows if row.seeds), rows[0])
    bound = ("bound",) if any(row.bound for row in rows) else ()
    return ReportTable(
        caption=f"{study.name}: means over {first.seeds} seeds and {first.neighbours} neighbours, 95 % "
        "intervals over the seeds; a loss is one minus the probability of the true class",
        columns=("algorithm", "n", *ESTIMATES, *bound, "robust train %", "robust test %"),
        rows=[_row(row, with_bound=bool(bound)) for row in rows],
        notes=_notes(rows),
    )


def _notes(rows: Sequence[SummaryRow]) -> list[str]:
    """What a reader must know before believing the table."""

    def name(row: SummaryRow) -> str:
        return f"{row.algorithm} (n = {row.n})"

    untrained = [name(row) for row in rows if row.seeds and not row.trained]
    notes = [f"{name(row)}: {row.reason}" for row in rows if row.reason]
    if untrained:
        notes.append(f"Not trained, so that stability is no merit: {', '.join(untrained)}.")
    constants = [(row.constants, row.bound) for row in rows if row.constants]
    notes += [f"The bounds use estimated constants: {c.caveat}." for c, bound in constants if bound]
    notes += [c.no_beta for c, _ in constants if c.no_beta]
    return list(dict.fromkeys(notes))


def _bound(limit: MeasuredBound | None) -> TableCell:
    if limit is None:
        return TableCell(text=NOTHING)
    size = limit.log10_bound
    text = f"{10**size:.3g}" if abs(size) < 4 else f"10^{size:.3g}"
    return TableCell(text=text, detail="vacuous" if limit.vacuous else "")


def _row(row: SummaryRow, *, with_bound: bool) -> list[str | TableCell]:
    estimates = (row.distance, row.uniform_stability, row.mean_largest, row.risk_gap)
    accuracies = (row.robust_train, row.robust_test)
    return [
        row.algorithm,
        str(row.n),
        *map(with_interval, estimates),
        *([_bound(row.bound)] if with_bound else []),
        *(NOTHING if accuracy is None else percent(accuracy.value) for accuracy in accuracies),
    ]


def _distances(study: FoundStudy, by_name: ByAlgorithm) -> LineChart:
    limits = _limits(study, by_name)
    log = bool(limits)
    series = []
    for name, results in by_name.items():
        x = {"updates": [row.update for row in results[0].distances]}
        d_w = np.array([[np.mean(row.d_w) for row in result.distances] for result in results])
        d_delta = np.array([[np.mean(row.d_delta) for row in result.distances] for result in results])
        curves = [seed_curve(0, x, d_w, log=log), seed_curve(1, x, d_delta)]
        series.append(ChartSeries(name=name, curves=[*curves, *limits.get(name, [])]))
    return LineChart(
        title=f"{study.name}: distances, n = {_size(by_name)}",
        description=f"Distance of twin runs' weights and perturbations against updates of {', '.join(by_name)}"
        + (", with the bounds as thin lines" if log else ""),
        axes=[UPDATES],
        panels=[
            ChartPanel(title="distance of the weights ‖w − w′‖" + (" (thin: bound)" if log else ""), log=log),
            ChartPanel(title="distance of the perturbations ‖δ − δ′‖"),
        ],
        series=series,
        numbers=_numbers("Distances", ("‖w − w′‖", "‖δ − δ′‖"), series),
    )


def _limits(study: FoundStudy, by_name: ByAlgorithm) -> dict[str, list[Curve]]:
    """The solved recursion's bound on the distance, where a theorem covers the study; what is vacuous is cut off."""
    if study.settings is None:
        return {}
    found = {}
    for name, results in by_name.items():
        covered = applicable_bound(study.settings, name, results[0].n, constants_of(results))
        if covered is not None:
            updates, values = covered.curve()
            highest = ROOM * max(np.max(row.d_w) for result in results for row in result.distances)
            y = [value if 0 < value <= highest else None for value in values]
            found[name] = [Curve(panel=0, x={"updates": updates}, y=y, limit=True)]
    return found


def _differences(study: FoundStudy, by_name: ByAlgorithm) -> LineChart:
    series = []
    for name, results in by_name.items():
        x = {"updates": [probe.update for probe in results[0].probes]}
        largest = np.array([[probe.largest_difference for probe in result.probes] for result in results])
        mean = np.array([[probe.mean_difference for probe in result.probes] for result in results])
        series.append(ChartSeries(name=name, curves=[seed_curve(0, x, largest), seed_curve(1, x, mean)]))
    return LineChart(
        title=f"{study.name}: differences of the robust loss, n = {_size(by_name)}",
        description=f"Largest and mean difference of the robust loss of twin runs of {', '.join(by_name)}",
        axes=[UPDATES],
        panels=[
            ChartPanel(title="largest over images and neighbours"),
            ChartPanel(title="mean over images and neighbours"),
        ],
        series=series,
        numbers=_numbers("Loss differences", ("largest", "mean"), series),
    )


def _numbers(caption: str, heads: tuple[str, str], series: Sequence[ChartSeries]) -> ReportTable:
    rows = []
    for one in series:
        first, second = (curve for curve in one.curves if not curve.limit)
        points = zip(first.x["updates"], first.y, second.y, strict=True)
        rows += [[one.name, *map(number_text, values)] for values in points]
    return ReportTable(
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


def explorer_section(studies: Sequence[FoundStudy]) -> Section:
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
    explorer = BoundExplorer(
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


def _presets(study: FoundStudy) -> list[tuple[str, dict[str, float]]]:
    """The measured constants of a study made as the theorems assume, for every algorithm with a bound."""
    if study.summary is None:
        return []
    presets = []
    for row in study.summary.rows:
        covered = applicable_bound(study.summary.settings, row.algorithm, row.n, row.constants)
        if row.bound is None or covered is None or not covered.problem.eps:  # no logarithmic slider has 0
            continue
        every = {**asdict(covered.problem), "T": covered.T, "alpha": covered.alpha, "m": covered.m}
        values = {name: value for name, value in every.items() if value is not None}
        presets.append((f"{study.name}: {row.algorithm}, n = {row.n}", values))
    return presets
