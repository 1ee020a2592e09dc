"""Runs: bit-identical resume, resolved settings, and refusals."""

import copy
import itertools
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import freeat
from freeat import Fast
from freeat.cli.main import run as command_line
from freeat.compute.machine import arithmetic, resolve_device
from freeat.data import load_data
from freeat.errors import InputError
from freeat.files.locks import LeaseLost, leased
from freeat.files.tensors import load_tensors
from freeat.learner.distributed import ProcessGroup
from freeat.models import build as network
from freeat.runs import build
from freeat.runs.folder import MachineSettings, RunFolder
from freeat.runs.open import open_model
from freeat.runs.run import RunOptions, assemble
from freeat.runs.spec import EvalSpec, TrainSpec
from freeat.training.trainer import CheckpointFacts, Stopped
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
    "n-fgsm": {"algorithm": "n-fgsm", "model": "cnn-w4", "schedule": "one-cycle", "noise": 1.5},
    "awp": {"awp": 0.05, "awp_from": 1, "algorithm": "free-4", "model": "cnn-w4", "label_smoothing": 0.1},
    "proximal": {"proximal": 0.01, "proximal_every": 0.5, "model": "cnn-w4", "algorithm": "vanilla-2"},
    "swa and average": {"swa": True, "ema": 0.5, "clip_grad": 0.5, "schedule": "cosine", "precision": "bf16"},
    "adamw": {"optimizer": "adamw", "lr": 0.01},
    "warm-up": {"warmup": 0.8, "algorithm": "fast"},
    "bf16": {"precision": "bf16", "model": "cnn-w4"},
    "fp16": {"precision": "fp16", "model": "cnn-w4"},
    "validation": {"validation": 0.1, "train_size": None, "updates": 24, "algorithm": "fast"},
    "augmentation": {"augment": "crop-flip", "algorithm": "fast"},
    "independent": {"sampling": "independent", "micro_batch": 5},
    "replay": {"replay": 3, "algorithm": "vanilla-2", "augment": "crop"},
    "strength": {"strength": True, "algorithm": "free-4", "model": "cnn-w4"},
    "normalized": {"normalize": "mean=0.5;std=0.25", "model": "mlp-w12-silu"},
}


def test_the_result_holds_the_digest_of_the_opened_weights(tmp_path: Path) -> None:
    result = carry_out(tmp_path / "run", model="cnn-w4", ema=0.9)
    assert result.weights == open_model(tmp_path / "run", load_data("digits")).digest


def every(n: int) -> Callable[[], bool]:
    """A request to stop at every n-th batch of a process."""
    calls = itertools.count(1)
    return lambda: next(calls) % n == 0


def run_in_sessions(folder: Path, batches: int, **settings: Any) -> int:
    """Execute a run that is stopped after every ``batches`` batches; returns how often it was stopped."""
    for stops in range(100):
        try:
            carry_out(folder, should_stop=every(batches), **settings)
        except Stopped:
            continue
        return stops
    pytest.fail("the run makes no progress")


@pytest.mark.parametrize("settings", RESUMED.values(), ids=RESUMED)
def test_resume_after_every_batch_is_bit_identical(tmp_path: Path, settings: dict[str, Any]) -> None:
    carry_out(tmp_path / "whole", **settings)
    stops = run_in_sessions(tmp_path / "resumed", 1, **settings)
    assert stops >= 4
    assert outcome(tmp_path / "resumed") == outcome(tmp_path / "whole")


