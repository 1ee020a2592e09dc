"""Runs and comparisons as text, and the parts of which tables of text are made."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from freeat.evaluation.statistics import chance_remark, holm
from freeat.reports.tables import (
    NO_VALUE,
    ReportTable,
    aligned,
    listed,
    percent,
    percent_interval,
    percent_spread,
    print_lines,
    print_table,
    seconds_text,
    share_text,
    size_text,
)
from freeat.units import radius_text

if TYPE_CHECKING:
    from freeat.evaluation.evaluator import Scores
    from freeat.evaluation.matched import Interval
    from freeat.experiments.budget import Budget, BudgetKind
    from freeat.experiments.comparison import Comparison
    from freeat.experiments.curves import ArmDifference, CurveSummary
    from freeat.experiments.mechanism import WeakRadius
    from freeat.experiments.pairing import RunDifference
    from freeat.runs.folder import RunResult
    from freeat.runs.inventory import RunRow, StoredRun
    from freeat.runs.spec import TrainSpec

RUN_COLUMNS = (
    "run",
    "data",
    "model",
    "norm",
    "ε",
    "algorithm",
    "seed",
    "status",
    "robust train",
    "test",
    "gap",
    "size",
)
COMPARISON_COLUMNS = (
    "algorithm",
    "robust train",
    "robust test",
    "robust gap",
    "clean test",
    "clean gap",
    "updates",
    "gradient evaluations",
    "seconds",
)

MOST_SHARES = 3
"""The most trainings whose evaluation costs are named one by one."""


def runs_lines(rows: Sequence["RunRow"]) -> list[str]:
    """A line per run under a heading, in columns."""
    total = sum(row.bytes for row in rows)
    count = f"{len(rows)} run{'' if len(rows) == 1 else 's'}"
    return [*aligned([RUN_COLUMNS, *map(_run_row, rows)]), f"{count}, {size_text(total)}"]


def _run_row(row: "RunRow") -> tuple[str, ...]:
    status: str = row.status
    if status in ("running", "stopped"):
        status = f"{status} {row.update}/{row.updates}"
    accuracies = (row.robust_train, row.robust_test, row.robust_gap)
    return (
        row.run,
        *(value or NO_VALUE for value in (row.data, row.model, row.norm)),
        NO_VALUE if row.eps is None else radius_text(row.eps),
        row.label or NO_VALUE,
        NO_VALUE if row.seed is None else str(row.seed),
        status,
        *(NO_VALUE if value is None else percent(value) for value in accuracies),
        size_text(row.bytes),
    )


def run_lines(run: "StoredRun") -> list[str]:
    """Settings, progress and result of a run."""
    row = run.row()
    lines = [f"{row.run}: {row.status}, update {row.update} of {row.updates}"]
    if run.error is not None:
        return [*lines, f"  {run.error}"]
    about = run.folder.description
    lines += [f"  {name} = {value}" for name, value in about.spec.settings().items()]
    lines += [f"  {name} = {value}" for name, value in about.evaluation.settings().items()]
    chosen = ", ".join(f"{name} {value}" for name, value in vars(about.chosen).items() if value != "")
    lines.append(f"  on {about.data.name}: {about.data.train} training and {about.data.test} test images")
    lines.append(f"  chosen here: {chosen}; commit {about.provenance.commit or 'unknown'}")
    if run.result is not None:
        lines += result_lines(about.spec, run.result)
    return [*lines, f"folder: {row.folder} ({size_text(row.bytes)})"]


def result_lines(spec: "TrainSpec", result: "RunResult") -> list[str]:
    """The accuracies of every kind of a run's weights: the last, and those of averages, each named for what it is."""
    from freeat.training.records import record_of

    kinds = [
        kind for kind in ("model", "slow", "ema") if kind == "model" or getattr(result, kind) is not None
    ]
    lines = []
    for kind in kinds:
        named = (
            f" ({'last' if kind == 'model' else kind} weights)" if "slow" in kinds and kind != "ema" else ""
        )
        lines += accuracy_lines(f"{spec.label_of(kind)}{named}", result.update, record_of(result, kind))
    return lines


