"""``freeat runs``: list, show, delete and compare from the command line."""

import json
from pathlib import Path

import pytest

from freeat.cli.main import run
from freeat.training.trainer import Stopped
from killing import dead_process, of_process
from small_runs import carry_out


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("store")
    carry_out(store / "runs" / "fast-run", algorithm="fast")
    carry_out(store / "runs" / "erm-run", algorithm="erm")
    (store / "runs" / "torn").mkdir()
    (store / "runs" / "torn" / "run.json").write_text("{}")
    return store


def test_the_list_is_filtered_as_text_and_json(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["runs", "--store", str(store)]) == 0
    text = capsys.readouterr().out
    assert [line.split()[0] for line in text.splitlines()[1:4]] == [
        "runs/erm-run",
        "runs/fast-run",
        "runs/torn",
    ]
    assert text.splitlines()[-1].startswith("3 runs, ")
    assert "finished" in text
    assert "damaged" in text
    assert run(["runs", "--store", str(store), "--algorithm", "fast"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 run, ")
    assert run(["runs", "--store", str(store), "--algorithm", "fast", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["run"], row["status"], row["algorithm"]) == ("runs/fast-run", "finished", "fast")


def test_list_and_report_remove_what_dead_processes_left(tmp_path: Path) -> None:
    carry_out(tmp_path / "done", algorithm="fast")
    with pytest.raises(Stopped):
        carry_out(tmp_path / "stopped", algorithm="fast", should_stop=lambda: True)
    for command, places in {
        ("runs", "--store", str(tmp_path)): ("done/model", "stopped/history", "stopped/checkpoints/update"),
        ("report", str(tmp_path / "done"), "--out", str(tmp_path / "report.html")): (
            "done/results/one",
            "done/a",
        ),
    }.items():
        left = [of_process(tmp_path / place, dead_process()) for place in places]
        for path in left:
            path.parent.mkdir(exist_ok=True)
            path.write_text("half")
        assert run(list(command)) == 0
        assert not [path for path in left if path.exists()]


def test_the_default_store_is_the_current_folder(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(store)
    assert run(["runs", "--json", "--status", "finished"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["runs/erm-run", "runs/fast-run"]


def test_show_gives_settings_and_result(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["runs", "show", "fast", "--store", str(store)]) == 0
    text = capsys.readouterr().out
    assert "algorithm = fast" in text
    assert "attack = pgd-2" in text
    assert "fast after 14 updates" in text
    assert "package ;" not in text, "an empty setting is left out"
    assert run(["runs", "--store", str(store), "show", "fast", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["result"]["update"] == 14
    assert document["description"]["spec"]["algorithm"] == "fast"
    assert run(["runs", "show", "torn", "--store", str(store)]) == 0
    assert "carries no format number" in capsys.readouterr().out


def test_diff_shows_settings_and_a_paired_interval(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["runs", "diff", "fast", "erm", "--store", str(store), "-n", "40", "--device", "cpu"]
    assert run(args) == 0
    text = capsys.readouterr().out
    assert "algorithm: fast | erm" in text
    assert "on the same 40 of 597 test images, pgd-2 (worst), l2 ε = 0.5:" in text
    assert "correct for one only: " in text
    assert run([*args, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"] == [{"setting": "algorithm", "first": "fast", "second": "erm"}]
    assert document["evaluated"]["robust"]["low"] <= document["evaluated"]["robust"]["difference"]


def test_diff_of_runs_with_different_evaluations_shows_the_settings(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(tmp_path / "other", algorithm="erm", norm="linf", eps=0.1, updates=2)
    args = ["runs", "diff", str(store / "runs" / "erm-run"), str(tmp_path / "other"), "--device", "cpu"]
    assert run(args) == 0
    text = capsys.readouterr().out
    assert "norm: l2 | linf" in text
    assert "not evaluated side by side: they were evaluated at" in text
    assert run([*args, "--norm", "l2", "--eps", "0.3", "-n", "10"]) == 0
    assert "l2 ε = 0.3:" in capsys.readouterr().out


def test_delete_asks_for_confirmation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        carry_out(tmp_path / name, algorithm="erm", updates=2)
    monkeypatch.setattr("click.confirm", _no)
    assert run(["runs", "delete", "a", "--store", str(tmp_path)]) == 130
    assert "a (finished)" in capsys.readouterr().err
    assert run(["runs", "delete", "a", "--store", str(tmp_path), "--json"]) == 2
    assert "add --yes to delete" in capsys.readouterr().err
    assert (tmp_path / "a").exists()
    assert run(["runs", "delete", "a", "b", "--store", str(tmp_path), "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"deleted": ["a", "b"]}
    assert list(tmp_path.iterdir()) == []


def _no(question: str, *, abort: bool, err: bool) -> bool:
    import click

    assert question == "delete this run?"
    assert abort
    raise click.Abort


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["show", "missing"], "no run 'missing' among the 3 below"),
        (["show", ""], "no run ''"),
        (["diff", "fast", "fast"], "are the same run"),
        (["diff", "fast", "torn"], "carries no format number"),
        (["--status", "done"], "unknown status 'done'"),
    ],
    ids=str,
)
def test_bad_input_is_refused(
    store: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run(["runs", "--store", str(store), *options]) == 2
    assert message in capsys.readouterr().err
