"""Runs in order: tasks, groups of seeds, labels that tell them apart, intervals."""

import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeat.evaluation.evaluator import Scores
from freeat.evaluation.statistics import wilson
from freeat.reports.charts import LineChart, thinned
from freeat.reports.html.answer import checks_section, remarks
from freeat.reports.html.curves import sizes_section
from freeat.reports.html.gather import gather
from freeat.reports.html.groups import benchmarks_of, over_seeds


def test_group_labels_name_the_settings_that_differ(store: Path) -> None:
    (benchmark,) = benchmarks_of(gather([store]).runs, order=["vanilla-2", "free-4"])
    assert benchmark.title == "digits, mlp-w12, L2 ε = 0.5"
    assert [group.label for group in benchmark.groups] == [
        "vanilla-2, train size 40",
        "vanilla-2, train size 60",
        "free-4, train size 40",
        "free-4, train size 60",
    ]
    assert all([run.spec.seed for run in group.runs] == [0, 1] for group in benchmark.groups)


def test_group_label_omits_settings_that_do_not_differ(store: Path) -> None:
    (benchmark,) = benchmarks_of(gather([store / "runs" / "free-4-60", store / "runs" / "vanilla-2-60"]).runs)
    assert [group.label for group in benchmark.groups] == ["free-4", "vanilla-2"]


def test_single_run_keeps_the_interval_over_its_images(store: Path) -> None:
    (benchmark,) = benchmarks_of(gather([store / "runs" / "free-4-60" / "seed-0"]).runs)
    (group,) = benchmark.groups
    result = group.finished[0]
    assert (group.gap().low, group.gap().high) == (result.gap.low, result.gap.high)
    test = group.accuracy("test", "robust")
    assert (test.low, test.high) == pytest.approx(result.test.robust_interval)
    clean = result.test.clean_accuracy
    n = result.test.n
    assert group.accuracy("test", "clean").low == pytest.approx(wilson(clean * n, n)[0])


def test_several_seeds_have_students_interval() -> None:
    estimate = over_seeds([0.1, 0.2, 0.3], (0.0, 0.0), least=-1.0)
    half = 4.302652729911275 * 0.1 / math.sqrt(3)
    assert (estimate.low, estimate.high) == pytest.approx((0.2 - half, 0.2 + half))
    assert over_seeds([0.0, 1.0], (0.0, 0.0), least=0.0).low == 0.0


@given(st.integers(0, 5000), st.integers(2, 300))
def test_thinning_keeps_the_ends_and_the_order(length: int, most: int) -> None:
    kept = thinned(length, most)
    assert len(kept) == min(length, most)
    assert kept == sorted(set(kept))
    if length:
        assert (kept[0], kept[-1]) == (0, length - 1)


def test_algorithms_are_sorted_by_name_steps_and_train_size(store: Path) -> None:
    runs = gather([store]).runs
    (benchmark,) = benchmarks_of(runs[::-1])
    labels = [group.label for group in benchmark.groups]
    assert labels == [f"{name}, train size {n}" for name in ("free-4", "vanilla-2") for n in (40, 60)]


def test_a_seed_that_was_run_again_is_counted_once(store: Path) -> None:
    one, two = gather([store / "runs" / "free-4-60"]).runs
    again = replace(one, description=replace(one.description, spec=replace(one.spec, threads=7)))
    (benchmark,) = benchmarks_of([replace(again, result=None), one, again, two])
    (group,) = benchmark.groups
    assert [run.spec.seed for run in group.runs] == [0, 1]
    assert len(group.finished) == 2
    assert group.repeats == 2
    (alone,) = benchmarks_of([one, again])
    (group,) = alone.groups
    assert group.gap() == benchmarks_of([one])[0].groups[0].gap()
    assert "free-4: 1 more run repeats a seed" in "\n".join(remarks([alone], gather([store / "runs"])))


def test_labels_write_step_sizes_in_255ths(store: Path) -> None:
    run = gather([store / "runs" / "free-4-60" / "seed-0"]).runs[0]
    other = replace(run, description=replace(run.description, spec=replace(run.spec, alpha=32 / 255)))
    (benchmark,) = benchmarks_of([run, other])
    assert {group.label for group in benchmark.groups} == {"free-4", "free-4, alpha 32/255"}


def test_labels_write_whole_numbers_without_decimals(store: Path) -> None:
    run = gather([store / "runs" / "free-4-60" / "seed-0"]).runs[0]
    specs = (replace(run.spec, updates=None, epochs=epochs) for epochs in (15.0, 2.5))
    runs = [replace(run, description=replace(run.description, spec=spec)) for spec in specs]
    (benchmark,) = benchmarks_of(runs)
    assert {group.label for group in benchmark.groups} == {"free-4, epochs 15", "free-4, epochs 2.5"}


