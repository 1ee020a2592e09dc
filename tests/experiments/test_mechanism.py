"""The preset mechanism: four arms that share data, initial weights and batches, and what their differences test."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from freeat.cli.main import run
from freeat.errors import InputError
from freeat.experiments.comparison import comparison_tasks, curves_of, read_comparison
from freeat.experiments.mechanism import SETTINGS, arm_differences, arms_of, pair_of, radius_at
from freeat.files.documents import plain
from freeat.runs.folder import RunFolder
from freeat.runs.run import RunOptions
from freeat.runs.spec import split_settings
from freeat.training.trainer import Stopped
from small_runs import arguments

ARMS = ["vanilla-10", "vanilla-10 weak", "vanilla-10 weak + replay", "free-3"]


def mechanism_arguments(folder: Path, **changes: Any) -> list[str]:
    settings = {"updates": 24, "eval_every": 6, "algorithms": "vanilla-10,free-3", **changes}
    options = ["--preset", "mechanism", "--out", str(folder), "--device", "cpu", "--jobs", "1"]
    return ["compare", *arguments(epochs=None, **settings), *options]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The four arms with two seeds."""
    path = tmp_path_factory.mktemp("mechanism") / "arms"
    assert run([*mechanism_arguments(path, alpha=0.2), "--seeds", "2"]) == 0
    return path


def runs_of(folder: Path, arm: str) -> list[RunFolder]:
    row = next(row for row in read_comparison(folder).algorithms if row.label == arm)
    return [RunFolder(Path(path)) for path in row.folders]


def test_the_four_arms_are_named_in_order(folder: Path) -> None:
    comparison = read_comparison(folder)
    assert [row.label for row in comparison.algorithms] == ARMS
    assert [row.seeds for row in comparison.algorithms] == [(0, 1)] * 4
    assert {row.updates for row in comparison.algorithms} == {24}


def test_arms_share_data_initial_weights_and_evaluation(folder: Path) -> None:
    for seed in (0, 1):
        about = [runs_of(folder, arm)[seed].description for arm in ARMS]
        assert len({one.data.digest for one in about}) == 1
        assert len({one.initial_weights for one in about}) == 1
        assert {one.evaluation.radius(one.spec) for one in about} == {0.5}
        assert {(one.spec.batch_size, one.spec.sampling, one.spec.seed) for one in about} == {
            (16, "epochs", seed)
        }


def shares_of(folder: Path) -> list[float]:
    """The strengths of the run in a folder after its first update, one of each update."""
    by_update = {record.update: record.strength for record in RunFolder(folder).history()}
    assert len(by_update) > 4
    return [strength.margin_share for update, strength in by_update.items() if update > 0 and strength]


def test_weak_arms_train_where_a_calibration_and_vanilla_have_the_strength_of_free(folder: Path) -> None:
    found = read_comparison(folder).mechanism
    assert found is not None
    shares = {arm: [s for one in runs_of(folder, arm) for s in shares_of(one.path)] for arm in ARMS}
    free, vanilla = (sum(shares[arm]) / len(shares[arm]) for arm in (ARMS[3], ARMS[0]))
    calibration = found.weak.calibration
    assert calibration is not None
    assert found.weak.strength == pytest.approx(free)
    assert calibration.vanilla == pytest.approx(vanilla)
    assert found.weak.seeds == (0, 1)
    assert calibration.seed == 0
    assert calibration.radius == pytest.approx(0.5 * free / vanilla, rel=1e-3)
    tried = shares_of(folder / "runs" / f"vanilla-10-weak-calibration-{calibration.radius:g}" / "seed-0")
    assert calibration.strength == pytest.approx(sum(tried) / len(tried))
    assert found.weak.radius == radius_at(
        free, (calibration.radius, calibration.strength), (0.5, calibration.vanilla)
    )
    for arm, replay in zip(ARMS[1:3], (1, 3), strict=True):
        for one in runs_of(folder, arm):
            spec = one.description.spec
            assert (spec.eps, spec.replay, spec.algorithm) == (found.weak.radius, replay, "vanilla-10")
            assert spec.alpha == pytest.approx(0.2 * found.weak.radius / 0.5)
    assert {one.description.spec.replay for one in runs_of(folder, "vanilla-10")} == {1}


def test_weak_vanilla_is_as_strong_as_free(folder: Path) -> None:
    vanilla, weak, replay, free = (row.strength for row in read_comparison(folder).algorithms)
    assert vanilla is not None
    assert weak is not None
    assert replay is not None
    assert free is not None
    assert weak.margin_share < vanilla.margin_share
    assert weak.margin_share == pytest.approx(free.margin_share, rel=0.1)
    assert replay.margin_share == pytest.approx(free.margin_share, rel=0.15)


