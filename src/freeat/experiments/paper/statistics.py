"""The statistics of the claims: differences of gaps and accuracies in tables, along curves, radii and sizes.

Each is signed so that the claim says it is positive. A claim is tested once over all its panels, and in each of them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

from freeat.evaluation.matched import LearningCurves, matched_differences, matched_gap
from freeat.experiments.paper.catalogue import TRANSFERRED_FROM
from freeat.experiments.paper.documents import (
    CurveFigure,
    CurveSeries,
    FigurePanel,
    NormSeries,
    PaperFigure,
    RadiusFigure,
    RadiusSeries,
    S,
    SizeSeries,
)
from freeat.experiments.paper.estimate import (
    ErrorEstimate,
    ErrorSource,
    average,
    beyond_proportion,
    exponent,
    seed_mean,
)
from freeat.experiments.paper.evidence import (
    COMPARABLE,
    Block,
    Evidence,
    NoStatistic,
    PanelTest,
    Statistic,
    at_chance,
    attempt,
    estimates,
    missing,
    positive,
    series_of,
    similar,
)
from freeat.experiments.paper.settings import (
    FAST,
    FAST_LONG_STEP,
    FAST_SHORT_STEP,
    FREE,
    FREE_STEPS,
    NEAR,
    VANILLA,
    free,
    radius,
)

MAIN = ("table-1", "table-4")
ALL_FREE = tuple(map(free, FREE_STEPS))
COLLAPSED = 0.5
"""Fast has collapsed where less than this part of its best robust training accuracy is left at the end."""

LEAST_ORDER = -3.5
"""Norms above 10 to this power are of the order of 10⁻³ or larger."""

SMALLEST_NORM = 1e-6
"""Smaller norms count as this: how far below the order they lie decides nothing, and zero has no logarithm."""


def between_rows(
    pairs: Sequence[tuple[str, str]],
    columns: tuple[str, str],
    find: Callable[[str, str, ErrorEstimate, ErrorEstimate], PanelTest],
) -> Statistic:
    """Two algorithms, a column of each, in every block that has the first."""

    def compare(
        panel: str, evidence: Evidence, tables: Sequence[str], block: Block, labels: tuple[str, str]
    ) -> PanelTest:
        own, other = (evidence.number(tables, block, *each) for each in zip(labels, columns, strict=True))
        own_column, other_column = (column.replace("_", " ") for column in columns)
        detail = (
            f"{own_column} {100 * own.value:.1f} %; {other_column} of {labels[1]} {100 * other.value:.1f} %"
        )
        return find(panel, detail, own, other)

    def tests(evidence: Evidence, tables: Sequence[str]) -> Iterator[PanelTest]:
        for labels in pairs:
            for block in evidence.blocks(tables):
                if evidence.row(tables, block, labels[0]) is not None:
                    panel = " ".join((*block, labels[0]))
                    yield attempt(panel, compare, evidence, tables, block, labels)

    return tests


def gap_below(*pairs: tuple[str, str], column: str = "robust_gap") -> Statistic:
    """The gap of the second minus that of the first."""
    return between_rows(
        pairs, (column, column), lambda panel, detail, own, other: positive(panel, detail, other - own)
    )


def rows_similar(*pairs: tuple[str, str], column: str) -> Statistic:
    """The margin minus the distance of two numbers of a column."""
    return between_rows(
        pairs, (column, column), lambda panel, detail, own, other: similar(panel, detail, own - other)
    )


def accuracy_not_below(*pairs: tuple[str, str]) -> Statistic:
    """Robust test accuracy of the first minus that of the second, plus the margin."""

    def find(panel: str, detail: str, own: ErrorEstimate, other: ErrorEstimate) -> PanelTest:
        return positive(panel, detail, (own - other).plus(COMPARABLE))

    return between_rows(pairs, ("robust_test", "robust_test"), find)


def robust_gap_above_clean_gap(*pairs: tuple[str, str]) -> Statistic:
    """The robust gap of the second minus the clean gap of the first: ERM has no other."""
    return between_rows(
        pairs,
        ("clean_gap", "robust_gap"),
        lambda panel, detail, clean, robust: positive(panel, detail, robust - clean),
    )


def gap_on_cifar10(label: str, test: Callable[[str, str, str, ErrorEstimate], PanelTest]) -> Statistic:
    """A test of the robust gap itself, by panel, detail and norm, on the data set that the paper's numbers are of."""

    def read(panel: str, evidence: Evidence, tables: Sequence[str], block: Block) -> PanelTest:
        gap = evidence.number(tables, block, label, "robust_gap")
        return test(panel, f"robust gap {100 * gap.value:.1f} %", block[1], gap)

    def tests(evidence: Evidence, tables: Sequence[str]) -> Iterator[PanelTest]:
        for block in evidence.blocks(tables):
            if block[0] == "cifar10" and evidence.row(tables, block, label) is not None:
                yield attempt(" ".join((*block, label)), read, evidence, tables, block)

    return tests


