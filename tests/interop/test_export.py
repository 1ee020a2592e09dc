"""An exported model: the same logits, a complete manifest, written completely or not at all."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

import freeat
from freeat.cli.main import run
from freeat.data import load_data
from freeat.files.documents import read_json
from freeat.interop import export as exporting
from freeat.interop.card import model_card
from freeat.runs.folder import RunFolder
from freeat.runs.open import MANIFEST, WEIGHTS, ExportedFolder, Manifest, open_model
from small_runs import carry_out


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with batch norm, a normalization, an average of the weights and a validation split."""
    folder = tmp_path_factory.mktemp("trained") / "my run"
    carry_out(folder, model="cnn-w4", normalize="digits", ema=0.9, validation=20, lr=0.05)
    return folder


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return freeat.export(trained, tmp_path_factory.mktemp("exported") / "model")


def images(n: int = 20) -> Tensor:
    data = load_data("digits")
    return data.test.batch(torch.arange(n))[0]


@pytest.mark.parametrize("weights", ["model", "ema", "best"])
def test_a_loaded_export_has_the_same_bits(trained: Path, tmp_path: Path, weights: str) -> None:
    folder = freeat.export(trained, tmp_path / "out", weights=weights)
    model = freeat.load(folder)
    expected = freeat.load(f"{trained}@{weights}")
    assert not model.training
    assert torch.equal(model(images()), expected(images()))
    assert torch.equal(freeat.load(f"{trained}@{weights}")(images()), expected(images()))


def test_the_manifest_holds_run_weights_and_scores(trained: Path, exported: Path) -> None:
    manifest = ExportedFolder(exported).manifest
    run_facts, result = RunFolder(trained).description, RunFolder(trained).result
    assert result is not None
    assert read_json(exported / MANIFEST, format=1)["format"] == 1
    assert manifest.run == run_facts
    assert (manifest.run.spec.model, manifest.run.spec.normalize, manifest.needs_code) == (
        "cnn-w4",
        "digits",
        False,
    )
    assert (manifest.run.data.shape, manifest.run.data.classes) == ((1, 8, 8), tuple("0123456789"))
    assert (manifest.scores.test, manifest.scores.gap) == (result.test, result.gap)
    assert (manifest.weights.which, manifest.weights.update) == ("model", 14)
    assert ExportedFolder(exported).spec == RunFolder(trained).spec


def test_scores_are_those_of_the_exported_weights(trained: Path, tmp_path: Path) -> None:
    result = RunFolder(trained).result
    assert result is not None
    averaged = ExportedFolder(freeat.export(trained, tmp_path / "ema", weights="ema")).manifest
    assert averaged.scores == result.ema
    best = ExportedFolder(freeat.export(trained, tmp_path / "best", weights="best")).manifest
    records = [record for record in RunFolder(trained).history() if record.best]
    assert best.scores.validation == records[-1].validation
    assert best.weights.update == records[-1].update


def test_later_evaluations_are_exported(trained: Path, tmp_path: Path) -> None:
    assert (
        run(["evaluate", str(trained), "--attack", "pgd-3", "--eps", "1/4", "-n", "30", "--split", "both"])
        == 0
    )
    for n in ("25", "20"):  # of one attack at one radius, that on more images is shown
        assert run(["evaluate", str(trained), "--attack", "fgsm", "-n", n, "--device", "cpu"]) == 0
    assert run(["evaluate", f"{trained}@ema", "--attack", "pgd-5", "-n", "25", "--device", "cpu"]) == 0
    folder = freeat.export(trained, tmp_path / "out")
    rows = ExportedFolder(folder).manifest.further
    assert {(row.attack, row.eps, row.n) for row in rows} == {("pgd-3", 0.25, 30), ("fgsm", 0.5, 25)}
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "| `pgd-3`, l2 ε = 0.25 | 30 |" in card


