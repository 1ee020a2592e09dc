"""The library in a few lines: what it returns, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR

import freeat


def net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


class Spoilt(nn.Linear):
    """Divides by what is zero."""

    def __init__(self) -> None:
        super().__init__(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1)) / (x * 0).sum()


LABELS = torch.arange(4)


class Incomplete:
    """An algorithm that says nothing of its updates and costs."""

    def step(self, learner: freeat.Learner, x: Tensor, y: Tensor) -> None: ...


def test_trusted_code_trains_by_its_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fast_of_mine.py").write_text("from freeat import Fast\n\n\nclass Mine(Fast): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings: dict[str, Any] = {"ball": freeat.L2(0.3), "updates": 2, "device": "cpu", "trust_code": True}
    assert freeat.train(net(), "digits", algorithm="fast_of_mine:Mine", **settings).result.update == 2


def test_an_algorithm_by_name_gives_the_same_bits() -> None:
    ball = freeat.L2(0.3)
    settings = {"updates": 8, "device": "cpu", "attack": freeat.Pgd(steps=2)}
    torch.manual_seed(0)
    named, made = net(), net()
    made.load_state_dict(named.state_dict())
    one = freeat.train(named, "digits", algorithm="free-2", ball=ball, **settings)
    two = freeat.train(made, "digits", algorithm=freeat.Free(m=2, ball=ball), **settings)
    assert all(torch.equal(p, q) for p, q in zip(named.parameters(), made.parameters(), strict=True))
    assert one.gap == two.gap
    assert one.result.update == 8


def test_a_schedule_by_name_is_that_of_the_command_line() -> None:
    from freeat.learner.schedules import Cosine

    torch.manual_seed(0)
    named, made = net(), net()
    made.load_state_dict(named.state_dict())
    settings = {"algorithm": "fast", "ball": freeat.L2(0.3), "updates": 6, "device": "cpu", "lr": 0.2}
    freeat.train(named, "digits", schedule="cosine", **settings)
    freeat.train(made, "digits", schedule=Cosine(lr=0.2), **settings)
    assert all(torch.equal(p, q) for p, q in zip(named.parameters(), made.parameters(), strict=True))


@pytest.mark.parametrize(("lr", "peak"), [(None, 1e-3), (0.02, 0.02)])
def test_a_schedule_by_name_peaks_at_the_rate_of_an_own_optimizer(lr: float | None, peak: float) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    settings = {"algorithm": "fast", "ball": freeat.L2(0.3), "updates": 6, "device": "cpu", "eval_every": 1}
    trained = freeat.train(model, "digits", optimizer=optimizer, schedule="cosine", lr=lr, **settings)
    assert max(record.lr for record in trained.history) == pytest.approx(peak)


def test_replayed_batches_are_fewer_images_at_the_same_updates() -> None:
    results = [
        freeat.train(
            net(), "digits", algorithm="fast", ball=freeat.L2(0.3), updates=6, replay=replay, device="cpu"
        ).result
        for replay in (1, 3)
    ]
    assert [result.update for result in results] == [6, 6]
    assert results[1].epoch == pytest.approx(results[0].epoch / 3)


def test_a_name_needs_a_ball() -> None:
    with pytest.raises(freeat.InputError, match="needs a ball"):
        freeat.train(net(), "digits", algorithm="free-4", updates=1)


def test_erm_needs_a_ball_for_evaluation() -> None:
    with pytest.raises(freeat.InputError, match="no ball of its own"):
        freeat.train(net(), "digits", algorithm=freeat.Erm(), updates=1)


def test_an_optimizer_of_another_model_is_refused() -> None:
    model, other = net(), net()
    with pytest.raises(freeat.InputError, match="no parameter of this model"):
        freeat.train(
            model,
            "digits",
            algorithm=freeat.Fast(ball=freeat.L2(0.3)),
            optimizer=torch.optim.SGD(other.parameters(), lr=0.1),
            updates=1,
        )


def test_a_run_is_loaded_with_its_result(tmp_path_factory: pytest.TempPathFactory) -> None:
    from freeat.cli.main import run

    folder = tmp_path_factory.mktemp("loaded") / "run"
    command = "--data digits --model linear --algorithm fast --norm l2 --eps 0.3 --updates 4 --final-size 40"
    assert run(["train", *command.split(), "--out", str(folder)]) == 0
    model, result = freeat.load(folder), freeat.load_result(folder)
    x, y = freeat.load_data("digits").test.batch(torch.arange(5))
    assert model(x).shape == (len(y), 10)
    assert not model.training
    assert result.update == 4


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "model by name": ({"model": "resnet18"}, "model is 'resnet18', a str: pass a torch.nn.Module"),
    "model by class": ({"model": nn.Flatten}, "built and not its class"),
    "nothing to train": ({"model": nn.Flatten()}, "model is a Flatten without parameters"),
    "bare radius": ({"ball": 0.5}, "ball is 0.5, a float: pass a ball with its radius"),
    "algorithm by class": ({"algorithm": freeat.Free}, "pass a name such as 'free-4'"),
    "no algorithm": ({"algorithm": 4}, "algorithm is 4, a int"),
    "attack by name": ({"attack": "pgd-20"}, "attack is 'pgd-20', a str: training is evaluated by PGD"),
    "optimizer by class": ({"optimizer": torch.optim.SGD}, "pass a torch optimizer, such as"),
    "unknown schedule": ({"schedule": "cosin"}, "did you mean 'cosine'"),
    "no schedule": ({"schedule": 0.1}, "schedule is 0.1, a float: pass a name such as 'cosine'"),
    "schedule by class": (
        {"schedule": StepLR},
        "or a function of the clock (freeat.learner.schedules.Clock)",
    ),
    "tensors": (
        {"data": (torch.rand(4, 1, 8, 8), LABELS)},
        "data is a tuple: pass a name, a path, or in Python",
    ),
    "incomplete algorithm": (
        {"algorithm": Incomplete()},
        "algorithm Incomplete lacks updates_per_batch, cost: ",
    ),
    "code without trust": ({"algorithm": "noise:Noise"}, "(trust_code=True in Python)"),
    "both lengths": ({"epochs": 2, "updates": 3}, "both --epochs 2 and --updates 3 given"),
    "no update": ({"epochs": None, "updates": 0}, "--updates 0 must be at least 1"),
    "no batch": ({"batch_size": 0}, "--batch-size 0 must be at least 1"),
    "NaN from the start": ({"model": Spoilt()}, "logits that are NaN or infinite before it is trained"),
}


@pytest.mark.parametrize("row", WRONG)
def test_arguments_of_the_wrong_kind_are_refused(row: str) -> None:
    changes, message = WRONG[row]
    given: dict[str, Any] = {
        "model": net(),
        "data": "digits",
        "algorithm": "fast",
        "ball": freeat.L2(0.3),
        "epochs": 1,
    } | changes
    with pytest.raises(freeat.InputError) as refusal:
        freeat.train(given.pop("model"), given.pop("data"), device="cpu", **given)
    assert message in str(refusal.value)


def test_a_training_that_ends_at_chance_says_so(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    for given in ("free-2", freeat.Free(ball=freeat.L2(0.3), m=2)):
        caplog.clear()
        freeat.train(net(), "digits", algorithm=given, ball=freeat.L2(0.3), updates=2, lr=1e-9, device="cpu")
        name = given if isinstance(given, str) else "Free"
        assert f"{name} did not get above chance: its gap says nothing." in caplog.text
    caplog.clear()
    freeat.train(net(), "digits", algorithm="free-2", ball=freeat.L2(0.1), updates=60, device="cpu")
    assert "above chance" not in caplog.text


def test_a_batch_larger_than_the_training_set_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"algorithm": "fast", "ball": freeat.L2(0.3), "updates": 1, "device": "cpu"}
    freeat.train(net(), "digits", batch_size=1201, attack=freeat.Pgd(steps=1), **settings)
    assert "batch size 1201 exceeds the 1200 training images" in caplog.text


@pytest.mark.parametrize("every", [0, -3])
def test_eval_every_below_1_is_refused(every: int) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    with pytest.raises(freeat.InputError, match=f"--eval-every {every} must be at least 1"):
        freeat.train(model, "digits", algorithm="fast", ball=freeat.L2(0.5), updates=2, eval_every=every)
