"""Comparisons: the tasks, and mean and spread of what comes out of them."""

import json
import shutil
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from freeat.cli.compare import parse_seeds
from freeat.cli.main import run
from freeat.compute.machine import provenance
from freeat.errors import InputError
from freeat.evaluation.evaluator import Scores
from freeat.evaluation.matched import paired_difference
from freeat.experiments.comparison import (
    PRESETS,
    Comparison,
    FailedRun,
    check_folder,
    check_tasks,
    comparison_tasks,
    preset_settings,
    read_comparison,
    summarize,
    write_comparison,
)
from freeat.experiments.tasks import TrainTask
from freeat.files.documents import plain
from freeat.reports.html.blocks import FactList
from freeat.reports.html.gather import gather
from freeat.reports.html.page import make_document
from freeat.reports.tables import percent_interval
from freeat.reports.text import remarks
from freeat.runs.build import build_data
from freeat.runs.folder import RunFolder, RunResult
from freeat.runs.run import RunOptions
from freeat.runs.spec import EvalSpec, TrainSpec, split_settings
from freeat.tasks import EndedTask
from freeat.training.records import Callbacks
from made_records import make_classes, make_record, make_result, make_summary
from small_runs import SMALL_RUN, noise_file

RESULTS = Path(__file__).parents[2] / "results"


def tasks(algorithms: list[str], seeds: list[int], **settings: Any) -> list[Any]:
    training, evaluation = split_settings(settings)
    return comparison_tasks(training, evaluation, algorithms, seeds, RunOptions(folder=Path("out")))


def test_one_task_per_algorithm_and_seed_most_costly_first() -> None:
    made = tasks(["erm", "vanilla-10", "fast", "trades-10"], [0, 3], lr=0.5)
    assert [task.spec.algorithm for task in made[::2]] == ["trades-10", "vanilla-10", "fast", "erm"]
    assert [task.spec.seed for task in made[:2]] == [0, 3]
    assert {task.spec.lr for task in made} == {0.5}
    assert made[0].options.folder == Path("out/runs/trades-10/seed-0")
    assert len({task.options.folder for task in made}) == 8


def test_repeated_algorithms_and_seeds_give_one_task() -> None:
    assert len(tasks(["free", "free-4", "FREE-4"], [1, 1])) == 1


def test_friendly_step_size_follows_the_evaluation_radius() -> None:
    friendly, fast = tasks(["friendly", "fast"], [0], eps="16/255", eval_eps="8/255")
    assert friendly.spec.alpha == 2 / 255
    assert fast.spec.alpha is None


def result(train: float, test: float, **changes: Any) -> RunResult:
    parts = [make_summary(robust, robust + 0.1, n=200) for robust in (train, test)]
    return make_result(make_record(*parts, update=10, **changes), notes=("from digits",))


@dataclass(frozen=True, kw_only=True)
class InventedRun(TrainTask):
    """A run whose result is invented."""

    invented: RunResult

    def result(self) -> RunResult:
        return self.invented


def done_with(task: TrainTask, result: RunResult) -> EndedTask[TrainTask]:
    return EndedTask(task=InventedRun(**vars(task), invented=result))


def test_mean_and_standard_deviation_over_the_seeds() -> None:
    vanilla, other, fast = tasks(["vanilla-2", "fast"], [0, 1])[:3]
    done = [
        done_with(other, result(0.7, 0.5, collapsed=True)),
        done_with(vanilla, result(0.9, 0.5)),
        EndedTask(task=fast, failure="no memory"),
    ]
    summary = summarize(done, ["fast", "vanilla-2"])
    (row,) = summary.algorithms
    assert row.seeds == (0, 1)
    assert asdict(row.robust_train) == pytest.approx({"mean": 0.8, "std": 0.2 / 2**0.5})
    assert row.robust_gap.mean == pytest.approx(0.3)
    assert row.collapsed == 1
    assert row.above_chance
    assert summary.failures == (FailedRun(run=fast.name, reason="no memory"),)
    assert summary.notes == ("from digits",)


