"""How fast this machine sends images through a network, measured by single steps."""

import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, fields
from multiprocessing import get_context
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from freeat import models
from freeat.algorithms import make_algorithm
from freeat.attacks.pgd import Pgd
from freeat.compute.machine import arithmetic, resolve_device
from freeat.compute.precision import Precision
from freeat.data import load
from freeat.errors import InputError
from freeat.experiments.paper.effort import Ground, Work
from freeat.experiments.tasks import Site
from freeat.learner import Learner
from freeat.rng import ImageRng
from freeat.runs.spec import TrainSpec
from freeat.threat import Ball, make_ball

STEPS = 4
"""Steps of the attack that is timed."""

PATIENCE = 0.1
"""Seconds of a step on eight images beyond which a whole batch is not timed."""

FEW = 8
CALLS, ENOUGH = 4, 1.0
"""A step is timed so many times, or for so many seconds."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Seconds per image of each kind of work, on one network and size of images."""

    attack: float
    weights: float
    both: float
    forward: float
    judged: float
    asked: float

    def seconds(self, work: Work) -> float:
        return math.fsum(getattr(self, f.name) * getattr(work, f.name) for f in fields(self))


class Stopwatch:
    """Times networks while ``workers`` processes use them at once: those of one CPU share memory and caches."""

    def __init__(self, *, workers: int, device: str) -> None:
        self.device = device
        self.workers = workers if resolve_device(device).type == "cpu" else 1
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self.workers > 1:
            self._pool = ProcessPoolExecutor(self.workers, mp_context=get_context("spawn"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def rates(self, spec: TrainSpec, ground: Ground) -> Rates:
        """The rates of a network, by the slowest of the processes."""
        if self._pool is None:
            return time_steps(spec, ground, self.device)
        try:
            found = [self._pool.submit(time_steps, spec, ground, self.device) for _ in range(self.workers)]
            measured = [asdict(future.result()) for future in found]
        except BrokenProcessPool as end:
            raise InputError(
                f"one of {self.workers} processes that timed {spec.model} was ended from outside, perhaps for want of "
                "memory: free some, or ask for fewer with --jobs"
            ) from end
        return Rates(**{name: max(rates[name] for rates in measured) for name in measured[0]})


def time_steps(spec: TrainSpec, ground: Ground, device: str) -> Rates:
    """Time one step of ERM, Free and Vanilla, and one evaluation, on random images."""
    on = resolve_device(device)
    with arithmetic(threads=spec.threads or torch.get_num_threads(), deterministic=spec.deterministic):
        bench = _Bench(spec, ground, on)
        b = spec.batch_size if FEW * bench.step("erm", FEW) < PATIENCE else FEW
        weights, both = bench.step("erm", b), bench.step("free-1", b)
        attack = max(0.0, bench.step(f"vanilla-{STEPS}", b) - weights) / STEPS
        judged, forward, asked = bench.judge(b) / STEPS, bench.forward(b), bench.ask(b)
    return Rates(weights=weights, both=both, attack=attack, forward=forward, judged=judged, asked=asked)


class _Bench:
    """A network with an optimizer and random images, to be timed."""

    def __init__(self, spec: TrainSpec, ground: Ground, device: torch.device) -> None:
        model = models.build(spec.model, classes=ground.classes, shape=ground.shape, seed=0)
        self.model = model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=spec.momentum)
        self.learner = Learner(self.model, optimizer, seed=0, precision=Precision(spec.precision, device))
        self.ball: Ball = make_ball(spec.norm, spec.eps)
        self.ground, self.device = ground, device
        self.threads = torch.get_num_threads()

    def step(self, algorithm: str, b: int) -> float:
        one = make_algorithm(algorithm, self.ball)
        return self._timed(lambda x, y: one.step(self.learner, x, y), b)

    def judge(self, b: int) -> float:
        attack = Pgd(steps=STEPS, iterate="last")
        self.model.eval()
        return self._timed(
            lambda x, y: attack(self.model, x, y, self.ball, ImageRng(0, list(range(len(x))))), b
        )

    def forward(self, b: int) -> float:
        with torch.no_grad():
            return self._timed(lambda x, y: self.learner.logits(x), b)

    def ask(self, b: int) -> float:
        with torch.no_grad():
            return self._timed(lambda x, y: self.model(x), b)

    def _timed(self, step: Callable[[Tensor, Tensor], object], b: int) -> float:
        """Seconds per image of the fastest of a few calls; a slow one is not repeated."""
        generator = torch.Generator().manual_seed(0)
        x = torch.rand((b, *self.ground.shape), generator=generator)
        x = x.to(self.device, memory_format=torch.channels_last)
        y = torch.randint(self.ground.classes, (b,), generator=generator).to(self.device)
        times: list[float] = []
        while len(times) < CALLS and sum(times) < ENOUGH:
            began = self._now()
            step(x, y)
            times.append(self._now() - began)
        return min(times) / b

    def _now(self) -> float:
        """Seconds; on a CPU those it worked for us, so that other processes do not count."""
        if self.device.type == "cpu":
            return time.process_time() / self.threads
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def time_loading(data: str, site: Site) -> float:
    """Seconds of work to read a data set, which every run does; 0 where it is not here."""
    began = time.process_time()
    try:
        _ = load(data, data_dir=site.data_dir).digest
    except InputError:
        return 0.0
    return time.process_time() - began
