"""Tracking: every record is logged once under its name, also after a resume."""

import struct
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from freeat.cli.main import run
from freeat.errors import InputError
from freeat.runs.folder import RunFolder
from freeat.runs.tracking import LOGS, Tracking, scalars
from freeat.training.loop import Diverged
from freeat.training.records import Callbacks, Record
from freeat.training.trainer import Stopped
from made_records import make_record
from small_runs import arguments, carry_out

Points = dict[str, list[tuple[int, float]]]


class ListLog:
    """A log in memory to which, like wandb's, records can only be appended."""

    def __init__(self) -> None:
        self.last = -1
        self.points: list[tuple[int, dict[str, float]]] = []

    def write(self, update: int, values: dict[str, float]) -> None:
        self.points.append((update, values))
        self.last = update

    def close(self) -> None:
        self.points.append((-1, {}))


def test_scalars_are_named_as_documented(tmp_path: Path) -> None:
    carry_out(tmp_path / "run", ema=0.9, validation=20)
    first, second, *_ = RunFolder(tmp_path / "run").history()
    values = scalars(second, first, batch_size=16)
    for name in (
        "loss",
        "lr",
        "gap",
        "clean_gap",
        "robust/train",
        "robust/test",
        "robust/validation",
        "clean/test",
    ):
        assert name in values
    assert values["robust/test"] == second.test.robust_accuracy
    assert values["ema/robust/test"] == second.ema.test.robust_accuracy
    seconds = second.seconds - first.seconds
    assert values["throughput"] == pytest.approx((second.update - first.update) * 16 / seconds)
    assert scalars(first, None, 16)["throughput"] == pytest.approx(first.update * 16 / first.seconds)


def stop_after(updates: int) -> Callable[[], bool]:
    """A request to stop after this many batches."""
    asked = 0

    def request() -> bool:
        nonlocal asked
        asked += 1
        return asked >= updates

    return request


def resumed(folder: Path, kind: str) -> None:
    """A run that is stopped twice on its way, tracked in every session."""
    for batches in (2, 1):
        with Tracking([kind], RunFolder(folder)) as tracking, pytest.raises(Stopped):
            carry_out(folder, callback=tracking, should_stop=stop_after(batches))
    with Tracking([kind], RunFolder(folder)) as tracking:
        carry_out(folder, callback=tracking)


def test_an_append_only_log_receives_every_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ListLog()
    monkeypatch.setitem(LOGS, "wandb", ("json", lambda folder: log))
    resumed(tmp_path / "run", "wandb")
    updates = [update for update, _ in log.points if update >= 0]
    assert updates == [record.update for record in logged(tmp_path / "run")]
    assert updates == [0, 4, 8, 12, 14]
    assert len(log.points) - len(updates) == 3  # closed once in each session


