"""Runs: interrupted anywhere they end with the same bits, and they leave the process as it was."""

import itertools
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from freeat import Fast
from freeat.cli.main import run as command_line
from freeat.compute.machine import arithmetic, resolve_device
from freeat.data import load_data
from freeat.errors import InputError
from freeat.files.locks import LeaseLost, leased
from freeat.runs import build
from freeat.runs.folder import MachineSettings, RunFolder
from freeat.runs.open import open_model
from freeat.runs.spec import TrainSpec
from freeat.training.trainer import Stopped
from small_runs import carry_out, noise_file, outcome, timeless

RESUMED: dict[str, dict[str, Any]] = {
    "erm": {"algorithm": "erm"},
    "vanilla": {"algorithm": "vanilla-2", "model": "cnn-w4"},
    "fast": {"algorithm": "fast", "schedule": "cyclic", "norm": "linf", "eps": 0.1},
    "free, cut in its last loop": {"algorithm": "free-4", "updates": 22},
    "free, batch norm": {"algorithm": "free-4", "model": "cnn-w4", "schedule": "vanishing"},
    "free, carry": {"algorithm": "free-3", "algorithm_args": {"carry": True}, "train_size": 50},
    "free-trades": {"algorithm": "free-trades-4"},
    "trades": {"algorithm": "trades-2", "momentum": 0.0},
    "friendly": {"algorithm": "friendly", "algorithm_args": {"omega": 0.01}},
    "average": {"ema": 0.9, "model": "cnn-w4"},
    "adamw": {"optimizer": "adamw", "lr": 0.01},
    "warm-up": {"warmup": 0.8, "algorithm": "fast"},
    "bf16": {"precision": "bf16", "model": "cnn-w4"},
    "fp16": {"precision": "fp16", "model": "cnn-w4"},
    "validation": {"validation": 0.1, "train_size": None, "updates": 24, "algorithm": "fast"},
    "augmentation": {"augment": "crop-flip", "algorithm": "fast"},
    "independent": {"sampling": "independent", "micro_batch": 5},
    "normalized": {"normalize": "mean=0.5;std=0.25", "model": "mlp-w12-silu"},
}


def test_a_result_names_the_weights_that_are_opened(tmp_path: Path) -> None:
    result = carry_out(tmp_path / "run", model="cnn-w4", ema=0.9)
    assert result.weights == open_model(tmp_path / "run", load_data("digits")).digest


def every(n: int) -> Callable[[], bool]:
    """A wish to stop at every n-th batch of a process."""
    calls = itertools.count(1)
    return lambda: next(calls) % n == 0


def in_pieces(folder: Path, batches: int, **words: Any) -> int:
    """Carry a run out, stopped after every so many batches; returns how often it was stopped."""
    for stops in range(100):
        try:
            carry_out(folder, should_stop=every(batches), **words)
        except Stopped:
            continue
        return stops
    pytest.fail("the run makes no progress")


