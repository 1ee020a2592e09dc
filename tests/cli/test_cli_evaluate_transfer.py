"""``freeat evaluate`` and ``freeat transfer`` from reference to figure."""

import importlib
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

import troubled_models
from freeat.attacks.pgd import Pgd
from freeat.cli.evaluate import evaluate
from freeat.cli.transfer import transfer
from freeat.compute.machine import CpuClock
from freeat.data import load_data
from freeat.errors import InputError
from freeat.experiments import blocks
from freeat.experiments.examples import load_examples
from freeat.files.documents import plain, to_json
from freeat.models import build
from freeat.reports.html.gather import gather
from freeat.runs.build import build_images
from freeat.runs.folder import RunFolder
from freeat.runs.run import RunOptions, execute
from freeat.runs.spec import split_settings
from synthetic_files import photographs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two short runs on the digits."""
    folder = tmp_path_factory.mktemp("runs")
    paths = {}
    for algorithm in ("free-4", "erm"):
        options = {
            "data": "digits",
            "model": "mlp-w32",
            "algorithm": algorithm,
            "eps": 0.08,
            "lr": 0.05,
            "updates": 40,
        }
        training, evaluation = split_settings({**options, "final_size": 20, "threads": 1})
        paths[algorithm] = folder / algorithm
        execute(training, evaluation, RunOptions(folder=paths[algorithm], device="cpu"))
    return paths


def small_run(path: Path, **options: object) -> Path:
    """A run of a few updates."""
    settings = {
        "model": "mlp-w16",
        "algorithm": "erm",
        "eps": 0.08,
        "updates": 5,
        "batch_size": 8,
        "threads": 1,
    }
    training, evaluation = split_settings({**settings, "final_size": 8, "attack": "pgd-1", **options})
    execute(training, evaluation, RunOptions(folder=path, device="cpu"))
    return path


def invoke(command: object, *options: str | Path) -> Result:
    runner = CliRunner()
    return runner.invoke(
        command, [str(word) for word in options], catch_exceptions=False, standalone_mode=False
    )  # type: ignore[arg-type]


def test_defaults_are_the_runs_data_norm_and_radius_and_the_result_is_stored(runs: dict[str, Path]) -> None:
    done = invoke(evaluate, runs["free-4"], "-n", "50", "--json")
    (result,) = json.loads(done.stdout)["results"]
    assert (result["data"], result["norm"], result["eps"], result["attack"], result["n"]) == (
        "digits",
        "linf",
        0.08,
        "pgd-10",
        50,
    )
    assert list((runs["free-4"] / "results").glob("*.json"))
    assert result == json.loads(invoke(evaluate, runs["free-4"], "-n", "50", "--json").stdout)["results"][0]


def of_split(results: list[dict[str, Any]], split: str) -> dict[str, Any]:
    (found,) = [result for result in results if result["split"] == split]
    return found


def test_without_options_a_run_is_evaluated_as_its_training_did(
    tmp_path: Path,
) -> None:
    """Own attack, radius, iterate, seed and random subset, on every split; found again the second time."""
    run = small_run(
        tmp_path / "run", data="digits", ema=0.5, validation=0.2, augment="crop", final_size=20, attack="pgd-2",
        iterate="last", eval_eps=0.05, eval_start="zero", seed=3, norm="linf", train_size=100,
    )  # fmt: skip
    trained = json.loads(to_json(plain(RunFolder(run).result)))
    document = json.loads(invoke(evaluate, run, "--json").stdout)
    splits = ("train", "train_augmented", "test", "validation")
    assert [result["split"] for result in document["results"]] == list(splits)
    for weights, expected in (("", trained), ("@ema", trained["ema"])):
        document = json.loads(invoke(evaluate, f"{run}{weights}", "--json").stdout)
        (gap,) = document["gaps"]
        for name in ("value", "low", "high"):
            assert gap[name] == expected["gap"][name]
            assert gap["clean"][name] == expected["clean_gap"][name]
        for split in splits:
            found = of_split(document["results"], split)
            assert (found["attack"], found["iterate"], found["eps"], found["seed"]) == (
                "pgd-2",
                "last",
                0.05,
                3,
            )
            names = ("n", "population", "per_class", "clean_loss", "robust_loss", "robust_accuracy", "cost")
            assert {name: found[name] for name in names} == {name: expected[split][name] for name in names}
        assert document["checks"] == []
    output = invoke(evaluate, run).stdout.splitlines()
    assert output[0].startswith("erm after 5 updates, evaluated by pgd-2 at ε = 0.05")
    assert output[1].split()[:2] == ["robust", "train"]
    for path in (run / "results").glob("*.json"):
        path.write_text(path.read_text().replace('"device": "cpu"', '"device": "found again"'))
    again = json.loads(invoke(evaluate, run, "--json").stdout)["results"]
    assert {result["device"] for result in again} == {"found again"}
    with pytest.raises(InputError, match="no weights called 'best'"):
        invoke(evaluate, f"{small_run(tmp_path / 'other', data='digits')}@best")


def test_several_models_radii_and_splits_in_one_plot(runs: dict[str, Path], tmp_path: Path) -> None:
    options = (
        "--attack",
        "fgsm",
        "--attack",
        "square-20",
        "--eps",
        "0.02:0.06:0.02",
        "--split",
        "both",
        "-n",
        "30",
    )
    out = ("--out", tmp_path / "out", "--plot", tmp_path / "radii.png")
    text = invoke(evaluate, f"robust={runs['free-4']}", runs["erm"], *options, *out).stdout
    lines = text.splitlines()
    assert lines[0].split()[:2] == ["model", "attack"]
    assert [line.split()[0] for line in lines[1:25]] == ["robust"] * 12 + ["erm"] * 12
    assert "gap of robust (fgsm" in text
    assert "The model gives the same logits twice." in text
    assert (tmp_path / "radii.png").stat().st_size > 3000
    assert lines[-1] == f"plot: {tmp_path / 'radii.png'}"


def test_examples_are_stored_with_a_figure(runs: dict[str, Path], tmp_path: Path) -> None:
    options = ("--attack", "fgsm", "-n", "5", "--out", tmp_path, "--examples")
    text = invoke(evaluate, runs["erm"], *options).stdout
    names = sorted(path.name for path in (tmp_path / "examples").iterdir())
    assert [re.sub(r"-[0-9a-f]{8}\.", ".", name) for name in names] == [
        f"erm-fgsm-linf-0.08000-test.{ending}" for ending in ("npz", "png")
    ]
    npz, png = (str(tmp_path / "examples" / name) for name in names)
    assert text.splitlines()[-1] == f"examples: {npz}, drawn in {png}"
    document = json.loads(invoke(evaluate, runs["erm"], *options, "--json").stdout)
    assert document["examples"] == [{"arrays": npz, "figure": png}]
    (result,) = document["results"]
    assert result["wrong_under_attack"] == len(result["fooled"])
    assert result["turned_wrong"] == len(set(result["fooled"]) - set(result["misclassified"]))


def test_a_weights_file_has_the_same_accuracy_as_its_run(runs: dict[str, Path], tmp_path: Path) -> None:
    state = RunFolder(runs["free-4"]).weights()
    torch.save({"state_dict": {f"module.{name}": value for name, value in state.items()}}, tmp_path / "w.pt")
    options = ("--data", "digits", "--norm", "linf", "--eps", "0.08", "-n", "40", "--json")
    of_file = json.loads(invoke(evaluate, f"mlp-w32@{tmp_path / 'w.pt'}", *options).stdout)["results"][0]
    of_run = json.loads(invoke(evaluate, runs["free-4"], *options).stdout)["results"][0]
    assert of_file["fooled"] == of_run["fooled"]
    assert of_file["weights"] == of_run["weights"]
    assert list((tmp_path / "w.results").glob("*.json"))
    output = invoke(evaluate, f"mlp-w32@{tmp_path / 'w.pt'}", *options[:-1]).stdout.splitlines()
    assert output[-1] == f"stored in: {tmp_path / 'w.results'}"


def test_a_weights_file_is_evaluated_on_photos_as_a_training_reads_them(tmp_path: Path) -> None:
    data = photographs(tmp_path / "pets", 0)
    torch.save(build("linear", classes=2, shape=(3, 4, 4)).state_dict(), tmp_path / "w.pt")
    (data / "cats" / "torn.png").write_bytes(b"no image")
    command = (evaluate, f"linear@{tmp_path / 'w.pt'}", "--data", data, "--norm", "linf", "--eps", "0.1")
    with pytest.raises(InputError, match="leave it out with --skip-unreadable"):
        invoke(*command)
    options = ("--skip-unreadable", "--image-size", "4", "--attack", "fgsm", "--json")
    (result,) = json.loads(invoke(*command, *options).stdout)["results"]
    assert result["n"] == 8
    assert any("1 of 41 images cannot be read and were left out" in note for note in result["notes"])
    with pytest.raises(InputError, match="image size 0"):
        invoke(*command, "--skip-unreadable", "--image-size", "0")


def test_a_model_without_answers_is_named(runs: dict[str, Path], tmp_path: Path) -> None:
    weights = build("linear", classes=10, shape=(1, 8, 8)).state_dict()
    torch.save({name: value / 0 for name, value in weights.items()}, tmp_path / "spoilt.pt")
    for command in (
        (evaluate, runs["erm"], f"linear@{tmp_path / 'spoilt.pt'}"),
        (transfer, runs["erm"], "--to", f"linear@{tmp_path / 'spoilt.pt'}"),
    ):
        with pytest.raises(InputError, match=r"^spoilt: the model's logits are NaN or infinite for 8 of 8"):
            invoke(
                *command, "--data", "digits", "--norm", "l2", "--eps", "0.1", "--attack", "fgsm", "-n", "8"
            )


def test_transfer_gives_a_matrix_of_sources_and_targets(runs: dict[str, Path], tmp_path: Path) -> None:
    both = (runs["free-4"], runs["erm"])
    done = invoke(
        transfer, *both, "--to", *both, "--eps", "0.05,0.1", "-n", "40", "--out", tmp_path, "--json"
    )
    results = json.loads(done.stdout)["results"]
    assert {(result["source"], result["model"], result["eps"]) for result in results} == {
        (source, target, eps)
        for source in ("free-4", "erm")
        for target in ("free-4", "erm")
        for eps in (0.05, 0.1)
    }
    assert all(result["iterate"] == "last" for result in results)


def test_busy_cores_are_reported_once_with_the_remedy(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuClock, "cores_of_others", lambda clock: 64.0)
    monkeypatch.setattr("freeat.cli.progress.usable_cores", lambda: 64)
    free, erm = runs["free-4"], runs["erm"]
    options = ("--eps", "0.05", "-n", "10", "--device", "cpu", "--threads", "2")
    for k, done in enumerate(
        (
            invoke(evaluate, free, erm, *options, "--out", tmp_path / "sweep"),
            invoke(evaluate, free, erm, *options[4:], "--out", tmp_path / "as-trained"),
            invoke(transfer, free, "--to", erm, *options, "--out", tmp_path / "transfer"),
        )
    ):
        assert done.stderr.count("other programs use 64.0 of the 64 cores") == 1, k
        assert "try --threads 1" in done.stderr


def test_runs_of_equal_folder_names_are_named_by_their_parents(runs: dict[str, Path], tmp_path: Path) -> None:
    """As `freeat compare` leaves them: every algorithm's run is called seed-0."""
    free, erm = (tmp_path / "runs" / name / "seed-0" for name in ("free-4", "erm"))
    shutil.copytree(runs["free-4"], free)
    shutil.copytree(runs["erm"], erm)
    options = ("--attack", "fgsm", "-n", "5", "--json")
    evaluated = json.loads(
        invoke(evaluate, free, erm, *options, "--out", tmp_path / "out", "--examples").stdout
    )
    assert [result["model"] for result in evaluated["results"]] == ["free-4/seed-0", "erm/seed-0"]
    stored = sorted(path.name for path in (tmp_path / "out" / "examples").glob("*.npz"))
    assert [name.partition("-fgsm")[0] for name in stored] == ["erm%2Fseed-0", "free-4%2Fseed-0"]
    moved = json.loads(invoke(transfer, free, "--to", f"seed-0={free}", erm, *options).stdout)["results"]
    assert [(result["source"], result["model"]) for result in moved] == [
        ("free-4/seed-0", "seed-0"),
        ("free-4/seed-0", "erm/seed-0"),
    ]