def tensorboard_points(folder: Path) -> Points:
    """What lies in the event files: each is a row of length, checksum, event, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    points: Points = defaultdict(list)
    for file in sorted(folder.glob("events*")):
        content, at = file.read_bytes(), 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            event = Event.FromString(content[at + 12 : at + 12 + length])
            for value in event.summary.value:
                points[value.tag].append((event.step, value.simple_value))
            at += length + 16
    return points


def logged(folder: Path) -> list[Record]:
    """The history, of which two records are at the end: the last point of the curve, and the final one."""
    *curve, end, final = RunFolder(folder).history()
    assert (end.update, end.kind, final.kind) == (final.update, "evaluation", "final")
    return [*curve, final]


def as_logged(folder: Path) -> Points:
    expected: Points = defaultdict(list)
    before = None
    for record in logged(folder):
        for name, value in scalars(record, before, batch_size=16).items():
            expected[name].append((record.update, pytest.approx(value, rel=1e-5)))
        before = record
    return expected


def test_tensorboard_holds_the_history(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="pip install 'freeat[tensorboard]'")
    resumed(tmp_path / "run", "tensorboard")
    found = tensorboard_points(tmp_path / "run" / "tensorboard")
    assert len(found["gap"]) > 2
    assert found == as_logged(tmp_path / "run")


def test_tensorboard_gets_every_record_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="pip install 'freeat[tensorboard]'")
    assert run(["train", *arguments(out=tmp_path / "run"), "--track", "tensorboard"]) == 0
    found = tensorboard_points(tmp_path / "run" / "tensorboard")
    assert len(found["gap"]) > 2
    assert found == as_logged(tmp_path / "run")


def test_an_empty_run_that_diverges_removes_its_logs(tmp_path: Path) -> None:
    """A tracker opens its log before the first record; a run that diverges by then gives its folder back."""
    pytest.importorskip("tensorboardX", reason="pip install 'freeat[tensorboard]'")
    folder = RunFolder(tmp_path / "run")

    def diverge() -> bool:
        assert (folder.path / "tensorboard").is_dir()
        raise Diverged("the training loss")

    with Tracking(["tensorboard"], folder) as tracking, pytest.raises(Diverged):
        carry_out(folder.path, callback=tracking, should_stop=diverge, eval_every=1000)
    assert not folder.path.exists()


def test_a_finished_run_is_logged_later(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="pip install 'freeat[tensorboard]'")
    settings = arguments(out=tmp_path / "run")
    assert run(["train", *settings]) == 0
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert run(["train", *settings, "--track", "tensorboard"]) == 0
    assert tensorboard_points(tmp_path / "run" / "tensorboard") == as_logged(tmp_path / "run")


@pytest.mark.filterwarnings("ignore")  # theirs
def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="pip install 'freeat[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    sent: list[int] = []
    log = wandb.Run.log
    monkeypatch.setattr(
        wandb.Run, "log", lambda self, values, step: (sent.append(step), log(self, values, step=step))
    )
    resumed(tmp_path / "run", "wandb")
    assert sent == [record.update for record in RunFolder(tmp_path / "run").history()]
    folders = list((tmp_path / "run" / "wandb").glob("offline-run-*"))
    assert len(folders) == 3
    files = {path.name for folder in folders for path in folder.glob("run-*.wandb")}
    assert len(files) == 1  # one run in all sessions


def test_a_failing_wandb_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Refusal(Exception):
        pass

    def init(**settings: Any) -> None:
        raise Refusal("no API key")

    wandb = SimpleNamespace(Error=Refusal, init=init, Settings=lambda **settings: None)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    assert run(["train", *arguments(out=tmp_path / "run"), "--track", "wandb"]) == 2
    assert "no API key" in (output := capsys.readouterr().err)
    assert "WANDB_MODE=offline" in output
    assert run(["train", *arguments(out=tmp_path / "run")]) == 0


def test_tracking_changes_no_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOGS, "wandb", ("json", lambda folder: ListLog()))
    carry_out(tmp_path / "plain")
    with Tracking(["wandb"], RunFolder(tmp_path / "tracked")) as tracking:
        carry_out(tmp_path / "tracked", callback=tracking)
    plain, tracked = (tmp_path / name / "model.safetensors" for name in ("plain", "tracked"))
    assert plain.read_bytes() == tracked.read_bytes()


def test_a_missing_tracker_package_is_refused_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(LOGS, "wandb", ("no_such_package", LOGS["wandb"][1]))
    assert run(["train", *arguments(out=tmp_path / "run"), "--track", "wandb"]) == 2
    output = capsys.readouterr().err
    assert "--track wandb needs the package no_such_package" in output
    assert "pip install 'freeat[wandb]'" in output
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_tracker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'wandb'"):
        Tracking(["wandbb"], RunFolder(tmp_path))


def test_several_callbacks_receive_every_step_and_record() -> None:
    seen: list[Any] = []

    class RecordingCallback:
        def step(self, update: int, total: int, loss: float | None) -> None:
            seen.append((update, total, loss))

        def record(self, record: Record) -> None:
            seen.append(record)

    both = Callbacks(RecordingCallback(), RecordingCallback())
    both.step(1, 2, 0.5)
    both.record(one := make_record())
    assert seen == [(1, 2, 0.5), (1, 2, 0.5), one, one]
