"""Sections say what the stored numbers say."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freeat.experiments.comparison import AlgorithmSummary, Comparison, FailedRun, MeanStd, write_comparison
from freeat.reports.charts import ChartSeries, HeatMap, LineChart
from freeat.reports.html.answer import _about, _of_benchmark, _row
from freeat.reports.html.blocks import (
    AccuracyMatrix,
    CheckList,
    ClaimBlock,
    ExampleImages,
    FactList,
    ReportPage,
    Section,
)
from freeat.reports.html.gather import ExampleFile, Findings, gather
from freeat.reports.html.groups import SeedGroup, benchmarks_of
from freeat.reports.html.page import make_document
from freeat.reports.html.robustness import data_uri, examples_section, largest_samples
from freeat.reports.paper_figures import figure_chart
from freeat.reports.robustness import radius_lines
from freeat.reports.tables import ReportTable, TableCell, ball_text
from freeat.reports.training import merged, pareto_front
from freeat.stability.results import GradientRecord
from freeat.theory import Problem, bound
from invented_claims import typed_figures
from made_records import make_classes
from report_store import points, reproduction
from small_runs import carry_out
from stored_results import stored_evaluation


@pytest.fixture(scope="module")
def document(store: Path) -> ReportPage:
    return make_document(gather([store]), [store])


def section(document: ReportPage, key: str) -> Section:
    (found,) = [one for one in document.sections if one.key == key]
    return found


def test_page_has_every_section_with_results(document: ReportPage) -> None:
    assert [one.key for one in document.sections] == [
        "curves", "fairness", "robustness", "transfer", "evaluations", "examples", "checks", "sizes", "stability",
        "gradients", "explorer", "provenance",
    ]  # fmt: skip
    assert document.left_out == []


def test_page_omits_sections_without_results(store: Path) -> None:
    run = store / "runs" / "vanilla-2-40" / "seed-0"
    document = make_document(gather([run]), [run], "One run")
    assert document.title == "One run"
    assert [one.key for one in document.sections] == ["curves", "checks", "explorer", "provenance"]


def test_headline_names_the_best_algorithm(document: ReportPage, store: Path) -> None:
    (sentence,) = document.answers
    groups = {}
    for run in gather([store]).runs:
        assert run.result is not None
        label = f"{run.spec.algorithm}, train size {run.spec.train_size}"
        groups.setdefault(label, []).append(run.result.test.robust_accuracy)
    best = max(groups, key=lambda label: float(np.mean(groups[label])))
    assert f"{best} has {100 * np.mean(groups[best]):.1f} % robust test accuracy under PGD-2" in sentence
    (table,) = document.tables
    assert len(table.rows) == 4
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert any("is evaluated on 24 of" in remark for remark in document.remarks)


def test_curves_hold_the_stored_errors(document: ReportPage, store: Path) -> None:
    (chart,) = section(document, "curves").blocks
    assert isinstance(chart, LineChart)
    assert [axis.key for axis in chart.axes] == ["epochs", "updates", "gradients", "seconds"]
    named = {one.name: one for one in chart.series}["free-4, train size 60"]
    line = next(curve for curve in named.curves if curve.panel == 1 and not curve.separate)
    histories = [run.history for run in gather([store / "runs" / "free-4-60"]).runs]
    errors = [[100 * (1 - r.test.robust_accuracy) for r in history[:-1]] for history in histories]
    np.testing.assert_allclose(line.y, np.mean(errors, 0))
    assert line.low is not None
    np.testing.assert_allclose(line.low, np.min(errors, 0))
    assert line.x["updates"] == [record.update for record in histories[0][:-1]]
    assert any(curve.separate for curve in named.curves)


def test_curves_need_two_evaluations_and_a_remark_says_so(store: Path) -> None:
    folder = store / "runs" / "free-4-60" / "seed-0"
    found = gather([folder])
    (run,) = found.runs
    for kept, shown in ((run.history[-2:], True), (run.history[-1:], False)):
        document = make_document(Findings(runs=[replace(run, history=kept)]), [folder])
        assert ("curves" in {one.key for one in document.sections}) is shown
        assert any("no learning curves" in remark for remark in document.remarks) is not shown


def test_algorithms_are_compared_at_equal_fit_and_cost(document: ReportPage, store: Path) -> None:
    blocks = section(document, "fairness").blocks
    assert [block.kind for block in blocks] == ["line-chart", "table", "line-chart"] * 2  # two sizes n
    gaps, table, cost = blocks[3:]
    assert isinstance(gaps, LineChart)
    runs = [gather([store / "runs" / folder]).runs for folder in ("free-4-60", "vanilla-2-60")]
    named = {one.name.partition(",")[0]: one.curves[0] for one in gaps.series}
    free = np.array([[(r.train.robust_accuracy, r.gap.value) for r in run.history[:-1]] for run in runs[0]])
    fit, gap = 100 * free.mean(0).T
    np.testing.assert_allclose(named["free-4"].x["fit"], fit)
    np.testing.assert_allclose(named["free-4"].y, gap)
    assert isinstance(table, ReportTable)
    assert [str(row[0]).partition(",")[0] for row in table.rows] == ["free-4", "vanilla-2"]
    assert isinstance(cost, LineChart)
    *models, front = cost.series
    assert front.name == "Pareto front"
    results = [[run.result for run in own if run.result] for own in runs]
    for model, own in zip(models, results, strict=True):
        assert model.curves[0].x["gradients"] == [np.mean([one.gradient_evaluations for one in own])]
        np.testing.assert_allclose(
            model.curves[0].y, [100 * np.mean([one.test.robust_accuracy for one in own])]
        )


def test_evaluations_that_cost_much_are_remarked(document: ReportPage) -> None:
    assert any(remark.startswith("Evaluations during training cost") for remark in document.remarks)


def test_one_algorithm_has_no_fair_comparison(store: Path) -> None:
    folder = store / "runs" / "free-4-60"
    assert "fairness" not in {one.key for one in make_document(gather([folder]), [folder]).sections}


def test_pareto_front_holds_what_nothing_beats() -> None:
    assert pareto_front([(3, 0.5), (1, 0.2), (2, 0.6), (1, 0.3), (9, 0.6), (10, 0.7)]) == [3, 2, 5]
    assert pareto_front([]) == []


def test_every_chart_has_its_numbers(document: ReportPage) -> None:
    charts = [b for one in document.sections for b in one.blocks if isinstance(b, LineChart | HeatMap)]
    assert len(charts) > 5
    for chart in charts:
        assert chart.numbers.rows, chart.title
        assert all(len(row) == len(chart.numbers.columns) for row in chart.numbers.rows)


def test_curves_fit_their_panels_and_axes(document: ReportPage) -> None:
    for chart in (b for one in document.sections for b in one.blocks if isinstance(b, LineChart)):
        for curve in (curve for one in chart.series for curve in one.curves):
            assert curve.panel < len(chart.panels)
            assert set(curve.x) >= {axis.key for axis in chart.axes}
            assert all(len(x) == len(curve.y) for x in curve.x.values())
            if chart.panels[curve.panel].log:
                assert all(y is None or y > 0 for y in curve.y)


def test_transfer_matrix_has_sources_in_rows_and_targets_in_columns(
    document: ReportPage, store: Path
) -> None:
    matrix, table = section(document, "transfer").blocks
    assert isinstance(matrix, AccuracyMatrix)
    assert isinstance(table, ReportTable)
    assert {name for name, _ in matrix.rows} == {"free-4-60/seed-0", "vanilla-2-60/seed-0"}
    found = {
        (one.source, one.model): one.robust_accuracy
        for one in gather([store]).evaluations
        if one.source is not None
    }
    for source, values in matrix.rows:
        assert dict(zip(matrix.columns, values, strict=True)) == {
            target: found[source, target] for target in matrix.columns
        }


def test_stability_section_shows_bounds_beside_distances(document: ReportPage) -> None:
    table, paired, distances, differences = section(document, "stability").blocks
    assert isinstance(table, ReportTable)
    assert len(table.rows) == 6
    assert isinstance(paired, ReportTable)
    assert [row[:3] for row in paired.rows] == [["free-4", "vanilla-2", str(n)] for n in (20, 30)]
    assert isinstance(distances, LineChart)
    assert any(curve.limit for one in distances.series for curve in one.curves)
    assert isinstance(differences, LineChart)
    presets = section(document, "explorer").blocks[0].presets  # type: ignore[union-attr]
    assert len(presets) == 6
    assert {"beta", "L", "L_w", "c", "b", "n", "T", "eps"} <= set(presets[0][1])


def test_merged_heat_map_columns_keep_all_images() -> None:
    rng = np.random.default_rng(0)
    rows = [
        GradientRecord(update=k + 1, smallest_so_far=1.0, bins={"0": int(rng.integers(9)), "-3": 1})
        for k in range(101)
    ]
    sums = merged(rows, 40)
    assert len(sums) == 40
    assert sums[-1].update == 101
    images = [sum(sum(row.bins.values()) for row in some) for some in (sums, rows)]
    assert images[0] == images[1]
    assert [row.update for row in merged(rows[:3], 40)] == [1, 2, 3]


def test_failed_checks_come_first_and_every_kind_has_a_reason(document: ReportPage) -> None:
    for block in section(document, "checks").blocks:
        assert isinstance(block, CheckList)
        assert block.reason
        passed = [check.passed for check in block.checks]
        assert passed == sorted(passed)


def test_examples_are_embedded_up_to_the_size_limit(
    store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = gather([store]).examples
    found, left_out = examples_section(files)
    assert found.blocks
    assert left_out == []
    for block in found.blocks:
        assert isinstance(block, ExampleImages)
        assert all(p.source.startswith("data:image/png;base64,") for _, row in block.rows for p in row)
    monkeypatch.setattr("freeat.reports.html.robustness.MAX_IMAGE_SIZE", 10)
    none, left_out = examples_section(files)
    assert none.blocks == []
    assert len(left_out) == len(files)
    assert "no room" in left_out[0]
    (tmp_path / "bad.npz").write_text("no archive")
    assert "bad.npz" in examples_section([ExampleFile(path=tmp_path / "bad.npz")])[1][0]


def stored_examples(path: Path, fooled: int, wrong_when_clean: int = 0) -> Path:
    """Twelve images; the first are wrong without an attack, the next are turned by it, the others stay right."""
    y, predicted = np.zeros(12, int), np.zeros(12, int)
    predicted[: wrong_when_clean + fooled] = 1
    clean = np.arange(12) >= wrong_when_clean
    x = np.full((12, 1, 2, 2), 0.5, np.float32)
    arrays = {"x": x, "delta": x / 5, "y": y, "predicted": predicted, "clean_correct": clean}
    np.savez(path, **arrays, index=np.arange(12), classes=np.array(["cat", "dog"]), format=1)
    return path


def test_examples_open_at_the_smallest_radius_that_fools_a_block(tmp_path: Path) -> None:
    fooled = {8 / 255: 9, 2 / 255: 1, 4 / 255: 8}
    files = [
        ExampleFile(
            path=stored_examples(tmp_path / f"{k}.npz", number), evaluation=stored_evaluation("mine", eps)
        )
        for k, (eps, number) in enumerate(fooled.items())
    ]
    files.append(ExampleFile(path=stored_examples(tmp_path / "strange.npz", 1, wrong_when_clean=3)))
    found, _ = examples_section(files)
    blocks = [block for block in found.blocks if isinstance(block, ExampleImages)]
    assert [(block.caption, block.folded) for block in blocks] == [
        ("mine: pgd-10, L∞ ε = 4/255, test images", False),
        ("strange", False),
        ("mine: pgd-10, L∞ ε = 2/255, test images", True),
        ("mine: pgd-10, L∞ ε = 8/255, test images", True),
    ]
    names = [name for name, _ in blocks[1].rows]
    assert names[0] == "image 3"  # turned by the attack; those wrong without it are not shown
    assert not {"image 0", "image 1", "image 2"} & set(names)


def test_ball_text() -> None:
    assert ball_text("l2", 0.2) == "L2 ε = 0.2"
    assert ball_text("linf", 8 / 255) == "L∞ ε = 8/255"


def test_data_uri_holds_the_pixels() -> None:
    import base64
    import io

    from PIL import Image

    pixels = np.linspace(0, 1, 48).reshape(4, 4, 3)
    data = base64.b64decode(data_uri(pixels).partition(",")[2])
    with Image.open(io.BytesIO(data)) as image:
        np.testing.assert_array_equal(np.asarray(image), np.rint(255 * pixels))


@pytest.mark.parametrize(
    ("change", "said"),
    [({"seed": 7}, "seed 7"), ({"attack": "pgd-2 (α = 0.25)"}, "α = 0.25")],
    ids=["seed", "step"],
)
def test_attacks_that_differ_in_one_setting_have_separate_lines(
    store: Path, change: dict[str, Any], said: str
) -> None:
    measured = [one for one in gather([store]).evaluations if one.source is None and one.split == "test"]
    own = [one for one in measured if one.attack == "pgd-2"]
    evaluations = largest_samples([*own, *(replace(one, **change) for one in own)])
    assert len(evaluations) == 2 * len(largest_samples(own))
    lines = radius_lines(evaluations)
    assert len(lines) == 2
    assert sum(said in line for line in lines) == 1


def test_reproduction_has_claims_tables_and_figures(tmp_path: Path) -> None:
    (tmp_path / "reproduction.json").write_text(json.dumps(reproduction()))
    document = make_document(gather([tmp_path]), [tmp_path])
    assert [one.key for one in document.sections] == [
        "claims",
        "published",
        "figures",
        "explorer",
        "provenance",
    ]
    assert "Of 1 claims" in document.answers[0]
    assert "1 left undecided" in document.answers[0]
    (table,) = section(document, "published").blocks
    assert isinstance(table, ReportTable)
    assert table.rows[0][3] == TableCell(text="31.0 ± 1.0", detail="paper 33.1 ± 0.2 (its columns give 33.2)")
    assert table.rows[1][3] == TableCell(text="–", detail="not published")
    assert "table-4 (too long)" in section(document, "published").lead
    assert "scale “hour” trains cnn on 40 or 60 training images" in section(document, "published").lead
    figures = section(document, "figures").blocks
    assert [block.kind for block in figures] == [
        "line-chart",
        "line-chart",
        "line-chart",
        "table",
        "heat-map",
    ]
    assert isinstance(figures[3], ReportTable)
    assert figures[3].rows == [["free-4", TableCell(text="0.5", detail="[0.4, 0.6]")]]
    (claim,) = section(document, "claims").blocks
    assert isinstance(claim, ClaimBlock)
    assert claim.sentence == "“Free closes the gap.”"
    assert [(tally.label, tally.counts) for tally in claim.tallies] == [
        (
            "measured here",
            [(None, "undecided on the whole; panels:"), (False, "1 refuted"), (None, "1 undecided")],
        ),
        ("published", [(True, "confirmed on the whole; panels:"), (True, "1 confirmed")]),
    ]
    assert [one.passed for one in claim.checks] == [None, False, None, True, True]
    facts = [block for block in section(document, "provenance").blocks if isinstance(block, FactList)]
    assert [name for name, _ in facts[-1].facts] == ["free-4 40", "free-4 60"]
    assert {"commit": "abc", "commits": '["def", "012"]'}.items() <= dict(facts[0].facts).items()


def test_headline_without_runs_uses_studies_or_evaluations(store: Path) -> None:
    found = gather([store / "study"])
    assert "no algorithm trained above chance" in make_document(found, [store]).answers[0]
    (study,) = found.studies
    assert study.summary is not None
    rows = tuple(replace(row, trained=True) for row in study.summary.rows)
    found.studies[:] = [replace(study, summary=replace(study.summary, rows=rows))]
    assert "one of 30 training examples" in make_document(found, [store]).answers[0]
    found = gather([store / "runs" / "free-4-60"])
    of_attacks = make_document(Findings(evaluations=found.evaluations), [store])
    assert any("its lowest of all evaluations here" in sentence for sentence in of_attacks.answers)


def test_comparison_without_runs_is_shown_from_its_document(tmp_path: Path) -> None:
    columns = ("robust_train", "robust_test", "robust_gap", "clean_train", "clean_test", "clean_gap")
    row = AlgorithmSummary(
        algorithm="free-4",
        seeds=(0, 1),
        **dict.fromkeys(columns, MeanStd(mean=0.5, std=0.01)),
        gradient_evaluations=1000,
        seconds=3.0,
        updates=10,
        collapsed=0,
        above_chance=True,
        folders=(),
    )
    failure = FailedRun(run="fast/seed-0", reason="no memory")
    write_comparison(tmp_path, Comparison(algorithms=(row,), failures=(failure,), settings={}))
    document = make_document(gather([tmp_path]), [tmp_path])
    assert "free-4 has the highest robust test accuracy, 50.0 %" in document.answers[0]
    assert document.tables[0].rows[0][1] == "50.0 ± 1.0"
    assert any("fast/seed-0 failed: no memory" in remark for remark in document.remarks)


def test_preset_reproduces_the_bound_of_its_study(document: ReportPage, store: Path) -> None:
    presets = dict(section(document, "explorer").blocks[0].presets)  # type: ignore[union-attr]
    rows = json.loads((store / "study" / "summary.json").read_text())["rows"]
    assert len(rows) == len(presets)
    for row in rows:
        values = presets[f"study: {row['algorithm']}, n = {row['n']}"]
        run = {name: values.pop(name) for name in ("T", "alpha", "m")}
        theorem = row["algorithm"].partition("-")[0]
        assert bound(theorem, Problem(**values), **run).value == pytest.approx(row["bound"]["bound"])


def test_gap_against_n_uses_runs_that_differ_in_n_only(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store / "runs", tmp_path / "runs")
    for seed in (0, 1):
        settings = {"algorithm": "free-4", "seed": seed, "attack": "pgd-2", "eval_size": 32}
        carry_out(tmp_path / "runs" / "other-rate" / f"seed-{seed}", train_size=40, lr=0.01, **settings)
        carry_out(tmp_path / "runs" / "longer" / f"seed-{seed}", train_size=50, updates=30, **settings)

    def lines(folder: Path) -> list[list[str]]:
        chart = section(make_document(gather([folder]), [folder]), "sizes").blocks[0]
        assert isinstance(chart, LineChart)
        return [row[:3] for row in chart.numbers.rows]  # type: ignore[misc, union-attr]

    assert lines(tmp_path / "runs") == lines(store / "runs")
    assert {row[1] for row in lines(store / "runs")} == {"40", "60"}


def test_last_point_on_more_images_is_separate() -> None:
    series: dict[str, Any] = {"label": "free-4", "epochs": [1, 2, 3], "updates": [10, 20, 30]}
    series |= {key: [0.5, 0.4, 0.3] for key in ("train", "test")}
    series["points"] = points(*[(mean, mean, mean) for mean in (0.5, 0.4, 0.3)])

    def drawn(images: list[int]) -> ChartSeries:
        shown = {"data": "cifar10", "norm": "l2", "panel": "", "series": [series | {"images": images}]}
        (figure,) = typed_figures([{"name": "figure-1", "panels": [shown]}])
        chart = figure_chart(figure)
        assert isinstance(chart, LineChart)
        (one,) = chart.series
        return one

    one = drawn([128, 128, 1024])
    assert [(curve.panel, curve.separate, len(curve.y)) for curve in one.curves] == [
        (0, False, 2), (1, False, 2), (2, False, 2), (0, True, 1), (1, True, 1), (2, True, 1),
    ]  # fmt: skip
    assert not any(curve.separate for curve in drawn([128, 128, 128]).curves)


def test_row_names_the_finished_seed(store: Path) -> None:
    (benchmark, *_) = benchmarks_of(gather([store]).runs)
    group = next(group for group in benchmark.groups if len(group.runs) == 2)
    first, second = group.runs
    half = replace(group, runs=[replace(first, result=None), second])
    assert _row(half)[0].detail == "seed 1"  # type: ignore[union-attr]


def test_chance_is_the_share_of_the_largest_class(store: Path) -> None:
    (benchmark, *_) = benchmarks_of(gather([store]).runs)
    group = benchmark.groups[0]
    found = group.finished[0]
    of_ten, of_two = make_classes(*[10] * 10), make_classes(90, 10)
    for classes, low, said in ((of_ten, 0.12, False), (of_ten, 0.08, True), (of_two, 0.85, True)):
        train = replace(found.train, per_class=classes, robust_interval=(low, 0.95), constant_answer=None)
        result = replace(found, train=train)
        only = replace(group, runs=[replace(group.runs[0], result=result)])
        assert any("above chance" in line for line in _about(only)) is said


def test_a_gap_whose_interval_contains_zero_is_called_not_measurable(store: Path) -> None:
    (benchmark, *_) = benchmarks_of(gather([store]).runs)
    group = benchmark.groups[0]
    found = group.finished[0]
    train = replace(found.train, robust_interval=(0.9, 1.0), constant_answer=None)

    def headline(low: float) -> str:
        gap = replace(found.gap, value=0.013, low=low, high=0.04)
        run = replace(group.runs[0], result=replace(found, train=train, gap=gap))
        return _of_benchmark(replace(benchmark, groups=[replace(group, runs=[run])]))

    assert headline(-0.02).endswith("gap that is not measurable (95 % interval -2.0 to 4.0).")
    assert headline(0.001).endswith("gap of 1.3 points (95 % interval 0.1 to 4.0).")


def test_a_constant_answer_is_named_and_its_gap_is_not_compared(store: Path) -> None:
    (benchmark, *_) = benchmarks_of(gather([store]).runs)
    first, second, *_ = benchmark.groups

    def one_run(group: SeedGroup, robust: float, gap: float, constant: int | None) -> SeedGroup:
        found = group.finished[0]
        parts = {
            name: replace(
                getattr(found, name),
                robust_accuracy=robust + (gap if name == "train" else 0.0),
                robust_interval=(robust - 0.02, 1.0),
                per_class=make_classes(*[10] * 10),
                constant_answer=constant,
            )
            for name in ("train", "test")
        }
        result = replace(found, **parts, gap=replace(found.gap, value=gap))
        return replace(group, runs=[replace(group.runs[0], result=result)])

    trained, constant = one_run(first, 0.5, 0.2, None), one_run(second, 0.5, 0.0, 3)
    assert f"{constant.label} gives the same answer to every image: its gap says nothing." in _about(constant)
    said = _of_benchmark(replace(benchmark, groups=[trained, constant]))
    assert trained.label in said
    assert constant.label not in said
    alone = _of_benchmark(replace(benchmark, groups=[constant]))
    assert alone.endswith("no algorithm's robust training accuracy is above chance, so the gaps say nothing.")