def test_algorithms_are_summarized_in_the_order_given() -> None:
    made = tasks(["erm", "vanilla-2"], [0])
    summary = summarize([done_with(task, result(0.5, 0.4)) for task in made], ["erm", "vanilla-2"])
    assert [row.algorithm for row in summary.algorithms] == ["erm", "vanilla-2"]
    assert summary.algorithms[0].robust_gap.std is None


def test_run_at_chance_is_marked() -> None:
    (task,) = tasks(["fast"], [0])
    assert not summarize([done_with(task, result(0.14, 0.1))], ["fast"]).algorithms[0].above_chance


@pytest.mark.parametrize(("sizes", "learnt"), [([180, 20], False), ([20] * 10, True)])
def test_chance_is_the_share_of_the_largest_class(sizes: list[int], learnt: bool) -> None:
    (task,) = tasks(["fast"], [0])
    found = result(0.9, 0.9)
    parts = {
        name: replace(getattr(found, name), per_class=make_classes(*sizes)) for name in ("train", "test")
    }
    (row,) = summarize([done_with(task, replace(found, **parts))], ["fast"]).algorithms
    assert row.above_chance is learnt


def test_runs_with_a_constant_answer_are_counted() -> None:
    first, second = tasks(["fast"], [0, 1])
    found = result(0.9, 0.9)
    parts = {name: replace(getattr(found, name), constant_answer=1) for name in ("train", "test")}
    done = [done_with(first, replace(found, **parts)), done_with(second, found)]
    (row,) = summarize(done, ["fast"]).algorithms
    assert (row.above_chance, row.constant_answers) == (False, 1)


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", [0, 1, 2]), ("4,7", [4, 7]), ("4,", [4]), ("0,", [0]), ("1", [0])]
)
def test_seeds_are_counted_or_named(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["0", "-1", "", ",", "a", "1.5", "0,-1"])
def test_bad_seeds_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--seeds"):
        parse_seeds(text)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_specs(name: str) -> None:
    settings = dict(PRESETS[name])
    algorithms, seeds = settings.pop("algorithms").split(","), parse_seeds(settings.pop("seeds"))
    training, evaluation = split_settings(settings)
    made = comparison_tasks(training, evaluation, algorithms, seeds, RunOptions(folder=Path("out")))
    assert len(made) == len(algorithms) * len(seeds)
    assert isinstance(training, TrainSpec)
    assert isinstance(evaluation, EvalSpec)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_gives_way_to_what_replaces_its_settings(name: str) -> None:
    assert preset_settings(name, {}) == preset_settings(name, {"norm": "L2", "seed": 1}) == PRESETS[name]
    own = {"norm": "linf", "updates": 5}
    training, _ = split_settings(
        {n: v for n, v in (preset_settings(name, own) | own).items() if n not in ("algorithms", "seeds")}
    )
    assert (training.norm, training.eps, training.updates, training.epochs) == ("linf", 8 / 255, 5, None)


def test_bad_tasks_are_refused_before_any_begins(tmp_path: Path) -> None:
    def small(**changes: Any) -> list[Any]:
        training, evaluation = split_settings({**SMALL_RUN, **changes})
        options = RunOptions(folder=tmp_path, device="cpu")
        return comparison_tasks(training, evaluation, ["fast", "free-4"], [0], options)

    check_tasks(small())
    for changes, message in (
        ({"model": "no-such-net"}, "unknown model"),
        ({"coefficient": 2}, "no algorithm of fast, free-4 takes it"),
        ({"train_size": 5000}, "exceeds"),
        ({"norm": "linf", "eps": 8}, "write 8/255"),
    ):
        with pytest.raises(InputError, match=message):
            check_tasks(small(**changes))
    with pytest.raises(InputError, match="unknown device"):
        check_tasks([replace(task, options=replace(task.options, device="abacus")) for task in small()])
    assert not list(tmp_path.iterdir())


