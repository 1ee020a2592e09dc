"""The command line: one clear message for bad input, one document for --json, and a quick --help."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from freeat.attacks.registry import EXAMPLES
from freeat.cli import listing
from freeat.cli.main import COMMANDS, run
from freeat.compute.machine import usable_cores, warn_once
from freeat.runs.folder import RunFolder
from freeat.training.trainer import CheckpointFacts
from small_runs import SMALL_RUN, arguments, carry_out

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "algorithm": ({"algorithm": "fre-4"}, "did you mean 'free-4'"),
    "algorithm with steps it has not": ({"algorithm": "fast-3"}, "takes no number of steps"),
    "no steps": ({"algorithm": "free-0"}, "must be at least 1"),
    "model": ({"model": "resnt18"}, "did you mean 'resnet18'"),
    "suffix": ({"model": "cnn-gm"}, "did you mean 'gn'"),
    "data": ({"data": "cifar-1"}, "did you mean 'cifar"),
    "data file": ({"data": "no/such.npz"}, "no such file or folder"),
    "norm": ({"norm": "l3"}, "did you mean 'l2'"),
    "optimizer": ({"optimizer": "adam"}, "did you mean 'adamw'"),
    "schedule": ({"schedule": "cycle"}, "did you mean 'cyclic'"),
    "sampling": ({"sampling": "epoch"}, "did you mean 'epochs'"),
    "augmentation": ({"augment": "crp"}, "did you mean 'crop'"),
    "precision": ({"precision": "bf15"}, "did you mean 'bf16'"),
    "start": ({"start": "unifrom"}, "did you mean 'uniform'"),
    "iterate": ({"iterate": "wurst"}, "did you mean 'worst'"),
    "attack": ({"attack": "pgb-10"}, "did you mean 'pgd-10'"),
    "attack that is not PGD": ({"attack": "square"}, "evaluated by PGD"),
    "attack steps": ({"attack": "pgd-0"}, "must be at least 1"),
    "device": ({"device": "gpu"}, "unknown device 'gpu'"),
    "normalization": ({"normalize": "imagnet"}, "normali"),
    "grey levels": ({"norm": "linf", "eps": "8"}, "write 8/255"),
    "radius beyond the box": ({"eps": "100"}, "diagonal of the box"),
    "no number": ({"eps": "a lot"}, "is not a number"),
    "negative radius": ({"eps": "-0.1"}, "is not a radius"),
    "radius of the evaluation": ({"norm": "linf", "eps": "0.1", "eval_eps": "4"}, "write 4/255"),
    "no step": ({"alpha": "0"}, "must be positive"),
    "coefficient": ({"algorithm": "free-4", "coefficient": "2"}, "cross-entropy has none"),
    "carry": ({"algorithm": "fast", "algorithm_args": "carry=true"}, "does not take it"),
    "epochs and updates": ({"epochs": "3"}, "both --epochs 3 and --updates 14"),
    "seed": ({"seed": "-1"}, "between 0 and"),
    "seed of letters": ({"seed": "abc"}, "is not a number"),
    "batch size": ({"batch_size": "0"}, "--batch-size 0"),
    "train size": ({"train_size": "1201"}, "exceeds the 1200 training images"),
    "validation": ({"train_size": None, "validation": "1200"}, "must leave at least one"),
    "checkpoints": ({"checkpoint_every": "-1"}, "--checkpoint-every -1 must not be negative"),
    "Friendly's settings": ({"algorithm": "free-4", "algorithm_args": "tau=5"}, "does not take it"),
    "Friendly's noise": ({"algorithm": "fast", "algorithm_args": '{"omega": 0.1}'}, "does not take it"),
    "logits": ({"model": "troubled_models:BrokenNet"}, "NaN or infinite before it is trained"),
    "average": ({"ema": "1"}, "must lie in [0, 1)"),
    "micro-batch": ({"micro_batch": "0"}, "must be at least 1"),
    "image size": ({"image_size": "16"}, "only folders of images are resized"),
    "evaluation": ({"eval_every": "0"}, "must be at least 1"),
    "initial weights": ({"init_from": "nowhere"}, "no such file"),
    "option": ({"epoch": "3"}, "No such option"),
    "arguments": ({"model": "troubled_models:fine_for", "model_args": "classes:10"}, "key=value"),
    "arguments as JSON": ({"model": "troubled_models:fine_for", "model_args": "{classes}"}, "is not JSON"),
    "arguments missing": ({"model": "troubled_models:fine_for"}, "does not take the arguments"),
    "arguments for a network": ({"model_args": "width=3"}, "takes no arguments"),
    "classes": (
        {"model": "troubled_models:fine_for", "model_args": "classes=3"},
        "(2, 10) logits are needed",
    ),
    "tuple": ({"model": "troubled_models:TupleNet"}, "returns tuple, not a tensor of logits"),
    "factory": ({"model": "troubled_models:TupelNet"}, "did you mean 'TupleNet'"),
    "module": ({"model": "no_such_module:net"}, "cannot be imported"),
}


def refused(capsys: pytest.CaptureFixture[str], args: list[str]) -> str:
    """Run a command line that must be refused; returns its message."""
    assert run(args) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "Traceback" not in output.err
    errors = [line for line in output.err.splitlines() if line.lower().startswith("error")]
    assert len(errors) == 1, output.err
    return errors[0]


@pytest.mark.parametrize("row", BAD)
def test_bad_input_gives_one_message_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], row: str
) -> None:
    monkeypatch.chdir(tmp_path)
    options, message = BAD[row]
    assert message in refused(capsys, ["train", *arguments(**options)])
    assert list(tmp_path.iterdir()) == []


def good_arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.random((60, 8, 8, 1), np.float32),
        "y_train": np.arange(60) % 10,
        "x_test": rng.random((20, 8, 8, 1), np.float32),
        "y_test": np.arange(20) % 10,
    }


def _nan(arrays: dict[str, Any]) -> None:
    arrays["x_train"][3, 2, 1] = np.nan


BAD_DATA: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "NaN": (_nan, "train split: image 3: holds pixels that are NaN"),
    "range": (lambda a: a.update(x_test=a["x_test"] * 255), "divide by 255"),
    "label beyond the classes": (lambda a: a.update(y_test=a["y_test"] + 1), "out of range"),
    "negative label": (lambda a: a.update(y_train=a["y_train"] - 1), "from 0"),
    "too few labels": (lambda a: a.update(y_train=a["y_train"][:-1]), "one per image"),
    "empty": (lambda a: a.update(x_train=a["x_train"][:0], y_train=a["y_train"][:0]), "holds no images"),
    "flat images": (lambda a: a.update(x_train=a["x_train"].reshape(60, 64)), "has shape (60, 64)"),
    "two shapes": (lambda a: a.update(x_test=a["x_test"][:, :7]), "both must have one (C, H, W)"),
    "one class": (lambda a: a.update(y_train=a["y_train"] * 0, y_test=a["y_test"] * 0), "at least 2"),
    "missing": (lambda a: a.pop("y_test"), "no y_test"),
    "objects": (lambda a: a.update(y_train=np.array([None] * 60)), "plain arrays only"),
}


@pytest.mark.parametrize("row", BAD_DATA)
def test_bad_data_give_one_message_and_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: str
) -> None:
    spoil, message = BAD_DATA[row]
    arrays = good_arrays()
    spoil(arrays)
    np.savez(tmp_path / "data.npz", **arrays)
    args = arguments(data=tmp_path / "data.npz", train_size=None, out=tmp_path / "run")
    assert message in refused(capsys, ["train", *args])
    assert not (tmp_path / "run").exists()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    carry_out(folder)
    return folder


def test_a_folder_of_another_spec_is_refused_and_unchanged(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(finished)
    output = refused(capsys, ["train", *arguments(seed=5, out=finished)])
    assert "run of another spec (seed 0 → 5)" in output
    assert "unknown norm 'l3'" in refused(capsys, ["train", *arguments(norm="l3", out=finished)])
    assert contents(finished) == before


def test_a_folder_of_other_files_is_refused_and_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").write_text("data")
    assert "is not a run folder" in refused(capsys, ["train", *arguments(out=tmp_path)])
    assert contents(tmp_path) == {tmp_path / "precious": b"data"}
    assert "is not a run folder" in refused(capsys, ["evaluate", str(tmp_path)])


def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write to" in refused(capsys, ["train", *arguments(out=tmp_path / "file" / "run")])


def test_a_folder_of_a_newer_version_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text('{"format": 99}')
    assert "upgrade freeat" in refused(capsys, ["train", *arguments(out=tmp_path)])
    assert "upgrade freeat" in refused(capsys, ["evaluate", str(tmp_path)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not YAML, line 1"),
        ("seed: 1\nseed: 2", "line 2: 'seed' is given again"),
        ("sede: 3", "did you mean 'seed'"),
        ("seed: {}", "seed: {} is not a number"),
    ],
)
def test_bad_spec_files_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (tmp_path / "spec.yaml").write_text(text)
    args = ["train", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "run")]
    assert message in refused(capsys, args)
    assert "cannot read" in refused(capsys, ["train", str(tmp_path / "none.yaml")])


def test_options_take_precedence_over_the_settings_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in SMALL_RUN.items()]
    file = tmp_path / "spec.yaml"
    file.write_text("\n".join([*lines, "algorithm: free-2", "algorithm-args: {carry: true}", "box: false"]))
    assert run(["train", str(file), "--out", str(tmp_path / "run"), "--updates", "3", "--box"]) == 0
    spec = RunFolder(tmp_path / "run").spec
    assert (spec.algorithm, spec.updates, spec.train_size) == ("free-2", 3, 60)
    assert (spec.algorithm_args, spec.box, spec.compile) == ({"carry": True}, True, False)
    output = capsys.readouterr().out
    assert "run folder:" in output
    command = f"freeat evaluate {shlex.quote(str(tmp_path / 'run'))} --attack autoattack"
    assert f"is under pgd-2 alone, an upper bound; a stronger attack: {command}" in output


def test_code_named_in_a_file_is_imported_only_with_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret_net.py").write_text("import troubled_models\nmake = troubled_models.fine\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "spec.yaml").write_text("model: secret_net:make\n")
    file, out = str(tmp_path / "spec.yaml"), str(tmp_path / "run")
    rest = arguments(model=None, out=out)
    assert "--trust-code" in refused(capsys, ["train", file, *rest])
    assert "secret_net" not in sys.modules
    assert run(["train", file, *rest, "--trust-code"]) == 0
    del sys.modules["secret_net"]
    capsys.readouterr()
    assert "--trust-code" in refused(capsys, ["evaluate", out, "--attack", "pgd-1"])
    assert "secret_net" not in sys.modules
    assert run(["evaluate", out, "--attack", "pgd-1", "--trust-code"]) == 0
    assert run(["train", *arguments(model="secret_net:make", out=tmp_path / "other")]) == 0


def test_every_command_finds_a_model_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As ``python -m`` does: the installed script has its own folder on the path, not the user's."""
    monkeypatch.chdir(tmp_path)
    Path("net_of_mine.py").write_text("import troubled_models\nmake = troubled_models.fine\n")
    elsewhere = [folder for folder in sys.path if folder and Path(folder) != tmp_path]
    small = ["-n", "20", "--trust-code"]
    evaluated = ["--data", "digits", "--norm", "l2", "--eps", "0.5", *small[:2]]
    for name in ("one", "other"):
        monkeypatch.setattr(sys, "path", [*elsewhere])
        assert run(["train", *arguments(model="net_of_mine:make", out=name)]) == 0
    for args in (
        ["evaluate", "one", "--attack", "pgd-1", "--trust-code"],
        ["export", "one", "--trust-code"],
        ["evaluate", "one", "--trust-code"],
        ["transfer", "one", "--to", "other", "--attack", "fgsm", *small],
        ["evaluate", "net_of_mine:make@one/model.safetensors", "--attack", "fgsm", *evaluated],
        ["runs", "diff", "one", "other", "--store", ".", "--attack", "fgsm", *small],
        ["bound", "--from", "one", "--points", "4", "--beta", "1", "--trust-code"],
    ):
        monkeypatch.setattr(sys, "path", [*elsewhere])
        sys.modules.pop("net_of_mine", None)
        assert run(args) == 0, (args, capsys.readouterr().err)
    sys.modules.pop("net_of_mine")


