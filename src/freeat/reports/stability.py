"""A stability study: its table, its figures (distances, loss differences, gradient norms, exponents in n), its text."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from freeat.reports.charts import ChartAxis, ChartPanel, ChartSeries, Curve, LineChart, positive, seed_curve
from freeat.reports.plots import draw_heat_map, draw_line_chart
from freeat.reports.tables import NO_VALUE, ReportTable, TableCell, number_text, percent, with_interval
from freeat.reports.training import gradient_heat_map
from freeat.stability.estimates import UniformStability
from freeat.stability.results import StudySettings, TwinResult
from freeat.stability.summary import (
    ExponentFit,
    ExponentRow,
    MeasuredBound,
    StabilityDifference,
    SummaryRow,
    applicable_bound,
    constants_of,
)

ByAlgorithm = Mapping[str, Sequence[TwinResult]]
DistanceBounds = Mapping[str, tuple[list[int], list[float]]]
BOUND_HEADROOM = 1e4
"""Bounds are drawn up to this factor above the largest measured distance."""
UPDATES = ChartAxis(key="updates", label="weight updates")
SIZES = ChartAxis(key="n", label="training images n (equal numbers of updates)", log=True)
ESTIMATES = ("distance", "uniform stability", "mean largest", "risk gap")
FITTED = ("distance ‖w − w′‖", "mean largest loss difference", "robust risk gap")


def results_by_algorithm(
    results: Sequence[TwinResult], order: Sequence[str] = ()
) -> dict[str, list[TwinResult]]:
    """The results at the largest n by algorithm, first those named in ``order``."""
    largest = max(result.n for result in results)
    shown = [result for result in results if result.n == largest]
    names = dict.fromkeys([*order, *(result.algorithm for result in shown)])
    by_name = {name: [result for result in shown if result.algorithm == name] for name in names}
    return {name: own for name, own in by_name.items() if own}


def distance_bounds(settings: StudySettings, by_name: ByAlgorithm) -> DistanceBounds:
    """By algorithm: updates, and the solved recursion's bound on the distance, where a theorem covers the study."""
    found = {}
    for name, results in by_name.items():
        covered = applicable_bound(settings, name, results[0].n, constants_of(results))
        if covered is not None:
            found[name] = covered.curve()
    return found


def draw_study(
    folder: Path,
    by_name: ByAlgorithm,
    bounds: DistanceBounds,
    exponents: Sequence[ExponentRow],
    title: str,
) -> list[Path]:
    """Every figure that the results allow."""
    n = next(iter(by_name.values()))[0].n
    at_n = f"{title}, n = {n}"
    paths = [
        draw_line_chart(folder / "distance.png", distance_chart(at_n, by_name, bounds)),
        draw_line_chart(folder / "loss-difference.png", difference_chart(at_n, by_name)),
    ]
    norms = {name: own[0].gradient_norms for name, own in by_name.items() if own[0].gradient_norms}
    if norms:
        paths.append(draw_heat_map(folder / "gradient-norms.png", gradient_heat_map(at_n, norms)))
    if exponents:
        paths.append(draw_line_chart(folder / "exponents.png", exponent_chart(title, exponents)))
    return paths


def distance_chart(title: str, by_name: ByAlgorithm, bounds: DistanceBounds) -> LineChart:
    """‖w − w′‖ and ‖δ − δ′‖ of twin runs against updates, with bounds below ``BOUND_HEADROOM``."""
    log = bool(bounds)
    top = BOUND_HEADROOM * max(
        np.max(row.d_w) for own in by_name.values() for r in own for row in r.distances
    )
    series = []
    for name, results in by_name.items():
        x = {"updates": [row.update for row in results[0].distances]}
        d_w = np.array([[np.mean(row.d_w) for row in result.distances] for result in results])
        d_delta = np.array([[np.mean(row.d_delta) for row in result.distances] for result in results])
        curves = [seed_curve(0, x, d_w, log=log), seed_curve(1, x, d_delta)]
        if name in bounds:
            updates, values = bounds[name]
            y = [value if 0 < value <= top else None for value in values]
            curves.append(Curve(panel=0, x={"updates": updates}, y=y, limit=True))
        series.append(ChartSeries(name=name, curves=curves))
    panels = (
        ChartPanel(title="distance of the weights ‖w − w′‖" + (" (thin: bound)" if log else ""), log=log),
        ChartPanel(title="distance of the perturbations ‖δ − δ′‖"),
    )
    return _twin_chart(title, "Distance of twin runs", panels, series, ("‖w − w′‖", "‖δ − δ′‖"))


