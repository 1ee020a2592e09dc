"""The evaluator: the cost of evaluations is known beforehand and stays within its limit."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from freeat.attacks.pgd import Pgd
from freeat.data import CropFlip, load_data
from freeat.evaluation.evaluator import (
    BUDGET,
    CURVE_IMAGES,
    CURVE_POINTS,
    Evaluator,
    collapse_warning,
    one_step_attack,
    schedule_evaluations,
    spent,
)
from freeat.models import build
from freeat.threat import L2, Linf
from made_records import make_record, make_summary


@pytest.fixture(scope="module")
def net() -> nn.Module:
    return build("mlp-w8", classes=10, shape=(1, 8, 8))


def make_evaluator(**changes: Any) -> Evaluator:
    data = load_data("digits")
    train, validation = data.train.take(torch.arange(150)).split(50)
    settings: dict[str, Any] = {
        "train": train,
        "test": data.test.take(torch.arange(80)),
        "validation": validation,
        "augment": CropFlip(pad=1),
        "attack": Pgd(steps=2),
        "ball": L2(0.3),
        "classes": 10,
    }
    return Evaluator(**settings | changes)


def test_scores_hold_every_split(net: nn.Module) -> None:
    record = make_evaluator().scores(net)
    sizes = {name: (split.n, split.population) for name, split in record.splits.items()}
    assert sizes["train"] == sizes["train_augmented"] == (100, 100)
    assert sizes["test"] == (80, 80)
    assert sizes["validation"] == (50, 50)
    assert record.train.robust_loss != record.train_augmented.robust_loss
    assert record.gap.value == record.train.robust_accuracy - record.test.robust_accuracy
    clean = record.train.clean_accuracy - record.test.clean_accuracy
    assert record.clean_gap.value == clean
    assert (record.attack, record.norm, record.eps) == ("pgd-2", "l2", 0.3)


def test_scores_count_the_right_test_images_of_each_half(net: nn.Module) -> None:
    evaluator = make_evaluator()
    test = evaluator.test
    scores = evaluator.scores(net)
    halves = [
        replace(evaluator, test=test.take(torch.arange(first, 80, 2))).scores(net).test for first in (0, 1)
    ]
    assert scores.test_halves == tuple(round(half.robust_accuracy * half.n) for half in halves)
    assert sum(scores.test_halves) == round(scores.test.robust_accuracy * 80)


def test_a_subset_reports_its_size_and_is_the_same_every_time(net: nn.Module) -> None:
    evaluator = make_evaluator()
    one, two = evaluator.scores(net, 60), evaluator.scores(net, 60)
    assert one == two
    assert (one.train.n, one.train.population) == (60, 100)
    assert (one.validation.n, one.validation.population) == (50, 50)


@pytest.mark.parametrize("iterate", ["worst", "last"])
@pytest.mark.parametrize("restarts", [1, 2])
def test_cost_per_image_is_what_an_evaluation_spends(net: nn.Module, iterate: Any, restarts: int) -> None:
    evaluator = make_evaluator(attack=Pgd(steps=3, restarts=restarts, iterate=iterate))
    expected = 40 * evaluator.cost_per_image
    assert 0.9 * expected < spent(evaluator.scores(net, 40)) <= expected + 1e-9


@given(
    images=st.floats(1, 1e12),
    cost_per_image=st.floats(0.5, 1e4),
    updates=st.integers(1, 10**6),
    largest=st.integers(1, 10**6),
)
def test_a_curve_has_twelve_points_of_enough_images_and_more_only_within_the_budget(
    images: float, cost_per_image: float, updates: int, largest: int
) -> None:
    schedule = schedule_evaluations(
        images=images,
        cost_per_image=cost_per_image,
        updates=updates,
        every=None,
        size=None,
        largest=largest,
    )
    points = updates // schedule.every  # besides the one at update 0
    assert points >= min(CURVE_POINTS, updates)
    assert points < 2 * CURVE_POINTS
    assert min(CURVE_IMAGES, largest) <= schedule.size <= largest
    if schedule.size > CURVE_IMAGES:
        assert (1 + points) * schedule.size * cost_per_image <= BUDGET * images * (1 + 1e-9)


@given(
    every=st.none() | st.integers(1, 1000),
    size=st.none() | st.integers(1, 1000),
    updates=st.integers(1, 1000),
)
def test_settings_of_the_user_are_kept(every: int | None, size: int | None, updates: int) -> None:
    schedule = schedule_evaluations(
        images=100.0, cost_per_image=3.0, updates=updates, every=every, size=size, largest=500
    )
    assert every is None or schedule.every == every
    assert size is None or schedule.size == size


def test_a_model_trained_without_an_adversary_is_above_chance_by_its_clean_accuracy() -> None:
    fitted = make_record(train=make_summary(robust=0.02, clean=0.9), adversarial=False)
    assert fitted.above_chance
    assert not make_record(train=make_summary(robust=0.02, clean=0.9)).above_chance
    assert not make_record(train=make_summary(robust=0.5, clean=0.1), adversarial=False).above_chance


def test_scores_hold_whether_the_model_is_trained_for_robust_accuracy(net: nn.Module) -> None:
    for adversarial in (True, False):
        assert make_evaluator(watches_collapse=adversarial).scores(net, 10).adversarial is adversarial


@pytest.mark.parametrize(
    ("one_step", "pgd", "best", "collapsed"),
    [
        (0.9, 0.05, 0.4, True),
        (0.9, 0.05, 0.05, False),  # it never was robust
        (0.3, 0.1, 0.4, False),  # both fell
        (0.9, 0.3, 0.4, False),  # most of it is still there
        (0.45, 0.19, 0.4, True),
        (0.44, 0.19, 0.4, False),
    ],
)
def test_collapse_is_high_one_step_and_low_pgd_accuracy(
    one_step: float, pgd: float, best: float, collapsed: bool
) -> None:
    assert (collapse_warning(one_step, pgd, best) is not None) is collapsed


def test_collapse_warning_has_numbers_and_a_remedy() -> None:
    sentence = collapse_warning(0.9, 0.05, 0.4)
    assert sentence is not None
    for part in ("90.0%", "5.0%", "40.0%", "--alpha"):
        assert part in sentence


def test_the_single_step_has_full_length(net: nn.Module) -> None:
    attack = one_step_attack(Linf(0.2))
    assert (attack.name, attack.step_size(Linf(0.2))) == ("fgsm", 0.2)
    assert 0 <= make_evaluator().one_step(net).robust_accuracy <= 1