VANILLA_GAP = {"l2": 0.3, "linf": 0.5}
"""What Vanilla's robust gap on CIFAR-10 exceeds, as the paper has it."""

FREE_GAP = 0.2
"""To what Free reduces it."""

vanilla_gap_large = gap_on_cifar10(
    VANILLA, lambda panel, detail, norm, gap: positive(panel, detail, gap.plus(-VANILLA_GAP[norm]))
)
free_gap_reduced = gap_on_cifar10(
    FREE, lambda panel, detail, norm, gap: similar(panel, detail, gap.plus(-FREE_GAP))
)


def gap_falls_with_m(evidence: Evidence, tables: Sequence[str]) -> Iterator[PanelTest]:
    """The gap of Free-m minus that of the next m: the smallest step down."""

    def steps(panel: str, block: Block) -> PanelTest:
        gaps = {}
        for label in map(free, FREE_STEPS):
            with suppress(NoStatistic):
                gaps[label] = evidence.number(tables, block, label, "robust_gap")
        if len(gaps) < 2:
            raise NoStatistic("fewer than two m were measured")
        falls = (before - after for before, after in pairwise(gaps.values()))
        shown = ", ".join(f"{label} {100 * gap.value:.1f}" for label, gap in gaps.items())
        return positive(panel, f"gaps: {shown}", *falls)

    return (attempt(" ".join(block), steps, block) for block in evidence.blocks(tables))


def gap_at_equal_fit(evidence: Evidence, shown: Sequence[str]) -> Iterator[PanelTest]:
    """Vanilla's gap minus that of Free where both have the same robust training accuracy.

    From learning curves; without any, from Table 6's Vanilla and the m of the main tables that enclose it.
    """
    if evidence.panels(CurveFigure, shown):
        yield from in_panels(CurveFigure, _on_curves_at_equal_fit, ALL_FREE)(evidence, shown)
        return
    for block in evidence.blocks([name for name in shown if name == "table-6"]):
        yield attempt(" ".join(block), _in_tables_at_equal_fit, evidence, block)


def _on_curves_at_equal_fit(title: str, panel: FigurePanel[CurveSeries], label: str) -> PanelTest:
    both = series_of(panel, VANILLA), series_of(panel, label)
    seeds = sorted(
        set.intersection(*({s for fit in series.fits[:1] for s in fit.of_seeds} for series in both))
    )
    curves = [_learning_curves(series, seeds) for series in both]
    matched = matched_gap(*curves)
    if matched is None:
        raise NoStatistic(f"{label} and {VANILLA} have no robust training accuracy in common")
    detail = f"at {100 * matched.level:.1f} % robust training accuracy: gap {100 * matched.second:.1f} %; "
    detail += f"that of {VANILLA} {100 * matched.first:.1f} %"
    if not seeds:
        raise NoStatistic(f"only means over the seeds are known, so there is no interval; {detail}")
    images = (max(point.image_error for point in series.points) for series in both)
    difference = ErrorEstimate(
        value=matched.difference.value,
        seeds=len(seeds),
        errors=tuple(ErrorSource(variance=error**2) for error in images),
        by_seed=dict(zip(seeds, map(float, matched_differences(*curves)), strict=True)),
    )
    return positive(title, detail, difference)


