"""Device, threads, determinism and memory of a run; the provenance of its results."""

import ctypes
import inspect
import logging
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import torch

import freeat
from freeat.errors import InputError, unknown_name

log = logging.getLogger(__name__)

DEVICES = ("auto", "cpu", "cuda", "mps")
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # glibc's parameters, from <malloc.h>
LARGEST_KEPT = 32 << 20
SHORTEST = 0.2
"""Seconds below which the system's count of used time is too coarse to tell who uses the cores."""
CALLS, QUICK = 3, 1.0
"""Calls that are timed at most, and the seconds above which one is enough."""


def resolve_device(name: str) -> torch.device:
    """The device of that name; ``auto`` takes the fastest there is. Under torchrun each process has its own GPU."""
    kind, _, number = name.partition(":")
    if kind not in DEVICES:
        raise unknown_name("device", name, DEVICES)
    if number and not number.isdecimal():
        raise InputError(f"device {name!r}: the number of a device follows the colon, as in cuda:1")
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind == "auto":
        kind = name = next(d for d in ("cuda", "mps", "cpu") if available[d])
    if not available[kind]:
        raise InputError(f"device {name!r} is not available here: use --device auto or cpu")
    if kind == "cuda" and ":" not in name:
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device(name)


def usable_cores() -> int:
    """The cores this process may use: on a shared machine often fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolve_threads(threads: int | None) -> int:
    """The CPU threads to use, by default torch's choice; more than there are cores gives a warning."""
    if threads is not None and threads < 1:
        raise InputError(f"--threads {threads} must be at least 1")
    chosen = torch.get_num_threads() if threads is None else threads
    cores = usable_cores()
    if chosen > cores:
        warn_once(f"{chosen} threads on {cores} cores wait for each other: use --threads {cores}")
    return chosen


@cache
def warn_once(text: str) -> None:
    """Log a warning the first time that it is given."""
    log.warning("%s", text)


@dataclass(frozen=True, kw_only=True)
class CpuClock:
    """Seconds so far: by the wall clock, of this process on all its threads, and of all processes on its cores."""

    wall: float
    own: float
    all: float

    @classmethod
    def now(cls) -> "CpuClock | None":
        """The clock now; None where the system does not tell (anywhere but on Linux)."""
        try:
            lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
        except OSError:
            return None
        names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        fields = [line.split() for line in lines]
        # user nice system idle iowait irq softirq steal: idle and iowait are no work
        ticks = sum(sum(map(int, f[1:4])) + sum(map(int, f[6:9])) for f in fields if f[0] in names)
        own = time.process_time() + sum(os.times()[2:4])
        return cls(wall=time.monotonic(), own=own, all=ticks / os.sysconf("SC_CLK_TCK"))

    def cores_of_others(self) -> float | None:
        """How many cores other processes have used since, on average; None for less than ``SHORTEST`` seconds."""
        now = CpuClock.now()
        if now is None or now.wall - self.wall < SHORTEST:
            return None
        return max(0.0, (now.all - self.all) - (now.own - self.own)) / (now.wall - self.wall)


@contextmanager
def arithmetic(*, threads: int, deterministic: bool) -> Iterator[None]:
    """The threads and the determinism of a run; the settings of the process are restored afterwards."""
    memory: Any = torch.utils.deterministic  # a module whose attribute is a property, which mypy cannot see
    before = (
        torch.get_num_threads(),
        torch.get_deterministic_debug_mode(),
        torch.backends.cudnn.benchmark,
        torch.get_float32_matmul_precision(),
        memory.fill_uninitialized_memory,
    )
    torch.set_num_threads(threads)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it starts
    _set_deterministic("error" if deterministic else "default")
    torch.backends.cudnn.benchmark = not deterministic
    torch.set_float32_matmul_precision("highest" if deterministic else "high")
    memory.fill_uninitialized_memory = False  # filling takes time, and nothing here reads new memory
    try:
        with freed_memory_kept():
            yield
    finally:
        torch.set_num_threads(before[0])
        _set_deterministic(before[1])
        torch.backends.cudnn.benchmark = before[2]
        torch.set_float32_matmul_precision(before[3])
        memory.fill_uninitialized_memory = before[4]


