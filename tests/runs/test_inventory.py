"""The list of runs below a folder: finding, filtering and deleting them."""

import json
from pathlib import Path

import pytest

from freeat.errors import InputError
from freeat.files.documents import plain
from freeat.files.locks import Busy, leased
from freeat.runs.folder import RunFolder
from freeat.runs.inventory import delete_run, find_run, matching, runs_in
from freeat.training.trainer import Stopped
from small_runs import carry_out


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of each of two algorithms and seeds, one that was stopped, and one that is damaged."""
    store = tmp_path_factory.mktemp("store")
    carry_out(store / "runs" / "fast-0", algorithm="fast", seed=0)
    carry_out(store / "runs" / "fast-1", algorithm="fast", seed=1)
    carry_out(store / "deeper" / "runs" / "erm" / "seed-0", algorithm="erm", norm="linf", eps=0.1)
    steps = iter(range(1000))
    with pytest.raises(Stopped):
        carry_out(store / "runs" / "stopped", algorithm="free-4", should_stop=lambda: next(steps) == 1)
    damaged = store / "runs" / "torn"
    damaged.mkdir()
    (damaged / "run.json").write_text('{"format": 1, "iden')
    carry_out(store / ".hidden" / "run", algorithm="erm")
    return store


def keys(store: Path, **wanted: object) -> list[str]:
    return [run.key for run in matching(runs_in(store), **wanted)]  # type: ignore[arg-type]


def test_runs_are_found_except_in_hidden_folders(store: Path) -> None:
    assert keys(store) == [
        "deeper/runs/erm/seed-0",
        "runs/fast-0",
        "runs/fast-1",
        "runs/stopped",
        "runs/torn",
    ]
    with pytest.raises(InputError, match="no such folder"):
        keys(store / "nowhere")


def test_runs_are_filtered_by_settings_and_status(store: Path) -> None:
    fast = ["runs/fast-0", "runs/fast-1"]
    assert keys(store, algorithm="FAST") == fast
    assert keys(store, algorithm="fast", seed=1) == fast[1:]
    assert keys(store, norm="Linf") == ["deeper/runs/erm/seed-0"]
    assert keys(store, data="digits", status="finished") == ["deeper/runs/erm/seed-0", *fast]
    assert keys(store, data="mnist") == []
    assert keys(store, status="damaged") == ["runs/torn"]
    with pytest.raises(InputError, match="did you mean 'finished'"):
        keys(store, status="finishd")
    with pytest.raises(InputError, match="did you mean 'fast'"):
        keys(store, algorithm="fst")


def test_a_row_holds_progress_and_result(store: Path) -> None:
    rows = {run.key: run.row() for run in runs_in(store)}
    done, stopped, torn = rows["runs/fast-1"], rows["runs/stopped"], rows["runs/torn"]
    result = RunFolder(store / "runs" / "fast-1").result
    assert result is not None
    assert (done.status, done.update, done.updates, done.seed) == ("finished", 14, 14, 1)
    assert done.robust_gap == result.gap.value
    assert done.bytes == sum(p.stat().st_size for p in (store / "runs" / "fast-1").rglob("*") if p.is_file())
    assert (stopped.status, stopped.update, stopped.updates) == ("stopped", 8, 14)
    assert stopped.robust_gap is None
    assert torn.status == "damaged"
    assert "damaged" in str(torn.error)
    json.dumps(plain(list(rows.values())))


def test_the_network_of_auto_is_listed_by_its_name(tmp_path: Path) -> None:
    carry_out(tmp_path / "run", model="auto", updates=1)
    assert [run.row().model for run in runs_in(tmp_path)] == ["cnn"]


def test_a_leased_run_is_listed_as_running(store: Path) -> None:
    with leased(store / "runs" / "stopped"):
        assert keys(store, status="running") == ["runs/stopped"]
    assert keys(store, status="stopped") == ["runs/stopped"]


def test_a_run_is_found_by_a_prefix_of_its_name(store: Path) -> None:
    assert find_run(store, "runs/fast-1").key == "runs/fast-1"
    assert find_run(store, "stop").key == "runs/stopped"
    assert find_run(store, str(store / "runs" / "fast-0")).key == "runs/fast-0"
    with pytest.raises(InputError, match=r"may be any of runs/fast-0, runs/fast-1: write more"):
        find_run(store, "fast")
    for name in ("vanilla", ""):
        with pytest.raises(InputError, match=r"no run .* among the 5 below"):
            find_run(store, name)


def test_delete_removes_a_run_and_refuses_a_running_one(tmp_path: Path) -> None:
    for name in ("a", "b"):
        carry_out(tmp_path / name, algorithm="erm", updates=2)
    with leased(tmp_path / "a"), pytest.raises(Busy):
        delete_run(find_run(tmp_path, "a"))
    assert keys(tmp_path) == ["a", "b"]
    delete_run(find_run(tmp_path, "a"))
    assert keys(tmp_path) == ["b"]
    assert not (tmp_path / "a").exists()
