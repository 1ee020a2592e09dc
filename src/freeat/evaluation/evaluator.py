"""How a model is evaluated while it trains and at the end, and what that may cost."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from freeat.attacks.pgd import Pgd
from freeat.compute.cost import FORWARD_SHARE, Cost
from freeat.data import Augmentation, Images
from freeat.evaluation.evaluate import Gap, Summary, evaluate, gap
from freeat.evaluation.overfitting import one_step_attack
from freeat.learner.distributed import SINGLE_PROCESS, ProcessGroup
from freeat.threat import Ball

BUDGET = 0.15
"""The cost of the evaluations during training, as a part of the training's, by default."""

CURVE_POINTS = 20
WORTHWHILE = 32
"""Fewer images than this say nothing about a curve."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """A model's clean and robust accuracy and loss on every split under one attack, and the gaps.

    ``train_augmented`` is the training split seen through the augmentation, where there is one.
    """

    attack: str
    iterate: str
    norm: str
    eps: float
    train: Summary
    test: Summary
    gap: Gap
    clean_gap: Gap
    train_augmented: Summary | None = None
    validation: Summary | None = None

    @property
    def splits(self) -> dict[str, Summary]:
        """The splits that were evaluated, by name."""
        named = {name: getattr(self, name) for name in SPLITS}
        return {name: summary for name, summary in named.items() if summary is not None}

    @property
    def chance(self) -> float:
        """The accuracy of guessing among the classes."""
        return 1 / max(self.train.classes, self.test.classes)

    @property
    def above_chance(self) -> bool:
        """Whether the robust training accuracy is above chance by its 95 % interval."""
        return self.train.robust_interval[0] > self.chance


SPLITS = ("train", "train_augmented", "test", "validation")


@dataclass(frozen=True, kw_only=True)
class OneStep:
    """Robust training accuracy against a single full-length step."""

    n: int
    robust_accuracy: float
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class EvaluationSchedule:
    """Evaluate every ``every`` updates on ``size`` images of each split; never, where ``every`` is None."""

    every: int | None
    size: int | None


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """The splits a model is evaluated on, and the attack and ball."""

    train: Images
    test: Images
    validation: Images | None
    augment: Augmentation | None
    attack: Pgd
    ball: Ball
    classes: int
    seed: int = 0
    watches_collapse: bool = True
    processes: ProcessGroup = SINGLE_PROCESS

    def splits(self, size: int | None) -> Iterator[tuple[str, Images, Images, Augmentation | None]]:
        """Name, images to evaluate on, the split they come from, and the augmentation they are seen through."""
        named: list[tuple[str, Images, Augmentation | None]] = [
            ("train", self.train, None),
            ("test", self.test, None),
        ]
        if self.augment is not None:
            named.insert(1, ("train_augmented", self.train, self.augment))
        if self.validation is not None:
            named.append(("validation", self.validation, None))
        for name, images, augment in named:
            some = images if size is None or size >= len(images) else images.subset(size)
            yield name, some, images, augment

    def scores(self, model: nn.Module, size: int | None = None) -> Scores:
        """Clean and robust accuracy and loss on every split, and the gaps."""
        found: dict[str, Summary] = {}
        for name, images, whole, augment in self.splits(size):
            outcome = evaluate(
                model,
                images,
                self.attack,
                self.ball,
                classes=self.classes,
                seed=self.seed,
                population=len(whole),
                augment=augment,
                with_loss=True,
                recheck=False,
                processes=self.processes,
            )
            found[name] = outcome.summary()
        return Scores(
            attack=self.attack.name,
            iterate=self.attack.iterate,
            norm=self.ball.norm,
            eps=self.ball.eps,
            **found,
            gap=gap(found["train"], found["test"]),
            clean_gap=gap(found["train"], found["test"], "clean_accuracy"),
        )

    def one_step(self, model: nn.Module, size: int | None = None) -> OneStep:
        """Robust training accuracy against a single full-length step, which a collapsed model fakes."""
        some = self.train if size is None or size >= len(self.train) else self.train.subset(size)
        single = one_step_attack(self.ball)
        outcome = evaluate(
            model,
            some,
            single,
            self.ball,
            classes=self.classes,
            seed=self.seed,
            with_loss=True,
            recheck=False,
            processes=self.processes,
        )
        found = outcome.summary()
        return OneStep(n=found.n, robust_accuracy=found.robust_accuracy, cost=found.cost)

    def cost_per_image(self, *, models: int = 1) -> float:
        """Gradient evaluations per image of every split, of every model (the weights, and their average)."""
        steps, restarts = self.attack.steps, self.attack.restarts
        attack = Cost(gradient_evaluations=steps * restarts, forward_passes=restarts + 2)
        splits = sum(1 for _ in self.splits(None))
        return models * splits * attack.total + (1 + 2 * FORWARD_SHARE if self.watches_collapse else 0)


def spent(*found: Scores | OneStep | None) -> float:
    """What evaluations cost, in gradient evaluations."""
    costs: list[Cost] = []
    for one in found:
        if isinstance(one, Scores):
            costs += [split.cost for split in one.splits.values()]
        elif one is not None:
            costs.append(one.cost)
    return sum(cost.total for cost in costs)


def schedule_evaluations(
    *,
    training_cost: float,
    cost_per_image: float,
    updates: int,
    every: int | None,
    size: int | None,
    largest: int,
) -> EvaluationSchedule:
    """Where and on how many images to evaluate so that all of it costs at most ``BUDGET`` of the training.

    The end is not among these points: it has an evaluation of its own. What the user fixed (``every``, ``size``)
    stays as it is. ``cost_per_image``: of one image of every split.
    """
    affordable = BUDGET * training_cost / cost_per_image
    if every is not None:
        points = max(1, (updates - 1) // every)
    elif size is not None:
        points = max(1, min(CURVE_POINTS, int(affordable / size)))
    else:
        points = max(1, min(CURVE_POINTS, int(affordable / (4 * WORTHWHILE))))
    if size is None:
        size = min(largest, int(affordable / points))
        if size < WORTHWHILE and every is None:
            return EvaluationSchedule(every=None, size=None)
        size = max(size, min(WORTHWHILE, largest))
    return EvaluationSchedule(every=every or -(-updates // (points + 1)), size=size)
