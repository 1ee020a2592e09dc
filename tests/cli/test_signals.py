"""SIGTERM and Ctrl-C: at once while data are read or checked, saved while training, and twice always at once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import blocking_model
from freeat.cli.main import GRACE
from small_runs import arguments

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")

SOON = 60.0
"""Seconds within which Python has ended, on a busy machine; without a signal it would wait for ever."""

AT_ONCE = GRACE - 1.5
"""Seconds within which a process has ended that does not wait for Python to end."""


def waiting(folder: Path, where: str, command: str = "train", *more: str) -> "subprocess.Popen[str]":
    """A command whose model waits there for what never comes; it has begun to wait."""
    pipe, sign = folder / "pipe", folder / "waiting"
    os.mkfifo(pipe)
    args = arguments(model="blocking_model:factory", algorithm=None, updates=200, out=folder / "out")
    environment = {"WAIT_IN": where, "WAIT_FOR": str(pipe), "WAITING": str(sign), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "freeat", command, *args, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(blocking_model.__file__).parent,
        env={**os.environ, **environment},
    )
    until = time.monotonic() + 120
    while not sign.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(0.2)
    return process


def ended(process: "subprocess.Popen[str]", within: float) -> tuple[int, str]:
    """The exit code and what was said."""
    with process:
        try:
            _, err = process.communicate(timeout=within)
        finally:
            process.kill()
    assert "Traceback" not in err
    return process.returncode, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_data_are_checked_ends_the_command_at_once(tmp_path: Path, number: int) -> None:
    process = waiting(tmp_path, "checks")
    process.send_signal(number)
    code, err = ended(process, SOON)
    assert code == 128 + number
    assert err.endswith("stopped\n")
    assert not (tmp_path / "out").exists()


def test_a_command_that_does_not_answer_a_signal_is_ended_soon_and_by_a_second_one_at_once(
    tmp_path: Path,
) -> None:
    process = waiting(tmp_path, "deaf checks")
    process.terminate()
    time.sleep(1)
    assert process.poll() is None
    process.terminate()
    assert ended(process, AT_ONCE)[0] == 128 + signal.SIGTERM
    (tmp_path / "once").mkdir()
    process = waiting(tmp_path / "once", "deaf checks")
    process.terminate()
    assert ended(process, SOON)[0] == 128 + signal.SIGTERM


def test_the_second_signal_ends_a_training_that_waits_for_a_batch(tmp_path: Path) -> None:
    process = waiting(tmp_path, "training")
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None
    process.terminate()
    assert ended(process, AT_ONCE)[0] == 128 + signal.SIGTERM


COMPARE = ("compare", "--algorithms", "fast", "--seeds", "1", "--jobs", "1")


def test_a_signal_ends_workers_that_are_still_reading(tmp_path: Path) -> None:
    process = waiting(tmp_path, "worker", *COMPARE)
    process.terminate()
    code, err = ended(process, SOON)
    assert code == 128 + signal.SIGTERM
    assert "run the same command again to resume" in err


def test_a_signal_that_comes_twice_at_once_is_one_request(tmp_path: Path) -> None:
    """``timeout`` sends it to the command, and then to the group that the command is in."""
    process = waiting(tmp_path, "worker", *COMPARE)
    process.terminate()
    time.sleep(0.05)
    process.terminate()
    code, err = ended(process, SOON)
    assert code in (128 + signal.SIGTERM, -signal.SIGTERM)  # the latter where it came when Python was ending
    assert err.endswith("\nstopped as asked; run the same command again to resume\n")


def test_a_command_ended_with_its_workers_says_one_word_and_python_warns_of_nothing(tmp_path: Path) -> None:
    process = waiting(tmp_path, "training", *COMPARE)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None
    process.terminate()
    code, err = ended(process, AT_ONCE)
    assert code == 128 + signal.SIGTERM
    assert err.splitlines()[-1] == "stopped"
    assert "resource_tracker" not in err
