"""``freeat compare``: a table and curves from many runs, which are not trained again."""

import json
from pathlib import Path
from typing import Any

import pytest

from freeat.cli.main import run
from freeat.runs.folder import RunFolder
from small_runs import arguments


def compare_arguments(folder: Path, **changes: Any) -> list[str]:
    return ["compare", *arguments(**changes), "--out", str(folder), "--device", "cpu", "--jobs", "1"]


def test_compare_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = [*compare_arguments(tmp_path / "c"), "--algorithms", "erm,free-4", "--seeds", "2"]
    assert run([*args, "--json"]) == 0
    first = capsys.readouterr()
    document = json.loads(first.out)
    assert first.out.count("\n") == 1
    assert "[4/4]" in first.err
    assert [row["algorithm"] for row in document["algorithms"]] == ["erm", "free-4"]
    assert [row["seeds"] for row in document["algorithms"]] == [[0, 1], [0, 1]]
    means = [RunFolder(Path(f)).result for f in document["algorithms"][1]["folders"]]
    expected = sum(result.gap.value for result in means if result) / 2
    assert document["algorithms"][1]["robust_gap"]["mean"] == pytest.approx(expected)
    free = document["algorithms"][1]["curves"]
    assert free["robust_overfitting"]["evaluations"] == free["evaluations"] == 5
    assert "matched_gap" in free
    assert (tmp_path / "c" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "| free-4 |" in (tmp_path / "c" / "table.md").read_text(encoding="utf-8")
    stored = json.loads((tmp_path / "c" / "comparison.json").read_text(encoding="utf-8"))
    assert stored["algorithms"] == document["algorithms"]
    log = (tmp_path / "c" / "log.txt").read_text(encoding="utf-8").splitlines()
    assert (
        sum("free-4/seed-1: update " in line for line in log) == 6
    )  # before, three on the way, at the end, and the last
    assert all("robust train" in line for line in log)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "c" / "runs").rglob("*")}
    assert run([*args, "--axis", "gradients"]) == 0
    assert "free-4" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "c" / "runs").rglob("*")} == before


def test_algorithm_args_reach_only_the_algorithms_that_take_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "--algorithms",
        "friendly-2,free-2",
        "--seeds",
        "1",
        "--algorithm-args",
        "tau=1,carry=true",
        "--json",
    ]
    assert run([*compare_arguments(tmp_path / "c", updates=2, eval_every=100), *options]) == 0
    rows = json.loads(capsys.readouterr().out)["algorithms"]
    stored = {row["algorithm"]: RunFolder(Path(row["folders"][0])).spec.algorithm_args or {} for row in rows}
    assert stored["friendly-2"]["tau"] == 1
    assert "carry" not in stored["friendly-2"]
    assert stored["free-2"]["carry"] is True
    assert "tau" not in stored["free-2"]


def test_budget_of_gradient_evaluations_is_resolved_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "c"
    args = [*compare_arguments(folder, updates=6, eval_every=100), "--seeds", "1", "--budget", "gradients"]
    assert run([*args, "--algorithms", "fast,free-2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["budget"]["reference"] == "fast"
    assert document["budget"]["updates"] == {"fast": 6, "free-2": 12}
    assert [row["updates"] for row in document["algorithms"]] == [6, 12]
    fast, free = (row["gradient_evaluations"] for row in document["algorithms"])
    assert abs(fast - free) <= 2 * 16
    assert run([*args, "--algorithms", "erm,fast"]) == 0
    printed = capsys.readouterr().out
    assert "gradient evaluations, as fast spends, for every algorithm" in printed
    stored = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    assert stored["budget"]["updates"] == {"fast": 6, "free-2": 12, "erm": 12}
    assert stored["budget"]["amount"] == document["budget"]["amount"]
    assert run([*args, "--algorithms", "fast", "--budget", "seconds"]) == 2
    assert "other settings (budget)" in capsys.readouterr().err


def test_budget_survives_an_interruption_before_the_first_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from freeat import tasks
    from freeat.experiments import budget

    folder = tmp_path / "c"
    args = [*compare_arguments(folder, updates=4, eval_every=100), "--seeds", "1", "--budget", "seconds"]
    args += ["--algorithms", "fast,free-2"]
    with monkeypatch.context() as broken:
        broken.setattr(
            budget, "seconds_per_update", lambda task: {"fast": 0.3, "free-2": 0.1}[task.spec.label]
        )

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        broken.setattr(tasks, "run_tasks", killed)
        run(args)
    monkeypatch.setattr(budget, "seconds_per_update", lambda task: 1.0)
    capsys.readouterr()
    assert run(["report", str(folder), "--out", str(tmp_path / "r.html")]) == 2
    assert "nothing to report" in capsys.readouterr().err
    assert run([*args, "--json"]) == 0
    assert [row["updates"] for row in json.loads(capsys.readouterr().out)["algorithms"]] == [4, 12]


def test_json_and_table_have_the_same_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--algorithms", "free-2", "--seeds", "1"]
    args = [*compare_arguments(tmp_path / "c", updates=1, lr="1e-9", eval_every=100), *options]
    assert run([*args, "--json"]) == 0
    remark = "free-2 did not get above chance: its gap says nothing."
    assert remark in json.loads(capsys.readouterr().out)["notes"]
    assert run(args) == 0
    assert remark in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--algorithms", "fast,free-2", "--algorithm-args", "tau=1"],
            "no algorithm of fast, free-2 takes it",
        ),
        (["--algorithms", "fre-4"], "did you mean 'free-4'"),
        (["--seeds", "none"], "--seeds 'none'"),
        (["--budget", "gradient"], "gradients"),
        (["--preset", "dmo"], "did you mean 'demo'"),
        (["--model", "resnt18"], "did you mean 'resnet18'"),
        (["--algorithms", "erm", "--alpha", "0.1"], "alpha = 0.1: no algorithm of erm takes it"),
    ],
    ids=str,
)
def test_bad_comparisons_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run([*compare_arguments(tmp_path / "c"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "c").exists()