@pytest.mark.parametrize("words", RESUMED.values(), ids=RESUMED)
def test_a_run_stopped_again_and_again_ends_with_the_same_bits(tmp_path: Path, words: dict[str, Any]) -> None:
    carry_out(tmp_path / "whole", **words)
    stops = in_pieces(tmp_path / "pieces", 1, **words)
    assert stops >= 4
    assert outcome(tmp_path / "pieces") == outcome(tmp_path / "whole")


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words: dict[str, Any] = {"algorithm": "fast", "eval_every": 2, "validation": 40}
    carry_out(tmp_path / "whole", **words)
    with pytest.raises(Stopped, match="update 9 as asked; run the same command again"):
        carry_out(tmp_path / "run", should_stop=every(9), checkpoint_every=0.0, **words)
    newest = tmp_path / "run" / "checkpoints" / "update-000000009.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    with (tmp_path / "run" / "history.jsonl").open("ab") as file:
        file.write(b'{"kind": "evalua')  # and a torn line
    carry_out(tmp_path / "run", **words)
    assert "update-000000009" in caplog.text
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_a_run_without_a_whole_checkpoint_begins_anew(tmp_path: Path) -> None:
    carry_out(tmp_path / "whole")
    with pytest.raises(Stopped):
        carry_out(tmp_path / "run", should_stop=every(3))
    for path in (tmp_path / "run" / "checkpoints").glob("*.safetensors"):
        path.unlink()
    carry_out(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = carry_out(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert carry_out(tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "history.jsonl",
        "model.safetensors",
        "result.json",
        "run.json",
    ]


def test_the_folder_says_what_the_run_was(tmp_path: Path) -> None:
    result = carry_out(tmp_path)
    about = RunFolder(tmp_path).description
    assert result.identity == about.identity == about.spec.identity
    assert about.chosen == MachineSettings(
        threads=1, precision="fp32", device="cpu", processes=1, torch=torch.__version__
    )
    assert about.provenance.versions["torch"] == torch.__version__
    assert about.data.train == 60
    assert (about.provenance.machine.cores or 0) >= 1
    assert timeless(list(RunFolder(tmp_path).history())[-1]).items() <= timeless(result).items()


def _rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads((folder / "run.json").read_text())
    change(document)
    (folder / "run.json").write_text(json.dumps(document))


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The folder of a run that was stopped halfway."""
    with pytest.raises(Stopped):
        carry_out(tmp_path / "run", should_stop=every(2))
    return tmp_path / "run"


@pytest.mark.parametrize(("what", "before"), [("torch", "1.0"), ("device", "cuda"), ("processes", 2)])
def test_going_on_elsewhere_warns(
    stopped: Path, what: str, before: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _rewrite(stopped, lambda document: document["chosen"].update({what: before}))
    carry_out(stopped)
    assert f"was begun with {what} {before}" in caplog.text


def test_threads_stay_those_the_run_began_with(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    with pytest.raises(Stopped):
        carry_out(tmp_path, threads=None, should_stop=every(2))
    torch.set_num_threads(1)
    seen = []
    carry_out(tmp_path, threads=None, should_stop=lambda: bool(seen.append(torch.get_num_threads())))
    assert set(seen) == {2}
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("what", ["data", "initial_weights"])
def test_going_on_with_other_data_or_weights_is_refused(stopped: Path, what: str) -> None:
    def change(document: dict[str, Any]) -> None:
        if what == "data":
            document["data"]["digest"] = "0" * 64
        else:
            document["initial_weights"] = "0" * 64

    _rewrite(stopped, change)
    with pytest.raises(InputError, match=rf"the {what.replace('_', ' ')} are not those .* was begun with"):
        carry_out(stopped)


@pytest.mark.parametrize(
    ("changes", "resolved"),
    [
        ({"algorithm": "erm"}, {"alpha": None, "start": None, "algorithm_args": None}),
        ({"algorithm": "free"}, {"alpha": 0.5, "start": "uniform", "algorithm_args": {"carry": False}}),
        ({"algorithm": "fast", "norm": "linf", "eps": 0.1}, {"alpha": 0.1 * 7 / 8, "coefficient": None}),
        ({"algorithm": "trades"}, {"alpha": 0.125, "start": "gaussian", "coefficient": 1 / 6}),
        ({"algorithm": "fast", "updates": None, "epochs": 1.5}, {"epochs": None, "updates": 6}),
        ({"algorithm": "fast", "augment": "auto"}, {"augment": "none"}),
        ({"algorithm": "fast", "precision": "auto"}, {"threads": 1}),
    ],
    ids=str,
)
def test_a_run_stores_its_settings_resolved(
    tmp_path: Path, changes: dict[str, Any], resolved: dict[str, Any]
) -> None:
    with pytest.raises(Stopped):
        carry_out(tmp_path, should_stop=every(1), **changes)
    spec = RunFolder(tmp_path).spec
    assert {name: getattr(spec, name) for name in resolved} == resolved
    assert spec.precision != "auto"
    assert TrainSpec.of(spec.settings()).alpha == spec.alpha


def test_a_change_of_a_default_does_not_reinterpret_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older run is resumed, opened and evaluated with the step, start and length that it was begun with."""
    settings: dict[str, Any] = {"algorithm": "fast", "updates": None, "eval_every": 40}
    carry_out(tmp_path / "whole", **settings)
    with pytest.raises(Stopped):
        carry_out(tmp_path / "run", should_stop=every(2), **settings)
    before = RunFolder(tmp_path / "run").spec
    monkeypatch.setattr(Fast, "step_size", property(lambda self: self.alpha or self.ball.eps))
    monkeypatch.setitem(Fast.__init__.__kwdefaults__, "start", "zero")
    monkeypatch.setattr(build, "DEFAULT_EPOCHS", 2.0)
    carry_out(tmp_path / "new", **settings)
    new = RunFolder(tmp_path / "new").spec
    assert (new.alpha, new.start, new.updates) == (0.5, "zero", 8)
    carry_out(tmp_path / "run", **settings)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    assert RunFolder(tmp_path / "run").spec == before
    opened = open_model(tmp_path / "run", load_data("digits")).spec
    assert opened == before
    assert (before.alpha, before.start, before.updates) == (0.25, "uniform", 120)


def test_a_run_of_another_default_is_not_resumed_by_the_same_command(stopped: Path) -> None:
    _rewrite(stopped, lambda document: document["spec"].update({"momentum": 0.8}))
    with pytest.raises(InputError, match=r"another spec \(momentum 0.8 → 0.9\)"):
        carry_out(stopped)
    _rewrite(stopped, lambda document: document["resolved"].update({"momentum": 0.8}))
    carry_out(stopped, momentum=0.8)


def test_a_finished_run_is_not_the_result_of_other_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = noise_file(tmp_path / "mine.npz", 3)
    first = carry_out(tmp_path / "run", data=data, train_size=None)
    noise_file(tmp_path / "mine.npz", 3, seed=1)
    with pytest.raises(InputError, match=r"the data are not those .* was begun with"):
        carry_out(tmp_path / "run", data=data, train_size=None)
    (tmp_path / "mine.npz").unlink()
    assert carry_out(tmp_path / "run", data=data, train_size=None) == first
    assert "its data are not here to compare" in caplog.text


def test_a_run_is_not_judged_on_other_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = noise_file(tmp_path / "mine.npz", 3)
    for name in ("one", "other"):
        carry_out(tmp_path / name, data=data, train_size=None, algorithm="free-2", seed=len(name))
    one = str(tmp_path / "one")
    asked = (
        ["evaluate", one],
        ["runs", "diff", "one", "other", "--store", str(tmp_path), "--attack", "fgsm"],
        ["bound", "--from", one, "--points", "2", "--beta", "1"],
    )
    for words in asked:
        assert command_line(words) == 0, (words, capsys.readouterr().err)
    noise_file(tmp_path / "mine.npz", 3, seed=1)
    for words in asked:
        capsys.readouterr()
        assert command_line(words) == 2, words
        assert "the data are not those" in capsys.readouterr().err


def test_two_processes_cannot_share_a_folder(stopped: Path) -> None:
    before = (stopped / "history.jsonl").read_bytes() if (stopped / "history.jsonl").exists() else None
    with leased(stopped), pytest.raises(InputError, match="in use by another process"):
        carry_out(stopped)
    after = (stopped / "history.jsonl").read_bytes() if (stopped / "history.jsonl").exists() else None
    assert before == after


def test_a_run_that_lost_its_folder_stops_before_it_writes(stopped: Path) -> None:
    def lose() -> bool:
        (stopped / "lease.json").write_text(json.dumps({"token": "of another process"}))
        return False

    with pytest.raises(LeaseLost):
        carry_out(stopped, should_stop=lose)
    assert {record.kind for record in RunFolder(stopped).history()} == {"evaluation"}
    assert not (stopped / "model.safetensors").exists()
    assert json.loads((stopped / "lease.json").read_text()) == {"token": "of another process"}


def _settings() -> tuple[object, ...]:
    return (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.benchmark,
        torch.get_float32_matmul_precision(),
        torch.get_default_dtype(),
        torch.get_rng_state().tolist(),
    )


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_process_has_its_settings_back(tmp_path: Path, deterministic: bool) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_float32_matmul_precision("medium")
    try:
        before = _settings()
        carry_out(tmp_path, deterministic=deterministic, threads=2)
        assert _settings() == before
        with pytest.raises(ZeroDivisionError), arithmetic(threads=2, deterministic=deterministic):
            raise ZeroDivisionError
        assert _settings() == before
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")


def test_devices_are_named_or_refused() -> None:
    assert resolve_device("cpu") == torch.device("cpu")
    for name, message in [("cpux", "did you mean 'cpu'"), ("cpu:x", "follows the colon")]:
        with pytest.raises(InputError, match=message):
            resolve_device(name)
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="not available here"):
            resolve_device("cuda")


def test_precisions_train(tmp_path: Path) -> None:
    words: dict[str, Any] = {"algorithm": "fast", "eps": 0.1, "updates": 60, "eval_every": 1000}
    results = {
        p: carry_out(tmp_path / p, precision=p, **words).train.clean_loss for p in ("fp32", "bf16", "fp16")
    }
    assert results["fp32"] < 2.2
    assert results["bf16"] == pytest.approx(results["fp32"], rel=0.1)
    assert results["fp16"] == pytest.approx(results["fp32"], rel=0.1)
    assert len(set(results.values())) == 3


def test_training_begins_with_the_weights_of_another_run(tmp_path: Path) -> None:
    carry_out(tmp_path / "first")
    words: dict[str, Any] = {"init_from": str(tmp_path / "first"), "lr": 1e-30, "eval_every": 1000}
    carry_out(tmp_path / "second", **words)
    one, two = (RunFolder(tmp_path / name).weights() for name in ("first", "second"))
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-6)
    assert RunFolder(tmp_path / "second").description.new_head == ()
    file = str(tmp_path / "first" / "model.safetensors")
    assert (
        carry_out(tmp_path / "third", **words | {"init_from": file}).test
        == carry_out(tmp_path / "second", **words).test
    )