@pytest.mark.parametrize("power", [0.5, 1.0, 1.3, 2.0])
def test_strength_is_read_as_a_power_of_the_radius(power: float) -> None:
    points = [(radius, 0.9 * radius**power) for radius in (0.2, 0.6)]
    assert radius_at(0.9 * 0.31**power, points[0], points[1]) == pytest.approx(0.31, rel=1e-3)


def test_points_that_nearly_coincide_give_no_far_radius() -> None:
    assert radius_at(0.5, (0.6, 0.4), (0.6, 0.6)) == pytest.approx(0.75, rel=1e-3)
    assert radius_at(0.5, (0.6, 0.4), (0.601, 0.39)) == pytest.approx(0.6 * 1.25**2, rel=1e-3)


def test_weak_radius_follows_the_radius_that_strength_is_relative_to(tmp_path: Path) -> None:
    assert run([*mechanism_arguments(tmp_path / "arms", eps=0.25, eval_eps=0.5), "--seeds", "1"]) == 0
    comparison = read_comparison(tmp_path / "arms")
    found = comparison.mechanism
    assert found is not None
    assert found.weak.calibration is not None
    assert found.weak.eps == 0.5
    assert found.weak.calibration.radius == pytest.approx(
        0.25 * found.weak.strength / found.weak.calibration.vanilla, rel=1e-3
    )
    calibration = RunFolder(
        tmp_path / "arms" / "runs" / f"vanilla-10-weak-calibration-{found.weak.calibration.radius:g}/seed-0"
    )
    assert calibration.description.evaluation.eval_eps == 0.5


def test_a_comparison_stopped_after_its_calibration_finds_the_same_radius(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "arms"
    with monkeypatch.context() as patched:
        patched.setattr("freeat.experiments.comparison.resolve_mechanism", stop)
        with pytest.raises(Stopped):
            run([*mechanism_arguments(path), "--seeds", "1"])
    (calibration,) = (path / "runs").glob("*-calibration-*")
    weights = (calibration / "seed-0" / "model.safetensors").stat().st_mtime_ns
    assert run([*mechanism_arguments(path), "--seeds", "1"]) == 0
    assert list((path / "runs").glob("*-calibration-*")) == [calibration]
    assert (calibration / "seed-0" / "model.safetensors").stat().st_mtime_ns == weights
    found = read_comparison(path).mechanism
    assert found is not None
    assert found.weak.calibration is not None
    assert calibration.name == f"vanilla-10-weak-calibration-{found.weak.calibration.radius:g}"


def stop(*_: Any) -> None:
    raise Stopped("stopped as asked")


def test_each_difference_says_what_it_tests(folder: Path) -> None:
    comparison = read_comparison(folder)
    assert comparison.mechanism is not None
    differences = comparison.mechanism.differences
    assert [(one.arm, one.reference) for one in differences] == list(zip(ARMS[1:], ARMS, strict=False))
    last = differences[-1]
    assert last.tests == "the simultaneous update"
    results = [[one.result for one in runs_of(folder, arm)] for arm in (ARMS[3], ARMS[2])]
    gaps = [[result.gap.value for result in own if result] for own in results]
    expected = sum(a - b for a, b in zip(*gaps, strict=True)) / 2
    assert last.robust_gap.value == pytest.approx(expected)
    assert last.robust_gap.low is not None
    table = (folder / "table.md").read_text(encoding="utf-8")
    assert "| free-3 | vanilla-10 weak + replay | the simultaneous update |" in table
    assert "| vanilla-10 weak + replay |" in table
    assert "The weak arms train at ε" in table
    assert "free-3 minus vanilla-10 weak + replay (the simultaneous update): " in table


@pytest.mark.parametrize("missing", ARMS)
def test_a_missing_arm_gives_no_difference_to_another(folder: Path, missing: str) -> None:
    training, evaluation = split_settings({})
    options = RunOptions(folder=folder)
    (task,) = comparison_tasks(training, evaluation, ["free-3"], [0], options)
    found = {
        arm: [
            replace(task, spec=one.spec, options=replace(options, folder=one.path))
            for one in runs_of(folder, arm)
        ]
        for arm in ARMS
    }
    whole = arm_differences(found)
    left = [one for one in whole if missing not in (one.arm, one.reference)]
    assert len(whole) == 3
    assert list(arm_differences(found | {missing: []})) == left


@pytest.mark.parametrize("budget", ["gradients", "seconds"])
def test_arms_of_unequal_updates_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], budget: str
) -> None:
    assert run([*mechanism_arguments(tmp_path / "arms"), "--budget", budget]) == 2
    assert "leave --budget out" in capsys.readouterr().err
    assert not (tmp_path / "arms").exists()