def _set_deterministic(mode: int | str) -> None:
    """What ``torch.use_deterministic_algorithms`` sets, which imports the compiler: 1.6 s of each short command.

    The compiler has a setting of its own, for those who import it (``compiled``).
    """
    torch.set_deterministic_debug_mode(mode)
    compiler: Any = sys.modules.get("torch._inductor.config")
    if compiler is not None:
        compiler.deterministic = torch.are_deterministic_algorithms_enabled()


Optimizer = TypeVar("Optimizer", bound=torch.optim.Optimizer)


def uncompiled(kind: type[Optimizer]) -> type[Optimizer]:
    """The optimizer without the wrappers that stop torch's compiler at its methods, and import it: the same steps."""
    own = ("add_param_group", "state_dict", "load_state_dict", "zero_grad")
    methods: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in own}
    step = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), methods | {"step": step, "__doc__": kind.__doc__})


def compiled(model: torch.nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """The model's forward pass by ``torch.compile``, as deterministic as the arithmetic is."""
    torch.use_deterministic_algorithms(
        torch.are_deterministic_algorithms_enabled(),
        warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    forward: Callable[[torch.Tensor], torch.Tensor] = torch.compile(model)
    return forward


def quickest(call: Callable[[], object], device: torch.device, *, wall: bool = False) -> float:
    """Seconds of the quickest of ``CALLS`` calls, or of a single slow one, after a call that is not timed.

    On a CPU these are the seconds in which it worked for this process, so that other processes do not count, unless
    the ``wall`` clock is asked for.
    """

    def now() -> float:
        if device.type == "cpu" and not wall:
            return time.process_time() / min(torch.get_num_threads(), usable_cores())
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    call()
    seconds: list[float] = []
    while len(seconds) < CALLS and (not seconds or seconds[-1] < QUICK):
        began = now()
        call()
        seconds.append(now() - began)
    return min(seconds)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Inside, large freed blocks are used again instead of being returned to the system; glibc only.

    Every step frees and allocates the same activations. Returned blocks come back as pages that the
    system clears one by one, which costs a tenth of a ResNet-18 step in fp32 at batch 128. Keeping them can
    raise the peak by a fifth.
    """
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(MMAP_MAX, 0)
    libc.mallopt(TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        # glibc adapts its thresholds until they are first set; these are the values it would have come to
        libc.mallopt(MMAP_MAX, 1 << 16)
        libc.mallopt(MMAP_THRESHOLD, LARGEST_KEPT)
        libc.mallopt(TRIM_THRESHOLD, 2 * LARGEST_KEPT)
        libc.malloc_trim(0)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine that computed a result."""

    system: str
    processor: str
    cores: int | None
    accelerator: str | None = None


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a stored result comes from: versions by package, the commit of a source tree, machine and command."""

    versions: dict[str, str]
    commit: str | None
    machine: Machine
    command: str


def provenance(device: torch.device) -> Provenance:
    """The provenance of what this process computes on ``device``."""
    versions = {"freeat": freeat.__version__, "python": platform.python_version()}
    return Provenance(
        versions=versions | {name: metadata.version(name) for name in ("torch", "numpy")},
        commit=_commit(),
        machine=Machine(
            system=platform.platform(terse=True),
            processor=_processor(),
            cores=os.cpu_count(),
            accelerator=torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        ),
        command=shlex.join(["freeat", *sys.argv[1:]]),
    )


@cache  # a sweep has many results, and git is slow
def _commit() -> str | None:
    """The commit of the source tree this package runs from; None where it was installed."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.debug("no commit recorded: %s", error)
        return None
    return answer.stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()
