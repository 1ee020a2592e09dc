"""What is reproduced where data sets are missing, and the whole way at the smallest scale."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freeat.cli.main import run
from freeat.data import load
from freeat.errors import InputError
from freeat.experiments.paper.clock import Rates, Stopwatch
from freeat.experiments.paper.reproduction import prepare
from freeat.experiments.paper.scales import HOUR, PAPER
from freeat.experiments.paper.sessions import sessions
from freeat.experiments.tasks import Site
from freeat.tasks import local
from invented_runs import describe


def stand_in(folder: Path, name: str, n: int) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8), np.arange(n) % 10
    np.savez(folder / f"{name}.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])


def test_data_sets_that_are_not_here_are_left_out_by_name(tmp_path: Path) -> None:
    stand_in(tmp_path, "svhn", 300)
    site = Site(store=tmp_path / "store", data_dir=tmp_path)
    work = prepare(["table-1", "table-4"], HOUR, site)
    assert [experiment.name for experiment in work.experiments] == ["table-4"]
    assert {entry.data for entry in work.experiments[0].entries} == {"svhn"}
    assert {one.what for one in work.absent} == {"cifar10", "cifar100", "tiny-imagenet"}
    assert all("freeat data fetch" in one.reason for one in work.absent)
    assert not site.store.exists()


def test_a_stand_in_is_not_the_papers_data(tmp_path: Path) -> None:
    stand_in(tmp_path, "svhn", 300)
    site = Site(store=tmp_path / "store", data_dir=tmp_path)
    with pytest.raises(InputError, match="stands in for SVHN"):
        prepare(["table-4"], PAPER, site, data=["svhn"])


def test_too_few_images_are_no_use(tmp_path: Path) -> None:
    stand_in(tmp_path, "svhn", 40)
    site = Site(store=tmp_path / "store", data_dir=tmp_path)
    with pytest.raises(InputError, match="training images are needed, 40 are here"):
        prepare(["table-4"], HOUR, site, data=["SVHN"])


def test_unknown_data_sets_are_refused(tmp_path: Path) -> None:
    site = Site(store=tmp_path, data_dir=tmp_path)
    with pytest.raises(InputError, match="unknown data set of the paper 'mnist'"):
        prepare(["all"], HOUR, site, data=["mnist"])


def reproduce(tmp_path: Path, *words: str) -> int:
    return run(
        ["reproduce", *words, "--scale", "smoke", "--store", str(tmp_path / "store"), "--device", "cpu"]
    )


def test_a_dry_run_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(tmp_path, "table-6", "figure-11", "--dry-run", "--json", "--jobs", "1") == 0
    plan = json.loads(capsys.readouterr().out)
    assert {item["name"] for item in plan["items"]} == {
        f"cifar10 linf {algorithm} seed {seed}"
        for algorithm in ("vanilla-10", "fast", "fast alpha=10/255", "free-4")
        for seed in (0, 1)
    }
    assert all(item["passes"] > 0 and item["seconds"] > 0 for item in plan["items"])
    assert not any(item["finished"] for item in plan["items"])
    assert plan["remaining"] == plan["seconds"]
    assert plan["seconds"] == pytest.approx(sum(item["seconds"] for item in plan["items"]))
    assert not (tmp_path / "store" / "runs").exists()
    assert not (tmp_path / "store" / "plans").exists()


def test_absent_data_sets_are_priced_where_nothing_must_fit(tmp_path: Path) -> None:
    site = Site(store=tmp_path / "store", data_dir=tmp_path, device="cpu")
    with pytest.raises(InputError, match="nothing of what was asked for"):
        prepare(["figure-11"], PAPER, site)
    work = prepare(["figure-11", "table-4"], PAPER, site, data=["cifar10", "svhn"], dry=True)
    assert work.experiments == ()
    tasks = {task.name for one in work.missing for task in one.tasks()}
    assert {"cifar10 linf fast seed 0", "svhn l2 vanilla-10 seed 0"} <= tasks
    stand_in(tmp_path, "svhn", 300)
    assert prepare(["table-4"], HOUR, site, dry=True).missing == (), (
        "within a budget they would displace others"
    )


def test_the_outlook_prices_what_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(store=tmp_path / "store", data_dir=tmp_path, device="cpu")
    work = prepare(["figure-11"], PAPER, site, data=["cifar10"], dry=True)
    rates = Rates(**dict.fromkeys(("attack", "weights", "both", "forward", "judged", "asked"), 1e-3))
    monkeypatch.setattr(Stopwatch, "rates", lambda self, spec, ground: rates)
    words = work.outlook().words()
    assert words["items"] == []
    assert {item["name"] for item in words["absent_items"]} == {
        f"cifar10 linf {name} seed {seed}" for name in ("fast", "fast alpha=10/255") for seed in range(3)
    }
    assert all(item["seconds"] > 1000 for item in words["absent_items"])


def test_a_plan_counts_on_the_workers_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More jobs than cores are not run at a time, so a budget must not be filled as if they were."""
    monkeypatch.setattr(local, "usable_cores", lambda: 1)
    assert reproduce(tmp_path, "figure-11", "--dry-run", "--json", "--jobs", "50") == 0
    assert json.loads(capsys.readouterr().out)["workers"] == 1


