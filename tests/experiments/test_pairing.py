"""Two runs side by side: what differs in their settings, and pairs of outcomes on the same images."""

from pathlib import Path
from typing import Any

import pytest
import torch

from freeat.data import load_data
from freeat.errors import InputError
from freeat.experiments.pairing import (
    NotComparable,
    PairedDifference,
    PairedEvaluation,
    RunDifference,
    differing_settings,
    evaluate_pair,
)
from freeat.reports.text import difference_lines
from freeat.runs.inventory import StoredRun, read_run
from freeat.runs.open import open_model
from freeat.training.trainer import Stopped
from small_runs import carry_out


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("store")
    carry_out(store / "fast", algorithm="fast", updates=40)
    carry_out(store / "erm", algorithm="erm", updates=40)
    carry_out(store / "wide", algorithm="fast", eps=1.0, updates=4, eval_eps=1.0)
    carry_out(store / "friendly", algorithm="friendly", eps=1.0, eval_eps=0.5, updates=4)
    return store


def pair(
    store: Path, first: str, second: str, asked: dict[str, Any] | None = None, **more: Any
) -> PairedEvaluation:
    one, other = run(store, first), run(store, second)
    return evaluate_pair(one, other, asked=asked or {}, device="cpu", **more)


def run(store: Path, name: str) -> StoredRun:
    return read_run(store / name, store)


def test_differing_settings_are_named_with_both_values(store: Path) -> None:
    fast, wide = run(store, "fast").folder, run(store, "wide").folder
    assert differing_settings(fast, fast) == ()
    assert [vars(one) for one in differing_settings(fast, wide)] == [
        {"setting": "eps", "first": 0.5, "second": 1.0},
        {"setting": "updates", "first": 40, "second": 4},
        {"setting": "eval_eps", "first": None, "second": 1.0},
    ]


def test_difference_of_accuracies_changes_sign_with_the_order(store: Path) -> None:
    there, back = pair(store, "fast", "erm", n=200), pair(store, "erm", "fast", n=200)
    assert (there.n, there.attack, there.norm, there.eps) == (200, "pgd-2", "l2", 0.5)
    for found, turned in ((there.robust, back.robust), (there.clean, back.clean)):
        assert found.difference == pytest.approx(found.first - found.second)
        assert found.difference == pytest.approx((found.only_first - found.only_second) / 200)
        assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))
        assert found.low < found.difference < found.high
    assert there.robust.difference != 0


def test_clean_outcomes_are_those_of_the_model(store: Path) -> None:
    data = load_data("digits")
    x, y = data.test.batch(torch.arange(50))
    right = [(open_model(store / name, data).model(x).argmax(-1) == y).tolist() for name in ("fast", "erm")]
    found = pair(store, "fast", "erm", n=50).clean
    assert found.only_first == sum(a and not b for a, b in zip(*right, strict=True))
    assert found.only_second == sum(b and not a for a, b in zip(*right, strict=True))


def test_both_runs_are_evaluated_at_one_radius(store: Path) -> None:
    assert pair(store, "fast", "friendly", n=20).eps == 0.5
    with pytest.raises(NotComparable, match=r"l2 0\.5 and l2 1: choose with --norm and --eps"):
        pair(store, "fast", "wide", n=20)
    asked = pair(store, "fast", "wide", {"eval_eps": 0.25, "attack": "pgd-3", "iterate": "last"}, n=20)
    assert (asked.eps, asked.attack, asked.iterate) == (0.25, "pgd-3", "last")
    assert pair(store, "fast", "erm", {"eval_eps": 0.1}, norm="linf", n=20).norm == "linf"


def test_stored_evaluations_are_reused(store: Path) -> None:
    first = pair(store, "fast", "erm", n=30)
    titles: list[str] = []

    def watch(title: str, images: int) -> Any:
        titles.append(title)
        return lambda done: None

    assert pair(store, "fast", "erm", n=30, watch=watch) == first
    assert titles == []


def test_runs_that_cannot_be_paired_are_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="are the same run"):
        pair(store, "fast", "fast")
    steps = iter(range(1000))
    with pytest.raises(Stopped):
        carry_out(store / "stopped", algorithm="free-4", should_stop=lambda: next(steps) == 1)
    with pytest.raises(NotComparable, match="stopped is stopped, not finished"):
        pair(store, "fast", "stopped")


def test_failed_sanity_checks_are_shown_as_warnings() -> None:
    same = PairedDifference(
        first=1.0, second=1.0, difference=0.0, low=-0.1, high=0.1, only_first=0, only_second=0
    )
    evaluated = PairedEvaluation(
        data="digits", attack="fgsm", iterate="worst", norm="l2", eps=0.5, n=5, population=5, robust=same, clean=same,
        warnings=("b: gradients may be masked.",),
    )  # fmt: skip
    found = RunDifference(first="a", second="b", settings=(), evaluated=evaluated)
    assert difference_lines(found)[-1] == "WARNING: b: gradients may be masked."
