"""Whether coupled runs are faster stacked or separate: measured, not guessed."""

import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from freeat.algorithms.step import Algorithm
from freeat.errors import InputError
from freeat.stability.coupled import CoupledRuns, LearnerOf, make_runs
from freeat.stability.stack import refuse_running_statistics

TIMED_MEMBERS = 4
"""Separate runs cost the same each, so a few of them tell what all cost."""
TIMED_BATCHES = 4
MARGIN = 0.8
"""Stacking must save this much to be chosen: where both cost the same, separate runs need less memory."""


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
    timed = {"stacked": members, "separate": min(members, TIMED_MEMBERS)}
    runs = {name: make_runs(name, model, k, learner_of) for name, k in timed.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(TIMED_BATCHES):  # in turns, so that a busy machine slows both alike
        for name, own in runs.items():
            if own.base.updates_left > 0:
                times[name].append(_seconds(own, algorithm, x, y))
    # The first batch warms up, where the budget allows more than one.
    seconds = {name: min(seen[1:] or seen) * members / timed[name] for name, seen in times.items()}
    stacks = seconds["stacked"] < MARGIN * seconds["separate"]
    return EngineChoice(engine="stacked" if stacks else "separate", seconds=seconds)


def _seconds(runs: CoupledRuns, algorithm: Algorithm, x: Tensor, y: Tensor) -> float:
    """How long a batch takes."""
    k = runs.members
    begun = time.perf_counter()
    runs.step(algorithm, x.expand(k, *x.shape), y.expand(k, *y.shape), torch.ones(k, dtype=torch.bool))
    runs.weights().sum().item()  # waits for the device
    return time.perf_counter() - begun
