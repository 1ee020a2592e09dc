"""``freeat stability``: a table, figures, JSON, and resuming where it stopped."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from freeat import tasks
from freeat.cli.main import cli, run
from freeat.cli.stability import stability
from freeat.errors import InputError
from freeat.stability.population_summary import read_population
from freeat.training.trainer import Stopped
from synthetic_files import photographs

SMALL = {
    "--model": "mlp-w8-softplus",
    "--algorithms": "vanilla-2,fast,free-4",
    "--updates": "8",
    "--batch-size": "10",
    "--replaced": "2",
    "--seeds": "2",
    "--probes": "6",
    "--attack-steps": "2",
    "--eval-size": "10",
    "--probe-times": "1",
    "--threads": "1",
    "--device": "cpu",
}


def invoke(folder: Path, *options: str) -> str:
    arguments = [*(word for pair in SMALL.items() for word in pair), "--out", str(folder), *options]
    return CliRunner().invoke(stability, arguments, catch_exceptions=False, standalone_mode=False).stdout


def test_stability_prints_a_table_and_draws_figures(tmp_path: Path) -> None:
    text = invoke(tmp_path / "study", "--train-size", "30")
    for word in ("uniform stability", "mean largest", "vanilla-2", "fast", "free-4", "robust train"):
        assert word in text
    names = {path.name for path in (tmp_path / "study").glob("*.png")}
    assert names == {"distance.png", "loss-difference.png", "gradient-norms.png"}


def test_json_of_a_finished_study_is_equal_and_trains_nothing(tmp_path: Path) -> None:
    options = ("--train-size", "20,30", "--sweep", "n", "--theorem", "--json")
    first = json.loads(invoke(tmp_path / "study", *options))
    stored = {path: path.stat().st_mtime_ns for path in (tmp_path / "study" / "results").glob("*/*.json")}
    assert len(stored) == 12
    assert json.loads(invoke(tmp_path / "study", *options)) == first
    assert stored == {path: path.stat().st_mtime_ns for path in stored}
    assert len(first["rows"]) == 6
    assert all(row["bound"] is not None for row in first["rows"])
    assert [fit["algorithm"] for fit in first["exponents"]] == ["vanilla-2", "fast", "free-4"]
    assert any(path.endswith("exponents.png") for path in first["figures"])
    assert json.loads((tmp_path / "study" / "summary.json").read_text())["rows"] == first["rows"]


@pytest.mark.parametrize("command", ["compare", "stability", "population"])
def test_times_of_parts_are_options_with_the_help_of_train(command: str) -> None:
    context = click.Context(cli)
    own, train = (
        {name: option.help for option in cli.get_command(context, which).params for name in option.opts}
        for which in (command, "train")
    )
    for option in ("--awp-from", "--proximal-from", "--proximal-every"):
        assert own[option] == train[option]
    assert "--replay" in own


def test_times_of_parts_and_replay_reach_the_studies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "population",
        "--algorithms",
        "fast",
        "--with",
        "swa",
        "--updates",
        "8",
        "--n",
        "10",
        "--d",
        "4",
    ]
    command += [
        "--seeds",
        "2",
        "--times",
        "3",
        "--replay",
        "2",
        "--proximal-from",
        "2",
        "--proximal-every",
        "1/2",
    ]
    assert run([*command, "--jobs", "1", "--out", str(tmp_path / "exact")]) == 0
    row = read_population(tmp_path / "exact" / "population.json").summary.arms[0]
    assert (row.instance.replay, row.instance.proximal_from, row.instance.proximal_every) == (2, 2.0, 0.5)
    assert run([*command, "--awp-from", "-1", "--out", str(tmp_path / "refused")]) == 2
    assert "--awp-from -1.0 must not be negative" in capsys.readouterr().err
    assert not (tmp_path / "refused").exists()


def test_times_of_parts_reach_a_stability_study(tmp_path: Path) -> None:
    options = ("--train-size", "20", "--algorithms", "fast", "--with", "swa", "--json")
    text = invoke(
        tmp_path / "study", *options, "--proximal-from", "1", "--proximal-every", "1/2", "--awp-from", "2"
    )
    settings = json.loads(text)["settings"]
    assert [settings[name] for name in ("awp_from", "proximal_from", "proximal_every")] == [2.0, 1.0, 0.5]
    other = json.loads(invoke(tmp_path / "other", *options))
    assert other["rows"][0]["distance"] != json.loads(text)["rows"][0]["distance"]


def test_photos_are_studied_as_a_training_reads_them(tmp_path: Path) -> None:
    data = photographs(tmp_path / "pets", 0)
    (data / "cats" / "torn.png").write_bytes(b"no image")
    options = ("--data", str(data), "--train-size", "20", "--algorithms", "fast", "--seeds", "1")
    with pytest.raises(InputError, match="leave it out with --skip-unreadable"):
        invoke(tmp_path / "study", *options)
    text = invoke(tmp_path / "study", *options, "--skip-unreadable", "--image-size", "4", "--json")
    assert json.loads(text)["settings"]["image_size"] == 4


def test_several_sizes_without_sweep_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--sweep n"):
        invoke(tmp_path / "study", "--train-size", "20,30")
    assert not (tmp_path / "study").exists()


def test_a_stop_exits_with_code_1_and_failures_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        *(word for pair in SMALL.items() for word in pair),
        "--train-size",
        "30",
        "--algorithms",
        "fast",
    ]
    options += ["--engine", "separate", "--out", str(tmp_path / "study")]

    def stopped(*tasks: object, **options: object) -> None:
        raise Stopped("stopped as asked; run the same command again to resume")

    with monkeypatch.context() as patched:
        patched.setattr(tasks, "run_tasks", stopped)
        assert stability.main(options, standalone_mode=False) == 1
    assert "run the same command again" in capsys.readouterr().err
    damaged = tmp_path / "study" / "results" / "fast-n30-seed1" / "result.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    assert stability.main([*options, "--json"], standalone_mode=False) == 1
    document = json.loads(capsys.readouterr().out)
    assert [row["seeds"] for row in document["rows"]] == [1]
    assert list(document["failures"]) == ["fast n=30 seed 1"]


def strictly(text: str) -> Any:
    """JSON as the standard has it, which has neither NaN nor Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_runs_that_diverge_are_null_with_a_reason(tmp_path: Path) -> None:
    options = ("--train-size", "30", "--algorithms", "vanilla-2,fast", "--lr", "1e38")
    document = strictly(invoke(tmp_path / "study", *options, "--json"))
    for row in document["rows"]:
        assert (row["seeds"], row["diverged"], row["distance"], row["gap"]) == (0, 2, None, None)
        assert row["reason"].startswith("2 of 2 seeds diverged, first seen at update")
    for path in (tmp_path / "study").rglob("*.json"):
        strictly(path.read_text())
    text = invoke(tmp_path / "study", *options)
    assert "fast (n = 30): 2 of 2 seeds diverged" in text
    assert "lower --lr" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "mlpp"), "unknown"),
        (("--algorithms", "fast,fre-4"), "did you mean 'free-4'"),
        (("--algorithms", "noise"), "unknown algorithm 'noise'"),
        (("--algorithms", "no_such_module:Noise"), "no_such_module"),
        (("--algorithm-args", "tua=2"), "no algorithm of"),
        (("--augment", "crp"), "did you mean 'crop'"),
        (("--norm", "linf", "--eps", "8"), "write 8/255"),
        (("--threads", "0"), "--threads 0 must be at least 1"),
        (("--replaced", "2000"), "replaced examples"),
    ],
    ids=str,
)
def test_bad_input_is_refused_before_anything_is_written(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        invoke(tmp_path / "study", "--train-size", "30", *options)
    assert not (tmp_path / "study").exists()
