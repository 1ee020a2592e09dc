"""What training shows: learning curves (Figure 1), the gap against n (Figures 4, 10), gradient norms (Figure 12)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from freeat.reports.charts import (
    ChartAxis,
    ChartPanel,
    ChartSeries,
    Curve,
    HeatMap,
    HeatMapPanel,
    LineChart,
    positive,
    seed_curve,
    thinned,
)
from freeat.reports.html.blocks import Block, Section
from freeat.reports.html.gather import FoundStudy
from freeat.reports.html.groups import Benchmark, SeedGroup, settings_of
from freeat.reports.html.stability import results_by_algorithm
from freeat.reports.plots import AXES, History, comparable, errors, larger_last
from freeat.reports.tables import ReportTable, TableCell, with_interval
from freeat.stability.estimates import BootstrapEstimate, fitted_exponent
from freeat.stability.results import GradientRecord
from freeat.stability.summary import ExponentFit, ExponentRow
from freeat.training.records import Record

PANELS = (
    ChartPanel(title="robust training error", unit="%"),
    ChartPanel(title="robust test error", unit="%"),
    ChartPanel(title="robust generalization gap", unit="points", level=0.0, meaning="no gap"),
)
LABELS = {"epochs": "epochs", "updates": "updates", "gradients": "gradient evaluations", "seconds": "time"}


def curves_section(benchmarks: Sequence[Benchmark]) -> Section:
    """A chart for every benchmark whose runs were evaluated on the way."""
    blocks: list[Block] = [chart for benchmark in benchmarks if (chart := _chart(benchmark)) is not None]
    return Section(
        key="curves",
        title="Learning curves",
        lead="How robust training error, test error and their difference develop. Lines are means over the seeds, "
        "bands reach from the lowest to the highest. Epochs of Free are counted m-fold: equal epochs are equal "
        "numbers of weight updates. A hollow mark is a last evaluation on more images than those before it.",
        blocks=blocks,
    )


def _chart(benchmark: Benchmark) -> LineChart | None:
    series = [one for group in benchmark.groups if (one := _series(group)) is not None]
    if all(sum(len(curve.y) for curve in one.curves if curve.panel == 0) < 2 for one in series):
        return None
    return LineChart(
        title=benchmark.title,
        description=f"Robust training error, test error and gap of {', '.join(one.name for one in series)}",
        axes=[ChartAxis(key=key, label=text) for key, (_, text) in AXES.items()],
        panels=PANELS,
        series=series,
        numbers=_numbers(series),
    )


def _series(group: SeedGroup) -> ChartSeries | None:
    histories = [run.history for run in group.runs if run.history]
    if not histories:
        return None
    curves = _curves([comparable(history) for history in histories], apart=False)
    ends = larger_last(histories)
    return ChartSeries(name=group.label, curves=[*curves, *(_curves(ends, apart=True) if ends else [])])


def _curves(histories: list[History], *, apart: bool) -> list[Curve]:
    keep = thinned(min(map(len, histories)))
    x = {axis: errors(histories, key)[0][keep].tolist() for axis, (key, _) in AXES.items()}
    _, panels = errors(histories, "update")
    return [seed_curve(place, x, rows[:, keep], apart=apart) for place, rows in enumerate(panels)]


def _numbers(series: Sequence[ChartSeries]) -> ReportTable:
    rows = []
    for one in series:
        for apart in (False, True):
            curves = [curve for curve in one.curves if curve.apart is apart]
            if curves:
                columns = zip(
                    *(curves[0].x[axis] for axis in AXES), *(curve.y for curve in curves), strict=True
                )
                rows += [[one.name, *(f"{value:.4g}" for value in values)] for values in columns]
    heads = ["algorithm", *LABELS.values(), "train error %", "test error %", "gap (points)"]
    return ReportTable(caption="Learning curves as numbers, means over the seeds", columns=heads, rows=rows)


COLUMNS = 40
"""Columns of a heat map; more records than this are added up."""


def gradients_section(benchmarks: Sequence[Benchmark], studies: Sequence[FoundStudy]) -> Section:
    """A heat map for every algorithm whose training shows gradients; the first seed speaks for the others."""
    blocks: list[Block] = []
    for benchmark in benchmarks:
        records = {group.label: _norms_of(group.runs[0].history) for group in benchmark.groups}
        blocks += _charts(benchmark.title, records)
    for study in studies:
        if study.results:
            own = results_by_algorithm(study)
            blocks += _charts(study.name, {name: results[0].gradient_norms for name, results in own.items()})
    return Section(
        key="gradients",
        title="Gradient norms",
        lead="How many images had which norm ‖∂h/∂δ‖ of the loss gradient in δ, and when: the stronger the colour, the "
        "more. The line is the smallest norm so far: the 1/ψ of Theorems 4 and 5. Zero norms are shown in "
        "the lowest row.",
        blocks=blocks,
    )


def _norms_of(history: Sequence[Record]) -> list[GradientRecord]:
    return [
        GradientRecord(update=record.update, **vars(record.gradient_norms))
        for record in history
        if record.gradient_norms is not None
    ]


def _charts(title: str, records: Mapping[str, Sequence[GradientRecord]]) -> list[HeatMap]:
    shown = {name: _merged(rows) for name, rows in records.items() if rows}
    if not shown:
        return []
    panels = [_panel(name, rows) for name, rows in shown.items()]
    rows = [_quantiles(name, row) for name, own in shown.items() for row in own]
    columns = ("algorithm", "update", "images", "5 % below", "median", "95 % below", "smallest so far")
    return [
        HeatMap(
            title=title,
            description=f"Counts of the gradient norms of {', '.join(shown)} against updates, with the running minimum",
            x_label="weight updates",
            y_label="‖∂h/∂δ‖",
            panels=panels,
            numbers=ReportTable(
                caption="Gradient norms as numbers, to a tenth of a decade", columns=columns, rows=rows
            ),
        )
    ]


def _merged(rows: Sequence[GradientRecord]) -> list[GradientRecord]:
    """At most ``COLUMNS`` records, each the sum of those since the one before."""
    merged: list[GradientRecord] = []
    counts: Counter[str] = Counter()
    ends = {place - 1 for place in thinned(len(rows) + 1, COLUMNS + 1)}
    for place, row in enumerate(rows):
        counts.update(row.bins)
        if place in ends:
            merged.append(replace(row, bins=dict(counts)))
            counts.clear()
    return merged


def _counts(row: GradientRecord) -> dict[int, int]:
    """The images by bin, the lowest first."""
    return dict(sorted((int(bin_), images) for bin_, images in row.bins.items()))


def _panel(name: str, rows: Sequence[GradientRecord]) -> HeatMapPanel:
    return HeatMapPanel(
        title=name,
        updates=[0, *(row.update for row in rows)],
        counts=[
            (column, bin_, images) for column, row in enumerate(rows) for bin_, images in _counts(row).items()
        ],
        smallest=[row.smallest_so_far for row in rows],
    )


def _quantiles(name: str, row: GradientRecord) -> list[str]:
    counts = _counts(row)
    total = sum(counts.values())
    cells = []
    for share in (0.05, 0.5, 0.95):
        seen = 0
        for bin_, images in counts.items():
            seen += images
            if seen >= share * total:
                cells.append(f"{10 ** ((bin_ + 0.5) / 10):.2g}")
                break
    return [name, str(row.update), str(total), *cells, f"{row.smallest_so_far:.3g}"]


MEASURES = ("distance ‖w − w′‖", "largest loss difference, averaged", "gap of the robust risk")
SWEPT = ("train_size", "epochs", "updates")
"""Settings that may differ along a line; T itself may not."""
N_AXIS = ChartAxis(key="n", label="training images n", log=True)


def sizes_section(benchmarks: Sequence[Benchmark], studies: Sequence[FoundStudy]) -> Section:
    """Of every benchmark that was trained on several n, and of every study that swept it."""
    blocks: list[Block] = [
        chart for benchmark in benchmarks if (chart := _of_benchmark(benchmark)) is not None
    ]
    for study in studies:
        if study.summary and (rows := study.summary.exponents):
            blocks += [_of_study(study, rows), _fits(study, rows)]
    return Section(
        key="sizes",
        title="Gap against n",
        lead="With the number of weight updates fixed, a stable algorithm's gap falls as n grows. A line is "
        "fitted to the logarithms: the gap goes with n to the power −a, with a 95 % interval of a by "
        "bootstrap over the seeds.",
        blocks=blocks,
    )


def exponent(fit: BootstrapEstimate | None) -> str:
    """A fitted exponent in words."""
    cell = with_interval(fit, 2)
    return f"a = {cell.text} {cell.detail}".strip()


def _of_benchmark(benchmark: Benchmark) -> LineChart | None:
    swept = {name: _gaps(_by_size(groups)) for name, groups in _sweeps(benchmark).items()}
    lines = {name: (sizes, gaps) for name, (sizes, gaps) in swept.items() if len(sizes) > 1 and gaps}
    if not lines:
        return None
    series, rows = [], []
    for name, (sizes, gaps) in lines.items():
        fit = fitted_exponent(np.array(sizes, float), np.array(gaps))
        means = np.array(gaps).mean(0)
        curve = Curve(panel=0, x={"n": sizes}, y=positive(100 * means))
        series.append(ChartSeries(name=f"{name}: {exponent(fit)}", curves=[curve]))
        rows += [
            [name, str(n), f"{100 * gap:.1f}", exponent(fit)] for n, gap in zip(sizes, means, strict=True)
        ]
    columns = ("algorithm", "n", "robust gap (points)", "exponent")
    return LineChart(
        title=benchmark.title,
        description=f"Robust generalization gap against the number of training images of {', '.join(lines)}",
        axes=[N_AXIS],
        panels=[ChartPanel(title="robust generalization gap", unit="points", log=True)],
        series=series,
        numbers=ReportTable(caption="Gap against n as numbers", columns=columns, rows=rows),
    )


def _sweeps(benchmark: Benchmark) -> dict[str, list[SeedGroup]]:
    """Groups that differ in n only, the number of weight updates being fixed, by a name that tells them apart."""
    sweeps: dict[tuple[str, str], list[SeedGroup]] = {}
    for group in benchmark.finished:
        run = group.runs[0]
        if run.spec.train_size is not None:
            fixed = {name: value for name, value in settings_of(run).items() if name not in SWEPT}
            updates = run.description.updates
            sweeps.setdefault((group.algorithm, repr((fixed, updates))), []).append(group)
    several = [groups for groups in sweeps.values() if len(groups) > 1]
    names = Counter(groups[0].algorithm for groups in several)
    return {
        groups[0].algorithm if names[groups[0].algorithm] == 1 else f"{groups[0].label} and on": groups
        for groups in several
    }


def _by_size(groups: Sequence[SeedGroup]) -> dict[int, SeedGroup]:
    """The groups by n, ascending."""
    sizes = {int(group.runs[0].spec.train_size or 0): group for group in groups}
    return dict(sorted(sizes.items()))


def _gaps(groups: Mapping[int, SeedGroup]) -> tuple[list[int], list[list[float]]]:
    """The sizes, and the gaps of every seed that all sizes have: (seeds, sizes)."""
    by_seed = [
        {run.spec.seed: run.result.gap.value for run in group.runs if run.result is not None}
        for group in groups.values()
    ]
    common = sorted(set.intersection(*(set(seeds) for seeds in by_seed)))
    return list(groups), [[seeds[seed] for seeds in by_seed] for seed in common]


def _of_study(study: FoundStudy, rows: Sequence[ExponentRow]) -> LineChart:
    series = [
        ChartSeries(
            name=row.algorithm,
            curves=[
                Curve(panel=place, x={"n": list(row.sizes)}, y=positive(fit.means))
                for place, fit in enumerate(_measured(row))
            ],
        )
        for row in rows
    ]
    numbers = [
        [row.algorithm, str(n), *(f"{fit.means[k]:.4g}" for fit in _measured(row))]
        for row in rows
        for k, n in enumerate(row.sizes)
    ]
    return LineChart(
        title=f"{study.name}: twin runs",
        description=f"Distance, loss difference and risk gap against n of {', '.join(r.algorithm for r in rows)}",
        axes=[N_AXIS],
        panels=[ChartPanel(title=title, log=True) for title in MEASURES],
        series=series,
        numbers=ReportTable(
            caption="Means over the seeds", columns=("algorithm", "n", *MEASURES), rows=numbers
        ),
    )


def _measured(row: ExponentRow) -> tuple[ExponentFit, ...]:
    """The fits in the order of ``MEASURES``."""
    return row.distance, row.mean_largest, row.risk_gap


def _fits(study: FoundStudy, rows: Sequence[ExponentRow]) -> ReportTable:
    cells: list[list[str | TableCell]] = [
        [
            row.algorithm,
            *(with_interval(measured.fit, 2) for measured in _measured(row)),
            "–" if row.predicted is None else f"{row.predicted:.3g}",
        ]
        for row in rows
    ]
    return ReportTable(
        caption=f"{study.name}: fitted exponents a in n⁻ᵃ, and that of the bound",
        columns=("algorithm", *MEASURES, "the bound's"),
        rows=cells,
    )
