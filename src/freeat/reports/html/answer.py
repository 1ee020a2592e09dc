"""The top of the page: the best robust test accuracy, its gap and cost in a sentence and a table; the sanity checks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from freeat.evaluation.evaluate import FAILED
from freeat.evaluation.matched import Interval
from freeat.evaluation.sanity import SanityCheck, compare
from freeat.evaluation.statistics import chance_remark
from freeat.reports.html.blocks import CheckLine, CheckList, Section
from freeat.reports.html.gather import Findings, ModelChecks
from freeat.reports.html.groups import Benchmark, GroupMean, SeedGroup
from freeat.reports.tables import ReportTable, TableCell, ball_text, count_text, percent, seconds_text
from freeat.reports.text import (
    collapse_remark,
    comparison_tables,
    one_attack_remark,
    paired_tables,
    share_remark,
)
from freeat.runs.results import StoredEvaluation

NEAR = 0.05
"""Algorithms this close to the best robust test accuracy are compared by their gap."""

NO_EVIDENCE = "no algorithm's robust training accuracy is above chance, so the gaps say nothing"

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
    """A sentence for every reproduction and benchmark; without any, one for each other kind of result."""
    sentences = [
        *_of_reproductions(found),
        *(_of_benchmark(benchmark) for benchmark in benchmarks if benchmark.finished),
    ]
    if not sentences:
        sentences = [*_of_studies(found), *_of_populations(found), *_of_evaluations(found)]
        sentences += _of_comparisons(found)
    return sentences or ["No run is finished yet: the same command resumes where it stopped."]


def _of_populations(found: Findings) -> list[str]:
    """Free against Vanilla where the gap is exact: on how many instances it is smaller, and larger."""
    sentences = []
    for name, study in found.populations:
        pairs = dict.fromkeys((row.arm, row.reference) for row in study.summary.differences)
        for arm, reference in pairs:
            if not arm.startswith("free"):
                continue
            rows = [row for row in study.summary.differences if (row.arm, row.reference) == (arm, reference)]
            updates = [row.surrogate for row in rows]
            fit = [row.matched.difference for row in rows if row.matched is not None]
            sentences.append(
                f"{name}: the exact gap of {arm} is smaller than that of {reference} on {_signed(updates, -1)} and "
                f"larger on {_signed(updates, 1)} of {len(rows)} instances at equal updates; at equal robust training "
                f"risk on {_signed(fit, -1)} and {_signed(fit, 1)} of {len(fit)}."
            )
    return sentences


def _signed(differences: Sequence[Interval], sign: int) -> int:
    """How many differences have this sign by their 95 % interval."""
    return sum(one.excludes_zero and one.value * sign > 0 for one in differences)


def _of_benchmark(benchmark: Benchmark) -> str:
    """The most robust algorithm with its gap, and one almost as robust with a smaller gap, if there is any.

    The gap of an algorithm that is not above chance is no evidence.
    """
    trained = [group for group in benchmark.finished if group.above_chance]
    best = max(trained or benchmark.finished, key=_robust_test)
    gap = best.gap()
    attack = best.finished[0].attack.upper()
    start = (
        f"On {benchmark.data}, {best.label} has {percent(_robust_test(best))} % robust test accuracy under {attack} "
        f"at {ball_text(benchmark.norm, benchmark.eps)}, with {_gap_text(gap, 'robust generalization gap')}"
    )
    if not trained:
        return f"{start}; {NO_EVIDENCE}."
    if len(trained) == 1:
        return f"{start}." if _contains_zero(gap) else f"{start} ({_interval_text(gap)})."
    near = [group for group in trained if _robust_test(group) >= _robust_test(best) - NEAR]
    other = min(near, key=lambda group: group.gap().mean)
    if other is best:
        return f"{start}; no algorithm within {100 * NEAR:.0f} points of it has a smaller gap."
    ratio = _gradient_evaluations(best) / _gradient_evaluations(other)
    cost = (
        f" and {ratio:.{0 if ratio >= 10 else 1}f} times fewer gradient evaluations" if ratio >= 1.5 else ""
    )
    return (
        f"{start}; {other.label} is {percent(_robust_test(best) - _robust_test(other))} points less accurate, with "
        f"{_gap_text(other.gap(), 'gap', only='only ')}{cost}."
    )


def _contains_zero(gap: GroupMean) -> bool:
    return gap.low <= 0 <= gap.high


def _interval_text(gap: GroupMean) -> str:
    return f"95 % interval {percent(gap.low)} to {percent(gap.high)}"


def _gap_text(gap: GroupMean, what: str, *, only: str = "") -> str:
    """The gap in points; one whose interval contains zero is called not measurable."""
    if _contains_zero(gap):
        return f"a {what} that is not measurable ({_interval_text(gap)})"
    return f"a {what} of {only}{percent(gap.mean)} points"


def _robust_test(group: SeedGroup) -> float:
    return group.accuracy("test", "robust").mean


def _gradient_evaluations(group: SeedGroup) -> float:
    return group.mean(lambda result: result.gradient_evaluations)


def _of_reproductions(found: Findings) -> Iterator[str]:
    for name, document in found.reproductions:
        verdicts = [claim.measured_primary.verdict for claim in document.claims if claim.measured_primary]
        decided = [verdict for verdict in verdicts if verdict in ("confirmed", "refuted")]
        which = f"{name}: of" if len(found.reproductions) > 1 else "Of"
        yield (
            f"{which} {len(verdicts)} claims about the paper's numbers measured here at scale “{document.scale}”, "
            f"{verdicts.count('confirmed')} are confirmed, {verdicts.count('refuted')} refuted and "
            f"{len(verdicts) - len(decided)} left undecided."
        )


def _of_studies(found: Findings) -> Iterator[str]:
    for study in found.studies:
        rows = [row for row in (study.summary.rows if study.summary else ()) if row.trained]
        if not rows:
            yield f"{study.name}: no algorithm trained above chance, so its stability says nothing."
            continue
        largest = max(row.n for row in rows)
        difference, name, risk_gap = min(
            (row.mean_largest.value, row.algorithm, row.risk_gap.value)
            for row in rows
            if row.n == largest and row.mean_largest and row.risk_gap
        )
        yield (
            f"When one of {largest} training examples is replaced, the robust loss changes least under {name}: by "
            f"{difference:.2g} at the worst image, on average over seeds; its robust risk gap is {risk_gap:.2g}."
        )


def _of_comparisons(found: Findings) -> Iterator[str]:
    """The headline of comparisons without their runs."""
    for name, comparison in found.comparisons:
        trained = [row for row in comparison.algorithms if row.above_chance]
        best = max(trained or comparison.algorithms, key=lambda row: row.robust_test.mean)
        end = "the runs themselves are not here" if trained else NO_EVIDENCE
        yield (
            f"{name}: {best.label} has the highest robust test accuracy, {percent(best.robust_test.mean)} %, with a "
            f"robust generalization gap of {percent(best.robust_gap.mean)} points; {end}."
        )


def _of_evaluations(found: Findings) -> Iterator[str]:
    """The lowest robust test accuracy of every model."""
    attacked = [one for one in found.evaluations if one.split == "test" and one.eps > 0]
    for model in dict.fromkeys(one.model for one in attacked):
        one = min((one for one in attacked if one.model == model), key=lambda one: one.robust_accuracy)
        constant = "" if one.constant_answer is None else " It gives the same answer to every image."
        yield (
            f"{model} has {percent(one.robust_accuracy)} % robust accuracy on {one.n} test images under {one.attack} "
            f"at {ball_text(one.norm, one.eps)}, its lowest of all evaluations here.{constant}"
        )


def answer_tables(benchmarks: Sequence[Benchmark], found: Findings) -> list[ReportTable]:
    """Accuracies, gap and cost: a table for every benchmark, or for comparisons without their runs.

    Beside the runs, comparisons have what only they know: paired differences and the strength of attacks.
    """
    known = paired_tables if found.runs else comparison_tables
    compared = [
        table.under_name(name) for name, comparison in found.comparisons for table in known(comparison)
    ]
    return compared if not found.runs else _benchmark_tables(benchmarks) + compared


def _benchmark_tables(benchmarks: Sequence[Benchmark]) -> list[ReportTable]:
    return [
        ReportTable(
            caption=f"{benchmark.title}. {_meaning(benchmark)}",
            columns=COLUMNS,
            rows=[_row(group) for group in benchmark.finished],
        )
        for benchmark in benchmarks
        if benchmark.finished
    ]


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


def remarks(benchmarks: Sequence[Benchmark], found: Findings) -> list[str]:
    """Notes under the table: what limits its numbers."""
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
        shares = {
            group.label: group.mean(lambda result: result.evaluation_share) for group in benchmark.finished
        }
        lines += share_remark(shares)
        lines += _one_attack(benchmark, found)
    for name, comparison in found.comparisons:
        lines += [f"{name}: {failure.run} failed: {failure.reason}" for failure in comparison.failures]
    notes = [note for run in found.runs for note in run.description.data.notes]
    return list(dict.fromkeys([*lines, *notes]))


def _one_attack(benchmark: Benchmark, found: Findings) -> list[str]:
    """The remark on algorithms on which no attack but that of the training evaluation was tried."""

    def is_alone(group: SeedGroup) -> bool:
        others = {one.weights for one in found.evaluations if one.attack != group.finished[0].attack}
        if group.runs[0].weights != "model":  # a result holds the digest of the last weights, not of averages
            return not others
        return others.isdisjoint(result.weights for result in group.finished)

    alone = [group for group in benchmark.finished if is_alone(group)]
    if not alone:
        return []
    whose = "" if alone == benchmark.finished else f" of {', '.join(group.label for group in alone)}"
    return [one_attack_remark(alone[0].finished[0].attack, whose)]


def _about(group: SeedGroup) -> list[str]:
    lines = []
    if group.repeats:
        more = f"{group.repeats} more runs repeat" if group.repeats > 1 else "1 more run repeats"
        lines.append(f"{group.label}: {more} a seed with the same settings; each seed is counted once.")
    unfinished = [run for run in group.runs if run.result is None]
    if unfinished:
        lines.append(f"{group.label}: {len(unfinished)} of {len(group.runs)} runs are not finished.")
    weights = group.runs[0].weights
    collapsed = sum(result.collapsed for result in group.finished)
    if collapsed and weights != "ema":  # the group of the last or slow weights says it of the same runs
        lines.append(collapse_remark(group.label, collapsed, runs=len(group.finished), weights=weights))
    notes = dict.fromkeys(note for result in group.finished for note in result.notes)
    lines += [f"{group.label}: {note}." for note in notes if note.startswith(FAILED)]
    if not group.above_chance:
        constant = sum(result.constant_answer is not None for result in group.finished)
        lines.append(chance_remark(group.label, constant, runs=len(group.finished)))
    some = [result for result in group.finished if result.train.n < result.train.population]
    if some:
        train, test = some[0].train, some[0].test
        lines.append(
            f"{group.label} is evaluated on {train.n} of {train.population} training and {test.n} of "
            f"{test.population} test images."
        )
    return lines


CHECKS = {
    "catastrophic overfitting": (
        "Catastrophic overfitting",
        "A model that resists one full gradient step but not PGD has learned to mislead the gradient of its own "
        "training attack: its robust training accuracy is an artefact.",
    ),
    "one step only": (
        "One step only",
        "A model that resists one full gradient step but not PGD is not robust, whatever an attack of one step says.",
    ),
    "evaluation mode": (
        "Evaluation mode",
        "A model that uses batch statistics, or changes while it classifies, is not evaluated as it would be used.",
    ),
    "deterministic": (
        "Determinism",
        "Gradients of a random model are those of another draw: attacks that take it for fixed overestimate it.",
    ),
    "independent of the batch": (
        "Independence of the batch",
        "Where the logits of an image depend on others of its batch, the accuracy holds for these batches only.",
    ),
    "different answers": (
        "Different answers",
        "A model that gives the same answer to every image has an accuracy that no attack can lower, and a gap that "
        "says nothing. Its gradients are not masked: there is nothing to mask.",
    ),
    "gradients": (
        "Finite gradients other than zero",
        "Where the gradient vanishes or is not finite, PGD cannot move and the model seems robust (gradient masking).",
    ),
    "more steps": (
        "More attack steps",
        "More steps must fool at least as many images, or the gradients mislead the attack.",
    ),
    "larger radius": (
        "Larger radius",
        "The larger ball contains the smaller one, so that robust accuracy cannot rise with ε unless the attack fails.",
    ),
    "very large radius": (
        "Very large radius",
        "In a ball in which every image can become the same grey, nothing can be classified: if images stay right, "
        "the attack fails.",
    ),
    "black box": (
        "Black-box attack against white-box attack",
        "A white-box attack has the gradients. If an attack without them fools more images, they are masked.",
    ),
}
"""Every sanity check by name: its title on the page, and why it matters."""


OF_MODELS = tuple(name for name in CHECKS if name not in ("catastrophic overfitting", "one step only"))
"""The checks that need evaluations of a model, and look for gradient masking and what hides it."""


def checks_section(
    benchmarks: Sequence[Benchmark], evaluations: Sequence[StoredEvaluation], checks: Sequence[ModelChecks]
) -> Section:
    """The sanity checks of the runs, between evaluations, and of the models themselves, one kind after the other."""
    found = [
        *(check for benchmark in benchmarks for group in benchmark.groups for check in _overfitting(group)),
        *_between_evaluations(evaluations),
        *(_of_model(one, check) for one in checks for check in one.stored.checks),
    ]
    blocks = []
    for name in dict.fromkeys([*CHECKS, *(one.name for one in found)]):
        title, reason = CHECKS.get(name, (name.capitalize(), ""))
        own = [CheckLine(passed=one.passed, sentence=one.sentence) for one in found if one.name == name]
        if own:
            failed_first = sorted(own, key=lambda check: check.passed is not False)
            blocks.append(CheckList(caption=title, reason=reason, checks=failed_first))
    failed = sum(not check.passed for check in found)
    lead = (
        f"{failed} of {len(found)} checks failed: do not trust the accuracies they are about before you know why."
        if failed
        else f"All {len(found)} checks passed."
        if len(found) > 1
        else "The one check that was made passed."
    )
    made = [block.caption.lower() for block in blocks]
    lead += f" Checked: {', '.join(made)}."
    if missing := [CHECKS[name][0].lower() for name in OF_MODELS if CHECKS[name][0].lower() not in made]:
        lead += (
            f" Not checked: {', '.join(missing)}. So gradient masking is not ruled out: freeat evaluate RUN checks the "
            "model itself, --eps with several radii and --attack square beside PGD the rest."
        )
    return Section(
        key="checks",
        title="Sanity checks",
        lead=f"{lead} Checks look for gradient masking and catastrophic overfitting, which make a model seem more "
        "robust than it is.",
        blocks=blocks,
    )


def _overfitting(group: SeedGroup) -> Iterator[SanityCheck]:
    """Whether any run resists one full step but not PGD; the check is of the last weights, and stands there once."""
    weights = group.runs[0].weights
    if weights == "ema":
        return
    evaluated = [
        (result, result.one_step.robust_accuracy) for result in group.finished if result.one_step is not None
    ]
    if not evaluated:
        return
    collapsed = [result for result, _ in evaluated if result.collapsed]
    if collapsed:
        sentence = f"{group.label}: {collapsed[0].collapse} ({len(collapsed)} of {len(evaluated)} runs)."
    elif weak := [result for result, _ in evaluated if result.collapse is not None]:
        sentence = f"{group.label}: {weak[0].collapse} ({len(weak)} of {len(evaluated)} runs)."
        yield SanityCheck(name="one step only", passed=False, sentence=sentence)
        return
    elif weights != "model":
        sentence = f"{group.label}: no catastrophic overfitting of the last weights."
    else:
        widest, one_step = max(evaluated, key=lambda pair: pair[1] - pair[0].train.robust_accuracy)
        sentence = (
            f"{group.label}: no catastrophic overfitting; training accuracy is {percent(one_step)} % under one full "
            f"step and {percent(widest.train.robust_accuracy)} % under {widest.attack}."
        )
    yield SanityCheck(name="catastrophic overfitting", passed=not collapsed, sentence=sentence)


def _between_evaluations(evaluations: Sequence[StoredEvaluation]) -> Iterator[SanityCheck]:
    """Attacks are compared where they were made on the same images, with the same settings and draws."""
    groups: dict[tuple[str, ...], list[StoredEvaluation]] = {}
    for one in evaluations:
        on = (str(one.identity[key]) for key in ("weights", "architecture", "images", "index", "seed"))
        groups.setdefault(tuple(on), []).append(one)
    for group in groups.values():
        yield from compare(group)


def _of_model(checks: ModelChecks, check: SanityCheck) -> SanityCheck:
    return replace(check, sentence=f"{checks.model}, {ball_text(checks.norm, checks.eps)}: {check.sentence}")
