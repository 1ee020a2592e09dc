"""A plan as people read it."""

import pytest

from freeat.reports.plan import duration, plan_lines, plan_table

PLAN = {
    "items": [
        {"name": "cifar10 l2 fast seed 0", "passes": 1e6, "seconds": 90.0},
        {"name": "square-300 on cifar10 l2 fast seed 0", "passes": 2e6, "seconds": 30.0},
    ],
    "left_out": [{"what": "cifar10 l2 vanilla-10 n=512 seed 0", "reason": "takes too long"}],
    "workers": 2,
    "budget": 3600.0,
    "seconds": 60.0,
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


def test_every_task_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    plan_table(PLAN, {})
    shown = capsys.readouterr().out
    for item in PLAN["items"]:
        assert item["name"] in shown
    assert "1,000,000" in shown