def accuracy_lines(algorithm: str, update: int, scores: "Scores") -> list[str]:
    """Robust and clean accuracy of a model after an update: train, test and gap."""
    train, test = scores.train, scores.test
    rows = [
        ("robust", train.robust_accuracy, test.robust_accuracy, scores.gap),
        ("clean", train.clean_accuracy, test.clean_accuracy, scores.clean_gap),
    ]
    lines = [
        f"{algorithm} after {update} updates, evaluated by {scores.attack} at ε = {radius_text(scores.eps)}:"
    ]
    for kind, on_train, on_test, gap in rows:
        lines.append(
            f"  {kind:<6} train {percent(on_train)} %   test {percent(on_test)} %   "
            f"gap {percent(gap.value)} {percent_interval(gap.low, gap.high)}"
        )
    lines.append(
        f"  on {train.n} of {train.population} training and {test.n} of {test.population} test images"
    )
    return lines


def share_remark(shares: Mapping[str, float]) -> list[str]:
    """What learning curves cost, by the name of what was trained, where it is more than the usual part."""
    from freeat.evaluation.evaluator import BUDGET

    over = {name: share for name, share in shares.items() if share > BUDGET}
    texts = [share_text(share, f"the training of {name}") for name, share in over.items()]
    if len(texts) > MOST_SHARES:
        texts.sort(key=dict(zip(texts, over.values(), strict=True)).__getitem__)
        texts = [f"between {texts[0]} and {texts[-1]}"]
    return [f"Evaluations during training cost {', '.join(texts)}: fewer with --eval-every."] if texts else []


def run_remarks(algorithm: str, scores: "Scores", notes: Sequence[str]) -> list[str]:
    """Notes on the accuracies of one model."""
    constant = scores.constant_answer is not None
    guessing = [] if scores.above_chance else [chance_remark(algorithm, constant)]
    return [*guessing, *notes]


def one_attack_remark(attack: str, of: str = "", run: str = "RUN") -> str:
    """What robust accuracy under the attack of the training evaluation is, and the command for a stronger one."""
    return (
        f"Robust accuracy{of} is under {attack} alone, an upper bound; a stronger attack: "
        f"freeat evaluate {run} --attack autoattack"
    )


def difference_lines(found: "RunDifference") -> list[str]:
    """The settings in which two runs differ, and the paired interval of their accuracies."""
    lines = [f"first:  {found.first}", f"second: {found.second}"]
    lines += [f"  {one.setting}: {one.first} | {one.second}" for one in found.settings]
    if not found.settings:
        lines.append("  no setting differs")
    evaluated = found.evaluated
    if evaluated is None:
        return [*lines, f"not evaluated side by side: {found.reason}"]
    lines.append(
        f"on the same {evaluated.n} of {evaluated.population} test images, {evaluated.attack} "
        f"({evaluated.iterate}), {evaluated.norm} ε = {radius_text(evaluated.eps)}:"
    )
    for kind, pair in (("robust", evaluated.robust), ("clean", evaluated.clean)):
        lines.append(
            f"  {kind:<6} {percent(pair.first)} % | {percent(pair.second)} %   "
            f"difference {percent(pair.difference)} points {percent_interval(pair.low, pair.high)}   "
            f"correct for one only: {pair.only_first} | {pair.only_second}"
        )
    return [*lines, *(f"WARNING: {sentence}" for sentence in evaluated.warnings)]


