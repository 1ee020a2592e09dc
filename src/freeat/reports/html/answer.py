"""The answer on top: who is the most robust on new images, with what gap, at what cost; and what must hold for it."""

from collections.abc import Iterable, Sequence

from freeat.evaluation.sanity import SanityCheck, compare
from freeat.evaluation.statistics import chance_remark
from freeat.experiments.comparison import Comparison
from freeat.reports.html.blocks import CheckLine, CheckList, Section
from freeat.reports.html.gather import Findings, ModelChecks
from freeat.reports.html.groups import Benchmark, SeedGroup
from freeat.reports.tables import ReportTable, TableCell, ball_text, count_text, percent, seconds_text
from freeat.reports.text import ACCURACIES, accuracy_cells
from freeat.runs.folder import RunResult
from freeat.runs.results import StoredEvaluation

NEAR = 0.05
"""Algorithms this close to the best robust test accuracy are compared by their gap."""

COLUMNS = (
    "algorithm",
    "robust test %",
    "robust train %",
    "test → train",
    "robust gap",
    "clean test %",
    "updates",
    "gradient evaluations, time",
)


def answers(benchmarks: Sequence[Benchmark], found: Findings) -> list[str]:
    """A sentence for every benchmark; without one, for what else was found."""
    sentences = [
        *_of_reproductions(found),
        *(_sentence(benchmark) for benchmark in benchmarks if benchmark.finished),
    ]
    if not sentences:
        sentences = [*_of_studies(found), *_of_evaluations(found), *_of_comparisons(found)]
    return sentences or ["Nothing here is finished yet: the same command resumes where it stopped."]


def _sentence(benchmark: Benchmark) -> str:
    groups = benchmark.finished
    best = max(groups, key=lambda group: group.accuracy("test", "robust").mean)
    attack = best.finished[0].attack.upper()
    test, gap = best.accuracy("test", "robust"), best.gap()
    under = f"{attack} at {ball_text(benchmark.norm, benchmark.eps)}"
    start = (
        f"On {benchmark.data}, {best.label} keeps {percent(test.mean)} % of new images right under {under}, "
        f"with a robust generalization gap of {percent(gap.mean)} points"
    )
    if len(groups) == 1:
        return f"{start} (95 % interval {percent(gap.low)} to {percent(gap.high)})."
    near = [group for group in groups if group.accuracy("test", "robust").mean >= test.mean - NEAR]
    calm = min(near, key=lambda group: group.gap().mean)
    if calm is best:
        return f"{start}, and none that comes within {100 * NEAR:.0f} points of it has a smaller one."
    return f"{start}; {_alternative(calm, best)}."


def _alternative(calm: SeedGroup, best: SeedGroup) -> str:
    test, gap = calm.accuracy("test", "robust"), calm.gap()
    said = (
        f"{calm.label} comes within {percent(best.accuracy('test', 'robust').mean - test.mean)} points of it with a "
        f"gap of only {percent(gap.mean)}"
    )
    dearer = _gradient_evaluations(best) / _gradient_evaluations(calm)
    if dearer >= 1.5:
        return f"{said} and {dearer:.{0 if dearer >= 10 else 1}f} times fewer gradient evaluations"
    return said


def _of_reproductions(found: Findings) -> list[str]:
    sentences = []
    for name, document in found.reproductions:
        verdicts = [one.verdict for claim in document.claims for one in claim.measured]
        decided = [verdict for verdict in verdicts if verdict in ("confirmed", "refuted")]
        which = f"{name}: of" if len(found.reproductions) > 1 else "Of"
        sentences.append(
            f"{which} {len(verdicts)} comparisons of the paper measured here at scale “{document.scale}”, "
            f"{verdicts.count('confirmed')} are confirmed, {verdicts.count('refuted')} refuted and "
            f"{len(verdicts) - len(decided)} left undecided."
        )
    return sentences