def test_the_estimate_counts_the_evaluations_of_each_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At equal gradient evaluations, the shares of two tasks are those of each alone."""
    monkeypatch.setattr("freeat.training.trainer._seconds_per_gradient", lambda trainer: 1e-3)
    made = [
        replace(task, options=replace(task.options, folder=tmp_path / str(task.spec.updates)))
        for updates, every in ((110, 10), (10, 1), (30, 10))
        for task in small_tasks(tmp_path, updates=updates, eval_every=every, proximal=0.1, proximal_from=0.5)
    ]
    alone = [check_tasks([task], 1) for task in made]
    together = check_tasks(made, 1)
    assert together is not None
    assert together.seconds == pytest.approx(
        sum(plan.seconds for plan in alone if plan is not None and plan.seconds)
    )


def small_tasks(folder: Path, **changes: Any) -> list[Any]:
    training, evaluation = split_settings({**SMALL_RUN, **changes})
    return comparison_tasks(training, evaluation, ["fast"], [0], RunOptions(folder=folder, device="cpu"))


def test_runs_on_changed_data_are_refused(tmp_path: Path) -> None:
    noise_file(tmp_path / "mine.npz", 3, seed=0)
    settings = {**SMALL_RUN, "data": str(tmp_path / "mine.npz"), "train_size": None}
    training, evaluation = split_settings(
        {name: value for name, value in settings.items() if value is not None}
    )
    made = comparison_tasks(
        training, evaluation, ["erm", "fast"], [0], RunOptions(folder=tmp_path / "out", device="cpu")
    )
    made[0].run(Callbacks(), lambda: False)
    check_tasks(made)
    noise_file(tmp_path / "mine.npz", 3, seed=1)
    with pytest.raises(InputError, match=r"the data are not those .* was begun with"):
        check_tasks(made)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    check_folder(tmp_path / "new", {"lr": 0.1})
    check_folder(tmp_path, {"lr": 0.1})
    (tmp_path / "runs").mkdir()  # an interrupted comparison
    check_folder(tmp_path, {"lr": 0.1})
    (tmp_path / "run.json").touch()
    with pytest.raises(InputError, match="not a comparison"):
        check_folder(tmp_path, {"lr": 0.1})
    with pytest.raises(InputError, match="not a comparison"):
        check_folder(tmp_path / "run.json", {"lr": 0.1})


def test_comparison_in_other_settings_is_refused(tmp_path: Path) -> None:
    write_comparison(tmp_path, Comparison(algorithms=(), settings={"lr": 0.1, "eps": 0.3}))
    check_folder(tmp_path, {"lr": 0.1, "eps": 0.3})
    with pytest.raises(InputError, match=r"other settings \(lr\)"):
        check_folder(tmp_path, {"lr": 0.2, "eps": 0.3})


def test_parts_make_runs_of_their_own_and_an_average_shares_one() -> None:
    made = tasks(["fast", "fast+ema", "fast+awp", "free-4+awp=0.005+ema"], [0], updates=4)
    assert [task.name for task in made] == [
        "fast + awp/seed-0",
        "fast + ema/seed-0",
        "free-4 + awp 0.005 + ema/seed-0",
    ]
    assert [str(task.options.folder.relative_to("out/runs")) for task in made] == [
        "fast-awp/seed-0",
        "fast-ema/seed-0",
        "free-4-awp-0.005-ema/seed-0",
    ]


def test_averaged_weights_have_a_row_and_slow_weights_that_of_their_run() -> None:
    names = ["fast", "fast+ema", "fast+swa"]
    averaged, swa = tasks(names, [0], updates=4)
    names_of = [field.name for field in fields(Scores)]
    scores = {
        name: Scores(**{field: getattr(result(0.5, robust), field) for field in names_of})
        for name, robust in (("ema", 0.4), ("slow", 0.3))
    }
    found = result(0.5, 0.2)
    done = [
        done_with(swa, replace(found, slow=scores["slow"])),
        done_with(averaged, replace(found, ema=scores["ema"])),
    ]
    summary = summarize(done, names)
    assert [(row.label, row.weights, row.robust_test.mean) for row in summary.algorithms] == [
        ("fast", "model", 0.2),
        ("fast + ema", "ema", 0.4),
        ("fast + swa", "slow", 0.3),
    ]
    assert [(one.arm, one.reference, one.tests, one.robust_test.value) for one in summary.parts] == [
        ("fast + ema", "fast", "ema", pytest.approx(0.2)),
        ("fast + swa", "fast", "swa", pytest.approx(0.1)),
    ]


def test_two_averages_of_the_same_training_share_the_row_without_one() -> None:
    names = ["fast+ema=0.99", "fast+ema=0.9"]
    made = tasks(names, [0], updates=4)
    found = result(0.5, 0.2)
    scores = Scores(**{field.name: getattr(found, field.name) for field in fields(Scores)})
    summary = summarize([done_with(task, replace(found, ema=scores)) for task in made], names)
    assert [row.label for row in summary.algorithms] == ["fast", "fast + ema 0.99", "fast + ema 0.9"]
    assert [one.tests for one in summary.parts] == ["ema 0.99", "ema 0.9"]


def test_the_shared_row_is_that_of_the_runs_with_most_seeds() -> None:
    made = tasks(["fast+ema=0.99", "fast+ema=0.9"], [0, 1])
    average = make_record(*[make_summary(0.5, 0.5, n=200)] * 2)
    done = [done_with(task, replace(result(0.5, 0.4), ema=average)) for task in made]
    lost = [(task.spec.ema, task.spec.seed) for task in made].index((0.99, 1))
    done[lost] = replace(done[lost], failure="lost")
    rows = {row.label: row for row in summarize(done, ["fast+ema=0.99", "fast+ema=0.9"]).algorithms}
    assert {label: row.seeds for label, row in rows.items()} == {
        "fast": (0, 1),
        "fast + ema 0.99": (0,),
        "fast + ema 0.9": (0, 1),
    }


@pytest.mark.parametrize(
    ("setting", "algorithm"), [({"awp": 0.01}, "fast+awp=0"), ({"ema": 0.999}, "fast+ema=0.9")]
)
def test_a_part_of_one_algorithm_that_is_set_for_all_is_refused(
    setting: dict[str, float], algorithm: str
) -> None:
    with pytest.raises(InputError, match="holds for every run and 'fast"):
        tasks(["fast", algorithm], [0], **setting)


def test_the_difference_of_two_values_of_a_part_names_both() -> None:
    names = ["fast+awp", "fast+awp=0.005", "fast+awp=0.005+ema"]
    made = tasks(names, [0], updates=4)
    found = result(0.5, 0.2)
    scores = Scores(**{field.name: getattr(found, field.name) for field in fields(Scores)})
    done = [done_with(task, replace(found, ema=scores if task.spec.ema else None)) for task in made]
    parts = summarize(done, names).parts
    assert [(one.arm, one.reference, one.tests) for one in parts] == [
        ("fast + awp 0.005", "fast + awp", "awp 0.005 instead of awp"),
        ("fast + awp 0.005 + ema", "fast + awp", "awp 0.005 + ema instead of awp"),
    ]


def test_a_part_that_is_off_is_no_run_of_its_own() -> None:
    assert len(tasks(["fast", "fast+awp=0", "fast+label-smoothing=0"], [0], updates=4)) == 1


def test_a_collapse_is_said_once_and_of_the_last_weights() -> None:
    names = ["fast", "fast+ema", "fast+swa"]
    averaged, swa = tasks(names, [0], updates=4)
    found = replace(result(0.5, 0.2), collapsed=True)
    scores = Scores(**{field.name: getattr(found, field.name) for field in fields(Scores)})
    done = [done_with(swa, replace(found, slow=scores)), done_with(averaged, replace(found, ema=scores))]
    assert [line for line in remarks(summarize(done, names)) if "collapsed" in line] == [
        "fast collapsed (catastrophic overfitting) in 1 of 1 runs.",
        "the last weights of fast + swa collapsed (catastrophic overfitting) in 1 of 1 runs.",
    ]


def test_parts_are_compared_with_the_same_algorithm_without_paired_by_seed() -> None:
    names = ["fast", "fast+awp", "erm", "free-4+awp"]
    robust = {("fast", 0): 0.3, ("fast", 1): 0.4, ("fast + awp", 0): 0.36, ("fast + awp", 1): 0.44}
    done = [
        done_with(task, result(0.5, robust.get((task.spec.label, task.spec.seed), 0.2)))
        for task in tasks(names, [0, 1], updates=4)
    ]
    (found,) = summarize(done, names).parts
    assert (found.arm, found.reference, found.tests, found.seeds) == ("fast + awp", "fast", "awp", (0, 1))
    assert found.robust_test.value == pytest.approx(0.05)
    assert found.robust_gap.value == pytest.approx(-0.05)
    assert found.robust_gap.low is not None
    assert found.matched_gap is None


def test_algorithms_are_compared_with_the_first_paired_by_seed() -> None:
    names = ["fast", "erm", "free-4"]
    robust = {("fast", 0): 0.3, ("fast", 1): 0.4, ("erm", 0): 0.21, ("erm", 1): 0.27, ("free-4", 1): 0.44}
    done = [
        done_with(task, result(0.5, robust[task.spec.algorithm, task.spec.seed]))
        for task in tasks(names, [0, 1], updates=4)
        if (task.spec.algorithm, task.spec.seed) in robust
    ]
    found = summarize(done, names)
    assert found.parts == ()
    erm, free = found.differences
    assert (erm.arm, erm.reference, erm.tests, erm.seeds) == ("erm", "fast", "the algorithm", (0, 1))
    assert erm.robust_test == paired_difference(np.array([0.21, 0.27]), np.array([0.3, 0.4]))
    assert erm.robust_gap.value == pytest.approx(0.11)
    assert erm.robust_gap.low is not None
    assert (free.arm, free.seeds, free.robust_gap.low) == ("free-4", (1,), None)
    assert free.robust_test.value == pytest.approx(0.04)


def test_parts_take_the_place_of_differences_between_algorithms() -> None:
    names = ["fast", "fast+awp", "erm"]
    done = [done_with(task, result(0.5, 0.2)) for task in tasks(names, [0, 1], updates=4)]
    found = summarize(done, names)
    assert (len(found.parts), found.differences) == (1, ())


def test_differences_between_algorithms_are_in_the_table_the_document_and_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "compared"
    command = ["compare", "--data", "digits", "--train-size", "200", "--model", "mlp-w8", "--norm", "l2"]
    command += ["--eps", "0.3", "--epochs", "20", "--seeds", "2", "--eval-every", "10", "--eval-size", "80"]
    command += ["--final-size", "80", "--jobs", "1", "--out", str(out), "--algorithms", "fast,free-2"]
    assert run(command) == 0
    assert "paired differences" not in capsys.readouterr().out
    assert run([*command, "--verbose"]) == 0
    printed = capsys.readouterr().out
    assert "paired differences in points" in printed
    (stored,) = read_comparison(out).differences
    assert (stored.arm, stored.reference, stored.seeds) == ("free-2", "fast", (0, 1))
    assert stored.matched_gap is not None
    (row,) = (row for row in read_comparison(out).algorithms if row.label == "free-2")
    assert row.curves is not None
    assert stored.matched_gap == row.curves.matched_gap
    value, low, high = stored.robust_gap.value, stored.robust_gap.low, stored.robust_gap.high
    assert low is not None
    assert high is not None
    gap = f"{100 * value:+.1f} {percent_interval(low, high)}"
    table = (out / "table.md").read_text(encoding="utf-8")
    assert f"| free-2 | fast | the algorithm | {gap} |" in table
    assert gap in printed
    document = make_document(gather([out]), [out])
    (shown,) = (table for table in document.tables if "minus" in table.columns)
    assert shown.rows[0][:4] == ["free-2", "fast", "the algorithm", gap]


def test_a_comparison_stores_its_provenance_and_the_report_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "compared"
    command = ["compare", "--data", "digits", "--train-size", "40", "--model", "mlp-w8", "--norm", "l2"]
    command += ["--eps", "0.3", "--updates", "2", "--seeds", "1", "--jobs", "1", "--device", "cpu"]
    assert run([*command, "--algorithms", "erm", "--json", "--out", str(out)]) == 0
    expected = provenance(torch.device("cpu"))
    assert read_comparison(out).provenance == expected
    assert json.loads(capsys.readouterr().out)["provenance"] == plain(expected)
    shutil.rmtree(out / "runs")  # their own provenance
    (section,) = (one for one in make_document(gather([out]), [out]).sections if one.key == "provenance")
    (block,) = (one for one in section.blocks if isinstance(one, FactList))
    facts = dict(block.facts)
    assert (facts.get("commit"), facts["command"]) == (expected.commit, expected.command)
    assert "eps: 0.3" in facts["settings"]


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("comparison.json")), ids=lambda path: path.parent.name)
def test_stored_comparisons_stay_readable(path: Path) -> None:
    assert read_comparison(path.parent).algorithms


def test_seeds_share_the_split_of_a_folder_without_a_test_split(tmp_path: Path) -> None:
    for label, name in enumerate(("cat", "dog")):
        for i in range(12):
            path = tmp_path / "pets" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((8, 8, 3), 20 * i + label, np.uint8)).save(path)
    command = [
        "compare",
        "--data",
        str(tmp_path / "pets"),
        "--model",
        "mlp-w8",
        "--norm",
        "l2",
        "--eps",
        "0.3",
    ]
    command += [
        "--updates",
        "2",
        "--batch-size",
        "8",
        "--algorithms",
        "fast,erm",
        "--seeds",
        "2",
        "--jobs",
        "1",
    ]
    assert run([*command, "--device", "cpu", "--out", str(tmp_path / "out")]) == 0
    folders = [
        RunFolder(Path(path)) for row in read_comparison(tmp_path / "out").algorithms for path in row.folders
    ]
    assert [folder.spec.seed for folder in folders] == [0, 1, 0, 1]
    assert len({folder.description.data.digest for folder in folders}) == 1
    splits = [build_data(folder.spec, data_dir=None) for folder in folders]
    for split in splits[1:]:
        assert torch.equal(split.test.x, splits[0].test.x)
        assert torch.equal(split.train.x, splits[0].train.x)
    assert len({split.digest for split in splits}) == 1


def test_a_comparison_of_parts_is_a_table_and_a_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", "--data", "digits", "--train-size", "40", "--model", "mlp-w8", "--norm", "l2"]
    command += ["--eps", "0.3", "--updates", "6", "--seeds", "2", "--eval-every", "2", "--eval-size", "20"]
    command += ["--final-size", "20", "--jobs", "1", "--out", str(tmp_path / "parts")]
    assert run([*command, "--algorithms", "fast,erm", "--with", "none,label-smoothing"]) == 0
    assert "| fast + label-smoothing | fast | label-smoothing |" in (tmp_path / "parts/table.md").read_text(
        encoding="utf-8"
    )
    assert (tmp_path / "parts/parts.png").stat().st_size > 1000
    assert "parts.png" in capsys.readouterr().out