def test_bad_input_is_refused(runs: dict[str, Path]) -> None:
    for command, options, message in (
        (evaluate, ["nowhere", "--eps", "0.1", "--norm", "l2", "--data", "digits"], "not a run folder"),
        (
            evaluate,
            [f"linear@{runs['erm']}/model.safetensors", "--eps", "0.1", "--data", "digits"],
            "--norm is missing",
        ),
        (evaluate, [runs["erm"], "--eps", "8"], "8/255"),
        (evaluate, [runs["erm"], "--attack", "pgd-ten"], "unknown attack"),
        (evaluate, [runs["erm"], runs["erm"]], "NAME=REFERENCE"),
        (transfer, [runs["erm"]], "no target"),
    ):
        with pytest.raises(InputError, match=message):
            invoke(command, *options)  # type: ignore[arg-type]


def test_runs_of_several_seeds_share_the_test_split_of_data_that_have_none(tmp_path: Path) -> None:
    data = photographs(tmp_path / "pets", 0)
    one, two = (small_run(tmp_path / f"seed-{seed}", data=data, seed=seed, validation=6) for seed in (1, 2))
    document = json.loads(invoke(evaluate, one, two, "--attack", "fgsm", "--split", "all", "--json").stdout)
    for split in ("train", "validation", "test"):
        images = [result["identity"]["images"] for result in document["results"] if result["split"] == split]
        assert len(images) == 2
        assert len({*images}) == 1
    assert images[0] == load_data(data).test.digest
    assert "(seed 0)" in document["results"][0]["notes"][0]
    other = photographs(tmp_path / "others", 1)
    output = invoke(evaluate, one, "--attack", "fgsm", "--data", other).stdout
    assert "note: seed-1 was trained on other data than others." in output
    (data / "cats" / "0.png").unlink()
    with pytest.raises(InputError, match="not as it was"):
        invoke(evaluate, one, "--attack", "fgsm")