def test_json_is_one_document_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["train", *arguments(out=tmp_path / "run"), "--json"]
    assert run(args) == 0
    first = capsys.readouterr()
    document = json.loads(first.out)
    assert first.out.count("\n") == 1
    assert document["folder"] == str(tmp_path / "run")
    assert document["update"] == 14
    assert "update 14" in first.err
    assert run(args) == 0
    assert json.loads(capsys.readouterr().out) == document
    for args in (
        ["evaluate", str(tmp_path / "run"), "--json"],
        ["algorithms", "--json"],
        ["attacks", "--json"],
        ["models", "--json"],
    ):
        assert run(args) == 0
        json.loads(capsys.readouterr().out)


def test_attacks_are_listed_and_the_help_of_evaluate_names_some(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["attacks", "--json"]) == 0
    listed = {row["name"]: row["sees"] for row in json.loads(capsys.readouterr().out)}
    assert listed.keys() == EXAMPLES.keys()
    assert (listed["pgd-10"], listed["square"]) == ("gradients", "scores")
    assert run(["evaluate", "--help"]) == 0
    output = capsys.readouterr().out
    assert "pgd-50-10" in output
    assert "`freeat attacks`" in output
    assert "[default: pgd-10]" in output


def test_evaluate_repeats_the_evaluation_of_a_run(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(finished), "--attack", "pgd-3", "--eps", "128/255", "--split", "all"]) == 0
    output = capsys.readouterr().out
    assert "pgd-3   l2    128/255" in output
    assert "gap of run (pgd-3, l2 128/255)" in output
    assert "no weights called 'ema'" in refused(capsys, ["evaluate", f"{finished}@ema"])
    assert "unknown attack 'magic'" in refused(capsys, ["evaluate", str(finished), "--attack", "magic"])


