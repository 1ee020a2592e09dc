"""Two processes that train one model: the same history and weights as one, written by one of them."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from PIL import Image

from freeat.errors import InputError
from freeat.files.documents import plain
from freeat.runs.folder import RunFolder
from freeat.training.trainer import Stopped
from small_runs import arguments, carry_out, noise_file, outcome

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


def launch(folder: Path, **changes: Any) -> subprocess.Popen[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words = arguments(**{**SMALL_RUN, **changes}, out=folder, device="cpu", checkpoint_every=0)
    return subprocess.Popen(
        [*launcher, "-m", "freeat", "train", *words, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(folder: Path, **changes: Any) -> dict[str, Any]:
    with launch(folder, **changes) as process:
        out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    document: dict[str, Any] = json.loads(out)  # one of them prints
    return document


def on_its_own_machine(rank: int, port: int, parent: Path, settings: list[dict[str, Any]]) -> None:
    """A process of two, each with a folder of its own; it writes why its training is refused."""
    os.environ |= {"RANK": f"{rank}", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
    try:
        carry_out(parent / f"{rank}", **settings[rank])
    except InputError as error:
        (parent / f"{rank}.txt").write_text(str(error))


def refusals(parent: Path, settings: list[dict[str, Any]]) -> list[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.spawn(on_its_own_machine, (port, parent, settings), nprocs=2, join=False)
    until = time.monotonic() + 120
    try:
        while not context.join(timeout=5):
            assert time.monotonic() < until, "the processes wait for each other"
    finally:
        for process in context.processes:
            process.kill()
    return [(parent / f"{rank}.txt").read_text() for rank in range(2)]


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


def test_processes_that_share_no_folder_are_refused_where_one_of_them_resumes(tmp_path: Path) -> None:
    stops = iter([False, False, True])
    with pytest.raises(Stopped):
        carry_out(tmp_path / "0", should_stop=lambda: next(stops))
    found = refusals(tmp_path, [{}, {}])
    assert found[0] == found[1]
    assert re.search(
        r"update to begin at: [1-9]\d* in process 0 of 2, 0 in process 1; .* --out on storage", found[0]
    )


def test_processes_with_other_data_are_refused(tmp_path: Path) -> None:
    files = [noise_file(tmp_path / f"{seed}.npz", classes=4, seed=seed) for seed in range(2)]
    found = refusals(tmp_path, [{"data": file} for file in files])
    assert found[0] == found[1]
    assert re.search(
        r"(settings|data): \w{12} in process 0 of 2, \w{12} in process 1; .* the same files", found[0]
    )
    assert not (tmp_path / "0").exists()


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


@pytest.mark.slow
def test_two_processes_on_a_stream_end_with_the_result_of_one(tmp_path: Path) -> None:
    """Each decodes its own rows only, also of the validation images."""
    draws = np.random.default_rng(0)
    for i in range(90):
        path = tmp_path / "pets" / ("train" if i < 60 else "test") / ("cat", "dog", "emu")[i % 3] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(draws.integers(0, 256, (4, 5, 3), dtype=np.uint8))
        image.resize((12 + i % 7, 10 + i % 5)).save(path)
    changes = {
        "data": str(tmp_path / "pets"), "image_size": 8, "stream": True, "augment": "random-resized-crop",
        "train_size": None, "updates": 60, "eval_every": 20, "validation": 0.2,
    }  # fmt: skip
    finish(tmp_path / "two", **changes, workers=1)
    carry_out(tmp_path / "one", **{**SMALL_RUN, **changes})
    single, distributed = RunFolder(tmp_path / "one"), RunFolder(tmp_path / "two")
    assert distributed.description.chosen.processes == 2
    assert distributed.data_digest == single.data_digest
    histories = [plain(list(run.history())) for run in (single, distributed)]
    assert histories[0][-1]["validation"] is not None
    assert_alike(*histories)
    for name in ("model", "ema"):
        ours, theirs = single.weights(name), distributed.weights(name)
        for key in ours:
            torch.testing.assert_close(ours[key], theirs[key], rtol=1e-3, atol=1e-4)
