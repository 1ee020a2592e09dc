"""One plan for all processes that share a store."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from freeat.errors import InputError
from freeat.experiments.paper import plan_file
from freeat.experiments.paper.catalogue import experiments
from freeat.experiments.paper.plan_file import plan_path, plans_sharing, settled_plan, stored_plan
from freeat.experiments.paper.planner import Item, LeftOut, Plan, wishes
from freeat.experiments.paper.scales import SMOKE
from freeat.experiments.tasks import Site

PLAN = Plan(items=(), left_out=(LeftOut(what="a", reason="b"),), workers=2, budget=None)


def test_processes_that_ask_at_once_get_the_same_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_file, "WAIT", 0.01)
    made = []

    def make() -> tuple[Plan, dict[str, Any]]:
        made.append(1)
        time.sleep(0.2)
        return PLAN, {"scale": "smoke"}

    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda _: settled_plan(tmp_path / "plan.json", make), range(3)))
    assert found == [PLAN] * 3
    assert len(made) == 1


def test_a_plan_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text('{"format": 99}', encoding="utf-8")
    with pytest.raises(InputError, match="upgrade freeat"):
        settled_plan(path, lambda: (PLAN, {}))


def test_another_request_has_another_plan(tmp_path: Path) -> None:
    site = Site(store=tmp_path, data_dir=tmp_path)
    paths = {
        plan_path(tmp_path, "smoke", wishes(experiments([name], SMOKE, site, ["cifar10"])))
        for name in ("table-1", "table-2", "figure-5")
    }
    assert len(paths) == 2  # Figure 5 needs the runs of Table 1


def test_plans_that_share_a_task_are_found(tmp_path: Path) -> None:
    for name, keys in {"a": "xy", "b": "yz", "c": "z"}.items():
        items = tuple(Item(key=key, name=key, rank=0, passes=1.0, seconds=1.0) for key in keys)
        plan = Plan(items=items, left_out=(), workers=1, budget=None)
        settled_plan(tmp_path / f"plan-{name}.json", lambda plan=plan: (plan, {}))
    assert [path.stem for path in plans_sharing(tmp_path / "plan-a.json")] == ["plan-a", "plan-b"]


def test_a_damaged_plan_of_another_request_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, other = tmp_path / "plan-smoke-00000000.json", tmp_path / "plan-smoke-11111111.json"
    words = {"format": 1, "items": [], "left_out": [], "workers": 1, "budget": None}
    own.write_text(json.dumps(words))
    for damage in ("{", '{"format": 1}', '{"format": 1, "items": [{"strange": 1}], "left_out": []}'):
        other.write_text(damage)
        caplog.clear()
        assert plans_sharing(own) == []
        assert "plan-smoke-11111111.json" in caplog.text
        with pytest.raises(InputError, match="damaged"):
            stored_plan(other)
