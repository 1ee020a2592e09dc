"""Processes at work in a store, and kills that land in the middle of what they do."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from freeat.files.documents import temporary_name
from freeat.files.locks import LEASE
from freeat.runs.folder import RunFolder

Process = subprocess.Popen[Any]
"""A leader of its process group (``start_new_session``): its workers are killed with it."""

Moment = Callable[[Path], bool]
"""Whether what is going on in a folder that somebody holds is what the kill waits for."""

PATIENCE = 900.0
TRIES = 3


def holders(store: Path) -> dict[Path, int]:
    """The process groups of those at work, by the folder they hold."""
    found = {}
    for path in store.glob(f"*/*/{LEASE}"):
        try:
            found[path.parent] = os.getpgid(json.loads(path.read_text())["pid"])
        except (OSError, ValueError):
            continue  # given back in this very moment, or left behind by a killed one
    return found


def dead_process() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def of_process(path: Path, pid: int) -> Path:
    """A temporary name as another process of this host would give it."""
    name = temporary_name(path).name.replace(f"-{os.getpid()}-", f"-{pid}-")
    return path.with_name(name)


def kill(process: Process) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def strike(processes: Sequence[Process], store: Path, moment: Moment) -> Process | None:
    """Kill the first of the processes that holds a folder at that moment; None where no work was cut off by it.

    Work was cut off where the lease is still there and no result is.
    """
    groups = {process.pid: process for process in processes}
    end = time.monotonic() + PATIENCE
    while any(process.poll() is None for process in processes):
        for folder, group in holders(store).items():
            if group in groups and moment(folder):
                kill(groups[group])
                in_time = (folder / LEASE).exists() and not (folder / "result.json").exists()
                return groups[group] if in_time else None
        assert time.monotonic() < end, "the moment did not come"
        time.sleep(0.01)
    for process in processes:
        process.communicate()
    return None


def cut_off(begin: Callable[[], Process], store: Path, moment: Moment) -> None:
    """Begin a process and kill it at that moment; again where the kill came too late, when its work had just ended."""
    assert any(strike([begin()], store, moment) for _ in range(TRIES)), "no kill came in time"


def working_in(room: str) -> Moment:
    """While something in this room of the store is under way, such as ``measurements``."""
    return lambda folder: folder.parent.name == room


def training_past(update: int, store: Path) -> Moment:
    """While a run is under way that has saved this update since now."""
    before = {path: _saved(path) for path in store.glob("runs/*")}

    def moment(folder: Path) -> bool:
        past = max(update, before.get(folder, 0) + 1)
        return folder.parent.name == "runs" and _saved(folder) >= past

    return moment


def _saved(folder: Path) -> int:
    return RunFolder(folder).checkpoints.latest_update or 0


SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def interrupt_at_random(
    begin: Callable[[], Process], folder: Path, rng: random.Random, *, times: int, longest: float
) -> int:
    """Send a random signal to a command, up to ``longest`` seconds after it first wrote to the folder.

    It is begun again up to ``times`` times, until it has finished; returns how many signals hit it. A machine so fast
    that it finishes before the first of them begins anew in an empty folder, with half the time.
    """
    hits = 0
    for _ in range(times):
        before = written(folder)
        with begin() as process:
            while not ended_within(process, 0.005) and written(folder) == before:
                pass
            if not ended_within(process, rng.uniform(0, longest)):
                hits += 1
                os.killpg(process.pid, rng.choice(SIGNALS))
            _, errors = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in str(errors), errors
        if process.returncode == 0 and hits:
            break
        if process.returncode == 0:
            shutil.rmtree(folder)
            longest /= 2
    return hits


def ended_within(process: Process, seconds: float) -> bool:
    """Whether a process ends by then. Its output is read meanwhile: a full pipe would hold it up."""
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=seconds)
    return process.poll() is not None


def written(folder: Path, pattern: str = "**/*") -> dict[Path, int]:
    """Such files and when they were written; temporary ones may vanish meanwhile."""
    found = {}
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError):
            found[path] = path.stat().st_mtime_ns
    return found
