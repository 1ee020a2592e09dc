"""Identical processes that share a store: bit-identical results after kills."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import shared_grid
from killing import Process, cut_off, strike, training_past, working_in

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's"),
]


def start(store: Path) -> Process:
    """The program, in a process group of its own, so that it can be killed with its workers."""
    return subprocess.Popen(
        [sys.executable, shared_grid.__file__, str(store)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of one process that was not disturbed."""
    store = tmp_path_factory.mktemp("undisturbed")
    assert shared_grid.main(store) == 0
    return store


def test_three_processes_finish_the_grid_after_one_is_killed(tmp_path: Path, undisturbed: Path) -> None:
    processes = [start(tmp_path) for _ in range(3)]
    victim = strike(processes, tmp_path, training_past(1, tmp_path))
    assert victim is not None
    assert victim.returncode == -signal.SIGKILL
    for process in processes:
        if process is not victim:
            _, err = process.communicate(timeout=600)
            assert process.returncode == 0, err
    assert shared_grid.results(tmp_path) == shared_grid.results(undisturbed)
    assert not list(tmp_path.rglob("lease.json"))


def test_resume_after_repeated_kills_is_bit_identical(tmp_path: Path, undisturbed: Path) -> None:
    for update in random.Random(2).sample(range(1, 250), 3):
        cut_off(lambda: start(tmp_path), tmp_path, training_past(update, tmp_path))
    cut_off(lambda: start(tmp_path), tmp_path, working_in("measurements"))
    last = start(tmp_path)
    _, err = last.communicate(timeout=600)
    assert last.returncode == 0, err
    assert shared_grid.results(tmp_path) == shared_grid.results(undisturbed)