def _learning_curves(series: CurveSeries, seeds: Sequence[int]) -> LearningCurves:
    """The curves of these seeds; without any, the one of the means."""
    if not seeds:
        fit = [[1 - error for error in series.train]]
        return LearningCurves(fit=np.array(fit), gap=np.array([[point.mean for point in series.points]]))
    fits, gaps = (
        [[dict(zip(mean.of_seeds, mean.values, strict=True))[seed] for mean in means] for seed in seeds]
        for means in (series.fits, series.fit_gaps or series.points)
    )
    return LearningCurves(fit=np.array(fits), gap=np.array(gaps))


def _in_tables_at_equal_fit(panel: str, evidence: Evidence, block: Block) -> PanelTest:
    """Vanilla stopped early, and Free at its end: interpolated between two m that fit less and more."""
    fit, gap = (evidence.number(("table-6",), block, VANILLA, c) for c in ("robust_train", "robust_gap"))
    ends = []
    for label in ALL_FREE:
        with suppress(NoStatistic):
            ends.append((evidence.number(MAIN, block, label, "robust_train").value, label))
    less = max((end for end in ends if end[0] <= fit.value), default=None)
    more = min((end for end in ends if end[0] > fit.value), default=None)
    if less is None or more is None:
        raise NoStatistic(f"no two m enclose {VANILLA}'s robust training accuracy {100 * fit.value:.1f} %")
    share = (fit.value - less[0]) / (more[0] - less[0])
    below, above = (evidence.number(MAIN, block, label, "robust_gap") for _, label in (less, more))
    own = below.times(1 - share) + above.times(share)
    detail = f"at {100 * fit.value:.1f} % robust training accuracy: gap {100 * own.value:.1f} %, interpolated between "
    detail += f"{less[1]} and {more[1]}; that of {VANILLA}, stopped early, {100 * gap.value:.1f} %"
    return positive(panel, detail, gap - own)


def free_overfits_less(evidence: Evidence, shown: Sequence[str]) -> Iterator[PanelTest]:
    """Best minus last robust test accuracy of Vanilla minus that of Free.

    From learning curves, cross-fitted; without any, from two checkpoints, the early stop of Table 6 and the end of
    Table 1: what is better at the end has lost nothing.
    """
    if evidence.panels(CurveFigure, shown):
        yield from in_panels(CurveFigure, _overfitting_on_curves, ALL_FREE)(evidence, shown)
        return

    def fall(block: Block, label: str) -> ErrorEstimate:
        early = evidence.number(("table-6",), block, label, "robust_test")
        last = evidence.number(MAIN, block, label, "robust_test")
        return early - last if early.value > last.value else last.times(0)

    def in_tables(panel: str, block: Block) -> PanelTest:
        vanilla, own = fall(block, VANILLA), fall(block, FREE)
        detail = f"better minus last robust test accuracy of two checkpoints: {VANILLA} {100 * vanilla.value:.1f}, "
        return positive(panel, f"{detail}{FREE} {100 * own.value:.1f} points", vanilla - own)

    for block in evidence.blocks([name for name in shown if name == "table-6"]):
        yield attempt(" ".join(block), in_tables, block)


def _overfitting_on_curves(title: str, panel: FigurePanel[CurveSeries], label: str) -> PanelTest:
    found = [mean for name in (VANILLA, label) if (mean := series_of(panel, name).overfitting) is not None]
    if len(found) < 2:
        raise NoStatistic("the outcomes of the images are not stored")
    vanilla, own = map(ErrorEstimate.of_mean, found)
    detail = f"best minus last robust test accuracy: {VANILLA} {100 * vanilla.value:.1f}, {label} {100 * own.value:.1f}"
    return positive(title, f"{detail} points", vanilla - own)


