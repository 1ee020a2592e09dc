"""What the claims come to: differences of gaps and accuracies in tables, along curves, radii and sizes."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from freeat.experiments.paper.catalogue import TRANSFERRED_FROM
from freeat.experiments.paper.documents import CurveSeries, Finding, RadiusSeries
from freeat.experiments.paper.estimate import Estimate, average, beyond_proportion, seed_mean
from freeat.experiments.paper.evidence import (
    COMPARABLE,
    Evidence,
    EvidencePanel,
    all_positive,
    at_chance,
    lacking,
    pair,
    panels,
    points,
    positive,
    similar,
    unmeasured,
)
from freeat.experiments.paper.settings import (
    ERM,
    FAST,
    FAST_LONG_STEP,
    FAST_SHORT_STEP,
    FREE,
    FREE_STEPS,
    FREE_TRADES,
    FRIENDLY,
    FRIENDLY_TWICE,
    NEAR,
    TRADES,
    VANILLA,
    free,
    radius,
)

MAIN = ("table-1", "table-4")
MANY_STEPS = tuple(free(m) for m in FREE_STEPS if m >= 4)
COLLAPSED = 0.5
"""Fast has collapsed where less than this part of its best robust training accuracy is left at the end."""

LEAST_ORDER = -3.5
"""Norms above 10 to this power are of the order of 10⁻³ or larger."""

TINIEST = 1e-6
"""Smaller norms count as this: how far below the order they lie decides nothing, and zero has no logarithm."""


def _in_each_block(
    evidence: Evidence,
    tables: Sequence[str],
    labels: tuple[str, str],
    columns: tuple[str, str],
    find: Callable[[str, Estimate, Estimate, str], Finding],
    *more: str,
) -> Iterator[Finding]:
    """Two algorithms, a column of each, wherever the tables have the first; the second may stand in ``more``."""
    for block in evidence.blocks(*tables):
        two = pair(evidence, tables, block, *labels, *more)
        if two.one is None:
            continue
        if reason := two.reason():
            yield lacking(two.panel, reason)
        else:
            yield find(two.panel, *two.cells(*columns), two.text(*columns))


def _gap_below(
    evidence: Evidence, tables: Sequence[str], label: str, than: str, column: str = "robust_gap"
) -> Iterator[Finding]:
    """The gap of ``than`` minus that of ``label``."""
    columns = (column, column)
    return _in_each_block(
        evidence,
        tables,
        (label, than),
        columns,
        lambda panel, own, other, text: positive(panel, other - own, text),
    )


def _test_comparable(evidence: Evidence, tables: Sequence[str], label: str, than: str) -> Iterator[Finding]:
    """Robust test accuracy of ``label`` minus that of ``than``, plus the margin."""

    def find(panel: str, own: Estimate, other: Estimate, text: str) -> Finding:
        return positive(panel, (own - other).plus(COMPARABLE), text)

    return _in_each_block(evidence, tables, (label, than), ("robust_test", "robust_test"), find)


def free_gap_below_vanilla(evidence: Evidence) -> Iterator[Finding]:
    for label in MANY_STEPS:
        yield from _gap_below(evidence, MAIN, label, VANILLA)


def fast_gap_below_vanilla(evidence: Evidence) -> Iterator[Finding]:
    yield from _gap_below(evidence, MAIN, FAST, VANILLA)


def free_test_comparable(evidence: Evidence) -> Iterator[Finding]:
    for label in MANY_STEPS:
        yield from _test_comparable(evidence, MAIN, label, VANILLA)


def free_trades_gap_below_trades(evidence: Evidence) -> Iterator[Finding]:
    yield from _gap_below(evidence, ("table-3",), FREE_TRADES, TRADES)


def free_trades_test_comparable(evidence: Evidence) -> Iterator[Finding]:
    yield from _test_comparable(evidence, ("table-3",), FREE_TRADES, TRADES)


def clean_gaps_below(evidence: Evidence) -> Iterator[Finding]:
    for label, than in ((FREE, VANILLA), (FREE_TRADES, TRADES)):
        yield from _gap_below(evidence, ("table-5",), label, than, "clean_gap")


def vanilla_gap_above_erm(evidence: Evidence) -> Iterator[Finding]:
    """ERM's gap is one of clean accuracy: it has no other."""
    return _in_each_block(
        evidence,
        ("table-5",),
        (ERM, VANILLA),
        ("clean_gap", "robust_gap"),
        lambda panel, clean, robust, text: positive(panel, robust - clean, text),
    )