def test_evaluations_on_other_data_are_not_exported(trained: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((60, 8, 8, 1), np.float32)
    y = np.arange(60) % 10
    np.savez(tmp_path / "digits.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    options = ["--attack", "pgd-4", "--data", str(tmp_path / "digits.npz"), "--device", "cpu"]
    assert run(["evaluate", str(trained), *options]) == 0
    rows = ExportedFolder(freeat.export(trained, tmp_path / "out")).manifest.further
    assert "pgd-4" not in {row.attack for row in rows}


def test_exports_of_several_seeds_have_distinct_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for algorithm in ("fast", "free-4"):
        carry_out(tmp_path / "runs" / algorithm / "seed-0", algorithm=algorithm)
    written = [freeat.export(tmp_path / "runs" / name / "seed-0") for name in ("fast", "free-4")]
    assert written == [Path("exports/fast-seed-0"), Path("exports/free-4-seed-0")]
    assert "# free-4-seed-0" in (written[1] / "README.md").read_text(encoding="utf-8")


def front_matter(card: str) -> dict[str, Any]:
    document = yaml.safe_load(card.split("---\n")[1])
    assert isinstance(document, dict)
    return document


def test_the_card_shows_the_scores(exported: Path) -> None:
    card = (exported / "README.md").read_text(encoding="utf-8")
    front, scores = front_matter(card), ExportedFolder(exported).manifest.scores
    assert front["library_name"] == "freeat"
    (result,) = front["model-index"][0]["results"]
    values = {metric["name"]: metric["value"] for metric in result["metrics"]}
    assert values["robust accuracy (pgd-2, l2 0.5)"] == scores.test.robust_accuracy
    for part in (
        "## Evaluation",
        "Threat model",
        "Training",
        "Limitations",
        "ε = 0.5",
        "A stronger attack can only",
    ):
        assert part in card
    assert f"{100 * scores.gap.value:.1f} [" in card
    assert "Evaluated on 24 of 60 training and 24 of 597 test images." in card


def test_the_card_lists_limitations(exported: Path) -> None:
    manifest = ExportedFolder(exported).manifest
    assert "against l2 ε = 0.5 perturbations" in model_card(manifest)
    data, test = manifest.run.data, manifest.scores.test
    at_chance = replace(test, robust_accuracy=0.1, robust_interval=(0.05, 0.2), constant_answer=None)
    other = replace(
        manifest,
        collapsed=True,
        run=replace(
            manifest.run,
            spec=replace(manifest.run.spec, algorithm="erm"),
            data=replace(data, notes=("The images were resized.",)),
        ),
        scores=replace(manifest.scores, test=at_chance),
        weights=replace(manifest.weights, which="best"),
    )
    card = model_card(other)
    for part in (
        "without an adversary",
        "collapsed",
        "not above chance",
        "validation images",
        "were resized",
    ):
        assert part in card
    splits = {name: replace(getattr(manifest.scores, name), constant_answer=3) for name in ("train", "test")}
    constant = model_card(replace(manifest, scores=replace(manifest.scores, **splits)))
    assert "The model gives the same answer to every image: its gap says nothing." in constant


def test_names_are_escaped_in_the_card(exported: Path) -> None:
    manifest = ExportedFolder(exported).manifest
    evil = "<script>alert(1)</script> | # `x`\n# title"
    data = manifest.run.data
    data = replace(data, name=evil, notes=(evil,), classes=(evil, *data.classes[1:]))
    card = model_card(replace(manifest, name=evil, run=replace(manifest.run, data=data)))
    assert front_matter(card)["model-index"][0]["name"] == evil
    body = card.split("---\n", 2)[2]
    assert "\n# title" not in body
    assert "<script>" not in body.replace("`<script>", "")  # inside code it is text


def test_evaluate_accepts_an_exported_folder(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = load_data("digits")
    opened = open_model(str(exported), data)
    assert opened.name == "model"
    assert opened.results == exported.with_name("model.results")
    assert run(["evaluate", str(exported), "--attack", "pgd-2", "-n", "20", "--device", "cpu", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert (result["data"], result["norm"], result["eps"]) == ("digits", "l2", 0.5)
    assert not (exported / "results").exists()
    assert list((exported.with_name("model.results")).glob("*.json"))


def test_an_earlier_export_is_replaced_and_anything_else_refused(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    freeat.export(trained, out)
    (out / "left over").touch()
    freeat.export(trained, out)
    assert not (out / "left over").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(freeat.InputError, match="not an exported model"):
        freeat.export(trained, tmp_path / "mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out"]


def test_a_failed_export_leaves_the_earlier_one(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = freeat.export(trained, tmp_path / "out")
    before = (out / MANIFEST).read_bytes()

    def fail(manifest: Manifest) -> str:
        raise RuntimeError("the disk is full, say")

    monkeypatch.setattr(exporting, "model_card", fail)
    for target in (out, tmp_path / "new"):
        with pytest.raises(RuntimeError):
            freeat.export(trained, target)
    assert (out / MANIFEST).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def changed(folder: Path, **changes: Any) -> None:
    document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    (folder / MANIFEST).write_text(json.dumps(document | changes), encoding="utf-8")


def test_damaged_and_newer_exports_are_refused(trained: Path, tmp_path: Path) -> None:
    folder = freeat.export(trained, tmp_path / "out")
    weights = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    with pytest.raises(freeat.InputError, match="SHA-256 differs"):
        freeat.load(folder)
    (folder / WEIGHTS).unlink()
    with pytest.raises(freeat.InputError, match="copy the whole"):
        freeat.load(folder)
    changed(folder, format=2)
    with pytest.raises(freeat.InputError, match="upgrade freeat"):
        freeat.load(folder)
    (folder / MANIFEST).write_text('{"format": 1}', encoding="utf-8")
    with pytest.raises(freeat.InputError, match=r"missing required field `name`.*export the run again"):
        freeat.load(folder)
    with pytest.raises(freeat.InputError, match="neither an exported model"):
        freeat.load(tmp_path)


def test_other_weights_of_an_export_are_refused(exported: Path) -> None:
    with pytest.raises(freeat.InputError, match="leave @ema out"):
        freeat.load(f"{exported}@ema")


def test_an_unfinished_run_is_not_exported(tmp_path: Path) -> None:
    from freeat.training.trainer import Stopped

    with pytest.raises(Stopped):
        carry_out(tmp_path / "run", should_stop=lambda: True)
    with pytest.raises(freeat.InputError, match="has not finished"):
        freeat.export(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    carry_out(tmp_path / "run")
    for weights in ("ema", "best", "worst"):
        with pytest.raises(freeat.InputError, match=f"no weights called '{weights}'|no best weights"):
            freeat.export(tmp_path / "run", tmp_path / "out", weights=weights)


def test_a_users_model_needs_trust_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    carry_out(tmp_path / "run", model="troubled_models:fine_for", model_args={"classes": 10})
    assert run(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 2
    assert "--trust-code" in capsys.readouterr().err
    options = ["--out", str(tmp_path / "out"), "--model", "troubled_models:fine_for", "--json"]
    assert run(["export", str(tmp_path / "run"), *options]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == ["README.md", "freeat.json", "model.safetensors"]
    assert "trust_code=True" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    with pytest.raises(freeat.InputError, match="trust"):
        freeat.load(tmp_path / "out")
    assert freeat.load(tmp_path / "out", trust_code=True)(images()).shape == (20, 10)