def _of_studies(found: Findings) -> list[str]:
    sentences = []
    for study in found.studies:
        rows = [row for row in (study.summary.rows if study.summary else ()) if row.trained]
        if not rows:
            sentences.append(f"{study.name}: nothing trained, so that its stability says nothing.")
        else:
            largest = max(row.n for row in rows)
            measured = [
                (row.mean_largest.value, row.algorithm, row.risk_gap.value)
                for row in rows
                if row.n == largest and row.mean_largest and row.risk_gap
            ]
            difference, name, risk_gap = min(measured)
            sentences.append(
                f"When one of {largest} training examples is replaced, the robust loss changes least under "
                f"{name}: by {difference:.2g} at the worst image, on average over "
                f"neighbours; its gap of the robust risk is {risk_gap:.2g}."
            )
    return sentences


def _of_comparisons(found: Findings) -> list[str]:
    """Of comparisons whose runs are not here."""
    sentences = []
    for name, comparison in found.comparisons:
        best = max(comparison.algorithms, key=lambda row: row.robust_test.mean)
        sentences.append(
            f"{name}: {best.label} keeps the most new images right under attack, "
            f"{percent(best.robust_test.mean)} %, with a robust generalization gap of "
            f"{percent(best.robust_gap.mean)} points; the runs themselves are not here."
        )
    return sentences


def _of_evaluations(found: Findings) -> list[str]:
    hardest: dict[str, StoredEvaluation] = {}
    for one in found.evaluations:
        if one.split == "test" and one.eps > 0:
            worst = hardest.setdefault(one.model, one)
            if one.robust_accuracy < worst.robust_accuracy:
                hardest[one.model] = one
    return [
        f"{one.model} keeps {percent(one.robust_accuracy)} % of {one.n} test images right under {one.attack} at "
        f"{ball_text(one.norm, one.eps)}, the hardest it was put through."
        for one in hardest.values()
    ]


def answer_tables(benchmarks: Sequence[Benchmark], found: Findings) -> list[ReportTable]:
    """Everyone's accuracies, gap and cost: a table for every benchmark, or for comparisons whose runs are not here."""
    if not found.runs:
        return [_comparison_table(name, comparison) for name, comparison in found.comparisons]
    return [
        ReportTable(
            caption=f"{benchmark.title}. {_meaning(benchmark)}",
            columns=COLUMNS,
            rows=[_row(group) for group in benchmark.finished],
        )
        for benchmark in benchmarks
        if benchmark.finished
    ]


def _comparison_table(name: str, comparison: Comparison) -> ReportTable:
    rows = [
        [row.label, *accuracy_cells(row), count_text(row.gradient_evaluations), seconds_text(row.seconds)]
        for row in comparison.algorithms
    ]
    return ReportTable(
        caption=f"{name}. In %, mean ± standard deviation over the seeds.",
        columns=("algorithm", *ACCURACIES, "gradient evaluations", "time"),
        rows=rows,
    )


def _meaning(benchmark: Benchmark) -> str:
    if any(len(group.finished) > 1 for group in benchmark.finished):
        return "Mean ± standard deviation over the seeds; in brackets the 95 % interval of that mean (Student's t)."
    return "In brackets 95 % intervals over the images (Wilson's; for the gap Newcombe's)."