def remarks(comparison: "Comparison") -> list[str]:
    """Notes under the table."""
    lines = [
        chance_remark(row.label, row.constant_answers, runs=len(row.seeds))
        for row in comparison.algorithms
        if not row.above_chance
    ]
    # an average is of the same runs
    by_runs = {(row.algorithm, row.folders): row for row in reversed(comparison.algorithms)}
    lines += [
        collapse_remark(row.label, row.collapsed, runs=len(row.seeds), weights=row.weights)
        for row in reversed(by_runs.values())
        if row.collapsed
    ]
    shares = {row.label: row.evaluation_share for row in comparison.algorithms}
    lines += share_remark(shares)
    lines += [f"{failure.run} failed: {failure.reason}" for failure in comparison.failures]
    return [*lines, *comparison.notes]


def collapse_remark(label: str, collapsed: int, *, runs: int, weights: str = "model") -> str:
    """The note on runs that collapsed, which is decided on their last weights, not on averages."""
    whose = label if weights == "model" else f"the last weights of {label}"
    return f"{whose} collapsed (catastrophic overfitting) in {collapsed} of {runs} runs."


def comparison_table(comparison: "Comparison") -> ReportTable:
    """Train, test, gap and cost of every algorithm, accuracies in percent."""
    rows = []
    for row in comparison.algorithms:
        accuracies = (row.robust_train, row.robust_test, row.robust_gap, row.clean_test, row.clean_gap)
        cells = [percent_spread(one.mean, one.std) for one in accuracies]
        cost = (f"{row.updates:,}", f"{row.gradient_evaluations:,}", f"{row.seconds:.1f}")
        rows.append([row.label, *cells, *cost])
    return ReportTable(
        caption="accuracy in %, mean ± standard deviation over the seeds",
        columns=COMPARISON_COLUMNS,
        rows=rows,
        notes=[budget_text(comparison.budget), *remarks(comparison)],
    )


def strength_table(comparison: "Comparison") -> ReportTable | None:
    """How strong the training attacks are; None where it was not measured."""
    rows = [
        [row.label, f"{found.size:.2f}", f"{found.loss_increase:.2f}", f"{found.margin_share:.2f}"]
        for row in comparison.algorithms
        if (found := row.strength) is not None
    ]
    if not rows:
        return None
    strength = (
        "Strength: how far δ lowers the margin, relative to the most that it can at ε to first order; mean over the "
        "evaluations after the first update."
    )
    return ReportTable(
        caption="strength of the training attack",
        columns=("algorithm", "‖δ‖/ε", "loss increase", "strength"),
        rows=rows,
        notes=[strength],
    )


def difference_table(comparison: "Comparison") -> ReportTable | None:
    """The arms of the mechanism, algorithms with parts and without, or algorithms and the first one, paired by seed.

    None where there are none.
    """
    found = comparison.mechanism
    differences = found.differences if found else comparison.parts or comparison.differences
    if not differences:
        return None
    rows = []
    for one in differences:
        matched, equal, level = one.matched_gap, NO_VALUE, NO_VALUE
        if matched is not None:
            equal, level = _percent_with_interval(matched.difference, signed=True), percent(matched.level)
        gap, test = (
            _percent_with_interval(value, signed=True) for value in (one.robust_gap, one.robust_test)
        )
        rows.append([one.arm, one.reference, one.tests, gap, equal, level, test, str(len(one.seeds))])
    return ReportTable(
        caption="paired differences in points [95 % interval]",
        columns=(
            "algorithm",
            "minus",
            "tests",
            "robust gap",
            "gap at equal robust train",
            "robust train",
            "robust test",
            "seeds",
        ),
        rows=rows,
        text_columns=3,
        notes=[
            "Intervals: Student's t over paired seeds, with the choice of the images, which all runs share, as a "
            "second source of error.",
            *_correction(differences),
            *difference_claims(differences, comparison.budget.kind),
            *(_weak_radius(found.weak) if found else []),
        ],
    )


LEVEL = 0.05
"""The chance of any wrong statement on the differences of a column."""

EQUAL = {"updates": "updates", "gradients": "gradient evaluations", "seconds": "seconds of training"}
"""What algorithms spend alike, by the kind of the budget."""


