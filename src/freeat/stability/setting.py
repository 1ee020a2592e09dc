"""The setting of a stability study: what every coupled run has in common, as one frozen value."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import nn

from freeat.algorithms import Algorithm, Erm, Fast, Free, Friendly, Vanilla, make_algorithm, parse_algorithm
from freeat.data import Augmentation, DataSet, Images, parse_augmentation
from freeat.data.batches import Batches
from freeat.errors import InputError, unknown_name
from freeat.learner import Learner
from freeat.learner.schedules import make_schedule
from freeat.models import build
from freeat.objectives import OBJECTIVES, BoundedLoss, Objective
from freeat.stability.twins import Twins, joined, outside
from freeat.threat import Ball, make_ball

Mode = Literal["theorem", "ordinary"]
MODES: tuple[str, ...] = get_args(Mode)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A study of twin runs.

    ``theorem``: plain SGD with steps c/t (Free c/(mt)), c = ``lr``; batches drawn independently; no box, no
    augmentation; the bounded loss 1 − p_y. ``ordinary``: momentum and weight decay, shuffled epochs, a piecewise
    rate, the box, augmentation (``auto``: what the data are used to) and each algorithm's own loss.
    """

    data: str = "digits"
    model: str = "mlp-w64-softplus"
    mode: str = "ordinary"
    norm: str = "l2"
    eps: float = 0.5
    n: int = 500
    updates: int = 500
    batch_size: int = 32
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 2e-4
    augment: str = "auto"
    replaced: int = 16
    probes: int = 128
    attack_steps: int = 20
    eval_size: int = 300
    times: int = 40
    probe_times: int = 5
    constant_points: int = 16
    sample_seed: int = 0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise unknown_name("mode", self.mode, MODES)
        rules: list[tuple[str, float, float]] = [
            ("n", self.n, 2),
            ("updates", self.updates, 1),
            ("batch_size", self.batch_size, 1),
            ("replaced", self.replaced, 1),
            ("probes", self.probes, 1),
            ("attack_steps", self.attack_steps, 1),
            ("eval_size", self.eval_size, 1),
            ("times", self.times, 1),
            ("probe_times", self.probe_times, 1),
            ("constant_points", self.constant_points, 0),
        ]
        for name, value, least in rules:
            if value < least:
                raise InputError(f"--{name.replace('_', '-')} {value} must be at least {least:g}")
        if self.batch_size > self.n:
            raise InputError(f"--batch-size {self.batch_size} exceeds the {self.n} examples of S: take fewer")
        if not self.lr > 0:
            raise InputError(f"--lr {self.lr:g} must be positive")

    @property
    def theorem(self) -> bool:
        return self.mode == "theorem"

    @property
    def ball(self) -> Ball:
        return make_ball(self.norm, self.eps, None if self.theorem else (0.0, 1.0))

    def words(self) -> dict[str, Any]:
        """The setting as plain values."""
        return asdict(self)

    def with_n(self, n: int) -> "Setting":
        """The same with another sample size."""
        return replace(self, n=n)

    def objective(self, name: str) -> Objective:
        """What the algorithm descends: the bounded loss where theorems are meant and cross-entropy was."""
        kind = parse_algorithm(name).objective
        return BoundedLoss() if self.theorem and kind == "ce" else OBJECTIVES[kind]()

    def algorithm(self, name: str) -> Erm | Vanilla | Fast | Free | Friendly:
        made = make_algorithm(name, self.ball, objective=self.objective(name))
        assert isinstance(made, Erm | Vanilla | Fast | Free | Friendly)
        return made

    def twins(self, data: DataSet) -> Twins:
        """S, a nested subset of the training images, and its neighbours; replacements come from outside S."""
        sample = data.train.subset(self.n, self.sample_seed)
        return Twins.draw(sample, outside(data.train, sample), self.replaced, self.sample_seed)

    def probe_images(self, data: DataSet, twins: Twins) -> Images:
        """Where losses are compared: unseen images, the replaced examples and their replacements."""
        fresh = data.test.subset(min(self.probes, len(data.test)), self.sample_seed)
        return joined(fresh, twins.originals, twins.replacements)

    def batches(self, seed: int) -> Batches:
        return Batches(
            n=self.n, size=self.batch_size, seed=seed, sampling="independent" if self.theorem else "epochs"
        )

    def augmentation(self, data: DataSet) -> Augmentation | None:
        return parse_augmentation("none" if self.theorem else self.augment, data.augment)

    def model_of(self, data: DataSet, seed: int, device: torch.device) -> nn.Module:
        """The initial model of a seed."""
        return build(self.model, classes=len(data.classes), shape=data.shape, seed=seed).to(device)

    def learner_of(self, algorithm: Algorithm, seed: int) -> Callable[[nn.Module], Learner]:
        """What makes a learner of one model or of a stack."""
        schedule = make_schedule(
            "vanishing" if self.theorem else "piecewise", self.lr, algorithm.updates_per_batch
        )

        def made(model: nn.Module) -> Learner:
            optimizer = torch.optim.SGD(
                model.parameters(),
                lr=self.lr,
                momentum=0.0 if self.theorem else self.momentum,
                weight_decay=0.0 if self.theorem else self.weight_decay,
            )
            return Learner(model, optimizer, seed=seed, total_updates=self.updates, schedule=schedule)

        return made
