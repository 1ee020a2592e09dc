"""Commands that are killed or stopped at random moments and begun again have the same results, bit for bit."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from killing import Process, interrupt_at_random
from small_runs import arguments, carry_out, outcome

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")

NOT_COMPARED = {"seconds", "time", "command", "folder", "folders", "stored", "curves"}
"""What two equal commands may differ in: times, and the folders they wrote to."""

EVALUATE = [
    "--attack",
    "pgd-10",
    "--attack",
    "pgd-5-2",
    "--eps",
    "0.1,0.2,0.3,0.4",
    "-n",
    "300",
    "--split",
    "both",
]
COMPARE = ["compare", *arguments(algorithm=None, model="cnn-w4", updates=120), "--checkpoint-every", "0"]
COMPARE += ["--algorithms", "fast,free-4", "--seeds", "2", "--jobs", "2"]
STUDY = ["stability", "--model", "mlp-w16", "--train-size", "60", "--updates", "60", "--batch-size", "8"]
STUDY += [
    "--replaced",
    "3",
    "--seeds",
    "3",
    "--probes",
    "16",
    "--eval-size",
    "32",
    "--algorithms",
    "fast,free-4",
]
STUDY += ["--engine", "separate", "--jobs", "2"]


def starter(args: list[str], out: Path) -> Callable[[], Process]:
    """Starts the command in a process group of its own, so that it is killed with its workers."""
    return lambda: subprocess.Popen(
        [sys.executable, "-m", "freeat", *args, "--out", str(out), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in NOT_COMPARED}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def finish(begin: Callable[[], Process]) -> Any:
    with begin() as process:
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return timeless(json.loads(out))


def check_same_after_signals(
    args: list[str], tmp_path: Path, *, seed: int, times: int, longest: float = 4.0
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    expected = finish(starter(args, whole))
    again = starter(args, parts)
    assert interrupt_at_random(again, parts, random.Random(seed), times=times, longest=longest) >= 1
    assert finish(again) == expected
    assert not [*parts.rglob("lease.json"), *parts.rglob("*.tmp"), *parts.rglob("*.blocks")]
    for run in whole.glob("runs/*/*"):
        assert outcome(parts / run.relative_to(whole)) == outcome(run)


def test_an_interrupted_evaluation_is_bit_identical(tmp_path: Path) -> None:
    carry_out(tmp_path / "run", algorithm="fast")
    args = ["evaluate", str(tmp_path / "run"), *EVALUATE]
    check_same_after_signals(args, tmp_path, seed=1, times=2, longest=1.0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2))
def test_an_evaluation_interrupted_often_is_bit_identical(tmp_path: Path, seed: int) -> None:
    carry_out(tmp_path / "run", algorithm="fast")
    args = ["evaluate", str(tmp_path / "run"), *EVALUATE]
    check_same_after_signals(args, tmp_path, seed=seed, times=5, longest=1.0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2))
def test_an_interrupted_comparison_is_bit_identical(tmp_path: Path, seed: int) -> None:
    check_same_after_signals(COMPARE, tmp_path, seed=seed, times=5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_interrupted_study_is_bit_identical(tmp_path: Path) -> None:
    check_same_after_signals(STUDY, tmp_path, seed=3, times=5)
