"""Budgets of a comparison: every algorithm spends the same, up to one batch."""

from pathlib import Path
from typing import Any

import pytest

from freeat.errors import InputError
from freeat.experiments import budget as budgets
from freeat.experiments.budget import (
    Budget,
    resolve_budget,
    seconds_per_update,
    whole_batches,
    within_budget,
)
from freeat.experiments.comparison import comparison_tasks, keep_budget, read_comparison, stored_budget
from freeat.experiments.tasks import TrainTask
from freeat.runs.run import RunOptions
from freeat.runs.spec import split_settings
from freeat.training.records import Callbacks
from small_runs import SMALL_RUN

NAMES = ["vanilla-10", "erm", "fast", "free-4", "trades-2"]


def tasks(
    folder: Path, names: list[str] = NAMES, seeds: tuple[int, ...] = (0,), **changes: Any
) -> list[TrainTask]:
    training, evaluation = split_settings({**SMALL_RUN, **changes})
    options = RunOptions(folder=folder, device="cpu")
    return comparison_tasks(training, evaluation, names, seeds, options)


def test_equal_updates_leave_the_specs_as_they_are(tmp_path: Path) -> None:
    made = tasks(tmp_path)
    budget = resolve_budget("updates", made, reference="vanilla-10")
    assert budget == Budget()
    assert within_budget(made, budget) == made


@pytest.mark.parametrize("reference", ["vanilla-10", "free-4", "erm"])
def test_gradient_evaluations_are_equal_up_to_one_batch(tmp_path: Path, reference: str) -> None:
    made = tasks(tmp_path, updates=30)
    budget = resolve_budget("gradients", made, reference=reference)
    assert budget.amount is not None
    assert budget.updates[reference] == 30
    for task in within_budget(made, budget):
        algorithm = budgets.algorithm_of(task)
        batch = algorithm.updates_per_batch
        spent = task.spec.updates * budget.update_cost[task.spec.label]
        least = batch * budget.update_cost[task.spec.label]
        assert abs(spent - budget.amount) <= least / 2 or task.spec.updates == batch
        if task.spec.label != reference:
            assert task.spec.updates % batch == 0
    cost = {"vanilla-10": 11, "erm": 1, "fast": 2, "free-4": 1, "trades-2": 4}
    for name, per_image in cost.items():
        assert budget.update_cost[name] / budget.update_cost["erm"] == per_image


def test_runs_make_the_gradient_evaluations_of_the_budget(tmp_path: Path) -> None:
    made = tasks(tmp_path, ["fast", "free-4"], updates=8, eval_every=100)
    budget = resolve_budget("gradients", made, reference="fast")
    for task in within_budget(made, budget):
        task.run(Callbacks(), lambda: False)
        result = task.result()
        assert result is not None
        assert budget.amount is not None
        assert abs(result.gradient_evaluations - budget.amount) <= 4 * SMALL_RUN["batch_size"]
        assert result.update == budget.updates[task.spec.label]


def test_reference_keeps_its_spec_and_others_have_updates(tmp_path: Path) -> None:
    changed = {name: value for name, value in SMALL_RUN.items() if name != "updates"}
    training, evaluation = split_settings({**changed, "epochs": 2})
    made = comparison_tasks(training, evaluation, ["fast", "free-2"], [0, 1], RunOptions(folder=tmp_path))
    budget = resolve_budget("gradients", made, reference="fast")
    specs = {task.name: task.spec for task in within_budget(made, budget)}
    assert specs["fast/seed-1"].epochs == 2
    assert specs["fast/seed-1"].updates is None
    assert specs["free-2/seed-0"].epochs is None
    assert specs["free-2/seed-0"].updates == specs["free-2/seed-1"].updates == budget.updates["free-2"]


