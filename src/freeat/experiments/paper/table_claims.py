"""What the claims about tables come to: differences of gaps and accuracies between two algorithms."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from freeat.experiments.paper.estimate import Estimate
from freeat.experiments.paper.evidence import Evidence
from freeat.experiments.paper.findings import (
    COMPARABLE,
    Finding,
    all_positive,
    lacking,
    pair,
    positive,
    similar,
)
from freeat.experiments.paper.labels import (
    ERM,
    FAST,
    FAST_LONG_STEP,
    FREE,
    FREE_STEPS,
    FREE_TRADES,
    FRIENDLY,
    FRIENDLY_TWICE,
    TRADES,
    VANILLA,
    free,
)

MAIN = ("table-1", "table-4")
MANY_STEPS = tuple(free(m) for m in FREE_STEPS if m >= 4)


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