def test_the_head_is_new_where_the_classes_differ(tmp_path: Path) -> None:
    carry_out(tmp_path / "first")
    words: dict[str, Any] = {"init_from": str(tmp_path / "first"), "data": noise_file(tmp_path / "d.npz", 4)}
    carry_out(tmp_path / "second", **words, lr=1e-30, weight_decay=0)
    one, two = (RunFolder(tmp_path / name).weights() for name in ("first", "second"))
    head = ["head.weight", "head.bias"]
    assert RunFolder(tmp_path / "second").description.new_head == tuple(head)
    assert all(torch.equal(one[name], two[name]) for name in one if name not in head)
    assert [two[name].shape[0] for name in head] == [4, 4]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"model": "mlp-w13"}, "only the head may differ; use the same --model"),
        ({"model": "cnn-w4"}, "belong to another --model"),
        ({"init_from": "nowhere.safetensors"}, "no such file"),
    ],
    ids=str,
)
def test_weights_of_another_model_are_refused(tmp_path: Path, words: dict[str, Any], message: str) -> None:
    carry_out(tmp_path / "first", updates=1)
    with pytest.raises(InputError, match=message):
        carry_out(tmp_path / "second", **{"init_from": str(tmp_path / "first"), **words})
    assert not (tmp_path / "second").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler warns about its own doings
def test_a_compiled_network_trains_as_a_plain_one(tmp_path: Path) -> None:
    try:
        torch.compile(torch.nn.Linear(2, 2))(torch.zeros(1, 2))
    except Exception as error:
        pytest.skip(f"no working compiler here: {type(error).__name__}: {error}")
    for name, compiled in (("plain", False), ("compiled", True)):
        carry_out(tmp_path / name, compile=compiled, algorithm="free-2", updates=8)
    plain, compiled_ = (RunFolder(tmp_path / name).weights() for name in ("plain", "compiled"))
    for name in plain:
        torch.testing.assert_close(plain[name], compiled_[name], rtol=1e-3, atol=1e-5)


def test_resuming_is_told(stopped: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        carry_out(stopped)
        carry_out(stopped)
    assert "resumed at update 8 of 14" in caplog.text
    assert "is finished already" in caplog.text