def difference_claims(differences: Sequence["ArmDifference"], budget: "BudgetKind" = "updates") -> list[str]:
    """What each paired difference says, by its 95 % intervals and Holm's correction over the differences of a column.

    Differences with a model at chance decide nothing, and are none of those that are corrected for.
    """
    valid = [one for one in differences if not one.at_chance]
    at_equal_fit = [one.matched_gap.difference if one.matched_gap else None for one in valid]
    columns = (
        _effects([one.robust_gap for one in valid], "the gap", f" at equal {EQUAL[budget]}"),
        _effects(at_equal_fit, "the gap", " at equal robust training accuracy"),
        _effects([one.robust_test for one in valid], "robust test accuracy"),
    )
    effects = iter(zip(*columns, strict=True))
    lines = []
    for one in differences:
        found = f"nothing is decided, {' and '.join(one.at_chance)} did not get above chance"
        if not one.at_chance:
            found = ", ".join(filter(None, next(effects)))
        lines.append(f"{one.arm} minus {one.reference} ({one.tests}): {found}.")
    return lines


def _effects(column: Sequence["Interval | None"], what: str, where: str = "") -> list[str]:
    """What the differences of a column show, "" where there is none; those without p-values are not corrected."""
    tested = [k for k, one in enumerate(column) if one is not None and one.p is not None]
    rejected = holm([one.p for one in column if one is not None and one.p is not None], LEVEL)
    lost = {k for k, kept in zip(tested, rejected, strict=True) if not kept}
    texts = []
    for k, one in enumerate(column):
        text = f"{what} {'grows' if one is not None and one.value > 0 else 'falls'}{where}"
        if one is None:
            text = ""
        elif one.low is None:
            text = f"nothing is decided on {what}{where}, as no two seeds differ"
        elif not one.excludes_zero:
            text = f"no effect on {what} is seen{where}"
        elif k in lost:
            text = (
                f"the effect on {what}{where} is not decided after correction for {len(tested)} differences"
            )
        texts.append(text)
    return texts


def _correction(differences: Sequence["ArmDifference"]) -> list[str]:
    """What is corrected for the number of differences; one alone needs no correction."""
    if len(differences) < 2:
        return []
    if all(one.robust_gap.p is None for one in differences):
        return ["Neither the intervals nor what is said of them is corrected for the number of differences."]
    return [
        "Intervals are not corrected for the number of differences. What is said of them below is, after Holm over the "
        "differences of each column: the chance of any wrong statement on a column is at most 5 %."
    ]


def _weak_radius(weak: "WeakRadius") -> list[str]:
    free = f"Free's strength is {weak.strength:.2f}"
    how = f"{free}, and the radius is that part of ε."
    if (run := weak.calibration) is not None:
        how = (
            f"{free}, Vanilla's {run.vanilla:.2f}; a calibration run of Vanilla at ε = {radius_text(run.radius)} (seed "
            f"{run.seed}) had {run.strength:.2f}, and between the two strength is a power of the radius."
        )
    return [
        f"The weak arms train at ε = {radius_text(weak.radius)} and are evaluated at ε = {radius_text(weak.eps)}, as "
        f"all arms are. {how} The next table has the strength that each arm reached."
    ]


def budget_text(budget: "Budget") -> str:
    """The budget of a comparison, in a sentence."""
    if budget.amount is None:
        return "Budget: the same number of weight updates for every algorithm."
    amount = {
        "gradients": f"{budget.amount:,.0f} gradient evaluations",
        "seconds": f"{seconds_text(budget.amount)} of training, from a timed step of each algorithm",
    }[budget.kind]
    return (
        f"Budget: {amount}, as {budget.reference} spends, for every algorithm; T is rounded to whole batches."
    )