def test_training_images_are_those_a_run_was_trained_on(tmp_path: Path) -> None:
    sizes: tuple[dict[str, object], ...] = ({"train_size": 50}, {"train_size": 30, "validation": 0.5})
    runs = [small_run(tmp_path / f"run-{k}", data="digits", **size) for k, size in enumerate(sizes)]
    options = ("--split", "both", "--attack", "fgsm", "--eps", "0.3", "--json")
    evaluated = json.loads(invoke(evaluate, *runs, *options).stdout)
    moved = json.loads(invoke(transfer, runs[0], "--to", *runs, *options).stdout)
    for document in (evaluated, moved):
        trained = [result for result in document["results"] if result["split"] == "train"]
        assert [(result["n"], result["population"]) for result in trained] == [(50, 50), (30, 30)]
        for run, result in zip(runs, trained, strict=True):
            own = build_images(RunFolder(run).spec, load_data("digits"))[0].index.tolist()
            assert result["fooled"]
            assert {*result["fooled"]} <= {*own}
        assert len(document["gaps"]) == 2


def test_threads_and_determinism_are_as_asked_for(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = Pgd.__call__

    def watched(*args: object, **kwargs: object) -> object:
        seen.append((torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()))
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Pgd, "__call__", watched)
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    options = ("--attack", "fgsm", "-n", "7")
    invoke(evaluate, runs["erm"], *options, "--threads", "2")
    assert {*seen} == {(2, True)}
    seen.clear()
    invoke(transfer, runs["erm"], "--to", runs["free-4"], *options, "--threads", "2", "--nondeterministic")
    assert {*seen} == {(2, False)}
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before


