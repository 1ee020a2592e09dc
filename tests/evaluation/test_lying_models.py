"""Models without an answer, with several, or with one that depends on the batch: refused or named."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import freeat
from freeat.evaluation.sanity import sanity_checks
from freeat.evaluation.transfer import apply_to
from freeat.files.tensors import save_tensors
from freeat.reports.html.page import write_report
from freeat.runs.folder import RunFolder
from small_runs import carry_out, noise_file

DATA = freeat.load_data("digits")
IMAGES = DATA.test.subset(40)
BALL = freeat.L2(0.3)


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layer.reset_parameters()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(x.flatten(1))
        return logits


class NoAnswer(Linear):
    """NaN for every image whose third pixel is dark."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where((x[:, 0, 0, 2] < 0.3)[:, None], torch.nan, super().forward(x))


class NoAnswerToBlack(Linear):
    """NaN for every image whose third pixel is black."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where((x[:, 0, 0, 2] == 0)[:, None], torch.nan, super().forward(x))


class Random(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand(10)


class Counting(Linear):
    """Keeps state that is neither a buffer nor a parameter."""

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) + torch.arange(10) * float(self.calls)


class OfItsBatch(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(0))


class OfItsBatchOnceTrained(OfItsBatch):
    """Before its training all its logits are zero."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)


class Tiring(Linear):
    """Answers otherwise after 200 images."""

    def forward(self, x: Tensor) -> Tensor:
        self.calls += len(x)
        return super().forward(x) * (-1 if self.calls > 200 else 1)


class NoAnswerUnderAttack(Linear):
    """NaN for every image with a pixel that no clean image of digits has."""

    def forward(self, x: Tensor) -> Tensor:
        between = (16 * x - (16 * x).round()).abs().amax((1, 2, 3)) > 1e-3
        return torch.where(between[:, None], torch.nan, super().forward(x))


def evaluated(model: nn.Module) -> freeat.evaluation.evaluate.Evaluation:
    return freeat.evaluate(model, IMAGES, freeat.Pgd(steps=2), BALL, classes=10)


def test_logits_that_are_not_finite_are_refused_with_how_many_images() -> None:
    dark = int((IMAGES.x[:, 0, 0, 2] < 0.3).sum())
    assert 0 < dark < 40
    with pytest.raises(
        freeat.InputError, match=r"logits are NaN or infinite for \d+ of 40 images"
    ) as refusal:
        evaluated(NoAnswer())
    assert int(str(refusal.value).split(" of 40")[0].split()[-1]) >= dark  # a perturbation may darken others


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Random, "the second time"),
        (Counting, "the second time"),
        (OfItsBatch, "the other images of its batch"),
    ],
)
def test_answers_that_are_no_function_of_the_image_are_noted(model: type[nn.Module], expected: str) -> None:
    (note,) = evaluated(model()).notes
    assert note.startswith("sanity check failed:")
    assert expected in note


def test_an_honest_model_has_no_notes_and_passes() -> None:
    assert evaluated(Linear()).notes == ()
    names = {check.name: check.passed for check in sanity_checks(Linear(), IMAGES, BALL, classes=10)}
    assert names["independent of the batch"]
    assert names["deterministic"]


@pytest.mark.parametrize(
    ("model", "failing"), [(Counting, "deterministic"), (OfItsBatch, "independent of the batch")]
)
def test_the_sanity_checks_name_such_a_model(model: type[nn.Module], failing: str) -> None:
    checks = {check.name: check.passed for check in sanity_checks(model(), IMAGES, BALL, classes=10)}
    assert not checks[failing]


def test_a_run_notes_such_a_model(tmp_path: Path) -> None:
    result = carry_out(tmp_path / "run", model="test_lying_models:OfItsBatch")
    assert any("the other images of its batch" in note for note in result.notes)
    honest = carry_out(tmp_path / "honest", model="test_lying_models:Linear")
    assert not any("sanity check" in note for note in honest.notes)


def test_a_run_notes_a_model_whose_training_shows_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = carry_out(tmp_path / "run", model="test_lying_models:OfItsBatchOnceTrained")
    assert any("the other images of its batch" in note for note in result.notes)
    write_report(tmp_path / "report.html", [tmp_path / "run"])
    assert "the other images of its batch" in (tmp_path / "report.html").read_text()
    caplog.clear()
    freeat.export(tmp_path / "run", tmp_path / "exported", trust_code=True)
    assert "the other images of its batch" in caplog.text
    assert "the other images of its batch" in (tmp_path / "exported" / "README.md").read_text()


def test_state_that_changes_after_the_first_batch_is_noted() -> None:
    found = freeat.evaluate(
        Tiring(), DATA.test.subset(300), freeat.Pgd(steps=2), freeat.L2(0), classes=10, batch_size=40
    )
    (note,) = found.notes
    assert "the second time" in note


def test_the_robust_gap_says_what_was_noted() -> None:
    found = freeat.robust_gap(OfItsBatch(), DATA, DATA, BALL, attack="pgd-2", size=20)
    assert str(found).count("the other images of its batch") == 1


def test_a_target_of_transferred_attacks_is_checked_too() -> None:
    made = freeat.evaluate(Linear(), IMAGES, freeat.Pgd(steps=2), BALL, classes=10, keep_delta=True)
    (note,) = apply_to(OfItsBatch(), IMAGES, made, BALL).notes
    assert "the other images of its batch" in note
    with pytest.raises(freeat.InputError, match=r"NaN or infinite for \d+ of 40 images"):
        apply_to(NoAnswerUnderAttack(), IMAGES, made, BALL)


def test_a_run_whose_model_has_no_answer_under_attack_counts_the_images(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"NaN or infinite for \d+ of \d+ images"):
        carry_out(tmp_path / "run", model="test_lying_models:NoAnswerUnderAttack", algorithm="erm")


def test_weights_without_an_answer_are_not_exported(tmp_path: Path) -> None:
    carry_out(tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    weights = {name: value * torch.nan for name, value in load_file(path).items()}
    save_tensors(path, weights, {"update": RunFolder(tmp_path / "run").weights_update()})
    with pytest.raises(freeat.InputError, match="NaN or infinite for 597 of 597 test images of digits"):
        freeat.export(tmp_path / "run", tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_an_export_is_checked_on_the_images_of_its_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No random image is black: on 64 of those this model has an answer."""
    carry_out(tmp_path / "run", model="test_lying_models:Linear")
    changed = json.loads((tmp_path / "run" / "run.json").read_text().replace(":Linear", ":NoAnswerToBlack"))
    (tmp_path / "run" / "run.json").write_text(json.dumps(changed))
    black = int((DATA.test.x[:, 0, 0, 2] == 0).sum())
    assert 0 < black < 597
    with pytest.raises(freeat.InputError, match=f"for {black} of 597 test images of digits"):
        freeat.export(tmp_path / "run", tmp_path / "exported", trust_code=True)
    assert "random images" not in caplog.text


def test_without_the_data_of_its_run_an_export_is_checked_on_random_images_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    carry_out(tmp_path / "run", data=noise_file(tmp_path / "data.npz", 10), train_size=None)
    (tmp_path / "data.npz").unlink()
    freeat.export(tmp_path / "run", tmp_path / "exported")
    assert "checked on 64 random images only" in caplog.text
    assert "data.npz" in caplog.text
