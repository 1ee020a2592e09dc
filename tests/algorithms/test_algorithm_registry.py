"""Algorithms by the names people write."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from freeat import Erm, Fast, Free, Friendly, Vanilla
from freeat.algorithms import Algorithm, StepRecord, WarmUp, make_algorithm, parse_algorithm
from freeat.algorithms.registry import settings_of
from freeat.algorithms.step import is_one_step
from freeat.errors import InputError
from freeat.objectives import CrossEntropy, LogitPairing, Mart, Trades
from freeat.runs.build import build_algorithm
from freeat.runs.spec import split_settings
from freeat.threat import L2

BALL = L2(0.5)
MADE: dict[str, Algorithm] = {
    "erm": Erm(),
    "vanilla": Vanilla(ball=BALL, m=10),
    "vanilla-1": Vanilla(ball=BALL, m=1),
    "fast": Fast(ball=BALL),
    "free": Free(ball=BALL, m=4),
    "free-8": Free(ball=BALL, m=8),
    "friendly": Friendly(ball=BALL, m=10, tau=3),
    "trades": Vanilla(ball=BALL, m=10, start="gaussian", objective=Trades()),
    "free-trades": Free(ball=BALL, m=4, objective=Trades()),
    "alp-7": Vanilla(ball=BALL, m=7, objective=LogitPairing()),
    "free-alp-2": Free(ball=BALL, m=2, objective=LogitPairing()),
    "mart-10": Vanilla(ball=BALL, m=10, start="gaussian", objective=Mart()),
    "free-mart": Free(ball=BALL, m=4, objective=Mart()),
}
CANONICAL = {
    "Free_TRADES-4": "free-trades-4",
    "TRADES": "trades-10",
    "vanilla-trades-10": "trades-10",
    "vanilla": "vanilla-10",
    "FAST": "fast",
    "friendly": "friendly-10",
    "erm": "erm",
}


@pytest.mark.parametrize("name", MADE)
def test_a_name_makes_its_algorithm(name: str) -> None:
    assert make_algorithm(name, BALL) == MADE[name]


@pytest.mark.parametrize("name", CANONICAL)
def test_names_have_a_canonical_form_that_reads_back(name: str) -> None:
    parsed = parse_algorithm(name)
    assert str(parsed) == CANONICAL[name]
    assert parse_algorithm(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("name", "one_step"),
    {
        "erm": False, "vanilla-10": False, "vanilla-1": True, "trades-10": False, "friendly-3": False, "fast": True,
        "n-fgsm": True, "free-4": True,
    }.items(),
)  # fmt: skip
def test_algorithms_declare_whether_they_train_with_one_step(name: str, one_step: bool) -> None:
    algorithm = make_algorithm(name, L2(0.5))
    assert is_one_step(algorithm) is one_step
    if name != "erm":
        assert is_one_step(WarmUp(algorithm=algorithm, updates=2)) is one_step


def test_what_is_given_replaces_what_follows_from_the_name() -> None:
    made = make_algorithm("trades-3", BALL, alpha=0.1, start="uniform", objective=Trades(lam=1.0))
    assert made == Vanilla(ball=BALL, m=3, alpha=0.1, objective=Trades(lam=1.0))
    assert make_algorithm("free", BALL, carry=True) == Free(ball=BALL, carry=True)
    assert make_algorithm("fast", BALL, warmup_updates=9) == WarmUp(algorithm=Fast(ball=BALL), updates=9)


@pytest.mark.parametrize("given", [{"tau": 2}, {"omega": 0.1}], ids=str)
def test_settings_of_friendly_are_refused_by_all_others(given: dict[str, Any]) -> None:
    for name in ("erm", "vanilla-10", "fast", "free-4", "trades-10"):
        with pytest.raises(InputError, match=r"(tau|omega) = .*does not take it"):
            make_algorithm(name, BALL, **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"alpha": 0.1}, "alpha = 0.1: algorithm 'erm'"),
        ({"start": "zero"}, "start = zero: algorithm 'erm'"),
        ({"warmup_updates": 9}, "warmup = 9: algorithm 'erm'"),
        ({"alpha": 0.1, "warmup_updates": 9}, "alpha = 0.1, warmup = 9: algorithm 'erm'"),
    ],
    ids=str,
)
def test_settings_of_an_attack_are_refused_by_erm(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"{said} does not take (it|them); leave"):
        make_algorithm("erm", BALL, **given)
    for name in ("vanilla-10", "fast", "free-4", "friendly"):
        assert make_algorithm(name, BALL, **given) != make_algorithm(name, BALL)


def test_friendly_steps_by_a_quarter_of_the_radius_it_is_evaluated_at() -> None:
    spec, _ = split_settings({"algorithm": "friendly", "norm": "l2", "eps": 1.0, "eval_eps": 0.5})
    assert spec.alpha == 0.125
    assert build_algorithm(spec, 1) == Friendly(ball=L2(1.0), alpha=0.125)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fre-4", "did you mean 'free-4'"),
        ("pgd-7", r"did you mean 'vanilla-7'\? Vanilla is PGD adversarial training \(Madry et al.\); known"),
        ("PGD_AT-10", "did you mean 'vanilla-10'"),
        ("madry-10", "did you mean 'vanilla-10'"),
        ("pgd", "did you mean 'vanilla-10'"),
        ("trade-10", "did you mean 'trades-10'"),
        ("free-4-4", "unknown algorithm"),
        ("", "unknown algorithm"),
        ("ce", "unknown algorithm"),
        ("10", "unknown algorithm"),
        ("free--4", "unknown algorithm"),
        ("fast-3", "fast takes no number of steps"),
        ("free-0", "must be at least 1"),
    ],
)
def test_other_names_are_refused_with_the_remedy(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_algorithm(name)


@pytest.mark.parametrize("name", ["erm", "fast", "vanilla-2", "friendly"])
def test_only_free_carries(name: str) -> None:
    with pytest.raises(InputError, match=r"carry = True: .*does not take it"):
        make_algorithm(name, BALL, carry=True)


def test_numbers_out_of_range_are_refused() -> None:
    refused = {
        r"m = 0 must be at least 1": lambda: Free(ball=BALL, m=0),
        r"α = 0 must be positive": lambda: Vanilla(ball=BALL, alpha=0.0),
        r"α = -1 must be positive": lambda: Fast(ball=BALL, alpha=-1.0),
        r"must not be negative": lambda: Friendly(ball=BALL, tau=-1),
        r"warm-up updates = 0": lambda: WarmUp(algorithm=Fast(ball=BALL), updates=0),
        r"did you mean 'uniform'": lambda: make_algorithm("fast", BALL, start="unifrom"),
    }
    for message, make in refused.items():
        with pytest.raises(InputError, match=message):
            make()


def test_records_and_algorithms_are_frozen() -> None:
    assert Free(ball=BALL) == Free(ball=BALL, objective=CrossEntropy())
    with pytest.raises(AttributeError):
        Free(ball=BALL).m = 3  # type: ignore[misc]
    assert StepRecord.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_options_have_the_types_that_the_class_declares() -> None:
    assert make_algorithm("friendly", BALL, tau=2, omega=1) == Friendly(ball=BALL, tau=2, omega=1.0)
    for wrong in ({"tau": "two"}, {"tau": True}, {"dynamic": 1}, {"attack_mode": "evl"}):
        with pytest.raises(InputError, match=f"{next(iter(wrong))} = .* of algorithm 'friendly-10'"):
            make_algorithm("friendly", BALL, **wrong)
    with pytest.raises(InputError, match=r"maximizer = 3: .* does not take it"):
        make_algorithm("vanilla", BALL, maximizer=3)


def test_settings_are_the_fields_of_the_class() -> None:
    takes = {name: settings_of(parse_algorithm(name)) for name in ("erm", "free", "friendly", "free-trades")}
    assert takes["erm"] == frozenset()
    assert takes["free"] == {"alpha", "start", "warmup", "carry"}
    assert takes["friendly"] == {"alpha", "start", "warmup", "tau", "omega", "dynamic", "attack_mode"}
    assert takes["free-trades"] == takes["free"] | {"coefficient"}


SOURCE = """
from dataclasses import dataclass
from freeat import Vanilla
from freeat.compute import Cost
from freeat.threat import Ball