def gap_grows_with_updates(evidence: Evidence, tables: Sequence[str]) -> Iterator[PanelTest]:
    """The gap at the end of the training minus that after a quarter of it, of algorithms that Table 6 has."""

    def grows(panel: str, block: Block, label: str) -> PanelTest:
        early = evidence.number(("table-6",), block, label, "robust_gap")
        late = evidence.number(MAIN, block, label, "robust_gap")
        detail = f"gap {100 * early.value:.1f} % after a quarter, {100 * late.value:.1f} % at the end"
        return positive(panel, detail, late - early)

    for block in evidence.blocks([name for name in tables if name == "table-6"]):
        for label in (VANILLA, FREE):
            if evidence.row(("table-6",), block, label) is not None:
                yield attempt(" ".join((*block, label)), grows, block, label)


def gap_grows_with_attack_step(title: str, panel: FigurePanel[CurveSeries]) -> PanelTest:
    """The gap of Fast with the longer step minus that with the shorter one, at the end of the training."""
    long, short = (estimates(series_of(panel, x))[-1] for x in (FAST_LONG_STEP, FAST_SHORT_STEP))
    detail = f"gap {100 * short.value:.1f} % at 7/255, {100 * long.value:.1f} % at 10/255"
    return positive(title, detail, long - short)


def exponent_in_n(title: str, panel: FigurePanel[SizeSeries], label: str) -> PanelTest:
    """The a of gap ∝ n^(−a)."""
    series = series_of(panel, label)
    found = exponent(series.n, estimates(series))
    if found is None:
        raise NoStatistic("fewer than two sizes, or a gap that is not above zero")
    gaps = ", ".join(
        f"{100 * gap.mean:.1f} (n = {n})" for n, gap in zip(series.n, series.points, strict=True)
    )
    return positive(title, f"gaps in %: {gaps}", found)


def _title(panel: FigurePanel[Any]) -> str:
    return " ".join(filter(None, (panel.data, panel.norm, panel.panel)))


def in_panels(
    kind: type[PaperFigure[S]],
    statistic: Callable[[str, FigurePanel[S], str], PanelTest],
    labels: Sequence[str] = (),
) -> Statistic:
    """A statistic of the series of these labels in every panel that has it; without ``labels``, of every series."""

    def tests(evidence: Evidence, figures: Sequence[str]) -> Iterator[PanelTest]:
        for panel in evidence.panels(kind, figures):
            drawn = [series.label for series in panel.series]
            for label in labels or drawn:
                if label in drawn:
                    yield attempt(f"{_title(panel)} {label}", statistic, panel, label)

    return tests


def in_each_panel(
    kind: type[PaperFigure[S]], statistic: Callable[[str, FigurePanel[S]], PanelTest]
) -> Statistic:
    """A statistic of every panel."""

    def tests(evidence: Evidence, figures: Sequence[str]) -> Iterator[PanelTest]:
        return (attempt(_title(panel), statistic, panel) for panel in evidence.panels(kind, figures))

    return tests


def vanilla_gap_above(title: str, panel: FigurePanel[CurveSeries], label: str) -> PanelTest:
    """Vanilla's gap minus that of Free-m at the points of the curves where either has a gap: the smallest.

    Before a model has fitted anything there is no gap that could be smaller. A gap is one whose interval is above zero.
    """
    vanilla, own = series_of(panel, VANILLA), series_of(panel, label)
    near = NEAR * vanilla.updates[-1]
    differences: list[tuple[int, ErrorEstimate]] = []
    compared = 0
    theirs = list(zip(vanilla.updates, estimates(vanilla), strict=True))
    for update, gap in zip(own.updates, estimates(own), strict=True):
        nearest, other = min(theirs, key=lambda point: abs(point[0] - update))
        if abs(nearest - update) <= near:
            compared += 1
            if max(each.interval()[0] for each in (gap, other)) > 0:
                differences.append((update, other - gap))
    if not compared:
        raise NoStatistic("no evaluations at equal numbers of updates")
    if not differences:
        raise NoStatistic(f"neither has a gap above zero at any of {compared} points")
    updates, values = zip(*differences, strict=True)
    worst = min(differences, key=lambda point: point[1].value)[0]
    detail = (
        f"smallest at update {worst}, of {len(updates)} points with a gap (of {compared}) up to {updates[-1]}"
    )
    return positive(title, detail, *values)


