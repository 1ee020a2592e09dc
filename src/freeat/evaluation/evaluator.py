"""Evaluations of a model during and after training: its scores, their cost, catastrophic overfitting."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from freeat.algorithms.step import Strength
from freeat.attacks.pgd import Pgd
from freeat.compute import Cost
from freeat.data import Augmentation, Images
from freeat.evaluation.evaluate import Evaluation, Gap, Summary, evaluate, gap, same_answer
from freeat.learner.distributed import SINGLE_PROCESS, ProcessGroup
from freeat.threat import Ball

BUDGET = 0.15
"""The cost of the evaluations during training, as a part of the training's, by default."""

CURVE_POINTS, CURVE_IMAGES = 12, 128
"""The points of a learning curve after the one at update 0, and the images of each split, at least and by default."""

COLLAPSE_SPREAD, COLLAPSE_SHARE = 0.25, 0.5
"""Where robust training accuracy counts as collapsed (``collapse_warning``)."""


@dataclass(frozen=True, kw_only=True)
class RobustRight:
    """Which of the evaluated images are right under the attack: a bit for each, in hexadecimal digits."""

    train: str
    test: str

    @classmethod
    def of(cls, train: Tensor, test: Tensor) -> "RobustRight":
        packed = (np.packbits(right.cpu().numpy()).tobytes().hex() for right in (train, test))
        return cls(**dict(zip(("train", "test"), packed, strict=True)))