def test_curves_of_unequal_updates_have_as_many_points(tmp_path: Path) -> None:
    made = tasks(tmp_path, ["free-4", "vanilla-10", "erm"], updates=800, eval_every=50, eval_size=None)
    budget = resolve_budget("gradients", made, reference="free-4")
    within = {task.spec.label: task for task in within_budget(made, budget)}
    assert within["vanilla-10"].spec.updates == 73
    every = {name: task.evaluation.eval_every for name, task in within.items()}
    assert every == {"free-4": 50, "vanilla-10": 5, "erm": 50}
    small = tasks(tmp_path, ["free-4", "vanilla-10"], updates=16, eval_every=4)
    within = {
        t.spec.label: t for t in within_budget(small, resolve_budget("gradients", small, reference="free-4"))
    }
    assert within["vanilla-10"].evaluation.eval_every == 1
    default = tasks(tmp_path, ["free-4", "vanilla-10"], updates=800, eval_every=None)
    of_default = within_budget(default, resolve_budget("gradients", default, reference="free-4"))
    assert {task.evaluation.eval_every for task in of_default} == {None}


def test_seconds_follow_the_timed_step_of_each_algorithm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"vanilla-10": 0.55, "fast": 0.1, "free-4": 0.05}
    monkeypatch.setattr(budgets, "seconds_per_update", lambda task: seconds[task.spec.label])
    made = tasks(tmp_path, list(seconds), updates=40)
    budget = resolve_budget("seconds", made, reference="vanilla-10")
    assert budget.updates == {"vanilla-10": 40, "fast": 220, "free-4": 440}
    assert budget.amount == pytest.approx(40 * budget.update_cost["vanilla-10"])


def test_a_step_is_timed_with_all_its_updates(tmp_path: Path) -> None:
    vanilla, free = tasks(tmp_path, ["vanilla-10", "free-8"])
    slow, quick = (min(seconds_per_update(task) for _ in range(2)) for task in (vanilla, free))
    assert 0 < quick < slow
    assert not list(tmp_path.iterdir())


def test_resolved_updates_are_stored_and_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"fast": 0.1, "free-4": 0.05}
    monkeypatch.setattr(budgets, "seconds_per_update", lambda task: first[task.spec.label])
    budget = resolve_budget("seconds", tasks(tmp_path, list(first), updates=20), reference="fast")
    keep_budget(tmp_path, {"budget": "seconds"}, budget)
    assert read_comparison(tmp_path).settings == {"budget": "seconds"}
    later = {"erm": 0.025, "fast": 7.0, "free-4": 9.0}
    monkeypatch.setattr(budgets, "seconds_per_update", lambda task: later[task.spec.label])
    joined = resolve_budget(
        "seconds", tasks(tmp_path, list(later), updates=20), reference="erm", stored=stored_budget(tmp_path)
    )
    assert (joined.reference, joined.amount) == ("fast", budget.amount)
    assert joined.updates == {"fast": 20, "free-4": 40, "erm": 80}


def test_whole_batches_is_one_at_least() -> None:
    assert [whole_batches(updates, 4) for updates in (0.2, 5.9, 6.1, 7)] == [4, 4, 8, 8]


def test_an_unknown_budget_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'gradients'"):
        resolve_budget("gradient", tasks(tmp_path), reference="vanilla-10")


def test_the_pass_of_a_weight_perturbation_is_counted(tmp_path: Path) -> None:
    made = tasks(tmp_path, ["fast", "fast+awp"], updates=12)
    budget = resolve_budget("gradients", made, reference="fast")
    assert budget.updates == {"fast": 12, "fast + awp": 8}


def test_a_weight_perturbation_is_counted_from_where_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 3 batches an epoch: it begins at update 6
    made = tasks(tmp_path, ["fast", "fast+awp"], updates=12, train_size=48, awp_from=2)
    budget = resolve_budget("gradients", made, reference="fast")
    assert budget.updates == {"fast": 12, "fast + awp": 10}  # 12 · 2 = 6 · 2 + 4 · 3
    assert budget.update_cost["fast + awp"] == pytest.approx(16 * 2.4)
    monkeypatch.setattr(budgets, "seconds_per_update", lambda task: 0.3 if task.spec.awp else 0.1)
    budget = resolve_budget("seconds", made, reference="fast")
    assert budget.updates == {"fast": 12, "fast + awp": 8}  # 12 · 0.1 = 6 · 0.1 + 2 · 0.3