def _along_radii(one: RadiusSeries, other: RadiusSeries) -> list[tuple[float, ErrorEstimate]]:
    """Accuracy of one minus that of the other at every radius both have."""
    theirs = dict(zip(other.eps, estimates(other), strict=True))
    own = zip(one.eps, estimates(one), strict=True)
    return [(eps, value - theirs[eps]) for eps, value in own if eps in theirs]


def _at_each_radius(title: str, differences: Sequence[tuple[float, ErrorEstimate]], what: str) -> PanelTest:
    if not differences:
        raise NoStatistic("no radius was measured for both")
    worst = min(differences, key=lambda pair: pair[1].value)[0]
    detail = f"{what}; smallest at {255 * worst:.4g}/255 of {len(differences)} radii"
    return positive(title, detail, *(difference for _, difference in differences))


def free_withstands_square(title: str, panel: FigurePanel[RadiusSeries]) -> PanelTest:
    """Free's accuracy minus Vanilla's at each radius: the smallest."""
    own, vanilla = series_of(panel, FREE), series_of(panel, VANILLA)
    return _at_each_radius(title, _along_radii(own, vanilla), f"{own.attack}, {own.n} images")


def free_withstands_transfer(evidence: Evidence, figures: Sequence[str]) -> Iterator[PanelTest]:
    """The same under transferred perturbations, averaged over the models they come from."""
    found = evidence.panels(RadiusFigure, figures)

    def withstands(title: str, block: Block) -> PanelTest:
        sources = [panel for panel in found if (panel.data, panel.norm) == block]
        by_radius: dict[float, list[ErrorEstimate]] = {}
        for panel in sources:
            try:
                own, vanilla = series_of(panel, FREE), series_of(panel, VANILLA)
            except NoStatistic as reason:
                raise NoStatistic(f"{panel.panel}: {reason}") from None
            for eps, difference in _along_radii(own, vanilla):
                by_radius.setdefault(eps, []).append(difference)
        names = [panel.panel for panel in sources]
        for name in (f"from {source}" for source in TRANSFERRED_FROM):
            if name not in names:
                raise NoStatistic(f"{name} is missing")
        means = [(eps, average(own)) for eps, own in by_radius.items() if len(own) == len(sources)]
        return _at_each_radius(title, means, f"mean over perturbations {', '.join(names)}")

    blocks = dict.fromkeys((panel.data, panel.norm) for panel in found)
    return (attempt(" ".join(block), withstands, block) for block in blocks)


def not_gradient_masking(evidence: Evidence, figures: Sequence[str]) -> Iterator[PanelTest]:
    """At the training radius: Square leaves Free more accuracy than PGD does, and more than it leaves Vanilla.

    Masked gradients mislead PGD and not Square, which uses none.
    """

    def at_training_radius(series: RadiusSeries, eps: float) -> ErrorEstimate:
        for each, value in zip(series.eps, estimates(series), strict=True):
            if math.isclose(each, eps):
                return value
        raise NoStatistic(f"Square was not run at the training radius {255 * eps:.4g}/255")

    def margins(title: str, panel: FigurePanel[RadiusSeries]) -> PanelTest:
        both = series_of(panel, FREE), series_of(panel, VANILLA)
        block = (panel.data, panel.norm)
        row = evidence.row(MAIN, block, FREE)
        if row is None or not row.numbers:
            raise NoStatistic(f"{FREE} was not measured by PGD")
        pgd = evidence.number(MAIN, block, FREE, "robust_test")
        own, vanilla = (at_training_radius(series, radius(*block)) for series in both)
        detail = f"{FREE}: Square {100 * own.value:.1f} %, PGD-10 {100 * pgd.value:.1f} %; "
        detail += f"{VANILLA}: Square {100 * vanilla.value:.1f} %"
        return positive(title, detail, own - pgd, own - vanilla)

    return (attempt(_title(panel), margins, panel) for panel in evidence.panels(RadiusFigure, figures))


