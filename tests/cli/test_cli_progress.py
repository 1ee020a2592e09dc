"""Progress: throughput without the time of evaluations, the time that remains, plain lines without a terminal."""

import pytest
import torch

from freeat.cli import progress
from freeat.cli.progress import RunProgress, Speed, SweepProgress, TaskProgress, busy_lines, duration
from freeat.compute.machine import CpuClock
from freeat.tasks import EndedTask
from freeat.training.records import accuracies
from made_records import make_record, make_summary


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


RECORD = make_record(make_summary(0.75, n=100), make_summary(0.5, 0.9, n=80), update=20)


def test_speed_excludes_evaluations_and_uses_recent_updates() -> None:
    speed = Speed()
    assert speed.at(0.0, 0) is None
    assert speed.at(2.0, 10) == 5.0
    speed.pause()
    assert speed.at(100.0, 10) is None
    assert speed.at(101.0, 30) == 20.0
    for second in range(102, 130):
        rate = speed.at(float(second), 30 + second - 101)
    assert rate == pytest.approx(1.0, rel=0.2)  # over the window, not from the beginning


def test_lines_show_update_time_left_loss_and_throughput(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    callback = RunProgress("free-4", batch_size=32)
    with callback:
        for update in range(0, 41, 4):
            callback.step(update, 100, 1.25)
            clock.now += 4
        output = capsys.readouterr().err.splitlines()
        assert output == ["free-4: update 32/100  0:01:08 left  loss 1.250  32 images/s"]
        callback.record(RECORD)
    (output,) = capsys.readouterr().err.splitlines()
    assert output.startswith(
        "free-4: update 20  robust train 75.0%  test 50.0%  gap +25.0 points  clean test 90.0%  "
        "(all 100, 80 images)"
    )
    assert output.endswith("32 images/s")


def test_lines_tell_the_curve_on_a_sample_from_the_final_evaluation() -> None:
    train, test = make_summary(0.75, n=100, population=600), make_summary(0.5, n=80)
    assert accuracies(make_record(train, test)).endswith("(sample of 100, 80 images)")
    assert accuracies(make_record(train, test, kind="final")).endswith("(final, sample of 100, 80 images)")
    whole = make_record(make_summary(0.75, n=600), test, kind="final")
    assert accuracies(whole).endswith("gap +25.0 points  clean test 90.0%  (final, all 600, 80 images)")


def test_time_left_of_a_resumed_run_ignores_earlier_updates(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    callback = RunProgress("free-4", batch_size=32)
    callback.step(900, 1000, None)
    clock.now += 40
    callback.step(910, 1000, None)
    assert "0:06:00 left" in capsys.readouterr().err


@pytest.mark.parametrize("width", [80, 200])
def test_a_terminal_shows_a_bar(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also a narrow one: nothing of it is cut."""
    import sys

    from rich.console import Console

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        progress, "Console", lambda stderr: Console(stderr=stderr, force_terminal=True, width=width)
    )
    with RunProgress("free-4", batch_size=32) as callback:
        callback.step(1, 100, 1.5)
        callback.record(RECORD)
        callback.step(21, 100, 0.5)
    output = capsys.readouterr().err
    for part in (
        "free-4",
        "━━━━",
        "21/100 updates",
        "-:--:--",
        "loss 0.500",
        "robust train 75.0%",
        "gap +25.0 points",
    ):
        assert part in output
    assert "…" not in output


class Chore:
    """A task with a summary."""

    key, needs, threads = "", (), 1

    def __init__(self, name: str) -> None:
        self.name = name

    def finished(self) -> bool:
        return True

    def run(self, callback: object, should_stop: object) -> None: ...

    def summary(self) -> str:
        return "all well"


def test_finished_tasks_are_listed_with_the_time_left(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was found is no measure of the speed; a task counts by its weight."""
    weights = {"found": 5.0, "short": 1.0, "broken": 1.0, "long": 8.0}
    with TaskProgress("reproducing", weights, weights) as reported:
        reported.ended(EndedTask(task=Chore("found"), found=True))
        clock.now += 10
        reported.ended(EndedTask(task=Chore("short")))
        reported.ended(EndedTask(task=Chore("broken"), failure="no memory"))
        reported.tick("long", 1, 2)
        clock.now += 80
        reported.ended(EndedTask(task=Chore("long")))
    assert capsys.readouterr().err.splitlines() == [
        "[1/4] found: found: all well",
        "[2/4, 90 s left] short: all well",
        "[3/4, 40 s left] broken: FAILED: no memory",
        "[4/4] long: all well",
    ]


def test_each_evaluation_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with SweepProgress() as reported:
        for title in ("free-4 under pgd-10", "fast under pgd-10"):
            advance = reported.watch(title, 100)
            advance(50)
    assert capsys.readouterr().err.splitlines() == ["free-4 under pgd-10", "fast under pgd-10"]


def test_evaluations_say_once_that_other_programs_use_the_cores(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As soon as it is known, with the remedy of a training; not where the model is on another device."""
    monkeypatch.setattr(progress, "usable_cores", lambda: 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    readings: list[tuple[str | None, list[float | None]]] = [
        ("cpu", [None, None, None, 1.8]),
        ("cpu", [0.2]),
        (None, []),
    ]
    for device, others in readings:
        known = iter(others)
        monkeypatch.setattr(CpuClock, "cores_of_others", lambda clock, known=known: next(known))
        with SweepProgress(device) as reported:
            for title in ("free-4", "fast"):
                reported.watch(title, 100)(50)
        assert next(known, None) is None
    (busy,) = busy_lines(1.8, 2)
    assert busy.endswith("try --threads 1")
    assert capsys.readouterr().err.splitlines() == ["free-4", "fast", busy, *["free-4", "fast"] * 2]


@pytest.mark.parametrize("kind", ["tasks", "sweep"])
def test_tasks_and_evaluations_are_bars_on_a_terminal(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    from rich.console import Console

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        progress, "Console", lambda stderr: Console(stderr=stderr, force_terminal=True, width=90)
    )
    if kind == "tasks":
        with TaskProgress("comparing", ["a", "b"]) as tasks:
            tasks.tick("a", 1, 2)
            tasks.ended(EndedTask(task=Chore("a")))
        parts = ("comparing", "1/2 tasks", "] a: all well")
    else:
        with SweepProgress() as sweep:
            sweep.watch("free-4 under pgd-10", 100)(40)
        parts = ("free-4 under pgd-10", "40/100 images")
    output = capsys.readouterr().err
    assert all(part in output for part in parts)


@pytest.mark.parametrize(
    ("seconds", "output"), [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5999, "100 min"), (12_600, "3.5 h")]
)
def test_durations_have_a_readable_unit(seconds: float, output: str) -> None:
    assert duration(seconds) == output
