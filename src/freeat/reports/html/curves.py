"""What training shows: curves (Figure 1), fairness, the gap against n (Figures 4, 10), gradient norms (Figure 12)."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from freeat.experiments.curves import summarize_curves
from freeat.reports.charts import ChartPanel, ChartSeries, Curve, LineChart, positive
from freeat.reports.html.blocks import Block, Section
from freeat.reports.html.gather import FoundStudy
from freeat.reports.html.groups import Benchmark, SeedGroup, settings_of
from freeat.reports.stability import SIZES, exponent_chart, exponent_table
from freeat.reports.tables import ReportTable, with_interval
from freeat.reports.text import curves_table
from freeat.reports.training import cost_chart, gap_chart, gradient_heat_map, learning_curves
from freeat.stability.estimates import fitted_exponent
from freeat.stability.results import GradientRecord, gradient_records

SWEPT = ("train_size", "epochs", "updates")
"""Settings that may differ along a line; T itself may not."""
HEAT_MAP_COLUMNS = 40


def curves_section(benchmarks: Sequence[Benchmark]) -> Section:
    """A chart for every benchmark with a run that was evaluated more than once."""
    blocks: list[Block] = []
    for benchmark in benchmarks:
        histories = {
            group.label: [run.history for run in group.runs if run.history] for group in benchmark.groups
        }
        shown = [(name, own) for name, own in histories.items() if own]
        if any(len(history) > 1 for _, own in shown for history in own):
            blocks.append(learning_curves(benchmark.title, shown))
    return Section(
        key="curves",
        title="Learning curves",
        lead="Robust training error, robust test error and the robust generalization gap during training. Lines are "
        "means over the seeds, bands reach from the lowest seed to the highest. Epochs of Free are counted m-fold, so "
        "that equal epochs are equal numbers of weight updates. A hollow mark is a last evaluation on more images.",
        blocks=blocks,
    )


def fairness_section(benchmarks: Sequence[Benchmark]) -> Section:
    """Algorithms at equal fit and at equal cost, for every benchmark and n with several algorithms."""
    blocks: list[Block] = []
    for benchmark in benchmarks:
        by_size: dict[int | None, list[SeedGroup]] = {}
        for group in benchmark.finished:
            by_size.setdefault(group.runs[0].spec.train_size, []).append(group)
        for groups in by_size.values():
            if len(groups) > 1:
                blocks += _fairness(benchmark.title, groups)
    return Section(
        key="fairness",
        title="At equal fit, at equal cost",
        lead="An algorithm that fits less has a smaller gap for that reason alone: compare gaps at the same robust "
        "training accuracy, along the lines of the first chart. Robust overfitting is the best robust test accuracy "
        "during training minus the last. The second chart shows what the accuracy of the trained models cost: off the "
        "Pareto front, another model here is as cheap and more accurate, or as accurate and cheaper.",
        blocks=blocks,
    )


def _fairness(title: str, groups: Sequence[SeedGroup]) -> Iterator[Block]:
    histories = [
        {run.spec.seed: run.history for run in group.runs if run.result is not None} for group in groups
    ]
    labels = [group.label for group in groups]
    by_name = [(label, list(own.values())) for label, own in zip(labels, histories, strict=True)]
    if (chart := gap_chart(title, by_name)) is not None:
        yield chart
    table = curves_table(list(zip(labels, summarize_curves(histories), strict=True)))
    if table is not None:
        yield table.under_name(title)
    yield cost_chart(
        title,
        [
            (
                group.label,
                group.mean(lambda result: result.gradient_evaluations),
                group.accuracy("test", "robust").mean,
            )
            for group in groups
        ],
    )


def gradients_section(benchmarks: Sequence[Benchmark], studies: Sequence[FoundStudy]) -> Section:
    """A heat map for every benchmark and study that recorded gradient norms, of the first seed of each algorithm."""
    found: dict[str, Mapping[str, Sequence[GradientRecord]]] = {
        benchmark.title: {group.label: gradient_records(group.runs[0].training) for group in benchmark.groups}
        for benchmark in benchmarks
    }
    for study in studies:
        if study.results:
            found[study.name] = {name: own[0].gradient_norms for name, own in study.by_algorithm.items()}
    recorded = {
        title: {name: rows for name, rows in by_name.items() if rows} for title, by_name in found.items()
    }
    return Section(
        key="gradients",
        title="Gradient norms",
        lead="The norm ‖∇_δ h‖ of the loss gradient of every image during training: the stronger the colour, the more "
        "images. The line is the running minimum, the 1/ψ of Theorems 4 and 5: where it falls, their bounds grow. "
        "Zero norms are in the lowest row.",
        blocks=[
            gradient_heat_map(title, rows, columns=HEAT_MAP_COLUMNS)
            for title, rows in recorded.items()
            if rows
        ],
    )


def sizes_section(benchmarks: Sequence[Benchmark], studies: Sequence[FoundStudy]) -> Section:
    """The gap against n, for every benchmark with several n and every study that swept n."""
    blocks: list[Block] = [
        chart for benchmark in benchmarks if (chart := _of_benchmark(benchmark)) is not None
    ]
    for study in studies:
        if study.summary and (fits := study.summary.exponents):
            blocks += [
                exponent_chart(f"{study.name}: twin runs", fits),
                exponent_table(fits).under_name(study.name),
            ]
    return Section(
        key="sizes",
        title="Generalization gap against n",
        lead="With the number of weight updates fixed, the gap of a stable algorithm falls as the number n of training "
        "images grows. The exponent a of gap ∝ n⁻ᵃ is fitted to the logarithms, with a 95 % interval over "
        "the seeds.",
        blocks=blocks,
    )


def _of_benchmark(benchmark: Benchmark) -> LineChart | None:
    swept = {name: _gaps(groups) for name, groups in _sweeps(benchmark).items()}
    lines = {name: (sizes, gaps) for name, (sizes, gaps) in swept.items() if len(sizes) > 1 and gaps}
    if not lines:
        return None
    series, rows = [], []
    for name, (sizes, gaps) in lines.items():
        exponent = f"a = {with_interval(fitted_exponent(np.array(sizes, float), np.array(gaps)), 2)}"
        means = np.array(gaps).mean(0)
        curve = Curve(panel=0, x={"n": sizes}, y=positive(100 * means))
        series.append(ChartSeries(name=f"{name}: {exponent}", curves=[curve]))
        rows += [[name, str(n), f"{100 * gap:.1f}", exponent] for n, gap in zip(sizes, means, strict=True)]
    columns = ("algorithm", "n", "robust gap (points)", "exponent")
    return LineChart(
        title=benchmark.title,
        description=f"Robust generalization gap against the number of training images of {', '.join(lines)}",
        axes=[SIZES],
        panels=[ChartPanel(title="robust generalization gap", unit="points", log=True)],
        series=series,
        numbers=ReportTable(caption="Gap against n as numbers", columns=columns, rows=rows),
    )


def _sweeps(benchmark: Benchmark) -> dict[str, list[SeedGroup]]:
    """Groups that differ in n only, the number of weight updates being fixed, by a unique name."""
    sweeps: dict[tuple[str, str], list[SeedGroup]] = {}
    for group in benchmark.finished:
        run = group.runs[0]
        if run.spec.train_size is not None:
            fixed = {name: value for name, value in settings_of(run).items() if name not in SWEPT}
            label, updates = run.spec.label_of(run.weights), run.description.updates
            sweeps.setdefault((label, repr((run.spec.algorithm, fixed, updates))), []).append(group)
    several = {key: groups for key, groups in sweeps.items() if len(groups) > 1}
    names = Counter(label for label, _ in several)
    return {
        label if names[label] == 1 else f"{groups[0].label} and on": groups
        for (label, _), groups in several.items()
    }


def _gaps(groups: Sequence[SeedGroup]) -> tuple[list[int], list[list[float]]]:
    """The sizes, ascending, and the gaps of every seed that all sizes have: (seeds, sizes)."""
    by_size = {
        group.runs[0].spec.train_size or 0: {
            run.spec.seed: run.result.gap.value for run in group.runs if run.result is not None
        }
        for group in groups
    }
    sizes = sorted(by_size)
    common = sorted(set.intersection(*map(set, by_size.values())))
    return sizes, [[by_size[n][seed] for n in sizes] for seed in common]