@dataclass(frozen=True, kw_only=True)
class Scores:
    """A model's clean and robust accuracy and loss on every split under one attack, and the gaps.

    ``train_augmented`` is the training split seen through the augmentation, where there is one. ``robust_right`` has
    the outcome of every image: all models of a comparison are evaluated on the same ones. ``adversarial`` says whether
    the model was trained for robust accuracy; otherwise it was for clean.
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
    robust_right: RobustRight | None = None
    adversarial: bool = True

    @property
    def splits(self) -> dict[str, Summary]:
        """The splits that were evaluated, by name."""
        named = {name: getattr(self, name) for name in SPLITS}
        return {name: summary for name, summary in named.items() if summary is not None}

    def right(self, split: Literal["train", "test"]) -> NDArray[np.uint8] | None:
        """1 for every evaluated image that is right under the attack, 0 for the others; None where it was not kept."""
        if self.robust_right is None:
            return None
        packed = np.frombuffer(bytes.fromhex(getattr(self.robust_right, split)), np.uint8)
        return np.unpackbits(packed, count=getattr(self, split).n)

    @property
    def test_halves(self) -> tuple[int, int] | None:
        """The test images that are right under the attack among those in even rows, and among those in odd rows.

        A checkpoint that is chosen on one half can be evaluated on the other.
        """
        right = self.right("test")
        return None if right is None else (int(right[0::2].sum()), int(right[1::2].sum()))

    @property
    def above_chance(self) -> bool:
        """Whether the training accuracy that the model was trained for is above chance by its 95 % interval."""
        return self.train.above_chance("robust_accuracy" if self.adversarial else "clean_accuracy")

    @property
    def constant_answer(self) -> int | None:
        """The class that the model gives to every image of both splits, if it does: its gap is then no evidence."""
        return same_answer(self.train, self.test)


SPLITS = ("train", "train_augmented", "test", "validation")


@dataclass(frozen=True, kw_only=True)
class OneStep:
    """Robust training accuracy against a single full-length step."""

    n: int
    robust_accuracy: float
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class EvaluationSchedule:
    """Evaluate at update 0 and every ``every`` updates on ``size`` images of each split."""

    every: int
    size: int


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

    @property
    def views(self) -> dict[str, tuple[Images, Augmentation | None]]:
        """The images of every split by name, with the augmentation they are seen through."""
        named: dict[str, tuple[Images, Augmentation | None]] = {"train": (self.train, None)}
        if self.augment is not None:
            named["train_augmented"] = (self.train, self.augment)
        named["test"] = (self.test, None)
        if self.validation is not None:
            named["validation"] = (self.validation, None)
        return named

    def scores(self, model: nn.Module, size: int | None = None) -> Scores:
        """Clean and robust accuracy and loss on every split (on ``size`` images of each), and the gaps."""
        evaluations = {
            name: self._evaluate(model, images, self.attack, size, augment)
            for name, (images, augment) in self.views.items()
        }
        found = {name: evaluation.summary() for name, evaluation in evaluations.items()}
        return Scores(
            attack=self.attack.name,
            iterate=self.attack.iterate,
            norm=self.ball.norm,
            eps=self.ball.eps,
            **found,
            gap=gap(found["train"], found["test"]),
            clean_gap=gap(found["train"], found["test"], "clean_accuracy"),
            robust_right=RobustRight.of(*(evaluations[name].robust_correct for name in ("train", "test"))),
            adversarial=self.watches_collapse,
        )

    def one_step(self, model: nn.Module, size: int | None = None) -> OneStep:
        """Robust training accuracy against a single full-length step, high after catastrophic overfitting."""
        found = self._evaluate(model, self.train, one_step_attack(self.ball), size).summary()
        return OneStep(n=found.n, robust_accuracy=found.robust_accuracy, cost=found.cost)

    def _evaluate(
        self,
        model: nn.Module,
        images: Images,
        attack: Pgd,
        size: int | None,
        augment: Augmentation | None = None,
    ) -> Evaluation:
        return evaluate(
            model,
            images.sample(size),
            attack,
            self.ball,
            classes=self.classes,
            seed=self.seed,
            population=len(images),
            augment=augment,
            with_loss=True,
            recheck=False,
            check_consistency=False,  # a run looks at it once, before its training
            processes=self.processes,
        )

    @property
    def cost_per_image(self) -> float:
        """Gradient evaluations of the attack on one image of every split."""
        steps, restarts = self.attack.steps, self.attack.restarts
        attack = Cost(gradient_evaluations=steps * restarts, forward_passes=restarts + 2)
        return len(self.views) * attack.total


def one_step_attack(ball: Ball) -> Pgd:
    """The full-length single step of FGSM, against which catastrophic overfitting keeps the accuracy high."""
    return Pgd(steps=1, alpha=ball.eps, start="zero", iterate="last")


def collapse_warning(
    one_step: float, pgd: float, best_pgd: float, trains_with_one_step: bool = True
) -> str | None:
    """What to say where a model resists one step and not PGD, by robust training accuracies; None elsewhere.

    One-step accuracy exceeds PGD accuracy by ``COLLAPSE_SPREAD``, and the latter has fallen below
    ``COLLAPSE_SHARE`` of the best it had. This is catastrophic overfitting where the training attack is one step too.
    """
    if one_step - pgd <= COLLAPSE_SPREAD or pgd >= COLLAPSE_SHARE * best_pgd:
        return None
    found = (
        f"one-step robust training accuracy {one_step:.1%}, but only {pgd:.1%} against PGD, which was "
        f"{best_pgd:.1%} at its best"
    )
    if not trains_with_one_step:
        return f"the model resists one step and not PGD, so that its accuracy under one step means nothing: {found}"
    return (
        f"collapse (catastrophic overfitting): {found}; --algorithm n-fgsm (a larger "
        "--noise), free-m, a smaller --alpha or more attack steps help"
    )


def spent(*found: Scores | OneStep | Strength | None) -> float:
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
    images: float,
    cost_per_image: float,
    updates: int,
    every: int | None,
    size: int | None,
    largest: int,
) -> EvaluationSchedule:
    """When and on how many images to evaluate during a training that sends ``images`` through the network.

    By default the evaluations cost ``BUDGET`` of a training with one gradient evaluation per image and update, but
    there are ``CURVE_POINTS`` on ``CURVE_IMAGES`` images at least. This is the same for all algorithms, so that their
    curves can be compared; a costlier algorithm spends a smaller share. What the user set (``every``, ``size``) is
    kept. ``cost_per_image`` is that of one image of every split.
    """
    every = every or max(1, updates // CURVE_POINTS)
    if size is None:
        points = 1 + updates // every
        size = min(largest, max(CURVE_IMAGES, int(BUDGET * images / cost_per_image / points)))
    return EvaluationSchedule(every=every, size=size)