@dataclass(frozen=True, kw_only=True)
class Mine:
    ball: Ball
    m: int = 2
    strength: float = 1.0
    updates_per_batch = 1
    cost = Cost(gradient_evaluations=1)

    def step(self, learner, x, y):
        raise NotImplementedError

@dataclass(frozen=True, kw_only=True)
class Heir(Vanilla):
    twist: int = 0

@dataclass(frozen=True, kw_only=True)
class Plain:
    updates_per_batch = 1
    cost = Cost(gradient_evaluations=1)

    def step(self, learner, x, y):
        raise NotImplementedError

@dataclass(frozen=True, kw_only=True)
class Demanding(Plain):
    needed: int

class NoDataclass:
    updates_per_batch = 1

@dataclass
class NoAlgorithm:
    ball: Ball

def function():
    pass
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "myalgorithms.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("myalgorithms", None)


@pytest.mark.usefixtures("mine")
def test_a_class_by_its_import_path_takes_what_it_declares() -> None:
    made: Any = make_algorithm("myalgorithms:Mine-3", BALL, warmup_updates=4, trust_code=True, strength=2)
    assert isinstance(made, WarmUp)
    inner: Any = made.algorithm
    assert (inner.ball, inner.m, inner.strength) == (BALL, 3, 2.0)
    heir: Any = make_algorithm("myalgorithms:Heir-trades-5", BALL, alpha=0.1, trust_code=True, twist=1)
    assert (heir.m, heir.alpha, heir.start, heir.twist) == (5, 0.1, "gaussian", 1)
    assert heir.objective == Trades()


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("myalgorithms:Mine", {"alpha": 0.1}, "alpha = 0.1: .* only strength, warmup"),
        ("myalgorithms:Mine", {"start": "zero"}, "does not take it"),
        ("myalgorithms:Mine", {"strength": "much"}, "strength = 'much'"),
        ("myalgorithms:Mine-trades", {}, "has a loss of its own"),
        ("myalgorithms:Mine-0", {}, "at least 1"),
        ("myalgorithms:Mine-x", {}, "unknown algorithm"),
        ("myalgorithms:Plain-3", {}, "takes no number of steps"),
        ("myalgorithms:Plain", {"warmup_updates": 3}, "warmup = 3: .*does not take it"),
        ("myalgorithms:Demanding", {}, "cannot be made: TypeError.*needed"),
        ("myalgorithms:NoDataclass", {}, "is no dataclass"),
        ("myalgorithms:NoAlgorithm", {}, "lacks updates_per_batch, cost, step"),
        ("myalgorithms:function", {}, "is no dataclass"),
        ("myalgorithms:Mne", {}, "did you mean 'Mine'"),
        ("nomodule:Mine", {}, "cannot be imported"),
    ],
)
def test_imported_classes_that_do_not_fit_are_refused(name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_algorithm(name, BALL, trust_code=True, **given)


@pytest.mark.usefixtures("mine")
def test_import_path_is_not_imported_without_trust() -> None:
    with pytest.raises(InputError, match="--trust-code"):
        make_algorithm("myalgorithms:Mine", BALL)
    assert "myalgorithms" not in sys.modules
    assert str(parse_algorithm("myalgorithms:Mine-TRADES-3")) == "myalgorithms:Mine-trades-3"