FGSM = ["--data", "digits", "--norm", "linf", "--eps", "0.08", "--attack", "fgsm", "-n", "40", "--json"]


def test_model_args_are_part_of_the_identity_of_a_result(tmp_path: Path) -> None:
    torch.save(troubled_models.Tempered(1.0).state_dict(), tmp_path / "w.pt")
    reference = f"troubled_models:Tempered@{tmp_path / 'w.pt'}"
    wrong = []
    for temperature in ("1", "-1"):
        done = invoke(evaluate, reference, "--model-args", f"temperature={temperature}", *FGSM)
        wrong.append(json.loads(done.stdout)["results"][0]["misclassified"])
    assert wrong[0] != wrong[1]


def test_every_target_is_evaluated_in_any_order(runs: dict[str, Path], tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(runs["erm"], tmp_path / name)
    free, a, b = runs["free-4"], tmp_path / "a", tmp_path / "b"
    options = ["--attack", "fgsm", "-n", "10", "--json"]
    lists = [["--to", a, b, free], ["--to", a, "--to", b, free], ["--to", a, "-n", "10", "--to", b, free]]
    for to in lists:
        results = json.loads(invoke(transfer, free, *to, *options).stdout)["results"]
        assert [result["model"] for result in results] == ["a", "b", "free-4"]
        assert {result["source"] for result in results} == {"free-4"}


def test_a_perturbation_of_a_test_image_is_made_once_for_all_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {str(size): small_run(tmp_path / str(size), data="digits", train_size=size) for size in (40, 60)}
    made: list[str] = []
    real = blocks.evaluate

    def counted(model: Any, images: Any, *rest: Any, **settings: Any) -> Any:
        made.append(images.digest)
        return real(model, images, *rest, **settings)

    monkeypatch.setattr(blocks, "evaluate", counted)
    done = invoke(
        transfer,
        sizes["40"],
        "--to",
        *sizes.values(),
        "--attack",
        "fgsm",
        "--split",
        "both",
        "--json",
        "-n",
        "30",
    )
    results = json.loads(done.stdout)["results"]
    assert len(results) == 4
    assert len(made) == len(set(made)) == 3, "the test images once, the training images of each target"


def test_the_precision_that_a_machine_chooses_is_stored(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen() -> str:
        done = invoke(evaluate, runs["erm"], "--attack", "fgsm", "--precision", "auto", "-n", "12", "--json")
        (result,) = json.loads(done.stdout)["results"]
        return str(result["settings"]["precision"])

    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert chosen() == "fp32"
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert chosen() == "bf16"


def test_an_attack_that_does_not_move_is_refused(runs: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="--alpha 0 does not move"):
        invoke(evaluate, runs["erm"], "--alpha", "0", "-n", "5")
    for step in (-0.1, float("inf"), float("nan")):
        with pytest.raises(InputError, match="must be positive and finite"):
            Pgd(alpha=step)


def test_a_damaged_file_of_examples_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    options = ["--attack", "fgsm", "-n", "10", "--examples", "--out", tmp_path]
    invoke(evaluate, runs["erm"], *options)
    (stored,) = tmp_path.rglob("*.npz")
    stored.write_bytes(stored.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"is not a file of adversarial examples .* delete it, and evaluate"):
        invoke(evaluate, runs["erm"], *options)
    np.savez(stored, format=np.int64(99))
    with pytest.raises(InputError, match="has format 99, newer than"):
        load_examples(stored)


def test_a_factory_whose_source_changed_is_evaluated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    torch.save(troubled_models.fine().state_dict(), tmp_path / "w.pt")
    text = "import troubled_models\n\n\ndef make():\n    return troubled_models.Tempered(1.0)\n"
    found = []
    for written in (text, text.replace("1.0", "-1.0")):
        (tmp_path / "rewritten_net.py").write_text(written)
        sys.modules.pop("rewritten_net", None)
        importlib.invalidate_caches()
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        done = invoke(evaluate, f"rewritten_net:make@{tmp_path / 'w.pt'}", *FGSM)
        found.append(json.loads(done.stdout)["results"][0]["misclassified"])
    sys.modules.pop("rewritten_net")
    assert found[0] != found[1]
    measured = gather([tmp_path / "w.results"]).evaluations
    assert len({one.model for one in measured}) == 2, "the report distinguishes them"


@pytest.mark.parametrize(
    ("reference", "message"),
    [("runs/nope", "no such folder"), ("mlp@nope.safetensors", "weights nope.safetensors: no such file")],
)
def test_a_missing_model_is_refused_before_anything_else(reference: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        invoke(evaluate, reference)


def test_the_training_split_of_a_weights_file_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    shutil.copy(runs["erm"] / "model.safetensors", tmp_path / "w.safetensors")
    options = [
        "--data",
        "digits",
        "--norm",
        "linf",
        "--eps",
        "0.08",
        "--attack",
        "fgsm",
        "-n",
        "20",
        "--split",
        "both",
    ]
    output = "Which images w was trained on is not known"
    results = json.loads(
        invoke(evaluate, f"mlp-w32@{tmp_path / 'w.safetensors'}", *options, "--json").stdout
    )["results"]
    assert [any(output in note for note in result["notes"]) for result in results] == [True, False]
    (of_run, _) = json.loads(invoke(evaluate, runs["erm"], *options, "--json").stdout)["results"]
    assert not any("not known" in note for note in of_run["notes"])


def test_an_attack_by_import_path_is_evaluated(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function's source is a part of the result's identity: one that was rewritten is evaluated again."""
    monkeypatch.syspath_prepend(tmp_path)
    text = "def darken(model, x, y, ball, rng):\n    return -ball.eps * x.new_ones(x.shape)\n"
    options = ("--attack", "attack_of_mine:darken", "-n", "30", "--examples", "--json")
    found = []
    for written in (text, text.replace("-ball", "0 * ball")):
        (tmp_path / "attack_of_mine.py").write_text(written)
        sys.modules.pop("attack_of_mine", None)
        importlib.invalidate_caches()
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        (result,) = json.loads(invoke(evaluate, runs["erm"], *options).stdout)["results"]
        assert result["attack"] == "attack_of_mine:darken"
        assert ":" not in Path(result["examples"]).name
        found.append(result)
    sys.modules.pop("attack_of_mine")
    assert found[0]["identity"] != found[1]["identity"]
    assert found[1]["robust_accuracy"] == found[1]["clean_accuracy"]