def difference_chart(title: str, by_name: ByAlgorithm) -> LineChart:
    """Largest and mean difference of the robust loss of twin runs against updates."""
    series = []
    for name, results in by_name.items():
        x = {"updates": [probe.update for probe in results[0].probes]}
        largest = np.array([[probe.largest_difference for probe in result.probes] for result in results])
        mean = np.array([[probe.mean_difference for probe in result.probes] for result in results])
        series.append(ChartSeries(name=name, curves=[seed_curve(0, x, largest), seed_curve(1, x, mean)]))
    panels = (
        ChartPanel(title="largest over images and neighbours"),
        ChartPanel(title="mean over images and neighbours"),
    )
    return _twin_chart(
        title, "Difference of the robust loss of twin runs", panels, series, ("largest", "mean")
    )


def _twin_chart(
    title: str,
    quantity: str,
    panels: Sequence[ChartPanel],
    series: Sequence[ChartSeries],
    heads: tuple[str, str],
) -> LineChart:
    rows = []
    for one in series:
        first, second = (curve for curve in one.curves if not curve.limit)
        points = zip(first.x["updates"], first.y, second.y, strict=True)
        rows += [[one.name, *map(number_text, values)] for values in points]
    return LineChart(
        title=title,
        description=f"{quantity} against updates of {', '.join(one.name for one in series)}",
        axes=[UPDATES],
        panels=panels,
        series=series,
        numbers=ReportTable(
            caption=f"{quantity}, means over the seeds", columns=("algorithm", "update", *heads), rows=rows
        ),
    )


def exponent_chart(title: str, exponents: Sequence[ExponentRow]) -> LineChart:
    """Distance, loss difference and risk gap against n, with the fitted exponents in the panels."""
    panels = [
        ChartPanel(
            title=measure,
            log=True,
            note="\n".join(
                f"{row.algorithm}: n^{-fit.value:.2f}"
                for row in exponents
                if (fit := _measured(row)[k].fit) is not None
            ),
        )
        for k, measure in enumerate(FITTED)
    ]
    series = [
        ChartSeries(
            name=row.algorithm,
            curves=[
                Curve(panel=k, x={"n": row.sizes}, y=positive(fit.means))
                for k, fit in enumerate(_measured(row))
            ],
        )
        for row in exponents
    ]
    rows = [
        [row.algorithm, str(n), *(number_text(fit.means[k]) for fit in _measured(row))]
        for row in exponents
        for k, n in enumerate(row.sizes)
    ]
    return LineChart(
        title=title,
        description=f"Distance, loss difference and risk gap against n of {', '.join(r.algorithm for r in exponents)}",
        axes=[SIZES],
        panels=panels,
        series=series,
        numbers=ReportTable(caption="Means over the seeds", columns=("algorithm", "n", *FITTED), rows=rows),
    )


def exponent_table(exponents: Sequence[ExponentRow]) -> ReportTable:
    """The fits ∝ n^(−a), beside what the theorems predict."""
    rows: list[list[str | TableCell]] = [
        [
            row.algorithm,
            *(with_interval(measured.fit) for measured in _measured(row)),
            "no theorem" if row.predicted is None else f"{row.predicted:.3g}",
        ]
        for row in exponents
    ]
    return ReportTable(
        caption="fitted exponents a in n^(−a), [95 % interval over seeds], and the exponent of the bound",
        columns=("algorithm", *FITTED, "bound"),
        rows=rows,
    )


def _measured(row: ExponentRow) -> tuple[ExponentFit, ExponentFit, ExponentFit]:
    """The fits in the order of ``FITTED``."""
    return row.distance, row.mean_largest, row.risk_gap


def study_table(rows: Sequence[SummaryRow]) -> ReportTable:
    """Stability, bound and accuracy of every algorithm and n, with notes."""
    first = next((row for row in rows if row.seeds), rows[0])
    return ReportTable(
        caption=f"means over {first.seeds} seeds and {first.neighbours} neighbours, [95 % interval over "
        "seeds]; stability and gap in the bounded loss 1 − p_y",
        columns=("algorithm", "n", *ESTIMATES, "bound", "robust train %", "robust test %"),
        rows=[_study_row(row) for row in rows],
        notes=_notes(rows),
    )


