"""Reproductions where data sets are missing, and one from beginning to end at the smallest scale."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freeat.cli.main import run
from freeat.data import load_data
from freeat.errors import InputError
from freeat.experiments.paper import costs
from freeat.experiments.paper.reproduction import prepare
from freeat.experiments.paper.settings import HOUR, NIGHT, PAPER
from freeat.experiments.tasks import Store
from freeat.tasks import local
from invented_runs import describe


def substitute(folder: Path, name: str, n: int) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8), np.arange(n) % 10
    np.savez(folder / f"{name}.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])


def test_data_sets_that_are_not_here_are_left_out_by_name(tmp_path: Path) -> None:
    substitute(tmp_path, "svhn", 300)
    store = Store(path=tmp_path / "store", data_dir=tmp_path)
    work = prepare(["table-1", "table-4"], HOUR, store)
    assert [experiment.name for experiment in work.experiments] == ["table-4"]
    assert {group.data for group in work.experiments[0].groups} == {"svhn"}
    assert {one.what for one in work.absent} == {"cifar10", "cifar100", "tiny-imagenet"}
    assert all("freeat data fetch" in one.reason for one in work.absent)
    assert not store.path.exists()


def test_scale_paper_refuses_a_substitute_of_the_published_data(tmp_path: Path) -> None:
    substitute(tmp_path, "svhn", 300)
    store = Store(path=tmp_path / "store", data_dir=tmp_path)
    with pytest.raises(InputError, match="only a substitute for SVHN"):
        prepare(["table-4"], PAPER, store, data=["svhn"])


def test_too_few_training_images_are_refused(tmp_path: Path) -> None:
    substitute(tmp_path, "svhn", 40)
    store = Store(path=tmp_path / "store", data_dir=tmp_path)
    with pytest.raises(InputError, match="training images are needed, 40 are here"):
        prepare(["table-4"], HOUR, store, data=["SVHN"])


def test_unknown_data_sets_are_refused(tmp_path: Path) -> None:
    store = Store(path=tmp_path, data_dir=tmp_path)
    with pytest.raises(InputError, match="unknown data set of the paper 'mnist'"):
        prepare(["all"], HOUR, store, data=["mnist"])


def reproduce(tmp_path: Path, *options: str) -> int:
    return run(
        ["reproduce", *options, "--scale", "smoke", "--store", str(tmp_path / "store"), "--device", "cpu"]
    )


def test_a_dry_run_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(tmp_path, "table-6", "figure-11", "--dry-run", "--json", "--jobs", "1") == 0
    dry = json.loads(capsys.readouterr().out)
    assert {task["name"] for task in dry["tasks"]} == {
        f"cifar10 linf {algorithm} seed {seed}"
        for algorithm in ("vanilla-10", "fast", "fast alpha=10/255", "free-4")
        for seed in (0, 1)
    }
    assert all(task["passes"] > 0 and task["seconds"] > 0 for task in dry["tasks"])
    assert not any(task["finished"] for task in dry["tasks"])
    assert dry["remaining"] == dry["seconds"]
    assert dry["seconds"] == pytest.approx(sum(task["seconds"] for task in dry["tasks"]))
    assert not (tmp_path / "store" / "runs").exists()


def test_a_dry_run_estimates_data_sets_that_are_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(path=tmp_path / "store", data_dir=tmp_path, device="cpu")
    with pytest.raises(InputError, match="nothing of this can be reproduced here"):
        prepare(["figure-11"], PAPER, store)
    work = prepare(["figure-11"], PAPER, store, data=["cifar10"], dry=True)
    assert work.experiments == ()
    monkeypatch.setattr(costs, "seconds_per_pass", lambda spec, info, device: 1e-3)
    dry = work.dry_run(workers=1)
    assert {task.name for task in dry.tasks} == {
        f"cifar10 linf {name} seed {seed}" for name in ("fast", "fast alpha=10/255") for seed in range(3)
    }
    assert all(task.absent and task.seconds > 1000 for task in dry.tasks)
    assert dry.seconds == dry.remaining == 0


def test_a_dry_run_prints_the_total_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "usable_cores", lambda: 1)  # more jobs than cores are not run at a time
    assert reproduce(tmp_path, "figure-11", "--dry-run", "--jobs", "50") == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.split() == ["task", "forward–backward", "passes", "time"]
    assert lines[-1].startswith("4 tasks, ")
    assert lines[-1].endswith("on this machine, one at a time")


def test_tasks_are_ordered_by_importance_then_seed_then_cost(tmp_path: Path) -> None:
    substitute(tmp_path, "cifar10", 300)
    work = prepare(["all"], HOUR, Store(path=tmp_path / "store", data_dir=tmp_path), data=["cifar10"])
    names = [task.name for task in work.tasks]
    assert len(names) == len(set(names)) == 142
    headline = [name for name in names if name.startswith("cifar10 l2 free-8 seed")]
    assert headline == [f"cifar10 l2 free-8 seed {seed}" for seed in range(3)]
    assert names.index("cifar10 l2 free-8 seed 2") < names.index("cifar10 l2 free-6 seed 0")
    assert names.index("cifar10 l2 free-6 seed 0") < names.index("cifar10 l2 vanilla-10 n=512 seed 0")
    first = [name for name in names if name.endswith("seed 0")]
    assert first.index("cifar10 l2 vanilla-10 seed 0") < first.index("cifar10 l2 free-4 seed 0")
    keys = [task.key for task in work.tasks]
    assert all(need in keys for task in work.tasks for need in task.needs)


def test_a_list_is_made_part_by_part_and_what_is_not_in_it_is_named(tmp_path: Path) -> None:
    substitute(tmp_path, "cifar10", 2048)
    store = Store(path=tmp_path / "store", data_dir=tmp_path)
    work = prepare(["all"], NIGHT, store, data=["cifar10"])
    names = [task.name for task in work.tasks]
    assert len(names) == len(set(names)) == 36 + 36 + 12 + 36  # runs, Square, transfers, smaller n
    parts = [0 if n.startswith("cifar10") and " n=" not in n else 2 if " n=" in n else 1 for n in names]
    assert parts == sorted(parts)
    (left_out,) = work.absent
    assert left_out.what == "cifar10: table-2, radii, figure-9, figure-11"
    with pytest.raises(InputError, match="table-2: not in the list of cifar10 at the scale night"):
        prepare(["table-2"], NIGHT, store, data=["cifar10"])


def test_a_table_is_trained_resumed_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert reproduce(tmp_path, "table-6", "--out", str(out)) == 0
    first = json.loads((out / "reproduction.json").read_text(encoding="utf-8"))
    (table,) = first["tables"]
    assert [row["label"] for row in table["rows"]] == ["vanilla-10", "fast-10/255", "free-4"]
    assert all(row["measured"] for row in table["rows"])
    assert first["failures"] == []
    assert first["training_seconds"] == pytest.approx(sum(one["seconds"] for one in first["runs"].values()))
    capsys.readouterr()

    assert reproduce(tmp_path, "table-6", "--out", str(out)) == 0
    again = json.loads((out / "reproduction.json").read_text(encoding="utf-8"))
    assert "found" in capsys.readouterr().err
    assert without_times(again) == without_times(first)
    capsys.readouterr()

    assert reproduce(tmp_path, "table-6", "--dry-run", "--json", "--jobs", "1") == 0
    dry = json.loads(capsys.readouterr().out)
    assert all(task["finished"] for task in dry["tasks"])
    assert dry["remaining"] == 0 < dry["seconds"]

    weights = list((tmp_path / "store" / "runs").glob("*/*.safetensors"))
    assert len(weights) >= len(first["runs"])
    for file in weights:
        file.unlink()
    assert reproduce(tmp_path, "table-6", "--out", str(out)) == 0
    records_only = json.loads((out / "reproduction.json").read_text(encoding="utf-8"))
    assert without_times(records_only) == without_times(first), "tables need no weights"

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
    substitute(tmp_path, "svhn", 300)
    work = prepare(["table-4"], HOUR, Store(path=tmp_path / "store", data_dir=tmp_path))
    work.check_data()
    run = work.experiments[0].groups[0].runs[0]
    digest = load_data("svhn", data_dir=tmp_path).digest
    describe(run, digest=digest)
    work.check_data()
    substitute(tmp_path, "svhn", 310)
    with pytest.raises(
        InputError, match=r"svhn is not what svhn l2 vanilla-7 seed 0 .* choose another --store"
    ):
        work.check_data()


def test_so_far_refuses_a_store_without_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(tmp_path, "table-6", "--so-far") == 2
    assert "nothing of this was begun" in capsys.readouterr().err
    assert reproduce(tmp_path, "table-6", "--so-far", "--dry-run") == 2
    assert "choose one of them" in capsys.readouterr().err
    assert not (tmp_path / "store" / "runs").exists()


def without_times(document: dict[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in ("tables", "figures", "claims", "runs")}
