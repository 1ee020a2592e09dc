"""Identical processes that share a store: one is killed, the others finish the grid, and its bits are the same."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import shared_grid

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's"),
]


def start(store: Path) -> subprocess.Popen[str]:
    """The program, in a process group of its own, so that it can be killed with its workers."""
    return subprocess.Popen(
        [sys.executable, shared_grid.__file__, str(store)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def holders(store: Path) -> dict[Path, int]:
    """The process groups of those at work, by the folder they hold."""
    found = {}
    for path in store.glob("*/*/lease.json"):
        try:
            found[path.parent] = os.getpgid(json.loads(path.read_text())["pid"])
        except (OSError, ValueError):
            continue
    return found


def finished(store: Path) -> int:
    return len(list(store.glob("*/*/result.json")))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of one process that nobody disturbed."""
    store = tmp_path_factory.mktemp("alone")
    assert shared_grid.main(store) == 0
    return store


def test_three_processes_one_killed_in_mid_run(tmp_path: Path, alone: Path) -> None:
    processes = [start(tmp_path) for _ in range(3)]
    victim = None
    end = time.monotonic() + 300
    while victim is None:
        assert time.monotonic() < end, "no process had a checkpoint"
        time.sleep(0.02)
        for folder, group in holders(tmp_path).items():
            if list(folder.glob("checkpoints/*.json")):
                victim = next(process for process in processes if process.pid == group)
                break
    kill(victim)
    assert victim.returncode == -signal.SIGKILL
    for process in processes:
        if process is not victim:
            _, err = process.communicate(timeout=600)
            assert process.returncode == 0, err
    assert shared_grid.results(tmp_path) == shared_grid.results(alone)
    assert not list(tmp_path.rglob("lease.json"))


def test_killed_again_and_again_it_ends_with_the_same_bits(tmp_path: Path, alone: Path) -> None:
    rng = random.Random(2)
    for _ in range(4):
        before, process = finished(tmp_path), start(tmp_path)
        end = time.monotonic() + 120
        while not holders(tmp_path) and process.poll() is None and finished(tmp_path) == before:
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, 3.0))
        kill(process)
    last = start(tmp_path)
    _, err = last.communicate(timeout=600)
    assert last.returncode == 0, err
    assert shared_grid.results(tmp_path) == shared_grid.results(alone)