def test_a_run_that_diverges_exits_with_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"model": "troubled_models:FailingNet", "algorithm": "erm", "checkpoint_every": 0}
    assert run(["train", *arguments(**options, out=tmp_path / "run")]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert (
        "error: the training loss became nan (NaN or infinite for 16 of 16 images): lower --lr" in output.err
    )
    found = RunFolder(tmp_path / "run").checkpoints.newest(CheckpointFacts)
    assert found is not None
    assert found[1].learner.updates == 4


def test_out_of_memory_names_a_micro_batch_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"model": "troubled_models:HungryNet", "algorithm": "free-2", "batch_size": 32}
    output = refused(capsys, ["train", *arguments(**options, out=tmp_path / "run")])
    assert "out of memory with 32 images at a time: --micro-batch 8 fits" in output
    assert not (tmp_path / "run").exists()
    assert run(["train", *arguments(**options, micro_batch=8, out=tmp_path / "run")]) == 0


def test_a_start_that_fails_leaves_the_folder_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"model": "troubled_models:FailingNet", "algorithm": "erm", "eval_every": 1000}
    (tmp_path / "mine").mkdir()
    for folder in (tmp_path / "new", tmp_path / "mine"):
        assert run(["train", *arguments(**options, out=folder)]) == 1
        assert "nothing was saved yet, so --out is free again" in capsys.readouterr().err
        assert run(["train", *arguments(out=folder)]) == 0
    assert run(["train", *arguments(**options, out=tmp_path / "again")]) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"new", "mine"}