def _gap_like(evidence: Evidence, label: str, than: str, *more: str) -> Iterator[Finding]:
    """The distance of two gaps, against the margin."""

    def find(panel: str, own: Estimate, other: Estimate, text: str) -> Finding:
        return similar(panel, own - other, text)

    return _in_each_block(evidence, ("table-2",), (label, than), ("robust_gap", "robust_gap"), find, *more)


def friendly_like_vanilla(evidence: Evidence) -> Iterator[Finding]:
    yield from _gap_like(evidence, FRIENDLY, VANILLA)


def friendly_twice_like_fast(evidence: Evidence) -> Iterator[Finding]:
    yield from _gap_like(evidence, FRIENDLY_TWICE, FAST, "table-1")


def early_stopping_order(evidence: Evidence) -> Iterator[Finding]:
    """Vanilla's gap minus Fast's, and Fast's minus Free's: the smaller of the two."""
    for block in evidence.blocks("table-6"):
        upper = pair(evidence, ("table-6",), block, VANILLA, FAST_LONG_STEP)
        lower = pair(evidence, ("table-6",), block, FREE, FAST_LONG_STEP)
        panel = " ".join(block)
        if reason := upper.reason() or lower.reason():
            yield lacking(panel, reason)
            continue
        vanilla, fast = upper.cells("robust_gap", "robust_gap")
        least, _ = lower.cells("robust_gap", "robust_gap")
        values = ", ".join(
            f"{name} {100 * gap.value:.1f}"
            for name, gap in zip((VANILLA, FAST_LONG_STEP, FREE), (vanilla, fast, least), strict=True)
        )
        yield all_positive(panel, [vanilla - fast, fast - least], f"gaps after a quarter: {values}")


def gap_falls_with_m(evidence: Evidence) -> Iterator[Finding]:
    """The gap of Free-m minus that of the next m: the smallest step down."""
    for block in evidence.blocks(*MAIN):
        rows = [evidence.row(MAIN, *block, free(m)) for m in FREE_STEPS]
        gaps = {row.label: row.cells["robust_gap"] for row in rows if row and row.cells and row.trained}
        panel = " ".join(block)
        if len(gaps) < 2:
            yield lacking(panel, "fewer than two m were measured")
            continue
        ordered = list(gaps.values())
        steps = [before - after for before, after in pairwise(ordered)]
        shown = ", ".join(f"{label} {100 * gap.value:.1f}" for label, gap in gaps.items())
        yield all_positive(panel, steps, f"gaps: {shown}")


def _reason(panel: EvidencePanel[Any], *labels: str) -> str | None:
    """Why series of a panel cannot be compared, if so."""
    for label in labels:
        if label not in panel.series:
            return unmeasured(label)
        if not panel.series[label].above_chance:
            return at_chance(label)
    return None


def free_gap_smaller_throughout(evidence: Evidence) -> Iterator[Finding]:
    """Vanilla's gap minus Free's at every point of the curves: the smallest."""
    for panel in panels(evidence.curves, "figure-1", "figure-5"):
        for label in MANY_STEPS:
            title = f"{panel.title} {label}"
            if label not in panel.series:
                continue
            if reason := _reason(panel, VANILLA, label):
                yield lacking(title, reason)
                continue
            pairs = _at_equal_updates(panel.series[VANILLA], panel.series[label])
            if not pairs:
                yield lacking(title, "no evaluations at equal numbers of updates")
                continue
            updates, differences = zip(*pairs, strict=True)
            worst = min(pairs, key=lambda pair: pair[1].value)[0]
            detail = f"smallest at update {worst} of {len(updates)} points up to {updates[-1]}"
            yield all_positive(title, differences, detail)


