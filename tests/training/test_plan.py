"""What a training will take: counted as it will be, timed without changing a bit, and printed in the first line."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from freeat.cli.main import run
from freeat.cli.progress import plan_lines, short_count
from freeat.compute import machine
from freeat.compute.machine import CpuClock, resolve_threads, usable_cores
from freeat.experiments.comparison import check_tasks, comparison_tasks
from freeat.learner.distributed import SINGLE_PROCESS
from freeat.models import network_for
from freeat.runs.folder import RunFolder
from freeat.runs.run import RunOptions, assemble, execute
from freeat.runs.spec import split_settings
from freeat.training.trainer import Plan, plan_training
from small_runs import SMALL_RUN, arguments, carry_out, outcome

PLAN = Plan(
    network="resnet18",
    parameters=11_173_962,
    updates=78_200,
    evaluations=21,
    gradient_evaluations=1e7,
    seconds=26 * 3600,
    threads=2,
)


PARTS: dict[str, dict[str, Any]] = {
    "none": {},
    "awp": {"awp": 0.01},
    "awp for a half": {"awp": 0.01, "awp_from": 0.5},
    "slow": {"proximal": 0.1, "proximal_from": 0.0, "proximal_every": 0.3},
    "slow from a half on": {"proximal": 0.1, "proximal_every": 0.3},
    "two averages": {"ema": 0.9, "swa": True, "proximal_from": 0.0, "proximal_every": 0.3},
}


@pytest.mark.parametrize("parts", PARTS)
def test_a_plan_counts_what_the_run_then_does_and_changes_no_bit(tmp_path: Path, parts: str) -> None:
    plans: list[Plan] = []
    options = RunOptions(folder=tmp_path / "planned", device="cpu")
    result = execute(*split_settings({**SMALL_RUN, **PARTS[parts]}), options, announce=plans.append)
    carry_out(tmp_path / "plain", **PARTS[parts])
    (plan,) = plans
    assert result is not None
    assert outcome(tmp_path / "planned") == outcome(tmp_path / "plain")
    history = list(RunFolder(tmp_path / "planned").history())
    assert (plan.network, plan.updates, plan.evaluations) == ("mlp-w12", result.update, len(history))
    spent = result.gradient_evaluations + sum(
        split.cost.total
        for record in history
        for scores in (record, record.ema, record.slow)
        if scores is not None
        for split in scores.splits.values()
    )
    spent += sum(record.one_step.cost.total for record in history if record.one_step is not None)
    assert plan.gradient_evaluations == pytest.approx(spent, rel=0.06)
    assert plan.seconds is not None
    assert 0 < plan.seconds < 60


def test_time_that_a_pass_takes_whatever_its_images_is_counted_once_a_batch(tmp_path: Path) -> None:
    """As on a busy machine, whose threads wait for each other at every operation."""
    training, evaluation = split_settings({**SMALL_RUN, "train_size": 256, "batch_size": 256})
    options = RunOptions(folder=tmp_path, device="cpu")
    trainer, _ = assemble(training, evaluation, options, torch.device("cpu"), SINGLE_PROCESS)
    trainer.learner.model.register_forward_pre_hook(lambda *_: time.sleep(0.05))
    plan = plan_training(trainer, "mlp")
    assert plan.seconds is not None
    assert 0.05 <= plan.seconds / plan.gradient_evaluations * 256 < 0.2


@pytest.mark.parametrize(
    ("side", "network"),
    [(8, "cnn"), (16, "cnn"), (28, "resnet18"), (32, "resnet18"), (64, "resnet18-s2"), (224, "resnet18-s4")],
)
def test_the_network_of_auto_fits_the_images(side: int, network: str) -> None:
    assert network_for((3, side, side)) == network
    assert network_for((1, 4, side)) == network


def test_auto_is_stored_resolved_and_a_later_change_of_its_meaning_does_not_reach_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = iter([False])
    with pytest.raises(RuntimeError, match="stopped at update"):
        carry_out(tmp_path / "run", model="auto", should_stop=lambda: next(stop, True))
    about = RunFolder(tmp_path / "run").description
    assert (about.spec.model, about.resolved.model) == ("auto", "cnn")
    monkeypatch.setattr("freeat.models.registry._AUTO", ((1e9, "linear"),))
    carry_out(tmp_path / "run", model="auto")
    monkeypatch.undo()
    carry_out(tmp_path / "whole", model="auto")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_auto_takes_the_network_of_the_run_to_begin_from(tmp_path: Path) -> None:
    carry_out(tmp_path / "first", model="mlp-w5")
    carry_out(tmp_path / "next", model="auto", init_from=str(tmp_path / "first"))
    assert RunFolder(tmp_path / "next").spec.model == "mlp-w5"


def test_the_first_line_of_a_training_is_its_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", *arguments(model=None), "--out", str(tmp_path / "run")]) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("cnn, 131 k parameters, 14 updates, 6 evaluations, about ")
    assert first.endswith(f" on {'1 core' if usable_cores() == 1 else f'1 of {usable_cores()} cores'}")


def test_the_first_line_of_a_comparison_is_the_plan_of_all_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", *arguments(), "--algorithms", "fast,free-2", "--seeds", "1", "--jobs", "1"]
    assert run([*command, "--out", str(tmp_path / "both")]) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("mlp-w12, 1.07 k parameters, 2 runs of 14 updates, 6 evaluations, about ")


def test_a_plan_is_printed_in_readable_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freeat.cli.progress.usable_cores", lambda: 2)
    (line,) = plan_lines(PLAN)
    assert line == "resnet18, 11.2 M parameters, 78,200 updates, 21 evaluations, about 26.0 h on 2 cores"
    assert plan_lines(replace(PLAN, seconds=None))[0].endswith("21 evaluations")
    assert [short_count(n) for n in (650, 93_322, 11_173_962)] == ["650", "93.3 k", "11.2 M"]


def test_cores_used_by_others_are_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freeat.cli.progress.usable_cores", lambda: 2)
    assert len(plan_lines(replace(PLAN, others=0.3))) == 1
    busy = plan_lines(replace(PLAN, others=1.8))[1]
    assert busy.startswith("other programs use 1.8 of the 2 cores")
    assert "so that the time is a guess" in busy
    assert busy.endswith("try --threads 1")
    runs = replace(PLAN, others=1.3, threads=1, runs=6)
    assert len(plan_lines(runs)) == 1
    assert plan_lines(replace(runs, at_once=2))[1].endswith("it may take longer")


def test_the_plan_of_a_comparison_counts_the_runs_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("experiments.comparison", "cli.progress"):
        monkeypatch.setattr(f"freeat.{module}.usable_cores", lambda: 4)
    training, evaluation = split_settings({**SMALL_RUN, "updates": 2})
    options = RunOptions(folder=tmp_path, device="cpu")
    tasks = comparison_tasks(training, evaluation, ["fast", "free-2"], range(3), options)
    plans = {jobs: check_tasks(tasks, jobs) for jobs in (None, 1, 3)}
    assert [plan and plan.at_once for plan in plans.values()] == [4, 1, 3]
    assert plans[1] is not None
    assert plan_lines(plans[1])[0].endswith(" on 1 of 4 cores")


@pytest.mark.parametrize("part", ["awp", "ema", "proximal", "awp+ema"])
def test_the_plan_of_a_comparison_is_the_sum_of_the_plans_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr("freeat.training.trainer._seconds_per_gradient", lambda trainer: 1.0)
    training, evaluation = split_settings({**SMALL_RUN, "updates": 24})
    options = RunOptions(folder=tmp_path, device="cpu")

    def seconds(*names: str) -> float:
        plan = check_tasks(comparison_tasks(training, evaluation, names, [0], options), jobs=1)
        assert plan is not None
        assert plan.seconds is not None
        return plan.seconds

    alone = seconds("vanilla-2"), seconds(f"vanilla-2+{part}")
    assert alone[1] > alone[0]
    assert seconds("vanilla-2", f"fast+{part}") == pytest.approx(alone[0] + seconds(f"fast+{part}"))


def test_the_time_of_other_processes_is_separated_from_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(100.0, 5.0, 50.0), (102.0, 7.0, 55.0)])

    def now() -> CpuClock:
        wall, own, everyone = next(readings)
        return CpuClock(wall=wall, own=own, all=everyone)

    began = now()
    monkeypatch.setattr(CpuClock, "now", now)
    assert began.cores_of_others() == pytest.approx(1.5)


def test_more_threads_than_cores_are_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine.warn_once.cache_clear()
    monkeypatch.setattr(machine, "usable_cores", lambda: 3)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    for _ in range(2):
        assert resolve_threads(None) == 7
    assert [record.message for record in caplog.records] == [
        "7 threads on 3 cores wait for each other: use --threads 3"
    ]
