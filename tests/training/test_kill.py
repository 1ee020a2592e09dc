"""Runs in processes of their own: resume after a kill at a random moment, or a signal, is bit-identical."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from killing import written
from small_runs import arguments, carry_out, outcome

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")

LONG: dict[str, Any] = {
    "algorithm": "free-4",
    "model": "cnn-w4",
    "updates": 302,
    "eval_every": 30,
    "ema": 0.9,
    "validation": 40,
    "algorithm_args": {"carry": True},
}


def start(folder: Path, **changes: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "freeat", "train", *arguments(**{**LONG, **changes}, out=folder)]
    return subprocess.Popen(
        [*command, "--checkpoint-every", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
    )


def wait_for(process: subprocess.Popen[str], folder: Path, pattern: str) -> bool:
    """Until the process writes such a file; False where it ended before."""
    before = written(folder, pattern)
    until = time.monotonic() + 120
    while not written(folder, pattern).items() - before.items():
        if process.poll() is not None:
            return False
        assert time.monotonic() < until, "no sign of the run"
        time.sleep(0.002)
    return True


def kill_after(process: subprocess.Popen[str], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()


def finish(folder: Path, **changes: Any) -> dict[str, Any]:
    with start(folder, **changes) as process:
        out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    document: dict[str, Any] = json.loads(out)
    return document


def killed_at_random(folder: Path, kills: int, rng: random.Random, **changes: Any) -> int:
    """Kill the run ``kills`` times, between its first file and some checkpoints; returns how many kills hit it."""
    struck = 0
    for k in range(kills):
        # Every other time the run is killed while it begins, before its first new checkpoint.
        pattern = "lease.json" if k % 2 else "checkpoints/update-*"
        with start(folder, **changes) as process:
            if wait_for(process, folder, pattern):
                kill_after(process, rng.uniform(0, 0.05 if k % 2 else 0.4))
            struck += process.wait() == -signal.SIGKILL
    return struck


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run that was not interrupted."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    carry_out(folder, **LONG)
    return folder


def test_resume_after_kill_is_bit_identical(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "killed"
    assert killed_at_random(folder, 3, random.Random(1)) >= 2
    finish(folder)
    assert outcome(folder) == outcome(whole)
    one, other = ({p.name for p in run.rglob("*") if p.is_file()} for run in (folder, whole))
    assert one == other


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(5))
def test_resume_after_many_kills_is_bit_identical(tmp_path: Path, seed: int) -> None:
    changes: dict[str, Any] = {
        "algorithm": ["free-4", "vanilla-2", "free-trades-4", "fast", "friendly"][seed],
        "algorithm_args": {"carry": True} if seed == 0 else None,
        "precision": ["fp32", "fp16", "bf16", "fp32", "fp32"][seed],
        "optimizer": "adamw" if seed == 3 else "sgd",
        "lr": 0.01 if seed == 3 else 0.1,
        "warmup": 0.5,
    }
    carry_out(tmp_path / "whole", **{**LONG, **changes})
    assert killed_at_random(tmp_path / "killed", 12, random.Random(seed), **changes) >= 6
    finish(tmp_path / "killed", **changes)
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")


def test_sigterm_saves_and_the_same_command_resumes(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "stopped"
    with start(folder) as process:
        assert wait_for(process, folder, "checkpoints/*.json")
        process.terminate()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert out == ""
    assert "run the same command again to resume" in err
    assert "Traceback" not in err
    assert not (folder / "lease.json").exists()
    assert not (folder / "result.json").exists()
    document = finish(folder)
    assert document["update"] == LONG["updates"]
    assert outcome(folder) == outcome(whole)