def test_resume_falls_back_from_a_damaged_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = {"algorithm": "fast", "eval_every": 2, "validation": 40}
    carry_out(tmp_path / "whole", **settings)
    with pytest.raises(Stopped, match="update 9 as asked; run the same command again"):
        carry_out(tmp_path / "run", should_stop=every(9), checkpoint_every=0.0, **settings)
    newest = tmp_path / "run" / "checkpoints" / "update-000000009.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    with (tmp_path / "run" / "history.jsonl").open("ab") as file:
        file.write(b'{"kind": "evalua')  # and a torn line
    carry_out(tmp_path / "run", **settings)
    assert "update-000000009" in caplog.text
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def altered(value: Any) -> Iterator[Any]:
    """A JSON document with one of its parts left out, or replaced by a value of another type or size."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            for changed in altered(value[key]):
                copy = value.copy()
                copy[key] = changed
                yield copy
            copy = value.copy()
            del copy[key]
            yield copy
    yield 3 if isinstance(value, str) else "3" if not isinstance(value, float) else value + 1e-9


def test_any_change_of_a_checkpoints_facts_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Stopped):
        carry_out(tmp_path, should_stop=every(9), checkpoint_every=0.0, algorithm="fast", ema=0.9)
    checkpoints = RunFolder(tmp_path).checkpoints
    newest = checkpoints.folder / "update-000000009.json"
    document = json.loads(newest.read_text())
    changes = 0
    for changed in altered(document):
        if isinstance(changed, dict) and isinstance(changed.get("format"), int):
            newest.write_text(json.dumps(changed))
            found = checkpoints.newest(CheckpointFacts)
            assert found is not None
            assert found[1].learner.updates == 8, changed
            changes += 1
    assert changes > 60
    assert caplog.text.count("update-000000009.json") >= changes


def test_a_run_without_checkpoints_restarts_bit_identically(tmp_path: Path) -> None:
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


def test_the_folder_describes_its_run(tmp_path: Path) -> None:
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
def test_resuming_on_another_machine_warns(
    stopped: Path, what: str, before: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _rewrite(stopped, lambda document: document["chosen"].update({what: before}))
    carry_out(stopped)
    assert f"was begun with {what} {before}" in caplog.text


def test_resume_keeps_the_number_of_threads(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    with pytest.raises(Stopped):
        carry_out(tmp_path, threads=None, should_stop=every(2))
    torch.set_num_threads(1)
    seen = []
    carry_out(tmp_path, threads=None, should_stop=lambda: bool(seen.append(torch.get_num_threads())))
    assert set(seen) == {2}
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("what", ["data", "initial_weights"])
def test_resuming_with_other_data_or_weights_is_refused(stopped: Path, what: str) -> None:
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


@pytest.mark.parametrize(
    ("changes", "resolved"),
    [
        ({}, (0.5, 0.125, "uniform")),
        ({"attack": "pgd-1"}, (0.5, 0.5, "uniform")),
        ({"eval_eps": 0.2, "eval_start": "radius"}, (0.2, 0.05, "radius")),
    ],
    ids=str,
)
def test_a_run_stores_the_radius_step_and_start_of_its_evaluation(
    tmp_path: Path, changes: dict[str, Any], resolved: tuple[float, float, str]
) -> None:
    with pytest.raises(Stopped):
        carry_out(tmp_path, should_stop=every(1), **changes)
    stored = RunFolder(tmp_path).evaluation
    assert (stored.eval_eps, stored.eval_alpha, stored.eval_start) == resolved


def test_evaluations_of_a_run_begin_at_its_start(tmp_path: Path) -> None:
    seen = set()
    for start in ("zero", "radius", "uniform"):
        result = carry_out(tmp_path / start, eval_start=start, updates=60, algorithm="erm", final_size=None)
        assert result.test.robust_loss is not None
        seen.add(result.test.robust_loss)
    assert len(seen) == 3
    with pytest.raises(InputError, match="--eval-start radius: fgsm starts at the image itself"):
        carry_out(tmp_path / "fgsm", attack="fgsm", eval_start="radius")


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


def test_a_finished_run_is_refused_for_other_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = noise_file(tmp_path / "mine.npz", 3)
    first = carry_out(tmp_path / "run", data=data, train_size=None)
    noise_file(tmp_path / "mine.npz", 3, seed=1)
    with pytest.raises(InputError, match=r"the data are not those .* was begun with"):
        carry_out(tmp_path / "run", data=data, train_size=None)
    (tmp_path / "mine.npz").unlink()
    assert carry_out(tmp_path / "run", data=data, train_size=None) == first
    assert "its data are not here to compare" in caplog.text


def test_evaluating_a_run_on_changed_data_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = noise_file(tmp_path / "mine.npz", 3)
    for name in ("one", "other"):
        carry_out(tmp_path / name, data=data, train_size=None, algorithm="free-2", seed=len(name))
    one = str(tmp_path / "one")
    asked = (
        ["evaluate", one],
        ["runs", "diff", "one", "other", "--store", str(tmp_path), "--attack", "fgsm"],
        ["bound", "--from", one, "--points", "2", "--beta", "1"],
    )
    for settings in asked:
        assert command_line(settings) == 0, (settings, capsys.readouterr().err)
    noise_file(tmp_path / "mine.npz", 3, seed=1)
    for settings in asked:
        capsys.readouterr()
        assert command_line(settings) == 2, settings
        assert "the data are not those" in capsys.readouterr().err


def test_a_leased_folder_is_refused(stopped: Path) -> None:
    before = (stopped / "history.jsonl").read_bytes() if (stopped / "history.jsonl").exists() else None
    with leased(stopped), pytest.raises(InputError, match="in use by another process"):
        carry_out(stopped)
    after = (stopped / "history.jsonl").read_bytes() if (stopped / "history.jsonl").exists() else None
    assert before == after


def test_a_run_that_lost_its_lease_writes_nothing(stopped: Path) -> None:
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
def test_a_run_restores_the_settings_of_torch(tmp_path: Path, deterministic: bool) -> None:
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


def test_unknown_and_missing_devices_are_refused() -> None:
    assert resolve_device("cpu") == torch.device("cpu")
    for name, message in [("cpux", "did you mean 'cpu'"), ("cpu:x", "follows the colon")]:
        with pytest.raises(InputError, match=message):
            resolve_device(name)
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="not available here"):
            resolve_device("cuda")


def test_bf16_and_fp16_train_like_fp32(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"algorithm": "fast", "eps": 0.1, "updates": 60, "eval_every": 1000}
    results = {
        p: carry_out(tmp_path / p, precision=p, **settings).train.clean_loss for p in ("fp32", "bf16", "fp16")
    }
    assert results["fp32"] < 2.2
    assert results["bf16"] == pytest.approx(results["fp32"], rel=0.1)
    assert results["fp16"] == pytest.approx(results["fp32"], rel=0.1)
    assert len(set(results.values())) == 3


def test_init_from_starts_with_the_weights_of_another_run(tmp_path: Path) -> None:
    carry_out(tmp_path / "first")
    settings: dict[str, Any] = {"init_from": str(tmp_path / "first"), "lr": 1e-30, "eval_every": 1000}
    carry_out(tmp_path / "second", **settings)
    one, two = (RunFolder(tmp_path / name).weights() for name in ("first", "second"))
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-6)
    assert RunFolder(tmp_path / "second").description.new_head == ()
    file = str(tmp_path / "first" / "model.safetensors")
    assert (
        carry_out(tmp_path / "third", **settings | {"init_from": file}).test
        == carry_out(tmp_path / "second", **settings).test
    )


@pytest.mark.parametrize("wrapped", [False, True])
def test_init_from_reads_a_state_dict_as_evaluation_does(tmp_path: Path, wrapped: bool) -> None:
    """Nested, with the names of a parallel module, and with a normalization, which becomes the run's."""
    carry_out(tmp_path / "first", normalize="mean=0.3;std=0.5" if wrapped else None)
    tensors = load_tensors(tmp_path / "first" / "model.safetensors")[0]
    state = {"state_dict": {f"module.{k}": v for k, v in tensors.items()}} if wrapped else tensors
    torch.save(state, tmp_path / "weights.pt")
    settings: dict[str, Any] = {"lr": 1e-30, "eval_every": 1000}
    ours = carry_out(tmp_path / "run", **settings, init_from=str(tmp_path / "weights.pt"))
    again = carry_out(tmp_path / "again", **settings, init_from=str(tmp_path / "first"), model="auto")
    assert ours.test == again.test
    found = RunFolder(tmp_path / "run").spec.normalize
    assert (found is None) != wrapped
    assert freeat.load(tmp_path / "run")(torch.rand(2, 1, 8, 8)).shape == (2, 10)
    if wrapped:
        with pytest.raises(InputError, match="leave --normalize out"):
            carry_out(tmp_path / "other", init_from=str(tmp_path / "weights.pt"), normalize="mnist")