def free_transfers_better(evidence: Evidence, figures: Sequence[str]) -> Iterator[PanelTest]:
    """A standard model's accuracy under another algorithm's perturbations minus that under Free's: the smallest."""

    def transfers(title: str, panel: FigurePanel[RadiusSeries], compared: str) -> PanelTest:
        own, other = series_of(panel, FREE), series_of(panel, compared)
        return _at_each_radius(title, _along_radii(other, own), f"{own.n} images")

    for panel in evidence.panels(RadiusFigure, figures):
        for compared in (VANILLA, FAST):
            yield attempt(f"{_title(panel)} against {compared}", transfers, panel, compared)


def falls_beyond_vanilla(title: str, panel: FigurePanel[SizeSeries], label: str) -> PanelTest:
    """Free's gap at the largest n, below what it would be there had it fallen by Vanilla's factor from the smallest."""
    other, own = (
        dict(zip(s.n, estimates(s), strict=True))
        for s in (series_of(panel, VANILLA), series_of(panel, label))
    )
    sizes = sorted(own.keys() & other.keys())
    if len(sizes) < 2:
        raise NoStatistic(f"{label} and {VANILLA} have fewer than two sizes in common")
    ends = sizes[0], sizes[-1]
    falls = [(gaps[ends[0]], gaps[ends[1]]) for gaps in (own, other)]
    if falls[1][0].interval()[0] <= 0:
        raise NoStatistic(f"{VANILLA} has no gap at n = {ends[0]} that could fall")
    shown = [f"{100 * first.value:.1f} to {100 * last.value:.1f}" for first, last in falls]
    detail = f"gap {shown[0]} from n = {ends[0]} to {ends[1]}; {VANILLA} {shown[1]}"
    return positive(title, detail, beyond_proportion(*falls))


def fast_collapses(title: str, panel: FigurePanel[CurveSeries]) -> PanelTest:
    """What is left of the best robust training accuracy lies below a half at 10/255, and above it at 7/255."""
    (long, of_long), (short, of_short) = (
        _part_left(panel, label) for label in (FAST_LONG_STEP, FAST_SHORT_STEP)
    )
    detail = f"{of_long}; {of_short}"
    return positive(title, detail, long.times(-1).plus(COLLAPSED), short.plus(-COLLAPSED))


def _part_left(panel: FigurePanel[CurveSeries], label: str) -> tuple[ErrorEstimate, str]:
    """The part of the best robust training accuracy that is left at the end, with a description."""
    series = next((series for series in panel.series if series.label == label), None)
    if series is None:
        raise missing(label)
    runs = series.collapse
    if not all(run.learnt for run in runs):  # at its end a collapsed run is at chance
        raise at_chance(series)
    left = ErrorEstimate.of_mean(seed_mean([run.left for run in runs], [0.0] * len(runs)))
    seen = f"{sum(run.seen for run in runs)} of {len(runs)} runs were seen to collapse"
    return left, f"{label}: {100 * left.value:.0f} % of its best robust training accuracy is left, {seen}"


def smallest_norm(title: str, panel: FigurePanel[NormSeries], label: str) -> PanelTest:
    """The logarithm of the smallest ‖∇_δ h‖ of a run, above the order of 10⁻³."""
    norms = series_of(panel, label).smallest_of_seeds
    logs = [math.log10(max(least, SMALLEST_NORM)) for least in norms]
    order = ErrorEstimate.of_mean(seed_mean(logs, [0.0] * len(logs)))
    return positive(title, f"smallest norm {min(norms):.1e}", order.plus(-LEAST_ORDER))