def _study_row(row: SummaryRow) -> list[str | TableCell]:
    accuracies = (row.robust_train, row.robust_test)
    return [
        row.algorithm,
        str(row.n),
        with_interval(row.distance),
        _uniform_stability_cell(row.uniform_stability),
        with_interval(row.mean_largest),
        with_interval(row.risk_gap),
        _bound_cell(row.bound),
        *(NO_VALUE if accuracy is None else percent(accuracy.value) for accuracy in accuracies),
    ]


def _uniform_stability_cell(found: UniformStability | None) -> TableCell:
    """The estimate, and beneath it the limits that the number of seeds allows."""
    if found is None:
        return TableCell(text=NO_VALUE)
    limits = [f"≥ {found.guaranteed_lower_bound:.3g}"]
    if found.approximate_lower_bound is not None:
        limits.append(f"≳ {found.approximate_lower_bound:.3g}")
    if found.upper_limit is not None:
        limits.append(f"≤ {found.upper_limit:.3g}")
    return TableCell(text=f"{found.value:.3g}", detail=f"({', '.join(limits)})")


def _bound_cell(bound: MeasuredBound | None) -> TableCell:
    if bound is None:
        return TableCell(text=NO_VALUE)
    power = bound.log10_bound
    text = f"{10**power:.3g}" if abs(power) < 4 else f"10^{power:.3g}"
    return TableCell(text=text, detail="(vacuous)" if bound.vacuous else "")


def _limit_notes(found: Sequence[UniformStability]) -> list[str]:
    """Notes that explain the limits of uniform stability in the table."""
    if not found:
        return []
    notes = [
        "uniform stability: ≥ is its guaranteed lower bound (95 %, for any distribution; 0 says nothing: more seeds)"
    ]
    if any(one.approximate_lower_bound is not None for one in found):
        notes.append("uniform stability: ≳ is the lower bound by Student's t (about 95 %, less if bimodal)")
    if any(one.upper_limit is not None for one in found):
        notes.append("uniform stability: ≤ is an upper limit (95 %, bootstrap) over the tested pairs only")
    return notes


def _notes(rows: Sequence[SummaryRow]) -> list[str]:
    """Notes under the table: what limits its numbers."""
    notes = _limit_notes([row.uniform_stability for row in rows if row.uniform_stability])
    for row in rows:
        name = f"{row.algorithm} (n = {row.n})"
        if row.reason:
            notes.append(f"{name}: {row.reason}")
        if row.seeds and not row.trained:
            notes.append(f"{name} did not train: its stability says nothing")
        elif equal := row.at_equal_accuracy:
            notes.append(
                f"{name}: distance {with_interval(equal.distance)} when robust train accuracy reached "
                f"{equal.robust_train:.1%}"
            )
        elif row.trained:
            notes.append(
                f"{name}: no distance at equal robust train accuracy, as its slow weights begin above it; probe more "
                "often (--probe-times), or begin earlier (--proximal-from)"
            )
        if row.constants and row.constants.no_beta:
            notes.append(f"{row.algorithm}: {row.constants.no_beta}")
    caveats = [row.constants.caveat for row in rows if row.bound and row.constants]
    notes += [f"bounds use estimated constants: {caveat}" for caveat in caveats]
    return list(dict.fromkeys(notes))


def paired_table(differences: Sequence[StabilityDifference]) -> ReportTable:
    """How much more stable a part makes an algorithm, and Free than Vanilla: differences paired by seed."""
    return ReportTable(
        caption="paired differences, [95 % interval, Student's t over paired seeds]",
        columns=(
            "algorithm",
            "minus",
            "n",
            "distance",
            "distance at equal robust train",
            "risk gap",
            "seeds",
        ),
        rows=[
            [
                row.algorithm,
                row.reference,
                str(row.n),
                with_interval(row.distance),
                with_interval(row.distance_at_equal_accuracy),
                with_interval(row.risk_gap),
                str(row.seeds),
            ]
            for row in differences
        ],
        text_columns=2,
    )


def study_lines(
    rows: Sequence[SummaryRow],
    exponents: Sequence[ExponentRow],
    differences: Sequence[StabilityDifference] = (),
) -> list[str]:
    """The study as text."""
    table = study_table(rows)
    lines = [*table.lines(), table.caption, *table.notes]
    if differences:
        paired = paired_table(differences)
        lines += [paired.caption, *paired.lines()]
    if exponents:
        fits = exponent_table(exponents)
        lines += [fits.caption, *fits.lines()]
    return lines