def _row(group: SeedGroup) -> list[str | TableCell]:
    test, train = group.accuracy("test", "robust"), group.accuracy("train", "robust")
    seeds = [run.spec.seed for run in group.runs if run.result is not None]
    return [
        TableCell(text=group.label, detail=f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"),
        test.cell(),
        train.cell(),
        TableCell(span=(test.mean, train.mean)),
        group.gap().cell(),
        group.accuracy("test", "clean").cell(),
        count_text(group.mean(lambda result: result.update)),
        TableCell(
            text=count_text(_gradient_evaluations(group)),
            detail=seconds_text(group.mean(lambda result: result.seconds)),
        ),
    ]


def _gradient_evaluations(group: SeedGroup) -> float:
    return group.mean(lambda result: result.gradient_evaluations)


def remarks(benchmarks: Sequence[Benchmark], found: Findings) -> list[str]:
    """What a reader of the table must know before believing it."""
    lines = []
    for benchmark in benchmarks:
        for group in benchmark.groups:
            lines += _about(group)
        if benchmark.finished and all(
            len(run.history) < 2 for group in benchmark.groups for run in group.runs
        ):
            lines.append(
                "There are no learning curves: the runs were evaluated at their end only. The option --eval-every "
                "says how often to evaluate them."
            )
    for name, comparison in found.comparisons:
        lines += [f"{name}: {failure.run} failed: {failure.reason}" for failure in comparison.failures]
    notes = [note for run in found.runs for note in run.description.data.notes]
    return list(dict.fromkeys([*lines, *notes]))


def _about(group: SeedGroup) -> list[str]:
    lines = []
    unfinished = [run for run in group.runs if run.result is None]
    if unfinished:
        lines.append(f"{group.label}: {len(unfinished)} of {len(group.runs)} runs are not finished.")
    if collapsed := sum(result.collapsed for result in group.finished):
        lines.append(
            f"{group.label} collapsed (catastrophic overfitting) in {collapsed} of {len(group.finished)} runs."
        )
    if not all(result.above_chance for result in group.finished):
        lines.append(chance_remark(group.label))
    some = [result for result in group.finished if result.train.n < result.train.population]
    if some:
        train, test = some[0].train, some[0].test
        lines.append(
            f"{group.label} is evaluated on {train.n} of {train.population} training and {test.n} of "
            f"{test.population} test images."
        )
    return lines


def checks_section(
    benchmarks: Sequence[Benchmark], evaluations: Sequence[StoredEvaluation], checks: Sequence[ModelChecks]
) -> Section:
    """The checks of the training runs, of attacks among each other, and of the models themselves."""
    groups = [group for benchmark in benchmarks for group in benchmark.groups]
    captioned = [
        ("Training runs", [check for group in groups for check in _of_group(group)]),
        ("Attacks among each other", _compared(evaluations)),
        *((f"{one.model}, {ball_text(one.norm, one.eps)}", _shown(one.stored.checks)) for one in checks),
    ]
    blocks = [CheckList(caption=caption, checks=_failed_first(own)) for caption, own in captioned if own]
    failed = sum(check.passed is False for block in blocks for check in block.checks)
    total = sum(len(block.checks) for block in blocks)
    lead = (
        f"{failed} of {total} checks failed: do not trust the numbers they speak of before you know why."
        if failed
        else f"All {total} checks passed."
        if total > 1
        else "The one check made was passed."
    )
    return Section(key="checks", title="Sanity checks", lead=lead, blocks=blocks)


def _failed_first(checks: Sequence[CheckLine]) -> list[CheckLine]:
    return sorted(checks, key=lambda check: check.passed is not False)


def _of_group(group: SeedGroup) -> list[CheckLine]:
    """Whether a model resists one full step but not PGD: catastrophic overfitting."""
    evaluated = [result for result in group.finished if result.one_step is not None]
    if not evaluated:
        return []
    collapsed = [result for result in evaluated if result.collapsed]
    if collapsed:
        said = f"{group.label}: {collapsed[0].collapse}"
        return [CheckLine(passed=False, sentence=f"{said} ({len(collapsed)} of {len(evaluated)} runs).")]
    widest = max(evaluated, key=lambda result: _one_step(result) - _pgd(result))
    return [
        CheckLine(
            passed=True,
            sentence=f"{group.label}: no catastrophic overfitting; {percent(_one_step(widest))} % of the training "
            f"images stay right against one full step, {percent(_pgd(widest))} % against {widest.attack}.",
        )
    ]


def _one_step(result: RunResult) -> float:
    return result.one_step.robust_accuracy if result.one_step is not None else 0.0


def _pgd(result: RunResult) -> float:
    return result.train.robust_accuracy


def _compared(evaluations: Sequence[StoredEvaluation]) -> list[CheckLine]:
    """Attacks are compared where they were made on the same images, with the same settings and draws."""
    groups: dict[tuple[str, ...], list[StoredEvaluation]] = {}
    for one in evaluations:
        on = (str(one.identity[key]) for key in ("weights", "architecture", "images", "index", "seed"))
        groups.setdefault(tuple(on), []).append(one)
    return _shown(check for group in groups.values() for check in compare(group))


def _shown(checks: Iterable[SanityCheck]) -> list[CheckLine]:
    return [CheckLine(passed=check.passed, sentence=check.sentence) for check in checks]
