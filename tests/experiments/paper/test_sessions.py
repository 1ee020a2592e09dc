"""The time a reproduction took, over the processes that worked at it."""

from pathlib import Path

import pytest

from freeat.experiments.paper.sessions import Session, sessions, taken
from freeat.files.documents import write_json


def write(plan: Path, token: str, began: float, seconds: float) -> None:
    words = {"command": "freeat reproduce all", "began": began, "seconds": seconds, "tasks": 1}
    write_json(plan.with_suffix(".sessions") / f"{token}.json", words, format=1)


def test_time_in_which_several_worked_counts_once(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert taken([plan]) == 0.0
    write(plan, "a", 100.0, 50.0)
    write(plan, "b", 120.0, 60.0)
    write(plan, "c", 130.0, 5.0)
    write(plan, "d", 1000.0, 7.0)
    assert taken([plan]) == pytest.approx(80.0 + 7.0)


def test_a_session_is_on_disk_after_each_task(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    session = Session.of(plan, "freeat reproduce all")
    assert list(sessions(plan)) == []
    for _ in range(2):
        session.carried_out()
    (found,) = sessions(plan)
    assert found["tasks"] == 2
    assert found["command"] == "freeat reproduce all"
    assert found["seconds"] >= 0


def test_a_session_lasts_from_before_the_plan_until_the_outputs(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    idle, busy = (Session.of(plan, "freeat reproduce all") for _ in range(2))
    busy.began -= 100.0
    busy.carried_out()
    busy.began -= 20.0
    assert taken([plan]) == pytest.approx(100.0, abs=5)
    for session in (idle, busy):
        session.ended()
    assert taken([plan]) == pytest.approx(120.0, abs=5)
    assert len(list(sessions(plan))) == 1, "one that only found what was there took no time"


def test_a_damaged_session_is_passed_over(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    write(plan, "a", 1.0, 2.0)
    (plan.with_suffix(".sessions") / "b.json").write_text("{", encoding="utf-8")
    assert taken([plan]) == pytest.approx(2.0)