def test_unusual_settings_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    warn_once.cache_clear()
    options = {
        "batch_size": 128,
        "algorithm": "fast",
        "alpha": 3,
        "threads": usable_cores() + 1,
        "updates": 2,
    }
    assert run(["train", *arguments(**options, out=tmp_path / "run")]) == 0
    output = capsys.readouterr().out
    for remark in ("batch size 128 exceeds the 60 training images", "α = 3 is more than twice its radius"):
        assert remark in output
        assert remark in caplog.text
    assert "wait for each other" in caplog.text


def test_a_comparison_notes_settings_that_an_algorithm_does_not_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attack = {"alpha": 3, "warmup": 0.5, "updates": 2}
    assert (
        run(["compare", "--algorithms", "erm,fast", *arguments(**attack, seeds=1, jobs=1, out=tmp_path)]) == 0
    )
    output = capsys.readouterr().out
    assert output.count("erm does not take alpha = 3.0, warmup = 0.5: its runs are without.") == 1
    plain = carry_out(tmp_path / "plain", algorithm="erm", updates=2)
    shared = RunFolder(tmp_path / "runs" / "erm" / "seed-0").result
    assert shared is not None
    assert not any("α = 3" in note for note in shared.notes), "there is no step that could cross the ball"
    assert shared.train == plain.train


