"""Runs freeat on bad input, one forked child per case, and counts what must not happen.

A case fails by a traceback, by a hang of more than ``HANG`` seconds, by more than ``MEMORY`` bytes, or by a file that
changed although the command refused its input. ``python fuzzing.py --cases 2000 --seed 0`` prints the counts as JSON.
"""

import argparse
import contextlib
import hashlib
import importlib
import io
import json
import os
import pkgutil
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

HANG = 20.0
MEMORY = 2 << 30
ADDRESS_SPACE = 3 << 30
"""Memory that a child may map beyond what it was forked with: a bomb must not take the machine along."""
TRACEBACK = 70
REFUSED = 2


@dataclass(frozen=True, kw_only=True)
class Case:
    """Bad input and what reads it.

    Args:
        name: What is wrong and what reads it.
        assets: The files and folders it needs, by name.
        spoil: Puts the mistake into them, in the folder of the case.
        act: The words of a command line, or a call of the library; InputError is its refusal.
        writes: Whether it may change files that exist, as a training that resumes does.
    """

    name: str
    assets: tuple[str, ...]
    spoil: Callable[[Path, Random], None]
    act: Sequence[str] | Callable[[], object]
    writes: bool = False


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """How a case ended: the exit code, what failed, and what it took."""

    case: str
    code: int
    failures: tuple[str, ...]
    seconds: float
    processor_seconds: float
    memory: int
    output: str


@dataclass
class Counts:
    """The cases so far, and what failed in them."""

    cases: int = 0
    refused: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    failed: list[CaseResult] = field(default_factory=list)
    slowest_refusal: float = 0.0
    largest_refusal: int = 0

    def add(self, result: CaseResult) -> None:
        self.cases += 1
        if result.code == REFUSED:
            self.refused += 1
            self.slowest_refusal = max(self.slowest_refusal, result.processor_seconds)
            self.largest_refusal = max(self.largest_refusal, result.memory)
        self.failures.update(result.failures)
        if result.failures:
            self.failed.append(result)
        if self.cases % 50 == 0:
            sys.stderr.write(f"{self.cases} cases, {self.refused} refused, {dict(self.failures)}\n")

    def document(self) -> dict[str, Any]:
        return {
            "cases": self.cases,
            "refused": self.refused,
            **{name: self.failures[name] for name in ("traceback", "hang", "memory", "changed file")},
            "slowest refusal in seconds of processor time": round(self.slowest_refusal, 2),
            "largest refusal in MB": self.largest_refusal >> 20,
            "failed": [vars(result) for result in self.failed],
        }


def import_everything() -> None:
    """Import once, before the forks, what the children would import each."""
    import freeat

    for module in pkgutil.walk_packages(freeat.__path__, "freeat."):
        if not module.name.endswith(("__main__", "tasks.ray")):
            importlib.import_module(module.name)
    for name in (
        "pyarrow.parquet",
        "pyarrow.ipc",
        "sklearn.datasets",
        "scipy.io",
        "matplotlib.pyplot",
        "torch._inductor",
    ):
        importlib.import_module(name)
    from PIL import Image

    Image.init()


def run_cases(
    cases: Sequence[Case], assets: Path, *, seed: int = 0, jobs: int = 1, minutes: float = 1e9
) -> Counts:
    """Every case in a child of its own, ``jobs`` at a time; none is begun after ``minutes``."""
    end = time.monotonic() + 60 * minutes
    counts = Counts()
    waiting = list(enumerate(cases))[::-1]
    running: dict[int, _Running] = {}
    with tempfile.TemporaryDirectory(prefix="freeat-fuzz-") as scratch:
        while waiting or running:
            if time.monotonic() > end:
                waiting.clear()
            while waiting and len(running) < jobs:
                number, case = waiting.pop()
                started = _start(
                    case, Random(f"{seed} {case.name} {number}"), assets, Path(scratch, str(number))
                )
                running[started.pid] = started
            for pid, child in list(running.items()):
                ended, status, usage = os.wait4(pid, os.WNOHANG)
                hanging = child.seconds > HANG
                if not ended and hanging:
                    os.killpg(pid, signal.SIGKILL)
                    ended, status, usage = os.wait4(pid, 0)
                if ended:
                    del running[pid]
                    counts.add(_result(child, status, usage, hanging))
                    _remove(child.folder)
            time.sleep(0.002)
    return counts


@dataclass(frozen=True, kw_only=True)
class _Running:
    case: Case
    pid: int
    began: float
    folder: Path

    @property
    def case_folder(self) -> Path:
        return self.folder / "case"

    @property
    def seconds(self) -> float:
        """Since the input was there, without the time in which the child, or its worker, waited for a processor."""
        try:
            acting = time.time() - (self.folder / "before").stat().st_mtime
        except OSError:
            return 0.0
        if acting <= HANG:
            return acting
        return acting - max((_waited(pid) for pid in _members(self.pid)), default=0.0)


