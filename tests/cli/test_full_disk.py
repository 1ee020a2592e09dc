"""A full disk: one message with the file and the space it needs, exit code 2, and the same bits once there is space."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from freeat.cli.main import run
from small_disk import SmallDisk, small_tmpfs
from small_runs import arguments, outcome

pytestmark = pytest.mark.skipif(os.name == "nt", reason="limits on files are POSIX's")

RUN: dict[str, Any] = {"algorithm": "fast", "model": "mlp-w64", "ema": 0.9, "train_size": 100}
TRAIN = ["train", *arguments(**RUN), "--checkpoint-every", "0"]
COMPARE = [
    "compare",
    *arguments(**{**RUN, "algorithm": None}),
    "--algorithms",
    "fast",
    "--seeds",
    "1",
    "--jobs",
    "1",
]
COMPARE += ["--checkpoint-every", "0"]
STUDY = [
    "stability",
    "--model",
    "linear",
    "--train-size",
    "40",
    "--updates",
    "8",
    "--replaced",
    "2",
    "--seeds",
    "2",
]
STUDY += ["--batch-size", "8", "--probes", "8", "--eval-size", "8", "--algorithms", "fast", "--jobs", "1"]
EVALUATE = ["--attack", "pgd-2", "-n", "300", "--batch-size", "64", "--split", "both", "--examples"]


@pytest.fixture(params=["a limit on files", "a small disk"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    (tmp_path / "disk").mkdir()
    if request.param == "a limit on files":
        yield SmallDisk(tmp_path / "disk", mounted=False)
    else:
        with small_tmpfs(tmp_path / "disk") as mounted:
            yield mounted


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same commands where there is space."""
    path = tmp_path_factory.mktemp("whole")
    assert run([*TRAIN, "--out", str(path / "run")]) == 0
    return path


def refused(capsys: pytest.CaptureFixture[str], args: list[str]) -> str:
    """Run a command that finds the disk full; returns its message."""
    assert run(args) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, said
    assert "cannot be written: " in errors[0]
    assert "; it needs " in errors[0]
    assert "run the same command again" in errors[0]
    return errors[0]


def unfinished(path: Path) -> list[Path]:
    return [*path.rglob("*.tmp"), *path.rglob("lease.json")]


def timeless(value: Any) -> Any:
    """A document without times and paths."""
    if isinstance(value, dict):
        left_out = ("seconds", "time", "folder", "folders", "stored", "examples", "arrays", "figure", "page")
        return {key: timeless(item) for key, item in value.items() if key not in left_out}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def document(capsys: pytest.CaptureFixture[str], args: list[str]) -> Any:
    capsys.readouterr()
    assert run([*args, "--json"]) == 0
    return timeless(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("room", [0, 16 << 10, 40 << 10])
def test_a_training_resumes_to_the_same_bits(
    disk: SmallDisk, whole: Path, capsys: pytest.CaptureFixture[str], room: int
) -> None:
    args = [*TRAIN, "--out", str(disk.path / "run")]
    with disk.full(room):
        message = refused(capsys, args)
    assert str(disk.path / "run") in message
    assert not unfinished(disk.path)
    assert run(args) == 0
    assert outcome(disk.path / "run") == outcome(whole / "run")


def test_an_export_is_written_whole_or_not_at_all(
    disk: SmallDisk, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["export", str(whole / "run"), "--out", str(disk.path / "exports" / "net")]
    with disk.full(8 << 10):
        assert "model.safetensors" in refused(capsys, args)
        assert not (disk.path / "exports").exists()
    assert run(args) == 0
    assert {path.name for path in (disk.path / "exports" / "net").iterdir()} == {
        "README.md",
        "freeat.json",
        "model.safetensors",
    }


@pytest.mark.slow
def test_a_comparison_resumes_to_the_same_bits(
    disk: SmallDisk, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*COMPARE, "--out", str(disk.path / "comparison")]
    with disk.full(20 << 10):  # enough for the description of a run, which then fails, or its log does
        assert str(disk.path / "comparison") in refused(capsys, args)
    found = document(capsys, args)
    with disk.full(0):
        refused(capsys, args)
    assert document(capsys, args) == found
    assert outcome(disk.path / "comparison" / "runs" / "fast-ema-0.9" / "seed-0") == outcome(whole / "run")
    assert not unfinished(disk.path)


def test_an_evaluation_resumes_to_the_same_bits(
    disk: SmallDisk, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["evaluate", str(whole / "run"), *EVALUATE, "--out", str(disk.path / "results")]
    for room in (0, 16 << 10, 64 << 10):
        with disk.full(room):
            refused(capsys, args)
    assert not unfinished(disk.path)
    expected = document(capsys, ["evaluate", str(whole / "run"), *EVALUATE, "--out", str(whole / "results")])
    assert document(capsys, args) == expected


def test_a_report_is_written_whole_or_not_at_all(
    disk: SmallDisk, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = disk.path / "report.html"
    page.write_text("the report of yesterday")
    args = ["report", str(whole / "run"), "--out", str(page)]
    with disk.full(16 << 10):
        assert "report.html" in refused(capsys, args)
    assert page.read_text() == "the report of yesterday"
    assert run(args) == 0
    assert not unfinished(disk.path)


@pytest.mark.slow
def test_a_study_resumes_to_the_same_bits(
    disk: SmallDisk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*STUDY, "--engine", "separate", "--out", str(disk.path / "study")]
    for room in (0, 5 << 10):
        with disk.full(room):
            refused(capsys, args)
        assert not unfinished(disk.path)
    expected = document(capsys, [*STUDY, "--engine", "separate", "--out", str(tmp_path / "whole")])
    assert document(capsys, args) == expected