def test_out_of_memory_with_one_image_suggests_a_smaller_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from troubled_models import HungryNet

    monkeypatch.setattr(HungryNet, "LIMIT", 0)
    options = {"model": "troubled_models:HungryNet", "algorithm": "free-2"}
    output = refused(capsys, ["train", *arguments(**options, out=tmp_path / "run")])
    assert "not even one image fits" in output


def test_on_collapse_stop_exits_with_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from freeat.training import trainer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "collapse_warning", lambda *_: "collapse")
        options = {"algorithm": "fast", "out": tmp_path / "run", "on_collapse": "stop"}
        assert run(["train", *arguments(**options)]) == 1
    assert "stopped at update 0 because of a collapse" in capsys.readouterr().err
    assert run(["train", *arguments(**options)]) == 0


def test_a_run_at_chance_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["train", *arguments(out=tmp_path / "run", lr="1e-9", updates=1)]
    remark = "free-4 did not get above chance: its gap says nothing."
    assert run(args) == 0
    assert remark in capsys.readouterr().out
    for again in (args, ["evaluate", str(tmp_path / "run")]):
        assert run([*again, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["notes"][0] == remark


def test_a_model_that_always_answers_the_same_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All images are equal, and 90 % are of one class: a constant answer has 90 % accuracy."""
    x, y = np.full((80, 8, 8, 1), 0.5, np.float32), (np.arange(80) % 10 == 0).astype(np.int64)
    file = tmp_path / "equal.npz"
    named = np.array(["cat", "dog"])
    np.savez(file, x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:], classes=named)
    settings = {"data": file, "train_size": None, "final_size": None, "eps": "1e-6", "lr": "0.5"}
    args = ["train", *arguments(out=tmp_path / "run", **settings)]
    assert run(args) == 0
    said = capsys.readouterr()
    remark = "free-4 gives the same answer to every image: its gap says nothing."
    assert "train 90.0 %   test 90.0 %" in said.out
    assert remark in said.out
    assert "(sample of 16, 16 images)  the same answer to every image" in said.err
    assert run([*args, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["notes"][0] == remark
    assert [found[split]["constant_answer"] for split in ("train", "test")] == [0, 0]
    assert run(["evaluate", str(tmp_path / "run"), "--attack", "pgd-3"]) == 0
    said = capsys.readouterr()
    assert "answers class 0 (cat) to every test image" in said.out
    assert "WARNING: run (L2): The model gives the same answer, class 0 (cat), to all 20 images" in said.out
    assert "masked" not in said.out


def test_unknown_commands_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'train'" in refused(capsys, ["trian"])
    assert "No such option" in refused(capsys, ["--nonsense"])


@pytest.mark.parametrize("before", [True, False])
def test_verbose_is_accepted_before_and_after_the_command(
    finished: Path, caplog: pytest.LogCaptureFixture, before: bool
) -> None:
    assert run(["data", "list", "-v"]) == 0
    options = ["train", *arguments(out=finished)]
    assert run(options) == 0
    assert "is finished already" not in caplog.text
    assert run(["-v", *options] if before else [*options, "-v"]) == 0
    assert "is finished already" in caplog.text
    assert run(["--version"]) == 0
    assert run(["algorithms"]) == 0  # and the next command is quiet again


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"Usage: freeat {command}")
    assert "%%" not in output


def test_every_setting_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--help"]) == 0
    output = capsys.readouterr().out
    assert "[default: 30]" in output
    assert "[default: 8/255 for linf, 128/255 for l2]" in " ".join(output.split())
    options = (
        "data model algorithm norm eps alpha eval-eps start epochs updates batch-size lr schedule momentum "
        "deterministic nondeterministic"
    )
    rest = "weight-decay train-size validation eval-every seed device precision out json ema micro-batch init-from"
    for word in f"{options} {rest} compile normalize on-collapse trust-code".split():
        assert f"--{word}" in output, word


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize(
    "command", ["--help", "algorithms", "attacks", "models", "data list", "train --help"]
)
def test_help_and_lists_take_under_a_second_without_torch(command: str) -> None:
    code = (
        "import sys, time; t = time.process_time(); from freeat.cli.main import run; "
        f"code = run({command.split()!r}); "
        "print(code, 'torch' in sys.modules, time.process_time() - t < 1.0, file=sys.stderr)"
    )
    done = _python(code)
    assert done.stderr.split() == ["0", "False", "True"]


def test_the_stored_lists_are_what_is_there() -> None:
    stored = {name: listing.stored_rows(name) for name in ("algorithms", "attacks", "models", "data")}
    assert stored == listing.make_lists(), "write them again: python -m freeat.cli.listing"


def test_help_takes_under_a_second_and_does_not_import_torch() -> None:
    code = (
        "import sys, time; t = time.process_time(); from freeat.cli.main import run; code = run(['--help']); "
        "print(time.process_time() - t, code, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    answers = [_python(code).stdout.splitlines()[-1].split() for _ in range(3)]
    assert all(answer[1:] == ["0", "False", "False"] for answer in answers)
    assert min(float(answer[0]) for answer in answers) < 0.25  # and the interpreter itself takes some 0.03


def test_version_is_printed() -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "freeat", "--version"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0
    assert done.stdout.startswith("freeat, version ")
    assert time.monotonic() - began < 60


def test_importing_the_package_does_not_import_torch() -> None:
    done = _python("import sys, freeat; dir(freeat); print('torch' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_train_on_a_users_data(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **good_arrays())
    args = arguments(data=tmp_path / "mine.npz", train_size=None, out=tmp_path / "run")
    assert run(["train", *args]) == 0
    assert RunFolder(tmp_path / "run").description.data.name == "mine"


def test_the_default_run_folder_is_named_by_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", *arguments(updates=1)]) == 0
    assert run(["train", *arguments(updates=1, seed=1)]) == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(names) == 2
    assert all(name.startswith("free-4-l2-digits-") for name in names)


def test_a_run_does_not_change_the_environment(tmp_path: Path) -> None:
    before = dict(os.environ), torch.get_num_threads()
    assert run(["train", *arguments(out=tmp_path / "run", threads=2)]) == 0
    changed = {name for name in os.environ if os.environ[name] != before[0].get(name)}
    assert changed <= {"CUBLAS_WORKSPACE_CONFIG", "PYTEST_CURRENT_TEST"}
    assert torch.get_num_threads() == before[1]


def test_another_radius_of_evaluation_has_its_default_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert run(["train", *arguments(out=folder, eval_alpha=0.01)]) == 0
    for options, alpha in (
        ([], 0.01),
        (["--eps", "0.7"], None),
        (["--eps", "0.7", "--alpha", "0.2"], 0.2),
    ):
        capsys.readouterr()
        assert run(["evaluate", str(folder), *options, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["results"][0]["settings"]
        assert found["alpha"] == alpha, options


@pytest.mark.parametrize(
    ("written", "exit_code"), [("[free-2, fast]", 0), ("free-2, fast", 0), ("", 2), ("[1, 2]", 2)]
)
def test_algorithms_in_a_file_are_a_text_or_a_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str, exit_code: int
) -> None:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in SMALL_RUN.items() if name != "algorithm"]
    (tmp_path / "spec.yaml").write_text("\n".join([*lines, f"algorithms: {written}"]))
    options = [
        "compare",
        str(tmp_path / "spec.yaml"),
        "--out",
        str(tmp_path / "out"),
        "--seeds",
        "1",
        "--jobs",
        "1",
    ]
    assert run(options) == exit_code
    assert exit_code == 0 or "write their names" in capsys.readouterr().err


def test_only_rank_0_prints_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    args = ["train", *arguments(out=tmp_path / "run"), "--json"]
    assert run(args) == 0
    capsys.readouterr()
    monkeypatch.setenv("RANK", "1")
    assert run(args) == 0
    assert capsys.readouterr().out == ""


def test_runs_are_compared_at_radius_0_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "other"):
        carry_out(tmp_path / name, algorithm="free-2", seed=len(name))
    capsys.readouterr()
    assert (
        run(["runs", "diff", "one", "other", "--store", str(tmp_path), "--eps", "0", "-n", "20", "--json"])
        == 0
    )
    evaluated = json.loads(capsys.readouterr().out)["evaluated"]
    assert evaluated["eps"] == 0
    assert evaluated["robust"]["first"] == evaluated["clean"]["first"]


def test_a_refused_run_is_not_reported_as_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["train", *arguments(out=tmp_path / "run")]
    assert run(args) == 0
    capsys.readouterr()
    assert run(args) == 0
    assert "is finished: this is its stored result" in capsys.readouterr().err
    assert run(["train", *arguments(out=tmp_path / "run", lr=0.03)]) == 2
    assert "is finished" not in capsys.readouterr().err
