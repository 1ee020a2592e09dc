"""One cell of a study: K twins and their base, trained by one algorithm with one seed, and all that was seen."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from freeat.algorithms import Erm
from freeat.algorithms.step import StepRecord
from freeat.attacks.pgd import last_iterate
from freeat.compute.frozen import frozen
from freeat.data import DataSet
from freeat.evaluation.gradient_norms import GradientNorms
from freeat.files.documents import plain
from freeat.rng import ImageRng
from freeat.stability.constants import Constants, estimate_constants
from freeat.stability.probes import Probing
from freeat.stability.setting import Setting
from freeat.stability.twins import (
    CoupledRuns,
    Twins,
    delta_distances,
    make_runs,
    train_twins,
    weight_distances,
)

Watch = Callable[[int, int], None]


def spread(count: int, total: int) -> set[int]:
    """``count`` of the numbers 1, …, total, evenly spread, the last among them."""
    return {round(total * k / min(count, total)) for k in range(1, min(count, total) + 1)}


class CellRecorder:
    """Looks at the runs at chosen batches and writes down what it sees."""

    def __init__(self, setting: Setting, data: DataSet, name: str, seed: int, twins: Twins) -> None:
        self.setting, self.name, self.seed = setting, name, seed
        self.algorithm = setting.algorithm(name)
        self.batches = -(-setting.updates // self.algorithm.updates_per_batch)
        self.probe_images = setting.probe_images(data, twins)
        self.train = twins.sample.subset(min(setting.eval_size, setting.n), setting.sample_seed)
        self.test = data.test.subset(min(setting.eval_size, len(data.test)), setting.sample_seed + 1)
        self.probing = Probing(ball=setting.ball, steps=setting.attack_steps, seed=seed)
        self.distances: list[dict[str, Any]] = []
        self.probes: list[dict[str, Any]] = []
        self.gradients: list[dict[str, Any]] = []
        self.differences: Tensor | None = None
        self.diverged: int | None = None
        self.constants: Constants | None = None
        self._norms = GradientNorms()
        self._due = spread(setting.times, self.batches)
        self._probe_due = spread(setting.probe_times, self.batches)

    def look(self, runs: CoupledRuns, record: StepRecord) -> None:
        """After a batch. Numbers that are not finite any more are not recorded, but when that was seen is."""
        batch, update = runs.base.batches, runs.base.updates
        if record.g_norms is not None:
            self._norms.add(record.g_norms[:, 0].cpu())
        if batch in self._due:
            row: dict[str, Any] = {
                "update": update,
                "d_w": weight_distances(runs),
                "d_delta": delta_distances(record),
            }
            if not all(math.isfinite(d) for key in ("d_w", "d_delta") for d in row[key]):
                self.diverged = update
                return
            self.distances.append(row)
            if (taken := self._norms.take()) is not None:
                self.gradients.append({"update": update, **taken})
        if batch in self._probe_due:
            self._probe(runs, update)

    def _probe(self, runs: CoupledRuns, update: int) -> None:
        at_probes = self.probing(runs, self.probe_images).bounded
        train, test = (self.probing(runs, images) for images in (self.train, self.test))
        if not all(bool(losses.isfinite().all()) for losses in (at_probes, train.bounded, test.bounded)):
            self.diverged = update
            return
        self.differences = at_probes[:1] - at_probes[1:]
        self.probes.append(
            {
                "update": update,
                "largest_difference": float(self.differences.abs().max()),
                "mean_difference": float(self.differences.abs().double().mean()),
                "robust_train": train.robust_accuracy,
                "robust_test": test.robust_accuracy,
                "risk_train": [float(r) for r in train.bounded.double().mean(1)],
                "risk_test": [float(r) for r in test.bounded.double().mean(1)],
            }
        )
        if self.setting.constant_points:
            here = self._constants_at(runs)
            self.constants = here if self.constants is None else self.constants.merged(here)

    def _constants_at(self, runs: CoupledRuns) -> Constants:
        """The constants at the base's weights, at random starts in the ball and at the end of an attack."""
        model, ball, objective = runs.member(0), self.setting.ball, self.setting.objective(self.name)
        images = self.train.subset(min(self.setting.constant_points, len(self.train)))
        x, y = images.batch(torch.arange(len(images)))
        rng = ImageRng(self.seed, images.index.tolist())
        if isinstance(self.algorithm, Erm):
            return estimate_constants(model, objective, x, y, torch.zeros_like(x))
        start = ball.start(x, "uniform", rng)
        with frozen(model, "eval"):
            end = last_iterate(objective.attack(model, x, y), x, ball, rng, steps=5, alpha=ball.eps / 4)
        return estimate_constants(
            model, objective, x.repeat(2, 1, 1, 1), y.repeat(2), torch.cat([start, end])
        )

    def document(self, runs: CoupledRuns, twins: Twins, seconds: float) -> dict[str, Any]:
        """Everything, as plain values; of runs that diverged, only that they did."""
        about = {"algorithm": self.name, "n": self.setting.n, "seed": self.seed}
        about |= {"replaced": list(twins.replaced), "diverged": self.diverged, "seconds": seconds}
        if self.diverged is not None:
            return about
        assert self.differences is not None
        constants = self.constants
        if constants is not None and self.gradients:
            count = sum(sum(row["bins"].values()) for row in self.gradients)
            constants = constants.with_gradients(self.gradients[-1]["smallest_so_far"], count)
        m = self.algorithm.updates_per_batch
        meetings = twins.meetings(self.setting.batches(self.seed), self.batches)
        return {
            **about,
            "t0": [None if t is None else (t - 1) * m + 1 for t in meetings],
            "distances": self.distances,
            "probes": self.probes,
            "differences": self.differences.tolist(),
            "gradient_norms": self.gradients,
            "constants": None if constants is None else plain(constants),
        }


def run_cell(
    setting: Setting,
    data: DataSet,
    name: str,
    seed: int,
    engine: str,
    *,
    device: torch.device,
    watch: Watch = lambda update, total: None,
) -> dict[str, Any]:
    """Train the twins of one algorithm and seed to the end, and return what was recorded."""
    begun = time.monotonic()
    twins = setting.twins(data)
    algorithm = setting.algorithm(name)
    recorder = CellRecorder(setting, data, name, seed, twins)
    runs = make_runs(
        engine, setting.model_of(data, seed, device), twins.members, setting.learner_of(algorithm, seed)
    )
    steps = train_twins(runs, algorithm, twins, setting.batches(seed), setting.augmentation(data))
    for record in steps:
        recorder.look(runs, record)
        watch(runs.base.updates, setting.updates)
        if recorder.diverged is not None:
            break
    return recorder.document(runs, twins, time.monotonic() - begun)