def test_arms_with_an_average_have_the_numbers_of_the_average(tmp_path: Path) -> None:
    args = mechanism_arguments(tmp_path / "ema", alpha=0.2, eval_every=12, lr=0.5)
    assert run([*args, "--seeds", "1", "--with", "ema=0.98"]) == 0
    comparison = read_comparison(tmp_path / "ema")
    assert [row.label for row in comparison.algorithms] == [
        *arms_of("vanilla-10 + ema 0.98", "free-3 + ema 0.98")
    ]
    found = []
    for row in comparison.algorithms:
        result = RunFolder(Path(row.folders[0])).result
        assert result is not None
        assert result.ema is not None
        assert row.robust_gap.mean == result.ema.gap.value
        found.append((result.gap.value, result.ema.gap.value))
    assert any(last != averaged for last, averaged in found)
    assert comparison.mechanism is not None
    differences = [one.robust_gap.value for one in comparison.mechanism.differences]
    averaged = [one for _, one in found]
    assert differences == pytest.approx([b - a for a, b in pairwise(averaged)])


def test_the_radius_stays_when_seeds_join(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_comparison(folder).mechanism
    assert run([*mechanism_arguments(folder, alpha=0.2), "--seeds", "3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert before is not None
    assert document["mechanism"]["weak"] == json.loads(json.dumps(plain(before.weak)))
    assert [row["seeds"] for row in document["algorithms"]] == [[0, 1, 2]] * 4
    assert document["algorithms"][3]["strength"]["margin_share"] > 0


def test_another_comparison_in_its_folder_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [one for one in mechanism_arguments(folder, alpha=0.2) if one not in ("--preset", "mechanism")]
    assert run([*args, "--seeds", "2", "--strength"]) == 2
    assert "other settings (preset)" in capsys.readouterr().err


def test_curves_of_slow_weights_hold_no_fast_ones(tmp_path: Path) -> None:
    """With slow weights from half of the training on, best minus last and gaps at equal fit are of these alone."""
    args = ["compare", *arguments(updates=16, eval_every=2, lr=0.5), "--seeds", "2", "--device", "cpu"]
    args += ["--algorithms", "fast", "--with", "none,proximal=0.1,ema=0.5", "--jobs", "1"]
    assert run([*args, "--out", str(tmp_path / "slow")]) == 0
    comparison = read_comparison(tmp_path / "slow")
    rows = {row.weights: row for row in comparison.algorithms}
    histories = [list(RunFolder(Path(path)).history()) for path in rows["slow"].folders]
    slow = [record for record in histories[0] if record.slow is not None]
    assert {record.update for record in slow} == {8, 10, 12, 14, 16}
    own = [[r.slow.test.robust_accuracy for r in one if r.slow is not None] for one in histories]
    for curve, shown in zip(curves_of(rows["slow"]), own, strict=True):
        assert [record.test.robust_accuracy for record in curve] == shown
    assert min(record.update for curve in curves_of(rows["ema"]) for record in curve) == 0
    for weights, points in (("slow", 5), ("ema", 9), ("model", 9)):
        curves = rows[weights].curves
        assert curves is not None
        assert curves.evaluations == points
        assert curves.robust_overfitting is not None
        assert curves.robust_overfitting.evaluations == points


def test_free_alone_is_compared_with_vanilla_10() -> None:
    assert pair_of(["free-8"]) == ("vanilla-10", "free-8")
    assert pair_of(["free-trades"]) == ("trades-10", "free-trades-4")
    assert pair_of(["free", "vanilla-7"]) == ("vanilla-7", "free-4")
    assert arms_of("vanilla-10", "free-4")[2] == "vanilla-10 weak + replay"


@pytest.mark.parametrize(
    "names",
    [["fast"], ["vanilla-10"], ["fast", "free-4"], ["trades-10", "free-4"], ["vanilla", "free-2", "free-4"]],
    ids=str,
)
def test_other_algorithms_are_refused(names: list[str]) -> None:
    with pytest.raises(InputError, match="name one Vanilla and one Free with the same objective"):
        pair_of(names)


def test_the_preset_measures_strength() -> None:
    settings = {name: value for name, value in SETTINGS.items() if name not in ("algorithms", "seeds")}
    _, evaluation = split_settings(settings)
    assert evaluation.strength