def _members(group: int) -> Iterator[int]:
    """The processes of a process group."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(int(path.name)) == group:
                yield int(path.name)


def _waited(pid: int) -> float:
    """Seconds in which a process was ready to run and had no processor."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _start(case: Case, rng: Random, assets: Path, folder: Path) -> _Running:
    folder.mkdir()
    pid = os.fork()
    if pid:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)
        return _Running(case=case, pid=pid, began=time.monotonic(), folder=folder)
    code = TRACEBACK
    try:
        os.setpgid(0, 0)
        code = _child(case, rng, assets, folder)
    except BaseException:
        (folder / "fault").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def _child(case: Case, rng: Random, assets: Path, folder: Path) -> int:
    case_folder = folder / "case"
    case_folder.mkdir()
    for name in case.assets:
        source = assets / name
        if source.is_dir():
            shutil.copytree(source, case_folder / name)
        else:
            shutil.copy(source, case_folder / name)
    case.spoil(case_folder, rng)
    (folder / "before").write_text(json.dumps(_snapshot(case_folder)))
    os.chdir(case_folder)
    os.environ["FREEAT_DATA"] = str(case_folder / "data-sets")
    output = os.open(folder / "output", os.O_CREAT | os.O_WRONLY)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0), os.dup2(output, 1), os.dup2(output, 2)
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(n, "w"), "utf-8", "replace") for n in (1, 2))
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESS_SPACE, mapped + ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    code = _acted(case)
    sys.stdout.flush(), sys.stderr.flush()
    return code


def _acted(case: Case) -> int:
    from freeat.cli.main import run
    from freeat.errors import InputError

    try:
        if not callable(case.act):
            return run(list(case.act))
        case.act()
        return 0
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        return REFUSED
    except BaseException:
        traceback.print_exc()
        return TRACEBACK


def _result(child: _Running, status: int, usage: resource.struct_rusage, hanging: bool) -> CaseResult:
    code = os.waitstatus_to_exitcode(status)
    fault = child.folder / "fault"
    assert not fault.exists(), f"{child.case.name}: {fault.read_text()}"
    output = (child.folder / "output").read_text("utf-8", "replace")
    memory = usage.ru_maxrss * 1024
    failures = {
        "hang": hanging,
        "traceback": not hanging and (code not in (0, 1, REFUSED) or "Traceback (most recent" in output),
        "memory": memory > MEMORY,
        "changed file": not hanging and _changed(child, code),
    }
    return CaseResult(
        case=child.case.name,
        code=code,
        failures=tuple(name for name, failed in failures.items() if failed),
        seconds=time.monotonic() - child.began,
        processor_seconds=usage.ru_utime + usage.ru_stime,
        memory=memory,
        output=output[-1500:],
    )


def _changed(child: _Running, code: int) -> bool:
    """Whether a refusal left a trace, or a command that only reads changed a file."""
    before, after = json.loads((child.folder / "before").read_text()), _snapshot(child.case_folder)
    if code == REFUSED:
        return bool(before != after)
    return not child.case.writes and any(after.get(name) != state for name, state in before.items())


def _snapshot(folder: Path) -> dict[str, str]:
    return dict(_entries(os.fsencode(folder)))


def _entries(folder: bytes) -> Iterator[tuple[str, str]]:
    for path, folders, files in os.walk(folder):
        for name in folders:
            yield ascii(os.path.join(path, name)), "folder"
        for name in files:
            file = os.path.join(path, name)
            regular = os.path.isfile(file) and not os.path.islink(file)
            yield ascii(file), _digest(file) if regular else "special"


def _digest(file: bytes) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _remove(folder: Path) -> None:
    shutil.rmtree(os.fsencode(folder))


def main() -> None:
    """Print the counts; exit code 1 where a case failed."""
    from fuzz_cases import all_cases, make_assets

    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no case after this time")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--assets", type=Path, help="folder of the assets, made if it is not there")
    asked = parser.parse_args()
    import_everything()
    with tempfile.TemporaryDirectory(prefix="freeat-assets-") as folder:
        assets = asked.assets or Path(folder)
        if not any(assets.glob("*")):
            assets.mkdir(exist_ok=True)
            _in_child(lambda: make_assets(assets))
        cases = [case for case in all_cases(asked.cases, asked.seed) if asked.only in case.name]
        counts = run_cases(cases, assets, seed=asked.seed, jobs=asked.jobs, minutes=asked.minutes)
    sys.stdout.write(json.dumps(counts.document(), indent=1) + "\n")
    sys.exit(1 if counts.failed else 0)


def _in_child(work: Callable[[], object]) -> None:
    """Do it in a forked child, so that this process stays without threads."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.dup2(2, 1)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the assets could not be made"


if __name__ == "__main__":
    main()
