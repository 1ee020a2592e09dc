"""A plan as people read it."""

from typing import Any

import pytest

from freeat.reports.plan import duration, plan_lines, plan_table

PLAN: dict[str, Any] = {
    "items": [
        {"name": "cifar10 l2 fast seed 0", "passes": 1e6, "seconds": 90.0, "finished": False},
        {"name": "square-300 on cifar10 l2 fast seed 0", "passes": 2e6, "seconds": 30.0, "finished": False},
    ],
    "left_out": [{"what": "cifar10 l2 vanilla-10 n=512 seed 0", "reason": "takes too long"}],
    "workers": 2,
    "budget": 3600.0,
    "seconds": 60.0,
    "remaining": 60.0,
    "absent_items": [],
}


@pytest.mark.parametrize(
    ("seconds", "text"), [(7.4, "7 s"), (99, "99 s"), (600, "10 min"), (3600, "60 min"), (36_000, "10.0 h")]
)
def test_times_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_what_it_comes_to_and_what_is_left_out() -> None:
    assert plan_lines(PLAN, {"svhn": "not here"}) == [
        "2 tasks, 3,000,000 passes of single images: about 60 s on this machine, 2 at a time, of 60 min there are",
        "left out: svhn (not here)",
        "left out: cifar10 l2 vanilla-10 n=512 seed 0 (takes too long)",
    ]


def test_what_is_finished_and_what_is_absent_is_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = PLAN["items"]
    absent = {"name": "svhn l2 fast seed 0", "passes": 5e6, "seconds": 1200.0}
    plan = PLAN | {
        "items": [first | {"finished": True}, second],
        "remaining": 15.0,
        "absent_items": [absent],
        "left_out": [],
    }
    assert plan_lines(plan, {})[1:] == [
        "1 of them are finished: about 15 s remain",
        "with the absent data sets 1 tasks, 5,000,000 passes of single images more: about 10 min",
    ]
    whole = plan | {"items": [item | {"finished": True} for item in plan["items"]], "absent_items": []}
    assert plan_lines(whole, {})[1:] == ["all of them are finished"]
    plan_table(plan, {})
    rows = capsys.readouterr().out.splitlines()[1:4]
    assert [row.split()[-1] for row in rows] == ["finished", "s", "absent"]


def test_every_task_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    plan_table(PLAN, {})
    shown = capsys.readouterr().out
    for item in PLAN["items"]:
        assert item["name"] in shown
    assert "1,000,000" in shown
