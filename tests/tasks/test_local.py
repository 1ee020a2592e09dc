"""Worker processes on this machine: results, kills, GPUs and signals."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from freeat.experiments.comparison import comparison_tasks
from freeat.experiments.tasks import TrainTask
from freeat.runs.folder import RunFolder
from freeat.runs.run import RunOptions
from freeat.runs.spec import split_settings
from freeat.tasks import local, make_backend, run_tasks
from freeat.tasks.local import LocalBackend, visible_gpus
from freeat.training.records import Callback
from freeat.training.trainer import CheckpointFacts
from seen import Seen
from small_runs import SMALL_RUN, arguments, outcome
from small_runs import carry_out as run_here

posix = pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")


def make_tasks(folder: Path, algorithms: list[str], seeds: list[int], **changes: Any) -> list[TrainTask]:
    training, evaluation = split_settings({**SMALL_RUN, **changes})
    return comparison_tasks(training, evaluation, algorithms, seeds, RunOptions(folder=folder, device="cpu"))


def test_workers_give_the_results_of_direct_runs_despite_failures(tmp_path: Path) -> None:
    made = make_tasks(tmp_path / "there", ["fast", "erm"], [0])
    broken = replace(made[0], name="broken", key="broken", spec=replace(made[0].spec, model="no-such-net"))
    broken = replace(broken, options=replace(broken.options, folder=tmp_path / "broken"))
    diverging = replace(made[0], name="diverging", key="diverging", spec=replace(made[0].spec, lr=1e38))
    diverging = replace(diverging, options=replace(diverging.options, folder=tmp_path / "diverging"))
    seen = Seen()
    with make_backend(jobs=1) as backend:
        done = {o.task.name: o for o in run_tasks([broken, diverging, *made], backend, seen)}
    assert "unknown model" in str(done["broken"].failure)
    assert "Diverged: the training loss" in str(done["diverging"].failure)
    for algorithm in ("fast", "erm"):
        run_here(tmp_path / algorithm, algorithm=algorithm)
        there = done[f"{algorithm}/seed-0"]
        assert there.failure is None
        assert outcome(there.task.options.folder) == outcome(tmp_path / algorithm)
        assert [tick for tick in seen.ticks if tick[0] == there.task.name][-1][1:] == (14, 14)


@dataclass(frozen=True, kw_only=True)
class NeverFinished:
    """What the tasks below have in common: no result is stored."""

    name: str
    needs: tuple[str, ...] = ()
    threads: int = 1

    @property
    def key(self) -> str:
        return self.name

    def finished(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class KilledOnce(NeverFinished):
    """A task whose process is killed, as when memory runs out, the first time it runs."""

    trace: Path

    def run(self, callback: Callback, should_stop: Callable[[], bool]) -> None:
        if not self.trace.exists():
            self.trace.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        callback.step(1, 1, None)

    def summary(self) -> str:
        return "survived"


@posix
def test_a_killed_worker_fails_only_its_task(tmp_path: Path) -> None:
    tasks = [KilledOnce(name=str(k), trace=tmp_path / "trace") for k in range(3)]
    seen = Seen()
    with make_backend(jobs=1) as backend:
        first, *others = run_tasks(tasks, backend, seen)
    assert "killed, perhaps for want of memory" in str(first.failure)
    assert [o.failure for o in others] == [None, None]
    assert [name for name, done, _ in seen.ticks if done == 1] == ["1", "2"]


@pytest.mark.parametrize(
    ("cores", "threads", "asked", "slots"),
    [(8, 1, None, 8), (8, 3, None, 2), (2, 4, None, 1), (8, 2, 3, 3), (8, 2, 6, 4), (1, 1, 2, 1)],
)
def test_workers_never_oversubscribe_the_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, threads: int, asked: int | None, slots: int
) -> None:
    monkeypatch.setattr(local, "usable_cores", lambda: cores)
    with LocalBackend(workers=asked, threads=threads) as backend:
        assert backend.slots == backend.workers == slots


@pytest.mark.parametrize(
    ("visible", "device", "gpus"),
    [
        (None, "auto", ("0", "1", "2", "3")),
        ("2,GPU-7", "cuda", ("2", "GPU-7")),
        (None, "cpu", ()),
        (None, "cuda:1", ()),
    ],
)
def test_runs_are_spread_over_the_visible_gpus(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, device: str, gpus: tuple[str, ...]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus(device) == gpus


@pytest.mark.parametrize(
    ("asked", "per_run", "slots"), [(None, 1.0, 4), (None, 0.5, 8), (6, 1.0, 6), (None, 0.1, 16)]
)
def test_slots_follow_the_gpus_per_run(
    monkeypatch: pytest.MonkeyPatch, asked: int | None, per_run: float, slots: int
) -> None:
    monkeypatch.setattr(local, "usable_cores", lambda: 16)
    with LocalBackend(workers=asked, gpus=("0", "1", "2", "3"), gpus_per_run=per_run) as backend:
        assert backend.slots == slots


@dataclass(frozen=True, kw_only=True)
class ReadGpu(NeverFinished):
    """A task that says which GPU it sees."""

    answer: Path

    def run(self, callback: Callback, should_stop: Callable[[], bool]) -> None:
        self.answer.write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "none"))

    def summary(self) -> str:
        return self.answer.read_text()


def test_a_worker_sees_its_gpu_only(tmp_path: Path) -> None:
    with LocalBackend(workers=1, gpus=("7", "9")) as backend:
        (done,) = run_tasks([ReadGpu(name="a", answer=tmp_path / "gpu")], backend)
    assert done.task.summary() == "7"


def begun(store: Path) -> tuple["subprocess.Popen[bytes]", Path]:
    """A comparison of one long run in a session of its own, and the folder of that run, which has saved something."""
    args = ["compare", *arguments(algorithm=None, updates=1_000_000, eval_every=1_000_000)]
    args += ["--out", str(store), "--device", "cpu", "--jobs", "1", "--algorithms", "fast", "--seeds", "1"]
    args += ["--checkpoint-every", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "freeat", *args],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    folder = store / "runs" / "fast" / "seed-0"
    _until(lambda: RunFolder(folder).checkpoints.latest_update)
    return process, folder


@posix
def test_workers_of_a_killed_comparison_save_and_exit(tmp_path: Path) -> None:
    process, folder = begun(tmp_path)
    worker = json.loads((folder / "lease.json").read_text())["pid"]
    process.send_signal(signal.SIGKILL)
    process.wait()
    _until(lambda: not (folder / "lease.json").exists())
    assert RunFolder(folder).checkpoints.newest(CheckpointFacts) is not None
    _until(lambda: _ended(worker))


@posix
def test_a_signal_to_the_process_group_saves_checkpoints(tmp_path: Path) -> None:
    """As a queue sends it that ends a job."""
    process, folder = begun(tmp_path)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(timeout=120) == 143
    assert not (folder / "lease.json").exists()
    assert RunFolder(folder).checkpoints.newest(CheckpointFacts) is not None


def _until(holds: Any) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def _ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").is_file() and " Z " in Path(f"/proc/{pid}/stat").read_text()


@pytest.mark.parametrize(
    ("rank", "size", "own"), [(0, 1, "0123"), (0, 2, "02"), (1, 2, "13"), (2, 3, "2"), (5, 8, "1")]
)
def test_processes_of_torchrun_divide_the_cores_and_gpus(
    rank: int, size: int, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(size))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(local, "usable_cores", lambda: 12)
    assert visible_gpus("auto") == tuple(own)
    assert LocalBackend(threads=2).slots == max(1, 6 // size)