def _at_equal_updates(vanilla: CurveSeries, own: CurveSeries) -> list[tuple[int, Estimate]]:
    """Vanilla's gap minus Free's at the points both have, by Free's updates."""
    near = NEAR * vanilla.updates[-1]
    found = []
    theirs = list(zip(vanilla.updates, points(vanilla), strict=True))
    for update, gap in zip(own.updates, points(own), strict=True):
        nearest, other = min(theirs, key=lambda point: abs(point[0] - update))
        if abs(nearest - update) <= near:
            found.append((update, other - gap))
    return found


def _along_radii(one: RadiusSeries, other: RadiusSeries) -> list[tuple[float, Estimate]]:
    """Accuracy of one minus that of the other at every radius both have."""
    theirs = dict(zip(other.eps, points(other), strict=True))
    own = zip(one.eps, points(one), strict=True)
    return [(eps, value - theirs[eps]) for eps, value in own if eps in theirs]


def _at_each_radius(title: str, differences: Sequence[tuple[float, Estimate]], what: str) -> Finding:
    if not differences:
        return lacking(title, "no radius was measured for both")
    worst = min(differences, key=lambda pair: pair[1].value)[0]
    detail = f"{what}; smallest at {255 * worst:.4g}/255 of {len(differences)} radii"
    return all_positive(title, [difference for _, difference in differences], detail)


def free_withstands_square(evidence: Evidence) -> Iterator[Finding]:
    """Free's accuracy minus Vanilla's at each radius: the smallest."""
    for panel in panels(evidence.radii, "figure-2", "figure-6"):
        if reason := _reason(panel, FREE, VANILLA):
            yield lacking(panel.title, reason)
            continue
        own, vanilla = panel.series[FREE], panel.series[VANILLA]
        yield _at_each_radius(panel.title, _along_radii(own, vanilla), f"{own.attack}, {own.n} images")


def free_withstands_transfer(evidence: Evidence) -> Iterator[Finding]:
    """The same under transferred perturbations, averaged over the models they come from."""
    found = list(panels(evidence.radii, "figure-3", "figure-7"))
    for block in dict.fromkeys((panel.data, panel.norm) for panel in found):
        title = " ".join(block)
        sources = [panel for panel in found if (panel.data, panel.norm) == block]
        reasons = [f"{panel.panel}: {why}" for panel in sources if (why := _reason(panel, FREE, VANILLA))]
        there = {panel.panel for panel in sources}
        reasons += [
            f"{one} is missing" for source in TRANSFERRED_FROM if (one := f"from {source}") not in there
        ]
        if reasons:
            yield lacking(title, reasons[0])
            continue
        by_radius: dict[float, list[Estimate]] = {}
        for panel in sources:
            for eps, difference in _along_radii(panel.series[FREE], panel.series[VANILLA]):
                by_radius.setdefault(eps, []).append(difference)
        means = [(eps, average(own)) for eps, own in by_radius.items() if len(own) == len(sources)]
        yield _at_each_radius(title, means, f"mean over perturbations {', '.join(p.panel for p in sources)}")


def not_gradient_masking(evidence: Evidence) -> Iterator[Finding]:
    """At the training radius: Square leaves Free more accuracy than PGD does, and more than it leaves Vanilla.

    Masked gradients mislead PGD and not Square, which uses none.
    """
    for panel in panels(evidence.radii, "figure-2", "figure-6"):
        row = evidence.row(MAIN, panel.data, panel.norm, FREE)
        if reason := _reason(panel, FREE, VANILLA):
            yield lacking(panel.title, reason)
            continue
        if row is None or not row.cells:
            yield lacking(panel.title, f"{unmeasured(FREE)} by PGD")
            continue
        if not row.trained:
            yield lacking(panel.title, at_chance(FREE))
            continue
        eps = radius(panel.data, panel.norm)
        own, vanilla = (
            [e for r, e in zip(s.eps, points(s), strict=True) if math.isclose(r, eps)]
            for s in (panel.series[FREE], panel.series[VANILLA])
        )
        if not (own and vanilla):
            yield lacking(panel.title, f"Square was not run at the training radius {255 * eps:.4g}/255")
            continue
        pgd = row.cells["robust_test"]
        detail = f"{FREE}: Square {100 * own[0].value:.1f} %, PGD-10 {100 * pgd.value:.1f} %; "
        detail += f"{VANILLA}: Square {100 * vanilla[0].value:.1f} %"
        yield all_positive(panel.title, [own[0] - pgd, own[0] - vanilla[0]], detail)


