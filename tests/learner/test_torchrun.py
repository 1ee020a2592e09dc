"""Two processes that train one model: the same history and weights as one, written by one of them."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A process that has ended."""

    code: int
    out: str
    err: str


def on_two_machines(parent: Path, words: list[list[str]]) -> list[Ended]:
    """`freeat train` in two processes, each in a folder of its own, which no launcher ends when the other fails."""
    port = free_port()
    launched = []
    for rank, given in enumerate(words):
        (parent / f"{rank}").mkdir(exist_ok=True)
        place = {"RANK": f"{rank}", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
        launched.append(
            subprocess.Popen(
                [sys.executable, "-m", "freeat", "train", *given, "--out", "run", "--json"],
                cwd=parent / f"{rank}",
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **place, "OMP_NUM_THREADS": "1"},
            )
        )
    try:
        outputs = [process.communicate(timeout=240) for process in launched]
    finally:
        for process in launched:
            process.kill()
    return [Ended(code=p.returncode, out=o, err=e) for p, (o, e) in zip(launched, outputs, strict=True)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def on_its_own_machine(rank: int, port: int, parent: Path, settings: list[dict[str, Any]]) -> None:
    """A process of two, each with a folder of its own; it writes why its training is refused."""
    os.environ |= {"RANK": f"{rank}", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
    found = torch.device(settings[rank].pop("finds", "cpu"))
    try:
        with pytest.MonkeyPatch.context() as machine:
            machine.setattr("freeat.runs.run.resolve_device", lambda name: found)
            for feature in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
                machine.setattr(torch.cpu, feature, lambda: rank == 0)
            carry_out(parent / f"{rank}", **settings[rank])
    except InputError as error:
        (parent / f"{rank}.txt").write_text(str(error))


def refusals(parent: Path, settings: list[dict[str, Any]]) -> list[str]:
    context = mp.spawn(on_its_own_machine, (free_port(), parent, settings), nprocs=2, join=False)
    until = time.monotonic() + 120
    try:
        while not context.join(timeout=5):
            assert time.monotonic() < until, "the processes wait for each other"
    finally:
        for process in context.processes:
            process.kill()
    return [(parent / f"{rank}.txt").read_text() for rank in range(2)]


def test_processes_that_would_compute_in_other_precisions_are_refused(tmp_path: Path) -> None:
    found = refusals(tmp_path, [{"precision": "auto"}, {"precision": "auto"}])
    assert found[0] == found[1]
    assert re.search(
        r"precision: bf16 in process 0 of 2, fp32 in process 1; .* --precision fp32 or", found[0]
    )
    assert not (tmp_path / "0").exists()


def test_processes_that_would_compute_on_other_kinds_of_device_are_refused(tmp_path: Path) -> None:
    found = refusals(tmp_path, [{"finds": "cpu"}, {"finds": "meta"}])
    assert found[0] == found[1]
    assert re.search(r"device: cpu in process 0 of 2, meta in process 1; .* --device on every", found[0])
    assert not (tmp_path / "0").exists()


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


def test_a_finished_run_is_returned_where_only_the_main_process_has_it(tmp_path: Path) -> None:
    carry_out(tmp_path / "0" / "run")
    main, other = on_two_machines(tmp_path, [arguments(device="cpu")] * 2)
    assert (main.code, other.code) == (0, 0), main.err + other.err
    assert json.loads(main.out)["update"] == 14
    assert "is finished: this is its stored result" in main.err
    assert other.out == other.err == ""
    assert not (tmp_path / "1" / "run").exists()


def without_its_data(folder: Path) -> list[str]:
    noise_file(folder / "0" / "noise.npz", classes=4)
    return arguments(data="noise.npz", device="cpu")


def without_its_settings(folder: Path) -> list[str]:
    (folder / "0" / "spec.yaml").write_text("lr: 0.1\n")
    return ["spec.yaml", *arguments(device="cpu")]


ALONE: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "data": (without_its_data, r"noise\.npz"),
    "settings": (without_its_settings, r"spec\.yaml"),
    "device": (lambda _: arguments(device="cpu"), "device 'cuda' is not available here"),
}


@pytest.mark.parametrize(("make", "reason"), ALONE.values(), ids=ALONE)
def test_a_process_that_fails_alone_before_training_ends_the_others(
    tmp_path: Path, make: Callable[[Path], list[str]], reason: str
) -> None:
    (tmp_path / "0").mkdir()
    words = make(tmp_path)
    main, other = on_two_machines(tmp_path, [words, [*words, *(["--device", "cuda"] * ("cuda" in reason))]])
    assert (main.code, other.code) == (2, 2), main.err + other.err
    assert re.search(f"^error: process 1 of 2 failed during set-up: .*{reason}", main.err)
    assert re.search(f"^error: .*{reason}", other.err)
    assert "during set-up" not in other.err
    assert "Traceback" not in main.err + other.err
    assert not (tmp_path / "0" / "run").exists()


def test_a_run_that_the_main_process_refuses_to_resume_ends_the_others(tmp_path: Path) -> None:
    file = noise_file(tmp_path / "noise.npz", classes=4, seed=0)
    stops = iter([False, False, True])
    with pytest.raises(Stopped):
        carry_out(tmp_path / "0" / "run", data=file, should_stop=lambda: next(stops))
    noise_file(tmp_path / "noise.npz", classes=4, seed=1)
    main, other = on_two_machines(tmp_path, [arguments(data=file, device="cpu")] * 2)
    assert (main.code, other.code) == (2, 2), main.err + other.err
    assert "error: the data are not those" in main.err
    assert "error: process 0 of 2 failed during set-up: the data are not those" in other.err
    assert "Traceback" not in main.err + other.err


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