def test_an_average_beside_the_weights_makes_no_group_of_the_last_weights(store: Path) -> None:
    one, two = gather([store / "runs" / "free-4-60"]).runs
    assert one.result is not None
    scores = Scores(**{field.name: getattr(one.result, field.name) for field in fields(Scores)})
    averaged = replace(
        one,
        description=replace(one.description, spec=replace(one.spec, ema=0.9)),
        result=replace(one.result, ema=scores),
        history=[replace(record, ema=scores) for record in one.history],
    )
    (benchmark,) = benchmarks_of([averaged, two])
    assert [group.label for group in benchmark.groups] == ["free-4", "free-4 + ema 0.9"]
    assert [run.spec.seed for run in benchmark.groups[0].runs] == [0, 1]


def test_lines_against_n_are_of_one_kind_of_weights(store: Path) -> None:
    runs = []
    for run in gather([store / "runs" / f"free-4-{n}" for n in (40, 60)]).runs:
        assert run.result is not None
        scores = Scores(**{field.name: getattr(run.result, field.name) for field in fields(Scores)})
        scores = replace(scores, gap=replace(scores.gap, value=0.25))
        spec = replace(run.spec, ema=0.9)
        description = replace(run.description, spec=spec)
        runs.append(replace(run, description=description, result=replace(run.result, ema=scores)))
    (chart,) = sizes_section(benchmarks_of(runs), []).blocks
    assert isinstance(chart, LineChart)
    lines = {series.name.partition(":")[0]: series.curves[0] for series in chart.series}
    assert list(lines) == ["free-4", "free-4 + ema 0.9"]
    assert lines["free-4 + ema 0.9"].y == [25.0, 25.0]


def test_runs_under_one_attack_alone_are_said_to_have_an_upper_bound(store: Path) -> None:
    def said(*folders: Path) -> list[str]:
        found = gather(list(folders))
        return [line for line in remarks(benchmarks_of(found.runs), found) if "upper bound" in line]

    attacked, other = store / "runs" / "free-4-60", store / "runs" / "vanilla-2-40"
    command = (
        "is under pgd-2 alone, an upper bound; a stronger attack: freeat evaluate RUN --attack autoattack"
    )
    assert said(other) == [f"Robust accuracy {command}"]
    assert said(attacked) == []
    assert said(attacked, other) == [f"Robust accuracy of vanilla-2, train size 40 {command}"]


def test_checks_name_what_was_checked_and_what_was_not(store: Path) -> None:
    alone = gather([store / "runs" / "vanilla-2-40"])
    lead = checks_section(benchmarks_of(alone.runs), alone.evaluations, alone.checks).lead
    assert "Checked: catastrophic overfitting." in lead
    assert "Not checked: evaluation mode, determinism, " in lead
    assert "larger radius" in lead
    assert "So gradient masking is not ruled out: freeat evaluate RUN checks" in lead
    attacked = gather([store / "runs" / "free-4-60"])
    lead = checks_section(benchmarks_of(attacked.runs), attacked.evaluations, attacked.checks).lead
    checked, _, rest = lead.partition(" Not checked: ")
    assert "finite gradients other than zero, more attack steps" in checked
    assert "finite gradients" not in rest


def test_a_model_that_resists_one_step_only_fails_a_check_that_is_not_of_overfitting(store: Path) -> None:
    run, _ = gather([store / "runs" / "free-4-60"]).runs
    assert run.result is not None
    for collapsed, name in ((True, "Catastrophic overfitting"), (False, "One step only")):
        result = replace(run.result, collapsed=collapsed, collapse="it resists one step")
        (blocks,) = checks_section(benchmarks_of([replace(run, result=result)]), [], []).blocks
        (check,) = blocks.checks
        assert (blocks.caption, check.passed) == (name, False)
        assert check.sentence == "free-4: it resists one step (1 of 1 runs)."


def test_the_check_for_catastrophic_overfitting_is_of_the_last_weights_and_stands_there_once(
    store: Path,
) -> None:
    one, _ = gather([store / "runs" / "free-4-60"]).runs
    assert one.result is not None
    assert one.result.one_step is not None
    right = one.result.train.robust_accuracy
    scores = Scores(**{field.name: getattr(one.result, field.name) for field in fields(Scores)})
    scores = replace(scores, train=replace(scores.train, robust_accuracy=right / 2 + 0.001))
    for setting, expected in {
        "ema": {f" and {100 * right:.1f} % under {one.result.attack}."},
        "proximal": {"no catastrophic overfitting of the last weights"},
    }.items():
        spec = replace(one.spec, **{setting: 0.9})
        kind = "slow" if setting == "proximal" else "ema"
        run = replace(
            one,
            description=replace(one.description, spec=spec),
            result=replace(one.result, **{kind: scores}),
            history=[replace(record, **{kind: scores}) for record in one.history],
        )
        (blocks,) = checks_section(benchmarks_of([run]), [], []).blocks
        (check,) = blocks.checks
        assert all(part in check.sentence for part in expected)