def free_transfers_better(evidence: Evidence) -> Iterator[Finding]:
    """What a standard model keeps under a rival's perturbations minus what it keeps under Free's: the smallest."""
    for panel in panels(evidence.radii, "figure-8", "figure-9"):
        for rival in (VANILLA, FAST):
            title = f"{panel.title} against {rival}"
            if reason := _reason(panel, FREE, rival):
                yield lacking(title, reason)
                continue
            differences = _along_radii(panel.series[rival], panel.series[FREE])
            yield _at_each_radius(title, differences, f"{panel.series[FREE].n} images")


def gap_falls_faster_in_n(evidence: Evidence) -> Iterator[Finding]:
    """Free's gap at the largest n, below what it would be there had it fallen by Vanilla's factor from the smallest."""
    for panel in panels(evidence.sizes, "figure-4", "figure-10"):
        for label in MANY_STEPS:
            if label not in panel.series:
                continue
            title = f"{panel.title} {label}"
            if reason := _reason(panel, VANILLA, label):
                yield lacking(title, reason)
                continue
            own, other = (
                dict(zip(s.n, points(s), strict=True)) for s in (panel.series[label], panel.series[VANILLA])
            )
            sizes = sorted(own.keys() & other.keys())
            if len(sizes) < 2:
                yield lacking(title, f"{label} and {VANILLA} have fewer than two sizes in common")
                continue
            ends = sizes[0], sizes[-1]
            falls = [(gaps[ends[0]], gaps[ends[1]]) for gaps in (own, other)]
            if falls[1][0].interval()[0] <= 0:
                yield lacking(title, f"{VANILLA} has no gap at n = {ends[0]} that could fall")
                continue
            shown = [f"{100 * first.value:.1f} to {100 * last.value:.1f}" for first, last in falls]
            detail = f"gap {shown[0]} from n = {ends[0]} to {ends[1]}; {VANILLA} {shown[1]}"
            yield positive(title, beyond_proportion(*falls), detail)


def fast_collapses(evidence: Evidence) -> Iterator[Finding]:
    """How far what is left of the best robust training accuracy lies below (10/255), above (7/255) a half."""
    for panel in panels(evidence.curves, "figure-11"):
        for label, sign in ((FAST_LONG_STEP, -1), (FAST_SHORT_STEP, 1)):
            title = f"{panel.title} {label}"
            if label not in panel.series:
                yield lacking(title, unmeasured(label))
                continue
            runs = panel.series[label].collapse
            if not all(run.learnt for run in runs):  # at its end a collapsed run is at chance
                yield lacking(title, at_chance(label))
                continue
            left = Estimate.of_mean(seed_mean([run.left for run in runs], [0.0] * len(runs)))
            seen = sum(run.seen for run in runs)
            detail = f"{100 * left.value:.0f} % of its best robust training accuracy is left; "
            detail += f"{seen} of {len(runs)} runs were seen to collapse"
            yield positive(title, left.plus(-COLLAPSED).times(sign), detail)


def gradient_norm_bounded_below(evidence: Evidence) -> Iterator[Finding]:
    """The logarithm of the smallest ‖∇_δ h‖ of a run, above the order of 10⁻³."""
    for panel in panels(evidence.norms, "figure-12"):
        for label, series in panel.series.items():
            if reason := _reason(panel, label):
                yield lacking(f"{panel.title} {label}", reason)
                continue
            logs = [math.log10(max(least, TINIEST)) for least in series.smallest_of_seeds]
            order = Estimate.of_mean(seed_mean(logs, [0.0] * len(logs)))
            detail = f"smallest norm {min(series.smallest_of_seeds):.1e}"
            yield positive(f"{panel.title} {label}", order.plus(-LEAST_ORDER), detail)
