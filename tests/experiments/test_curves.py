"""Learning curves compared: closed forms on invented histories."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from freeat.evaluation.evaluator import RobustRight
from freeat.evaluation.matched import paired_difference
from freeat.experiments.curves import CurveSummary, SeedRun, arm_difference, comparable, summarize_curves
from freeat.reports.text import curves_table
from freeat.training.records import Record
from made_records import make_record, make_summary


def some_right(train: int, halves: tuple[int, int], n: int) -> RobustRight:
    """The outcomes of images of which a given number are right, of the test images in even and in odd rows."""
    test = torch.zeros(n, dtype=torch.bool)
    for first, right in enumerate(halves):
        test[first : 2 * right : 2] = True
    return RobustRight.of(torch.arange(n) < train, test)


def history(
    fits: Sequence[float],
    slope: float,
    *,
    halves: Sequence[tuple[int, int]] | None = None,
    n: int = 100,
) -> list[Record]:
    """A curve whose gap is ``slope`` times its robust training accuracy."""
    return [
        make_record(
            make_summary(fit, n=n),
            make_summary(fit * (1 - slope), n=n),
            update=10 * (k + 1),
            robust_right=None if halves is None else some_right(round(fit * n), halves[k], n),
        )
        for k, fit in enumerate(fits)
    ]


def test_gaps_are_compared_at_the_accuracy_that_both_reach() -> None:
    vanilla = {
        seed: history(np.linspace(0.2, 0.9, 8), 0.3 + shift) for seed, shift in ((0, 0.01), (1, -0.01))
    }
    free = {seed: history(np.linspace(0.1, 0.6, 9), 0.2 + shift) for seed, shift in ((0, 0.01), (1, -0.01))}
    first, second = summarize_curves([vanilla, free])
    assert first is not None
    assert first.matched_gap is None
    assert second is not None
    assert (second.evaluations, second.train_images, second.test_images) == (9, 100, 100)
    matched = second.matched_gap
    assert matched is not None
    assert (matched.level, matched.first, matched.second) == pytest.approx((0.6, 0.12, 0.18))
    difference = matched.difference
    assert difference.value == pytest.approx(-0.06)
    assert difference.low is None


def test_the_interval_says_how_it_was_made_and_includes_the_images_where_they_are_known() -> None:
    halves = [(10, 10), (20, 20), (30, 30)]
    own, reference = (
        {seed: history(np.array(fits) + seed / 100, 0.2 + seed * more, halves=halves) for seed in range(3)}
        for fits, more in (([0.2, 0.4, 0.6], 0.0), ([0.3, 0.6, 0.8], 0.01))
    )
    _, known = summarize_curves([reference, own])
    bare = [{seed: [replace(r, robust_right=None) for r in run] for seed, run in by_seed.items()}
            for by_seed in (reference, own)]  # fmt: skip
    _, unknown = summarize_curves(bare)
    assert known is not None
    assert unknown is not None
    assert known.matched_gap is not None
    assert unknown.matched_gap is not None
    assert known.matched_gap.method == "Student's t over 3 paired seeds and a bootstrap over images"
    assert unknown.matched_gap.method == "Student's t over 3 paired seeds"
    assert known.matched_gap.difference.value == unknown.matched_gap.difference.value
    assert known.matched_gap.difference.high > unknown.matched_gap.difference.high
    table = curves_table([("vanilla-10", None), ("free-4", known)])
    assert table is not None
    assert f"Interval of the gap difference: {known.matched_gap.method}." in table.notes
    _, single = summarize_curves([{0: reference[0]}, {0: own[0]}])
    alone = curves_table([("vanilla-10", None), ("free-4", single)])
    assert alone is not None
    assert "Interval of the gap difference: none, with one seed." in alone.notes


def runs_of(right: np.ndarray, *, odd: bool = False, of: int = 50) -> dict[int, SeedRun]:
    """Finished runs of which the test images (seeds, images) are right, and every other one of 50 training images."""
    n = right.shape[1]
    runs = {}
    for seed, row in enumerate(right):
        test = torch.from_numpy(row.astype(bool))
        record = make_record(
            make_summary(0.5, n=50, population=of),
            make_summary(float(row.mean()), n=n),
            robust_right=RobustRight.of(torch.arange(50) % 2 == odd, test),
        )
        runs[seed] = SeedRun(final=record, history=[record])
    return runs


def test_differences_at_equal_updates_cover_the_choice_of_test_images() -> None:
    """Two algorithms of the same risk, right on different images; the three seeds share the 100 test images."""
    rng = np.random.default_rng(3)
    covered, narrow, repeats = 0, 0, 200
    for _ in range(repeats):
        arms = []
        for name in ("free-4", "vanilla-10"):
            easy = rng.random(100) < 0.5
            arms.append((name, runs_of(easy ^ (rng.random((3, 100)) < 0.05))))
        found = arm_difference(*arms, tests="the same")
        assert found is not None
        accuracy = [np.array([run.final.test.robust_accuracy for run in runs.values()]) for _, runs in arms]
        bare = paired_difference(*accuracy)
        covered += found.robust_test.low <= 0 <= found.robust_test.high
        narrow += bare.low is not None and bare.low <= 0 <= bare.high
        assert found.robust_gap.high - found.robust_gap.low == pytest.approx(
            found.robust_test.high - found.robust_test.low
        ), "all training images were evaluated"
    assert covered >= 0.9 * repeats
    assert narrow < 0.75 * repeats


def test_a_sample_of_the_training_images_adds_its_error_to_the_gap() -> None:
    right = np.random.default_rng(4).random((2, 3, 100)) < 0.5
    whole, sample = (
        arm_difference(
            ("free-4", runs_of(right[0], of=of)), ("vanilla-10", runs_of(right[1], of=of, odd=True)), tests=""
        )
        for of in (50, 5000)
    )
    assert whole is not None
    assert sample is not None
    assert whole.robust_test == sample.robust_test
    assert sample.robust_gap.high - sample.robust_gap.low > whole.robust_gap.high - whole.robust_gap.low


def test_only_seeds_of_both_algorithms_are_paired() -> None:
    vanilla = {0: history([0.2, 0.8], 0.5), 1: history([0.2, 0.8], 0.1)}
    free = {1: history([0.1, 0.4], 0.2), 2: history([0.1, 0.4], 0.9)}
    second = summarize_curves([vanilla, free])[1]
    assert second is not None
    assert second.matched_gap is not None
    assert (second.matched_gap.first, second.matched_gap.second) == pytest.approx((0.08, 0.04))


def test_records_on_other_numbers_of_images_are_left_out() -> None:
    own = history([0.2, 0.5], 0.2, n=100) + history([0.9], 0.9, n=500)
    assert len(comparable(own)) == 2
    second = summarize_curves([{0: own}, {0: own}])[1]
    assert second is not None
    assert second.matched_gap is not None
    assert second.matched_gap.level == pytest.approx(0.5)


def test_a_point_that_was_evaluated_twice_is_one_point() -> None:
    """The final evaluation may differ from the last of the curve in the validation images only."""
    record = make_record(make_summary(0.5, 0.6, n=10), make_summary(0.4, 0.5, n=10), update=3)
    later = replace(record, update=6)
    assert comparable([record, later, replace(later, kind="final")]) == [record, later]


def test_curves_without_a_common_accuracy_have_no_matched_gap() -> None:
    second = summarize_curves([{0: history([0.5, 0.9], 0.3)}, {0: history([0.1, 0.4], 0.3)}])[1]
    assert second is not None
    assert second.matched_gap is None


def test_one_evaluation_is_no_curve() -> None:
    assert summarize_curves([{0: history([0.5], 0.3)}, {}]) == [None, None]


def test_robust_overfitting_needs_the_counts_of_both_halves() -> None:
    halves = [(30, 40), (40, 30), (20, 20)]
    with_counts = history([0.2, 0.4, 0.6], 0.2, halves=halves)
    (found,) = summarize_curves([{0: with_counts}])
    assert found is not None
    assert found.robust_overfitting is not None
    # one half chooses the second checkpoint, the other the first: 30 - 20 of 50 images, both ways
    assert found.robust_overfitting.difference.value == pytest.approx(0.2)
    assert found.robust_overfitting.same_images == pytest.approx(0.3)
    older = [replace(with_counts[0], robust_right=None), *with_counts[1:]]
    (found,) = summarize_curves([{0: with_counts, 1: older}])
    assert found is not None
    assert found.robust_overfitting is None


def test_table_names_what_cannot_be_compared() -> None:
    few = {0: history([0.1, 0.4], 0.2, n=50, halves=[(5, 5), (9, 9)])}
    names = ["vanilla-10", "free-4", "fast"]
    found = summarize_curves([{0: history([0.2, 0.9], 0.3)}, few, {}])
    table = curves_table(list(zip(names, found, strict=True)))
    assert table is not None
    vanilla, free, fast = (list(map(str, row)) for row in table.rows)
    assert vanilla == ["vanilla-10", *["–"] * 5]
    assert free == ["free-4", "40.0", "8.0", "12.0", "-4.0", "0.0"]
    assert fast == ["fast", *["–"] * 5]
    notes = " ".join(table.notes)
    assert "fast has no learning curve" in notes
    assert "100 and 100 (vanilla-10), 50 and 50 (free-4) training and test images" in notes
    assert "chosen on one half" in notes
    assert curves_table([("fast", None)]) is None
    apart = CurveSummary(evaluations=2, train_images=100, test_images=100)
    table = curves_table([("vanilla-10", apart), ("free-4", apart)])
    assert table is not None
    assert "free-4 and vanilla-10 have no robust training accuracy in common" in table.notes[0]