def test_init_from_makes_a_new_head_for_other_classes(tmp_path: Path) -> None:
    carry_out(tmp_path / "first")
    settings: dict[str, Any] = {
        "init_from": str(tmp_path / "first"),
        "data": noise_file(tmp_path / "d.npz", 4),
    }
    result = carry_out(tmp_path / "second", **settings, lr=1e-30, weight_decay=0)
    assert any("the head (head.weight, head.bias) is new, for 4 classes" in note for note in result.notes)
    one, two = (RunFolder(tmp_path / name).weights() for name in ("first", "second"))
    head = ["head.weight", "head.bias"]
    assert RunFolder(tmp_path / "second").description.new_head == tuple(head)
    assert all(torch.equal(one[name], two[name]) for name in one if name not in head)
    assert [two[name].shape[0] for name in head] == [4, 4]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "mlp-w13"}, "only the head may differ; use the same --model and --model-args"),
        ({"model": "cnn-w4"}, "belong to another --model"),
        ({"init_from": "nowhere.safetensors"}, "no such file"),
        ({"model": "auto", "init_from": "FILE"}, "another model; name theirs, with --model"),
    ],
    ids=str,
)
def test_init_from_refuses_weights_of_another_model(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    carry_out(tmp_path / "first", updates=1)
    if settings.get("init_from") == "FILE":
        settings = {**settings, "init_from": str(tmp_path / "first" / "model.safetensors")}
    with pytest.raises(InputError, match=message):
        carry_out(tmp_path / "second", **{"init_from": str(tmp_path / "first"), **settings})
    assert not (tmp_path / "second").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler warns about its own doings
def test_a_compiled_network_trains_like_an_uncompiled_one(tmp_path: Path) -> None:
    try:
        torch.compile(torch.nn.Linear(2, 2))(torch.zeros(1, 2))
    except Exception as error:
        pytest.skip(f"no working compiler here: {type(error).__name__}: {error}")
    for name, compiled in (("plain", False), ("compiled", True)):
        carry_out(tmp_path / name, compile=compiled, algorithm="free-2", updates=8)
    plain, compiled_ = (RunFolder(tmp_path / name).weights() for name in ("plain", "compiled"))
    for name in plain:
        torch.testing.assert_close(plain[name], compiled_[name], rtol=1e-3, atol=1e-5)


def test_resuming_is_logged(stopped: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        carry_out(stopped)
        carry_out(stopped)
    assert "resumed at update 8 of 14" in caplog.text
    assert "is finished already" in caplog.text


def test_sgd_of_one_pass_gives_the_bits_of_the_plain_one() -> None:
    spec = TrainSpec(lr=0.1, momentum=0.9, weight_decay=2e-4)
    model = network("mlp-w12", classes=10, shape=(3, 8, 8))
    plain = copy.deepcopy(model)
    optimizers = {
        model: build.make_optimizer(spec, model),
        plain: torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, weight_decay=2e-4),
    }
    assert [optimizer.param_groups[0]["fused"] for optimizer in optimizers.values()] == [True, None]
    g = torch.Generator().manual_seed(0)
    for update in range(1, 9):
        x, y = torch.rand(16, 3, 8, 8, generator=g), torch.randint(10, (16,), generator=g)
        for net, optimizer in optimizers.items():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.param_groups[0]["lr"] = 0.1 / update
            optimizer.step()
        assert all(map(torch.equal, model.parameters(), plain.parameters()))


def test_sgd_of_one_pass_is_for_contiguous_weights_only() -> None:
    """It reads gradient and momentum in the order of memory, whatever their layout is."""
    convolutional = network("cnn-w4", classes=10, shape=(3, 8, 8))
    laid_out = convolutional.to(memory_format=torch.channels_last)
    dense = network("mlp-w12", classes=10, shape=(3, 8, 8))
    for spec, model in (
        (TrainSpec(), laid_out),
        (TrainSpec(precision="fp16"), dense),
        (TrainSpec(), dense.to("meta")),
    ):
        assert build.make_optimizer(spec, model).param_groups[0]["fused"] is None


def test_a_last_part_of_one_image_does_not_end_the_training_of_a_network_with_batch_norms(
    tmp_path: Path,
) -> None:
    settings = {"algorithm": "fast", "batch_size": 5, "train_size": 20, "micro_batch": 4, "updates": 2}
    assert carry_out(tmp_path / "run", model="resnet18-w1", **settings).update == 2


@pytest.mark.parametrize(
    ("settings", "size", "refused"),
    [
        ({"batch_size": 5, "train_size": 20, "micro_batch": 4}, 1, False),  # the fifth joins the four
        ({"batch_size": 5, "train_size": 20, "micro_batch": 1}, 1, True),
        ({"batch_size": 4, "train_size": 20}, 2, False),
        ({"batch_size": 4, "train_size": 20}, 3, True),  # 1, 1 and 2
        ({"batch_size": 8, "train_size": 19}, 2, True),  # 3 are the last batch
        ({"batch_size": 4, "train_size": 20}, 8, True),  # half of them have none
    ],
)
def test_every_pass_of_every_process_has_the_images_that_a_batch_norm_needs(
    settings: dict[str, int], size: int, refused: bool
) -> None:
    spec = TrainSpec(data="digits", model="resnet18-w1", norm="linf", eps=0.1, updates=2, **settings)
    options = RunOptions(folder=Path("unused"))
    given = spec, EvalSpec(), options, torch.device("cpu"), ProcessGroup(rank=0, size=size)
    if not refused:
        assemble(*given)
        return
    which = "batches of 1 image" if size == 1 else f"gives one of {size} processes 1 image at a time"
    with pytest.raises(InputError, match=f"{which}: the batch norms of the model need more"):
        assemble(*given)
