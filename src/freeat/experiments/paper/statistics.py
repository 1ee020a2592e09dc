"""The statistics of the claims: differences of gaps and accuracies in tables, along curves, radii and sizes.

Each is signed so that the claim says it is positive.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, TypeAlias

from freeat.experiments.paper.catalogue import TRANSFERRED_FROM
from freeat.experiments.paper.documents import (
    CurveSeries,
    FigurePanel,
    Finding,
    NormSeries,
    PaperFigure,
    RadiusFigure,
    RadiusSeries,
    S,
    SizeSeries,
)
from freeat.experiments.paper.estimate import ErrorEstimate, average, beyond_proportion, seed_mean, smallest
from freeat.experiments.paper.evidence import (
    Evidence,
    NoStatistic,
    at_chance,
    estimates,
    missing,
    series_of,
)
from freeat.experiments.paper.settings import (
    FAST,
    FAST_LONG_STEP,
    FREE,
    FREE_STEPS,
    NEAR,
    VANILLA,
    free,
    radius,
)

COMPARABLE = 0.02
"""Accuracies and gaps that differ by less than this count as comparable or similar: the paper names no margin."""

MAIN = ("table-1", "table-4")
MANY_STEPS = tuple(free(m) for m in FREE_STEPS if m >= 4)
COLLAPSED = 0.5
"""Fast has collapsed where less than this part of its best robust training accuracy is left at the end."""

LEAST_ORDER = -3.5
"""Norms above 10 to this power are of the order of 10⁻³ or larger."""

TINIEST = 1e-6
"""Smaller norms count as this: how far below the order they lie decides nothing, and zero has no logarithm."""

Statistic: TypeAlias = Callable[[Evidence, Sequence[str]], Iterator[Finding]]
"""The findings of a claim from the tables and figures that show it, by their names."""


def positive(panel: str, detail: str, *values: ErrorEstimate) -> Finding:
    """The claim says that all of these are positive: the smallest decides."""
    value, low, high = smallest(values)
    seeds = min(each.seeds for each in values)
    return Finding(panel=panel, detail=detail, statistic=value, low=low, high=high, seeds=seeds)


def similar(panel: str, detail: str, difference: ErrorEstimate) -> Finding:
    """The claim says that a difference is small: what is left of the margin is positive."""
    low, high = difference.interval()
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return Finding(
        panel=panel,
        detail=detail,
        statistic=COMPARABLE - abs(difference.value),
        low=COMPARABLE - max(abs(low), abs(high)),
        high=COMPARABLE - nearest,
        seeds=difference.seeds,
    )


def _attempt(panel: str, statistic: Callable[..., Finding], *values: Any) -> Finding:
    """The finding of a statistic in a panel, or the reason why it has no value."""
    try:
        return statistic(panel, *values)
    except NoStatistic as reason:
        return Finding(panel=panel, detail=str(reason))


Block: TypeAlias = tuple[str, str]
"""Data set and norm of a table's block."""


def between_rows(
    pairs: Sequence[tuple[str, str]],
    columns: tuple[str, str],
    find: Callable[[str, str, ErrorEstimate, ErrorEstimate], Finding],
) -> Statistic:
    """Two algorithms, a column of each, in every block that has the first."""

    def compare(
        panel: str, evidence: Evidence, tables: Sequence[str], block: Block, labels: tuple[str, str]
    ) -> Finding:
        own, other = (evidence.number(tables, block, *each) for each in zip(labels, columns, strict=True))
        own_column, other_column = (column.replace("_", " ") for column in columns)
        detail = (
            f"{own_column} {100 * own.value:.1f} %; {other_column} of {labels[1]} {100 * other.value:.1f} %"
        )
        return find(panel, detail, own, other)

    def findings(evidence: Evidence, tables: Sequence[str]) -> Iterator[Finding]:
        for labels in pairs:
            for block in evidence.blocks(tables):
                if evidence.row(tables, block, labels[0]) is not None:
                    panel = " ".join((*block, labels[0]))
                    yield _attempt(panel, compare, evidence, tables, block, labels)

    return findings


def gap_below(*pairs: tuple[str, str], column: str = "robust_gap") -> Statistic:
    """The gap of the second minus that of the first."""
    return between_rows(
        pairs, (column, column), lambda panel, detail, own, other: positive(panel, detail, other - own)
    )


