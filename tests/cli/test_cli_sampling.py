"""Data in the order of their classes: every command that samples images takes its classes in proportion."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from freeat import Images, robust_gap
from freeat.cli.main import run
from freeat.data import load_data
from freeat.evaluation import sanity
from freeat.experiments.examples import load_examples
from freeat.experiments.tasks import Measurement, Store
from freeat.interop.robustbench import benchmark
from freeat.runs.folder import RunFolder
from freeat.runs.spec import split_settings
from freeat.stability.results import StudySettings, TwinRecorder, TwinSetup
from freeat.threat import Linf
from freeat.training.records import Callbacks
from small_runs import arguments, carry_out

CLASSES, SAMPLED = 3, 12


def sorted_file(path: Path) -> str:
    """Noise of three classes, one class after the other; 40 training and 30 test images of each."""
    made = np.random.default_rng(0)
    arrays = {}
    for split, of_class in (("train", 40), ("test", 30)):
        y = np.repeat(np.arange(CLASSES), of_class)
        arrays[f"y_{split}"] = y
        arrays[f"x_{split}"] = np.clip(
            made.random((len(y), 8, 8, 1), np.float32) + y[:, None, None, None] * 0.1, 0, 1
        )
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return sorted_file(tmp_path_factory.mktemp("data") / "sorted.npz")


SETTINGS: dict[str, Any] = {
    "train_size": None,
    "updates": 4,
    "eval_every": 2,
    "eval_size": SAMPLED,
    "final_size": SAMPLED,
    "attack": "pgd-1",
}


@pytest.fixture
def runs(tmp_path: Path, data: str) -> tuple[Path, Path]:
    """Two runs, of two seeds."""
    for seed in (0, 1):
        carry_out(tmp_path / f"run-{seed}", data=data, seed=seed, algorithm="fast", **SETTINGS)
    return tmp_path / "run-0", tmp_path / "run-1"


def class_counts(document: Any) -> Iterator[list[int]]:
    """The number of images of each class, of every evaluation in a document."""
    if isinstance(document, dict):
        if "per_class" in document:
            yield [one["n"] for one in document["per_class"]]
        for part in document.values():
            yield from class_counts(part)
    elif isinstance(document, list):
        for part in document:
            yield from class_counts(part)


def stored_counts(folder: Path) -> list[list[int]]:
    """Those of every file below a folder."""
    files = [*folder.rglob("*.json"), *folder.rglob("*.jsonl")]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    whole = [json.loads(file.read_text(encoding="utf-8")) for file in folder.rglob("*.json")]
    histories = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    return [counts for document in [*whole, *histories] for counts in class_counts(document)]


SWEEP = ("-n", str(SAMPLED), "--eps", "0.1", "--norm", "linf", "--attack", "fgsm", "--split", "both")
COMMANDS: dict[str, Callable[[Path, Path, Path, str], list[str]]] = {
    "train": lambda one, two, out, data: ["train", *arguments(data=data, **SETTINGS), "--out", str(out)],
    "compare": lambda one, two, out, data: [
        *("compare", *arguments(data=data, **SETTINGS), "--out", str(out)),
        *("--algorithms", "erm,fast", "--seeds", "1", "--jobs", "1"),
    ],
    "evaluate": lambda one, two, out, data: ["evaluate", str(one), *SWEEP, "--out", str(out)],
    "evaluate as trained": lambda one, two, out, data: ["evaluate", str(one), "--out", str(out)],
    "transfer": lambda one, two, out, data: [
        *("transfer", str(one), "--to", str(two), *SWEEP, "--out", str(out))
    ],
    "runs diff": lambda one, two, out, data: [
        *("runs", "diff", one.name, two.name, "--store", str(one.parent), "-n", str(SAMPLED), "--eps", "0.1")
    ],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_samples_takes_the_classes_in_proportion(
    command: str, runs: tuple[Path, Path], tmp_path: Path, data: str
) -> None:
    out = tmp_path / "out"
    own = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
    assert run(COMMANDS[command](*runs, out, data)) == 0
    written = [path for path in tmp_path.rglob("*.json*") if own.get(path) != path.read_bytes()]
    found = [counts for folder in {path.parent for path in written} for counts in stored_counts(folder)]
    assert found
    assert all(counts == [SAMPLED // CLASSES] * CLASSES for counts in found)


@pytest.mark.parametrize("command", ["bound", "export"])
def test_images_that_a_command_only_looks_at_are_of_all_classes(
    command: str, runs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[list[int]]()
    sample = Images.sample

    def watched(images: Images, *given: Any, **more: Any) -> Images:
        found = sample(images, *given, **more)
        seen.append(found.y.bincount(minlength=CLASSES).tolist())
        return found

    monkeypatch.setattr(Images, "sample", watched)
    monkeypatch.setattr("freeat.interop.export.CHECKED_IMAGES", SAMPLED)
    arguments = {
        "bound": ("bound", "--from", str(runs[0]), "--points", str(SAMPLED), "--beta", "1"),
        "export": ("export", str(runs[0]), "--out", str(tmp_path / "exported")),
    }
    assert run([*arguments[command]]) == 0
    assert seen
    assert all(counts == [SAMPLED // CLASSES] * CLASSES for counts in seen)


def test_both_runs_are_evaluated_on_the_same_images(runs: tuple[Path, Path], tmp_path: Path) -> None:
    for path in runs:
        assert run(["evaluate", str(path), *SWEEP, "--out", str(tmp_path / path.name / "out")]) == 0
    images = [
        {
            (one["split"], one["identity"]["images"])
            for file in (tmp_path / path.name / "out").glob("*.json")
            if (one := json.loads(file.read_text(encoding="utf-8")))["identity"]["kind"] == "evaluation"
        }
        for path in runs
    ]
    assert images[0] == images[1]
    assert len(images[0]) == 2


def test_stored_examples_are_of_all_classes(runs: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(["evaluate", str(runs[0]), *SWEEP, "--examples", "--out", str(out)]) == 0
    files = list(out.rglob("*.npz"))
    assert len(files) == 2
    for file in files:
        assert np.bincount(load_examples(file).y).tolist() == [SAMPLED // CLASSES] * CLASSES


@pytest.mark.parametrize("transferred", [False, True])
def test_measurements_of_a_reproduction_sample_all_classes(
    tmp_path: Path, data: str, transferred: bool
) -> None:
    store = Store(path=tmp_path / "store", device="cpu")
    settings = {"data": data, "model": "mlp-w12", "algorithm": "fast", "threads": 1, **SETTINGS}
    del settings["train_size"]
    tasks = [store.task(f"seed {seed}", *split_settings(settings | {"seed": seed})) for seed in (0, 1)]
    for task in tasks:
        task.run(Callbacks(), lambda: False)
    measurement = Measurement(
        name="m",
        store=store,
        attack="fgsm",
        norm="linf",
        radii=(0.1,),
        n=SAMPLED,
        source=tasks[0] if transferred else None,
        targets=(tasks[1],),
    )
    measurement.run(Callbacks(), lambda: False)
    found = [counts for task in tasks for counts in stored_counts(task.folder.path / "results")]
    assert found
    assert all(counts == [SAMPLED // CLASSES] * CLASSES for counts in found)


def test_a_stability_study_probes_images_of_all_classes(data: str) -> None:
    settings = StudySettings(
        data=data,
        model="mlp-w8",
        eps=0.5,
        updates=2,
        batch_size=4,
        probes=SAMPLED,
        eval_size=SAMPLED,
        replaced=2,
    )
    setup = TwinSetup(settings, load_data(data), "fast", n=60, seed=0, device=torch.device("cpu"))
    recorder = TwinRecorder(setup)
    of_each = [SAMPLED // CLASSES] * CLASSES
    assert recorder.probe_images.y[:SAMPLED].bincount().tolist() == of_each
    assert recorder.test.y.bincount().tolist() == of_each
    sizes = setup.twins.sample.y.bincount()  # S itself is a random subset
    assert ((recorder.train.y.bincount() - sizes * SAMPLED / 60).abs() < 1).all()


def test_sanity_checks_look_at_images_of_all_classes(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES))
    test, seen = load_data(data).test, list[list[int]]()
    evaluate = sanity.evaluate

    def watched(model: nn.Module, images: Images, *rest: Any, **more: Any) -> Any:
        seen.append(images.y.bincount().tolist())
        return evaluate(model, images, *rest, **more)

    monkeypatch.setattr(sanity, "evaluate", watched)
    sanity.sanity_checks(model, test, Linf(0.05), classes=CLASSES)
    assert seen
    assert all(max(counts) - min(counts) <= 1 and sum(counts) == sanity.IMAGES for counts in seen)


def test_the_gap_of_a_model_and_the_form_of_robustbench_sample_all_classes(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES))
    images = load_data(data)
    gap = robust_gap(model, images, images, Linf(0.05), attack="fgsm", size=SAMPLED)
    for part in (gap.train, gap.test):
        assert [one.n for one in part.per_class] == [SAMPLED // CLASSES] * CLASSES
    benchmark(model, SAMPLED, data, eps=0.05, attack="fgsm", to_disk=True, model_name="m")
    assert stored_counts(tmp_path) == [[SAMPLED // CLASSES] * CLASSES]


def test_the_curve_of_a_run_is_on_one_sample(runs: tuple[Path, Path]) -> None:
    for path in runs:
        for record in RunFolder(path).history():
            assert [one.n for one in record.test.per_class] == [SAMPLED // CLASSES] * CLASSES
