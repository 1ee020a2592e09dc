"""Images are classified as the model's own data were read: from a run, an exported folder and an ONNX file."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import freeat
from freeat.cli.main import run
from freeat.data.preprocessing import Preprocessing
from freeat.errors import InputError
from freeat.files.tensors import save_tensors
from freeat.interop.prediction import CLASSES, PREPROCESSING, predict
from freeat.runs.open import ExportedFolder
from small_runs import carry_out


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bright and dark images of several sizes."""
    folder, rng = tmp_path_factory.mktemp("images") / "photos", np.random.default_rng(0)
    for label, level in (("bright", 190), ("dark", 20)):
        (folder / label).mkdir(parents=True)
        for i in range(20):
            pixels = rng.integers(0, 60, (12 + i % 3, 16, 3)) + level
            Image.fromarray(pixels.astype(np.uint8)).save(folder / label / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    settings = {"data": str(photos), "model": "linear", "train_size": None, "eps": 0.1, "lr": 0.05}
    carry_out(folder, **settings, image_size=8, updates=300, algorithm="fast", eval_every=1000)
    return folder


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxruntime", reason="pip install 'freeat[onnx]'")
    return freeat.export(trained, tmp_path_factory.mktemp("exported") / "model", onnx=True)


def test_preprocessing_gives_the_pixels_of_the_data(photos: Path, trained: Path) -> None:
    data = freeat.load_data(photos, image_size=8)
    model = freeat.load(trained)
    assert model.classes == ("bright", "dark")
    files = sorted(photos.rglob("*.png"))
    pixels = model.preprocess(files)  # type: ignore[operator]
    assert pixels.shape == (40, 3, 8, 8)
    own = torch.cat([data.train.batch(torch.arange(len(data.train)))[0], data.test.batch(torch.arange(8))[0]])
    assert {tuple(one.flatten().tolist()) for one in pixels} == {tuple(o.flatten().tolist()) for o in own}
    opened = [Image.open(file) for file in files[:2]]
    assert torch.equal(model.preprocess(opened), pixels[:2])  # type: ignore[operator]


@pytest.mark.parametrize("kind", ["run", "export", "onnx"])
def test_images_are_classified_alike_by_run_export_and_onnx(
    photos: Path, trained: Path, exported: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = {"run": trained, "export": exported, "onnx": exported / "model.onnx"}[kind]
    assert run(["predict", str(reference), str(photos), "--json", "--top", "1"]) == 0
    found = json.loads(capsys.readouterr().out)["predictions"]
    assert [Path(one["image"]).parent.name for one in found] == [one["label"] for one in found]
    assert len(found) == 40
    model = freeat.load(trained)
    shares = model(model.preprocess(Path(found[0]["image"]))).softmax(1)  # type: ignore[operator]
    assert found[0]["probability"] == pytest.approx(float(shares.max().detach()), abs=1e-5)


def test_the_preprocessing_is_in_manifest_card_and_onnx(exported: Path) -> None:
    onnx = pytest.importorskip("onnx")
    how = Preprocessing(channels=3, height=8, width=8)
    assert ExportedFolder(exported).manifest.preprocessing == how
    assert "cropped at its centre" in (exported / "README.md").read_text(encoding="utf-8")
    facts = {p.key: json.loads(p.value) for p in onnx.load(exported / "model.onnx").metadata_props}
    assert facts["freeat.classes"] == ["bright", "dark"]
    assert facts["freeat.preprocessing"]["height"] == 8
    assert facts["freeat.preprocessing"]["low"] == 0.0


def test_the_script_of_the_card_gives_the_same_logits_without_freeat(
    photos: Path, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    photo = tmp_path / "photo.jpg"
    Image.open(photos / "dark" / "1.png").resize((21, 14)).save(photo, exif=exif)
    card = (exported / "README.md").read_text(encoding="utf-8")
    script = next(
        block.split("```")[0] for block in card.split("```python\n") if "import onnxruntime" in block
    )
    assert "freeat." not in script.replace("freeat.classes", "")
    for placeholder, own in (("path/to/this/folder", str(exported)), ("photo.jpg", str(photo))):
        script = script.replace(placeholder, own)
    names: dict[str, np.ndarray] = {}
    exec(script, names)
    assert capsys.readouterr().out == "dark\n"
    model = freeat.load(exported)
    pixels = model.preprocess(photo)  # type: ignore[operator]
    np.testing.assert_array_equal(names["x"], pixels.numpy())
    np.testing.assert_allclose(names["logits"], model(pixels).detach().numpy(), rtol=1e-4, atol=1e-4)


def test_unreadable_images_are_listed_at_once_or_left_out(
    photos: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.jpg", "b.png"):
        (tmp_path / name).write_text("no image")
    long = tmp_path.with_name("a-long-name-" * 6)
    long.mkdir()
    good = str(shutil.copy(photos / "dark" / "0.png", long))
    assert run(["predict", str(trained), str(tmp_path), good]) == 2
    error = capsys.readouterr().err
    assert "2 of 3 images cannot be read" in error
    assert "a.jpg" in error
    assert "b.png" in error
    assert run(["predict", str(trained), str(tmp_path), good, "--skip-unreadable"]) == 0
    shown = capsys.readouterr()
    assert "2 of 3 images cannot be read and were left out" in shown.err
    assert "dark" in shown.out
    assert "then" in shown.out
    assert run(["predict", str(trained), good, "--top", "1"]) == 0
    assert "then" not in capsys.readouterr().out


def test_hidden_files_of_a_folder_are_left_out_as_in_training(
    photos: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / ".photos"  # named on the command line, so it is meant
    (folder / ".thumbnails").mkdir(parents=True)
    for hidden in ("._0.png", ".thumbnails/0.png"):
        (folder / hidden).write_text("what a Mac leaves beside an image")
    (folder / "0.png").write_bytes((photos / "dark" / "0.png").read_bytes())
    assert run(["predict", str(trained), str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["predictions"]
    assert [Path(one["image"]).name for one in found] == ["0.png"]


@pytest.mark.parametrize(
    ("model", "image", "message"),
    [
        ("nowhere", "x.png", "neither an exported model"),
        ("nowhere", "x.png", "there is no such folder; `freeat runs` lists"),
        (".", "x.png", "name a folder inside it"),
        ("nowhere.onnx", "x.png", "no such file"),
        ("", "no-such.png", "no such image"),
    ],
)
def test_missing_models_and_images_are_refused(
    trained: Path, model: str, image: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["predict", model or str(trained), image]) == 2
    assert message in capsys.readouterr().err


def test_other_channels_are_refused() -> None:
    with pytest.raises(InputError, match="images with 2 channels"):
        Preprocessing(channels=2, height=8, width=8)("x.png")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (CLASSES, "no JSON"),
        (CLASSES, "[1, 2]"),
        (CLASSES, '["one"]'),
        (PREPROCESSING, "3"),
        (PREPROCESSING, '{"channels": 3}'),
        (PREPROCESSING, '{"channels": 3, "height": 9, "width": 9}'),
    ],
)
def test_an_onnx_file_with_wrong_metadata_is_refused(
    exported: Path, photos: Path, tmp_path: Path, key: str, text: str
) -> None:
    onnx = pytest.importorskip("onnx")
    document = onnx.load(exported / "model.onnx")
    facts = {item.key: item.value for item in document.metadata_props} | {key: text}
    onnx.helper.set_model_props(document, facts)
    onnx.save(document, tmp_path / "model.onnx")
    with pytest.raises(InputError, match=r"model\.onnx"):
        predict(str(tmp_path / "model.onnx"), [photos])


def test_images_without_finite_logits_are_not_classified(trained: Path, photos: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    weights = {name: value * torch.nan for name, value in load_file(path).items()}
    save_tensors(path, weights, {"update": 300})
    with pytest.raises(InputError, match="NaN or infinite for 40 of 40 images"):
        predict(str(tmp_path / "run"), [photos])