def curves_table(rows: Sequence[tuple[str, "CurveSummary | None"]]) -> ReportTable | None:
    """Gaps at equal robust training accuracy with the first algorithm, and robust overfitting; None without curves."""
    summaries = [(label, curves) for label, curves in rows if curves is not None]
    if not summaries:
        return None
    first = rows[0][0]
    cells = []
    for label, curves in rows:
        matched = curves.matched_gap if curves else None
        at_equal_fit = [NO_VALUE] * 4
        if matched is not None:
            shares = (matched.level, matched.first, matched.second)
            at_equal_fit = [*map(percent, shares), _percent_with_interval(matched.difference)]
        overfitting = curves.robust_overfitting if curves else None
        best = NO_VALUE if overfitting is None else _percent_with_interval(overfitting.difference)
        cells.append([label, *at_equal_fit, best])
    return ReportTable(
        caption="at equal robust training accuracy, in % [95 % interval]",
        columns=(
            "algorithm",
            "robust train",
            "robust gap",
            f"{first} robust gap",
            "gap difference",
            "robust test best\u00a0−\u00a0last",
        ),
        rows=cells,
        notes=_curve_notes(rows, summaries),
    )


def _curve_notes(
    rows: Sequence[tuple[str, "CurveSummary | None"]], summaries: Sequence[tuple[str, "CurveSummary"]]
) -> list[str]:
    first = rows[0][0]
    notes = [
        f"{label} has no learning curve: --eval-every says how often to evaluate it."
        for label, curves in rows
        if curves is None
    ]
    if rows[0][1] is not None:
        notes += [
            f"{label} and {first} have no robust training accuracy in common: evaluate earlier (--eval-every; slow "
            "weights: --proximal-from), or train longer."
            for label, curves in summaries
            if label != first and curves.matched_gap is None
        ]
    if len({(curves.train_images, curves.test_images) for _, curves in summaries}) > 1:
        images = (f"{curves.train_images} and {curves.test_images} ({label})" for label, curves in summaries)
        notes.append(
            f"Learning curves are on {', '.join(images)} training and test images: --eval-size makes them equal."
        )
    methods = dict.fromkeys(curves.matched_gap.method for _, curves in summaries if curves.matched_gap)
    notes += [f"Interval of the gap difference: {method}." for method in methods if method]
    if any(curves.robust_overfitting for _, curves in summaries):
        notes.append(
            "Best − last: the best checkpoint is chosen on one half of the test images and evaluated on the other."
        )
    return notes


def _percent_with_interval(found: "Interval", *, signed: bool = False) -> str:
    value = f"{100 * found.value:+.1f}" if signed else percent(found.value)
    if found.low is None or found.high is None:
        return value
    return f"{value} {percent_interval(found.low, found.high)}"


def comparison_tables(comparison: "Comparison") -> list[ReportTable]:
    """The tables of a comparison; those of learning curves, differences and strength where there are any."""
    curves = curves_table([(row.label, row.curves) for row in comparison.algorithms])
    return [comparison_table(comparison), *([] if curves is None else [curves]), *paired_tables(comparison)]


def paired_tables(comparison: "Comparison") -> list[ReportTable]:
    """What the runs of a comparison do not say by themselves: paired differences, and the strength of attacks."""
    tables = (difference_table(comparison), strength_table(comparison))
    return [table for table in tables if table is not None]


def print_comparison(comparison: "Comparison", *, whole: bool = False) -> None:
    """Print the comparison to the terminal; differences from the first algorithm only where it is to be the whole."""
    shown = comparison if whole else replace(comparison, differences=())
    for table in comparison_tables(shown):
        heads = [column.replace(" ", "\n") for column in table.columns]
        rows = [[str(cell) for cell in row] for row in table.rows]
        print_table(
            heads, rows, numbers=range(table.text_columns, len(heads)), title=table.caption, wrap=False
        )
        print_lines(table.notes)


def comparison_markdown(comparison: "Comparison") -> str:
    """The comparison in Markdown."""
    tables = comparison_tables(comparison)
    return "\n".join(f"{table.markdown()}\n\n{listed(table.notes)}\n" for table in tables)
