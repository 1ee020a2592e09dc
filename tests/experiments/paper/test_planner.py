"""A plan keeps its budget, takes the important first, and names what it leaves out."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeat.experiments.paper.catalogue import EXPERIMENTS, experiments
from freeat.experiments.paper.costing import Cost
from freeat.experiments.paper.experiment import Piece
from freeat.experiments.paper.planner import USABLE, Plan, Wish, fit, wishes
from freeat.experiments.paper.scales import HOUR, SMOKE
from freeat.experiments.tasks import Site, Training

SITE = Site(store=Path("no-such-store"), data_dir=Path("data"))
EVERYTHING = wishes(experiments(EXPERIMENTS, SMOKE, SITE, list(SMOKE.setups)))


def one_second(task: Piece) -> Cost:
    return Cost(passes=10.0, seconds=1.0)


def rank_of(name: str, wanted: list[Wish]) -> int:
    (rank,) = {wish.rank for wish in wanted if wish.task.name == name}
    return rank


@given(
    budget=st.floats(1, 400),
    workers=st.integers(1, 4),
    prices=st.lists(st.floats(0.1, 20), min_size=len(EVERYTHING), max_size=len(EVERYTHING)),
)
def test_a_plan_fits_and_forgets_nothing(budget: float, workers: int, prices: list[float]) -> None:
    price = {wish.task.key: seconds for wish, seconds in zip(EVERYTHING, prices, strict=True)}
    plan = fit(
        EVERYTHING,
        lambda task: Cost(passes=1.0, seconds=price[task.key]),
        budget=budget,
        workers=workers,
    )
    assert plan.seconds <= USABLE * budget * (1 + 1e-9)
    chosen = {item.key for item in plan.items}
    needs = {wish.task.key: wish.task.needs for wish in EVERYTHING}
    assert all(need in chosen for key in chosen for need in needs[key])
    names = {item.name for item in plan.items} | {one.what for one in plan.left_out}
    assert names == {wish.task.name for wish in EVERYTHING}


def test_without_a_budget_everything_is_done() -> None:
    plan = fit(EVERYTHING, one_second, budget=None, workers=2)
    assert not plan.left_out
    assert plan.seconds == len(EVERYTHING) / 2


def test_the_rows_that_decide_the_claims_come_first() -> None:
    made = experiments(EXPERIMENTS, HOUR, SITE, ["cifar10"])
    wanted = wishes(made)
    headline = [wish.task for wish in wanted if wish.rank == 0]
    for norm in ("l2", "linf"):
        for algorithm in ("vanilla-10", "fast", "free-4", "free-8", "trades-10", "free-trades-4", "erm"):
            seeds = {
                task.spec.seed
                for task in headline
                if isinstance(task, Training) and (task.spec.norm, task.spec.algorithm) == (norm, algorithm)
            }
            assert seeds == {0, 1, 2}, (norm, algorithm)
    assert rank_of("cifar10 l2 free-6 seed 0", wanted) == 1
    assert rank_of("cifar10 l2 vanilla-10 n=512 seed 0", wanted) == 2
    plan = fit(wanted, one_second, budget=30 / USABLE, workers=1)
    assert {item.rank for item in plan.items} == {0}


def test_one_seed_follows_the_other_and_of_each_the_costly_tasks_begin_first() -> None:
    seeds = {
        wish.task.key: (wish.task if isinstance(wish.task, Training) else wish.task.target).spec.seed
        for wish in EVERYTHING
    }

    def by_steps(task: Piece) -> Cost:
        return Cost(passes=1.0, seconds=float(len(task.name)))

    items = fit(EVERYTHING, by_steps, budget=None, workers=1).items
    keys = [(item.rank, seeds[item.key], -item.seconds) for item in items]
    assert keys == sorted(keys)
    assert len({(rank, seed) for rank, seed, _ in keys}) > len({rank for rank, _, _ in keys})


def test_a_task_without_room_says_so() -> None:
    plan = fit(EVERYTHING[:3], lambda task: Cost(passes=1.0, seconds=70.0), budget=100.0, workers=1)
    assert [one.what for one in plan.left_out] == [wish.task.name for wish in EVERYTHING[1:3]]
    assert plan.left_out[0].reason == "takes about 70 s, and 20 s of the budget are left"


def test_a_plan_survives_its_file() -> None:
    plan = fit(EVERYTHING, one_second, budget=50.0, workers=2)
    assert Plan.of(plan.words()) == plan


def test_what_is_finished_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [wish for wish in EVERYTHING if isinstance(wish.task, Training)][:4]
    monkeypatch.setattr(Training, "result", lambda self: {} if self.key == runs[0].task.key else None)
    plan = fit(runs, one_second, budget=2 / USABLE, workers=1)
    assert len(plan.items) == 3
