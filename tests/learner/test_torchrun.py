"""Two processes that train one model: the same history and weights as one, written by one of them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from freeat.files.documents import plain
from freeat.runs.folder import RunFolder
from small_runs import arguments, carry_out, outcome

SMALL_RUN: dict[str, Any] = {
    "algorithm": "free-4",
    "model": "mlp-w12-softplus",
    "lr": 0.02,
    "updates": 600,
    "batch_size": 15,  # divisible by no number of processes
    "eval_every": None,
    "eval_size": None,
    "ema": 0.9,
    "validation": 20,
}


def launch(folder: Path) -> subprocess.Popen[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words = arguments(**SMALL_RUN, out=folder, device="cpu", checkpoint_every=0)
    return subprocess.Popen(
        [*launcher, "-m", "freeat", "train", *words, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(folder: Path) -> dict[str, Any]:
    with launch(folder) as process:
        out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    document: dict[str, Any] = json.loads(out)  # one of them prints
    return document


def assert_alike(one: Any, other: Any, where: str = "") -> None:
    """Equal but for rounding: of floats, and of the bins that norms at a boundary fall into."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one.keys() - {"seconds", "bins"}:
            assert_alike(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for k, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_alike(a, b, f"{where}[{k}]")
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-4), where
    else:
        assert one == other, where


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two processes that was not interrupted."""
    folder = tmp_path_factory.mktemp("distributed") / "run"
    document = finish(folder)
    assert document["update"] == 600
    return folder


def test_two_processes_end_with_the_result_of_one(tmp_path: Path, two: Path) -> None:
    carry_out(tmp_path, **SMALL_RUN)
    single, distributed = RunFolder(tmp_path), RunFolder(two)
    assert distributed.description.chosen.processes == 2
    histories = [plain(list(run.history())) for run in (single, distributed)]
    assert [record["kind"] for record in histories[0]] == ["evaluation"] * 13 + ["final"]
    assert_alike(*histories)
    for name in ("model", "ema"):
        ours, theirs = single.weights(name), distributed.weights(name)
        for key in ours:
            torch.testing.assert_close(ours[key], theirs[key], rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
def test_resume_of_two_processes_is_bit_identical(tmp_path: Path, two: Path) -> None:
    folder = tmp_path / "run"
    with launch(folder) as process:
        until = time.monotonic() + 120
        while not any(folder.glob("checkpoints/*.json")):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.005)
        process.terminate()
        out, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert out == ""
    assert "run the same command again to resume" in err
    assert not (folder / "result.json").exists()
    finish(folder)
    assert outcome(folder) == outcome(two)
