"""What runs and their learning curves say: paired differences, gaps at equal robust training accuracy, overfitting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from freeat.evaluation.matched import (
    ImageOutcomes,
    Interval,
    LearningCurves,
    MatchedGap,
    RobustOverfitting,
    matched_gap,
    mean_variance,
    paired_difference,
    robust_overfitting,
)
from freeat.training.records import Record

SeedHistories = Mapping[int, Sequence[Record]]
"""The histories of an algorithm's runs by their seeds."""


@dataclass(frozen=True, kw_only=True)
class CurveSummary:
    """What the learning curves of an algorithm's runs say; accuracies as shares.

    Args:
        evaluations: the points of a curve, all on the same numbers of images.
        train_images, test_images: the images of each point.
        matched_gap: the robust gap at equal robust training accuracy, of this algorithm (first) and of the first
            algorithm of the comparison (second), paired by seed. None for that one itself, and where the curves pass
            no common accuracy.
        robust_overfitting: best minus last robust test accuracy, cross-fitted.
    """

    evaluations: int
    train_images: int
    test_images: int
    matched_gap: MatchedGap | None = None
    robust_overfitting: RobustOverfitting | None = None


@dataclass(frozen=True, kw_only=True)
class SeedRun:
    """A finished run: its final evaluation, and its learning curve."""

    final: Record
    history: list[Record]


@dataclass(frozen=True, kw_only=True)
class ArmDifference:
    """One arm of a comparison minus another, paired by seed, with 95 % intervals; accuracies as shares.

    Args:
        tests: what the two arms differ in.
        robust_gap, robust_test: the difference of the final evaluations, by Student's t over seeds; the choice of the
            images, which all runs share, is a second source of error.
        matched_gap: the robust gaps at equal robust training accuracy; None where the curves pass none in common.
    """

    arm: str
    reference: str
    tests: str
    seeds: tuple[int, ...]
    robust_gap: Interval
    robust_test: Interval
    matched_gap: MatchedGap | None
    at_chance: tuple[str, ...] = ()


def arm_difference(
    arm: tuple[str, Mapping[int, SeedRun]], reference: tuple[str, Mapping[int, SeedRun]], tests: str
) -> ArmDifference | None:
    """The difference of two arms, each a name and its runs by seed; None where they have no seed in common."""
    (name, own), (other, theirs) = arm, reference
    seeds = sorted(own.keys() & theirs.keys())
    if not seeds:
        return None
    pair = [[runs[seed] for seed in seeds] for runs in (own, theirs)]
    final = [[run.final for run in runs] for runs in pair]
    gaps = [np.array([record.gap.value for record in records]) for records in final]
    accuracies = [np.array([record.test.robust_accuracy for record in records]) for records in final]
    of_test = _of_images(final, "test")
    return ArmDifference(
        arm=name,
        reference=other,
        tests=tests,
        seeds=tuple(seeds),
        robust_gap=paired_difference(gaps[0], gaps[1], of_test + _of_images(final, "train")),
        robust_test=paired_difference(accuracies[0], accuracies[1], of_test),
        matched_gap=matched_curves(
            *({seed: run.history for seed, run in zip(seeds, runs, strict=True)} for runs in pair)
        ),
        at_chance=tuple(
            label
            for label, runs in zip((name, other), pair, strict=True)
            if not all(run.final.above_chance for run in runs)
        ),
    )


def _of_images(arms: Sequence[Sequence[Record]], split: Literal["train", "test"]) -> float:
    """The variance that the choice of a split's images adds to the difference of two arms' means over seeds.

    It is 0 where the outcomes of images were not kept, and for training images where all of them were evaluated.
    """
    records = [record for arm in arms for record in arm]
    if split == "train" and all(record.train.n == record.train.population for record in records):
        return 0.0
    own, theirs = ([record.right(split) for record in arm] for arm in arms)
    kept = [right for right in (*own, *theirs) if right is not None]
    if len(kept) < len(records) or len({len(right) for right in kept}) > 1:
        return 0.0
    return mean_variance(np.mean(kept[: len(own)], 0) - np.mean(kept[len(own) :], 0))


def comparable(history: Sequence[Record]) -> list[Record]:
    """The records made on as many images as the first one, one of each update: another size is a step in the curve."""
    by_update: dict[int, Record] = {}
    for record in history:
        if (record.train.n, record.test.n) == (history[0].train.n, history[0].test.n):
            by_update.setdefault(record.update, record)
    return list(by_update.values())


def summarize_curves(algorithms: Sequence[SeedHistories]) -> list[CurveSummary | None]:
    """A summary for each algorithm, compared with the first; None where a run was evaluated only once."""
    return [_summary(own, algorithms[0] if k else None) for k, own in enumerate(algorithms)]


def _summary(own: SeedHistories, reference: SeedHistories | None) -> CurveSummary | None:
    histories = _of_equal_length(list(own.values()))
    if not histories:
        return None
    record = histories[0][0]
    return CurveSummary(
        evaluations=len(histories[0]),
        train_images=record.train.n,
        test_images=record.test.n,
        matched_gap=None if reference is None else matched_curves(own, reference),
        robust_overfitting=_overfitting(histories),
    )


def matched_curves(own: SeedHistories, reference: SeedHistories) -> MatchedGap | None:
    """The gaps at equal robust training accuracy, paired by seed; None where the curves pass none in common."""
    seeds = sorted(own.keys() & reference.keys())
    first, second = (seed_curves([histories[seed] for seed in seeds]) for histories in (own, reference))
    return None if first is None or second is None else matched_gap(first, second)


def seed_curves(histories: Sequence[Sequence[Record]]) -> LearningCurves | None:
    """Robust training accuracy and gap, of shape (seeds, times); None where a run was evaluated only once."""
    runs = _of_equal_length(histories)
    if not runs:
        return None
    return LearningCurves(
        fit=np.array([[record.train.robust_accuracy for record in run] for run in runs]),
        gap=np.array([[record.gap.value for record in run] for run in runs]),
        outcomes=_outcomes(runs),
    )


def _outcomes(runs: Sequence[Sequence[Record]]) -> ImageOutcomes | None:
    """What every image was, where all records have kept it: the images are the same in all of them."""
    records = [record for run in runs for record in run]
    if any(record.robust_right is None for record in records):
        return None
    train, test = (
        np.array([[record.right(split) for record in run] for run in runs], np.uint8)
        for split in ("train", "test")
    )
    whole = all(record.train.n == record.train.population for record in records)
    return ImageOutcomes(train=train, test=test, all_train=whole)


def _overfitting(histories: Sequence[Sequence[Record]]) -> RobustOverfitting | None:
    records = [record for run in histories for record in run]
    sizes = {record.test.n for record in records}
    if len(sizes) > 1 or min(sizes) < 2 or any(record.robust_right is None for record in records):
        return None
    return robust_overfitting(
        np.array([[record.right("test") for record in run] for run in histories], np.uint8)
    )


def _of_equal_length(histories: Sequence[Sequence[Record]]) -> list[list[Record]]:
    """The comparable records that all runs have; none where that is not a curve."""
    runs = [comparable(history) for history in histories]
    length = min(map(len, runs), default=0)
    return [run[:length] for run in runs] if length > 1 else []