def test_a_table_from_beginning_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert reproduce(tmp_path, "table-6", "--out", str(out)) == 0
    first = json.loads((out / "reproduction.json").read_text(encoding="utf-8"))
    (table,) = first["tables"]
    assert [row["label"] for row in table["rows"]] == ["vanilla-10", "fast-10/255", "free-4"]
    assert all(row["measured"] for row in table["rows"])
    assert first["failures"] == []
    assert first["seconds"]["taken"] > 0
    assert first["seconds"]["estimated"] > 0
    (session,) = sessions(next((tmp_path / "store" / "plans").glob("plan-*.json")))
    assert first["seconds"]["taken"] == pytest.approx(session["seconds"])
    assert session["began"] < next((tmp_path / "store" / "plans").glob("plan-*.json")).stat().st_mtime
    drawn = min(path.stat().st_mtime for path in (out / "tables").iterdir())
    assert session["began"] + session["seconds"] > drawn, "the time holds planning and outputs"
    capsys.readouterr()

    assert reproduce(tmp_path, "table-6", "--out", str(out)) == 0
    again = json.loads((out / "reproduction.json").read_text(encoding="utf-8"))
    assert "found" in capsys.readouterr().err
    assert again["seconds"] == first["seconds"]
    assert without_times(again) == without_times(first)
    capsys.readouterr()

    assert reproduce(tmp_path, "table-6", "--dry-run", "--json", "--jobs", "1") == 0
    settled = json.loads(capsys.readouterr().out)
    assert settled["seconds"] == first["seconds"]["estimated"], "the plan that is carried out, not another"
    assert all(item["finished"] for item in settled["items"])
    assert settled["remaining"] == 0
    capsys.readouterr()

    (gone,) = (key for key, one in first["runs"].items() if one["name"] == "cifar10 linf free-4 seed 1")
    shutil.rmtree(tmp_path / "store" / "runs" / gone)
    assert reproduce(tmp_path, "table-6", "--out", str(out), "--so-far") == 0
    so_far = json.loads((out / "reproduction.json").read_text(encoding="utf-8"))
    assert not (tmp_path / "store" / "runs" / gone).exists()
    assert so_far["left_out"] == [{"what": "cifar10 linf free-4 seed 1", "reason": "not finished yet"}]
    assert so_far["failures"] == []
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "left out: cifar10 linf free-4 seed 1 (not finished yet)"
    vanilla, _, free = so_far["tables"][0]["rows"]
    assert vanilla == table["rows"][0]
    assert free != table["rows"][2]
    assert free["measured"]

    (torn,) = (key for key, one in first["runs"].items() if one["name"] == "cifar10 linf free-4 seed 0")
    (tmp_path / "store" / "runs" / torn / "history.jsonl").write_text("{\n", encoding="utf-8")
    capsys.readouterr()
    assert reproduce(tmp_path, "table-6", "--out", str(out)) == 1
    damaged = json.loads((out / "reproduction.json").read_text(encoding="utf-8"))
    assert [one["task"] for one in damaged["failures"]] == ["cifar10 linf free-4 seed 0"]
    assert capsys.readouterr().out.splitlines()[-1].startswith("FAILED: cifar10 linf free-4 seed 0: ")
    assert damaged["tables"][0]["rows"][0] == table["rows"][0]
    assert damaged["tables"][0]["rows"][2]["seeds"] == 1, "the other seed was trained again"


def test_other_data_under_the_same_spec_are_refused(tmp_path: Path) -> None:
    stand_in(tmp_path, "svhn", 300)
    work = prepare(["table-4"], HOUR, Site(store=tmp_path / "store", data_dir=tmp_path))
    work.check_data()
    run = work.experiments[0].entries[0].runs[0]
    digest = load("svhn", data_dir=tmp_path).digest
    describe(run, data={"name": "svhn", "digest": digest})
    work.check_data()
    stand_in(tmp_path, "svhn", 310)
    with pytest.raises(
        InputError, match=r"svhn is not what svhn l2 vanilla-7 seed 0 .* choose another --store"
    ):
        work.check_data()


def test_so_far_needs_something_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(tmp_path, "table-6", "--so-far") == 2
    assert "nothing of this was begun" in capsys.readouterr().err
    assert reproduce(tmp_path, "table-6", "--so-far", "--dry-run") == 2
    assert "ask for one of them" in capsys.readouterr().err
    assert not (tmp_path / "store" / "plans").exists()


def without_times(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in ("tables", "figures", "claims", "runs")}
