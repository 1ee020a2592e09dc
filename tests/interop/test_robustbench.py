"""RobustBench's functions: its scripts run, models load by reference, failed sanity checks are warned of."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import freeat
from freeat.attacks.pgd import Pgd
from freeat.data import load_data
from freeat.errors import InputError
from freeat.evaluation.evaluate import evaluate
from freeat.interop.robustbench import benchmark, load_model, robustbench_claim
from freeat.models import build
from freeat.runs.open import ExportedFolder, FurtherEvaluation
from freeat.threat import L2
from problems import digits_classifier
from small_runs import carry_out

DATA = load_data("digits")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "w.pt"
    torch.save(digits_classifier().state_dict(), path)
    return path


def test_benchmark_returns_clean_and_robust_accuracy(weights: Path) -> None:
    net, model = digits_classifier(), load_model(f"linear@{weights}", dataset="digits")
    clean, robust = benchmark(model, 100, "digits", "L2", eps="1/10", device="cpu", attack="pgd-10")
    x, y = DATA.test.sample(100).batch(torch.arange(100))
    assert clean == float((net(x).argmax(-1) == y).double().mean())
    assert 0 < robust < clean
    assert benchmark(model, 100, "digits", "Linf", eps=0.0, device="cpu", attack="pgd-2") == (clean, clean)
    standard = benchmark(model, 40, "digits", "L2", device="cpu", attack="pgd-5")
    assert standard == benchmark(model, 40, "digits", "L2", eps=0.5, device="cpu", attack="pgd-5")


def test_load_model_needs_no_data_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FREEAT_DATA", str(tmp_path))
    net = build("cnn-w4", classes=10, shape=(3, 32, 32))
    torch.save(net.state_dict(), tmp_path / "w.pt")
    reference = f"cnn-w4@{tmp_path / 'w.pt'}"
    model = load_model(model_name=reference, dataset="cifar10", threat_model="Linf", model_dir="models")
    assert not model.training
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(x), net.eval()(x))
    with pytest.raises(InputError, match="CIFAR-10 is not in"):
        benchmark(model, 10)


def test_load_model_of_a_run_ignores_the_dataset(tmp_path: Path) -> None:
    carry_out(tmp_path / "run")
    model = load_model(tmp_path / "run")  # RobustBench's default is CIFAR-10; the run saw digits
    clean, robust = benchmark(model, 20, "digits", "L2", eps=0.2, attack="pgd-2")
    assert 0 <= robust <= clean <= 1


def test_a_data_set_by_its_path(weights: Path, tmp_path: Path) -> None:
    train, test = (part.take(torch.arange(200)) for part in (DATA.train, DATA.test))
    arrays = {
        "x_train": train.x.permute(0, 2, 3, 1).numpy(),
        "y_train": train.y.numpy(),
        "x_test": test.x.permute(0, 2, 3, 1).numpy(),
        "y_test": test.y.numpy(),
    }
    np.savez(tmp_path / "mine.npz", **arrays)
    model = load_model(f"linear@{weights}", dataset=tmp_path / "mine.npz")
    by_path = benchmark(model, 200, tmp_path / "mine.npz", "L2", eps=0.1, attack="fgsm")
    found = evaluate(model, test, Pgd(steps=1, start="zero"), L2(0.1), classes=10).summary()
    assert by_path == (found.clean_accuracy, found.robust_accuracy)


def test_to_disk_writes_the_file_of_robustbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = {"dataset": "digits", "threat_model": "Linf", "eps": 0.05, "attack": "fgsm"}
    clean, robust = benchmark(digits_classifier(), 30, **asked, to_disk=True, model_name="mine/1")  # type: ignore[arg-type]
    document = json.loads(Path("model_info/digits/Linf/mine%2F1.json").read_text(encoding="utf-8"))
    assert (document["clean_accuracy"], document["robust_accuracy"], document["n"]) == (clean, robust, 30)
    assert (document["model"], document["attack"], document["norm"], document["eps"]) == (
        "mine/1",
        "fgsm",
        "linf",
        0.05,
    )
    assert len(document["fooled"]) == round(30 * (1 - robust))


class Rounding(nn.Module):
    """Has a gradient of zero everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.net = digits_classifier()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net((16 * x).round() / 16)
        return logits


def test_failed_sanity_checks_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    asked = {"dataset": "digits", "threat_model": "Linf", "eps": 0.1, "attack": "fgsm"}
    with caplog.at_level(logging.WARNING, "freeat"):
        benchmark(digits_classifier(), 40, **asked)  # type: ignore[arg-type]
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "freeat"):
        benchmark(Rounding(), 40, **asked)  # type: ignore[arg-type]
    assert "Rounding (Linf): Of 40 images, 40 have a zero gradient" in caplog.text


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_benchmark_computes_the_same_bits_every_time(
    deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(
        Pgd,
        "step_size",
        lambda attack, ball: seen.append(torch.are_deterministic_algorithms_enabled()) or ball.eps,
    )
    benchmark(digits_classifier(), 5, "digits", eps=0.1, attack="pgd-1", deterministic=deterministic)
    assert set(seen) == {deterministic}
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_examples": 0}, "n_examples=0: evaluate at least 1 image"),
        ({"n_examples": -5}, "at least 1"),
        ({"to_disk": True}, "model_name"),
        ({"threat_model": "corruptions"}, "unknown norm"),
    ],
)
def test_bad_input_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        benchmark(digits_classifier(), **{"n_examples": 5, "dataset": "digits", **options})  # type: ignore[arg-type]


def test_an_export_writes_a_claim_for_the_leaderboard(tmp_path: Path) -> None:
    """With RobustBench's fields; AutoAttack's accuracy is there only where it was run on all test images."""
    carry_out(tmp_path / "run", final_size=None)
    folder = freeat.export(tmp_path / "run", tmp_path / "first", robustbench=True)
    claim = json.loads((folder / "robustbench.json").read_text(encoding="utf-8"))
    result = freeat.load_result(tmp_path / "run")
    fields = (
        "link name authors additional_data number_forward_passes dataset venue architecture eps clean_acc"
    )
    assert [*claim] == [*fields.split(), "reported", "autoattack_acc"]
    assert claim["reported"] == f"{100 * result.test.robust_accuracy:.2f}"
    assert (claim["dataset"], claim["architecture"], claim["eps"]) == ("digits", "mlp-w12", "0.5")
    assert claim["autoattack_acc"] is None
    assert "AutoAttack was not run" in (folder / "robustbench.md").read_text(encoding="utf-8")
    manifest = ExportedFolder(folder).manifest
    shares: dict[str, Any] = {"clean_accuracy": 0.9, "clean_interval": (0.8, 1.0)}
    shares |= {"robust_accuracy": 0.031, "robust_interval": (0.0, 0.1)}
    whole = FurtherEvaluation(
        attack="autoattack", iterate="worst", norm="l2", eps=0.5, n=597, population=597, **shares
    )
    found, form = robustbench_claim(replace(manifest, further=(whole,)))
    assert (found.autoattack_acc, found.reported) == ("3.10", "3.10")
    assert "robust accuracy: 3.10 %" in form
    assert "for digits there is none" in form
    data = replace(manifest.run.data, name="cifar10")
    assert "leaderboards" not in robustbench_claim(replace(manifest, run=replace(manifest.run, data=data)))[1]
    part, _ = robustbench_claim(replace(manifest, further=(replace(whole, n=100),)))
    assert part.autoattack_acc is None