def accuracy_comparable(*pairs: tuple[str, str]) -> Statistic:
    """Robust test accuracy of the first minus that of the second, plus the margin."""

    def find(panel: str, detail: str, own: ErrorEstimate, other: ErrorEstimate) -> Finding:
        return positive(panel, detail, (own - other).plus(COMPARABLE))

    return between_rows(pairs, ("robust_test", "robust_test"), find)


def gap_similar(*pairs: tuple[str, str]) -> Statistic:
    """The margin minus the distance of two robust gaps."""
    return between_rows(
        pairs,
        ("robust_gap", "robust_gap"),
        lambda panel, detail, own, other: similar(panel, detail, own - other),
    )


def robust_gap_above_clean_gap(*pairs: tuple[str, str]) -> Statistic:
    """The robust gap of the second minus the clean gap of the first: ERM has no other."""
    return between_rows(
        pairs,
        ("clean_gap", "robust_gap"),
        lambda panel, detail, clean, robust: positive(panel, detail, robust - clean),
    )


def early_stopping_order(evidence: Evidence, tables: Sequence[str]) -> Iterator[Finding]:
    """Vanilla's gap minus Fast's, and Fast's minus Free's: the smaller of the two."""

    def order(panel: str, block: Block) -> Finding:
        labels = (VANILLA, FAST_LONG_STEP, FREE)
        vanilla, fast, least = (evidence.number(tables, block, label, "robust_gap") for label in labels)
        shown = _in_percent(dict(zip(labels, (vanilla, fast, least), strict=True)))
        return positive(panel, f"gaps after a quarter: {shown}", vanilla - fast, fast - least)

    return (_attempt(" ".join(block), order, block) for block in evidence.blocks(tables))


def gap_falls_with_m(evidence: Evidence, tables: Sequence[str]) -> Iterator[Finding]:
    """The gap of Free-m minus that of the next m: the smallest step down."""

    def steps(panel: str, block: Block) -> Finding:
        gaps = {}
        for label in map(free, FREE_STEPS):
            with suppress(NoStatistic):
                gaps[label] = evidence.number(tables, block, label, "robust_gap")
        if len(gaps) < 2:
            raise NoStatistic("fewer than two m were measured")
        falls = (before - after for before, after in pairwise(gaps.values()))
        return positive(panel, f"gaps: {_in_percent(gaps)}", *falls)

    return (_attempt(" ".join(block), steps, block) for block in evidence.blocks(tables))


def _in_percent(gaps: Mapping[str, ErrorEstimate]) -> str:
    return ", ".join(f"{label} {100 * gap.value:.1f}" for label, gap in gaps.items())


def _title(panel: FigurePanel[Any]) -> str:
    return " ".join(filter(None, (panel.data, panel.norm, panel.panel)))


def in_panels(
    kind: type[PaperFigure[S]],
    statistic: Callable[[str, FigurePanel[S], str], Finding],
    labels: Sequence[str] = (),
    *,
    absent: bool = False,
) -> Statistic:
    """A statistic of a series in every panel that has it; with ``absent``, also where the series is missing.

    Without ``labels`` it is that of every series.
    """

    def findings(evidence: Evidence, figures: Sequence[str]) -> Iterator[Finding]:
        for panel in evidence.panels(kind, figures):
            drawn = [series.label for series in panel.series]
            for label in labels or drawn:
                if absent or label in drawn:
                    yield _attempt(f"{_title(panel)} {label}", statistic, panel, label)

    return findings


def vanilla_gap_above(title: str, panel: FigurePanel[CurveSeries], label: str) -> Finding:
    """Vanilla's gap minus that of Free-m at every point of the curves: the smallest."""
    vanilla, own = series_of(panel, VANILLA), series_of(panel, label)
    near = NEAR * vanilla.updates[-1]
    differences: list[tuple[int, ErrorEstimate]] = []
    theirs = list(zip(vanilla.updates, estimates(vanilla), strict=True))
    for update, gap in zip(own.updates, estimates(own), strict=True):
        nearest, other = min(theirs, key=lambda point: abs(point[0] - update))
        if abs(nearest - update) <= near:
            differences.append((update, other - gap))
    if not differences:
        raise NoStatistic("no evaluations at equal numbers of updates")
    updates, values = zip(*differences, strict=True)
    worst = min(differences, key=lambda point: point[1].value)[0]
    detail = f"smallest at update {worst} of {len(updates)} points up to {updates[-1]}"
    return positive(title, detail, *values)


