"""Whether coupled runs are faster stacked or separate: measured, not guessed."""

import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from freeat.algorithms.step import Algorithm
from freeat.errors import InputError
from freeat.stability.coupled import LearnerOf, make_runs
from freeat.stability.stack import refuse_running_statistics

TIMED_MEMBERS = 4
"""Separate runs cost the same each, so a few of them tell what all cost."""


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """The faster engine and the seconds a batch took with each; ``reason`` where there was no choice."""

    engine: str
    seconds: dict[str, float]
    reason: str | None = None

    def row(self) -> dict[str, object]:
        return {"engine": self.engine, "seconds_per_batch": self.seconds, "reason": self.reason}


def choose_engine(
    model: nn.Module, members: int, learner_of: LearnerOf, algorithm: Algorithm, x: Tensor, y: Tensor
) -> EngineChoice:
    """Step throw-away copies of the runs on the batch (x, y) with both engines, and take the faster one."""
    try:
        refuse_running_statistics(model)
    except InputError as refusal:
        return EngineChoice(engine="separate", seconds={}, reason=str(refusal))
    timed = min(members, TIMED_MEMBERS)
    seconds = {
        "stacked": _seconds("stacked", model, members, learner_of, algorithm, x, y),
        "separate": _seconds("separate", model, timed, learner_of, algorithm, x, y) * members / timed,
    }
    return EngineChoice(engine=min(seconds, key=lambda name: seconds[name]), seconds=seconds)


def _seconds(
    engine: str,
    model: nn.Module,
    members: int,
    learner_of: LearnerOf,
    algorithm: Algorithm,
    x: Tensor,
    y: Tensor,
) -> float:
    """The best time of a batch, after one that warms up (two where the budget allows no more)."""
    runs = make_runs(engine, model, members, learner_of)
    everyone = torch.ones(members, dtype=torch.bool)
    x, y = x.expand(members, *x.shape), y.expand(members, *y.shape)
    times: list[float] = []
    while runs.base.updates_left > 0 and len(times) < 4:
        begun = time.perf_counter()
        runs.step(algorithm, x, y, everyone)
        runs.weights().sum().item()  # waits for the device
        times.append(time.perf_counter() - begun)
    return min(times[1:] or times)