def _along_radii(one: RadiusSeries, other: RadiusSeries) -> list[tuple[float, ErrorEstimate]]:
    """Accuracy of one minus that of the other at every radius both have."""
    theirs = dict(zip(other.eps, estimates(other), strict=True))
    own = zip(one.eps, estimates(one), strict=True)
    return [(eps, value - theirs[eps]) for eps, value in own if eps in theirs]


def _at_each_radius(title: str, differences: Sequence[tuple[float, ErrorEstimate]], what: str) -> Finding:
    if not differences:
        raise NoStatistic("no radius was measured for both")
    worst = min(differences, key=lambda pair: pair[1].value)[0]
    detail = f"{what}; smallest at {255 * worst:.4g}/255 of {len(differences)} radii"
    return positive(title, detail, *(difference for _, difference in differences))


def free_withstands_square(evidence: Evidence, figures: Sequence[str]) -> Iterator[Finding]:
    """Free's accuracy minus Vanilla's at each radius: the smallest."""

    def withstands(title: str, panel: FigurePanel[RadiusSeries]) -> Finding:
        own, vanilla = series_of(panel, FREE), series_of(panel, VANILLA)
        return _at_each_radius(title, _along_radii(own, vanilla), f"{own.attack}, {own.n} images")

    return (_attempt(_title(panel), withstands, panel) for panel in evidence.panels(RadiusFigure, figures))


def free_withstands_transfer(evidence: Evidence, figures: Sequence[str]) -> Iterator[Finding]:
    """The same under transferred perturbations, averaged over the models they come from."""
    found = evidence.panels(RadiusFigure, figures)

    def withstands(title: str, block: Block) -> Finding:
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
    return (_attempt(" ".join(block), withstands, block) for block in blocks)


def not_gradient_masking(evidence: Evidence, figures: Sequence[str]) -> Iterator[Finding]:
    """At the training radius: Square leaves Free more accuracy than PGD does, and more than it leaves Vanilla.

    Masked gradients mislead PGD and not Square, which uses none.
    """

    def at_training_radius(series: RadiusSeries, eps: float) -> ErrorEstimate:
        for each, value in zip(series.eps, estimates(series), strict=True):
            if math.isclose(each, eps):
                return value
        raise NoStatistic(f"Square was not run at the training radius {255 * eps:.4g}/255")

    def margins(title: str, panel: FigurePanel[RadiusSeries]) -> Finding:
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

    return (_attempt(_title(panel), margins, panel) for panel in evidence.panels(RadiusFigure, figures))


def free_transfers_better(evidence: Evidence, figures: Sequence[str]) -> Iterator[Finding]:
    """A standard model's accuracy under another algorithm's perturbations minus that under Free's: the smallest."""

    def transfers(title: str, panel: FigurePanel[RadiusSeries], rival: str) -> Finding:
        own, other = series_of(panel, FREE), series_of(panel, rival)
        return _at_each_radius(title, _along_radii(other, own), f"{own.n} images")

    for panel in evidence.panels(RadiusFigure, figures):
        for rival in (VANILLA, FAST):
            yield _attempt(f"{_title(panel)} against {rival}", transfers, panel, rival)


def falls_beyond_vanilla(title: str, panel: FigurePanel[SizeSeries], label: str) -> Finding:
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


def collapse(title: str, panel: FigurePanel[CurveSeries], label: str) -> Finding:
    """How far what is left of the best robust training accuracy lies below (10/255), above (7/255) a half."""
    series = next((series for series in panel.series if series.label == label), None)
    if series is None:
        raise missing(label)
    runs = series.collapse
    if not all(run.learnt for run in runs):  # at its end a collapsed run is at chance
        raise at_chance(label)
    left = ErrorEstimate.of_mean(seed_mean([run.left for run in runs], [0.0] * len(runs)))
    seen = sum(run.seen for run in runs)
    detail = f"{100 * left.value:.0f} % of its best robust training accuracy is left; "
    detail += f"{seen} of {len(runs)} runs were seen to collapse"
    return positive(title, detail, left.plus(-COLLAPSED).times(-1 if label == FAST_LONG_STEP else 1))


def smallest_norm(title: str, panel: FigurePanel[NormSeries], label: str) -> Finding:
    """The logarithm of the smallest ‖∇_δ h‖ of a run, above the order of 10⁻³."""
    norms = series_of(panel, label).smallest_of_seeds
    logs = [math.log10(max(least, TINIEST)) for least in norms]
    order = ErrorEstimate.of_mean(seed_mean(logs, [0.0] * len(logs)))
    return positive(title, f"smallest norm {min(norms):.1e}", order.plus(-LEAST_ORDER))
