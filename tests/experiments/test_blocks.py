"""Evaluations and studies by several processes that share a store: each part is computed once, and all end alike."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from freeat.attacks.pgd import Pgd
from freeat.cli.main import run as freeat
from freeat.data import Images, load_data
from freeat.data.images import pixels_digest
from freeat.data.readers.pixels import CachedPixels, FilePixels
from freeat.evaluation.evaluate import Evaluation, joined
from freeat.evaluation.evaluator import SPLITS
from freeat.experiments import blocks
from freeat.experiments.evaluations import evaluate_models, transfer_models
from freeat.experiments.sweep import Sweep
from freeat.files.locks import Busy
from freeat.runs.folder import RunFolder
from freeat.runs.open import open_model
from freeat.runs.results import Blocks
from freeat.runs.run import RunOptions, execute
from freeat.runs.spec import EvalSpec, TrainSpec
from freeat.threat import L2
from small_runs import carry_out

TOGETHER = 2
"""The processes of every test."""

ATTACK = '''
"""An attack that notes who runs it on which images, and waits until $TOGETHER processes have begun."""
import os, time
from pathlib import Path
import torch

NOTES = Path("notes.txt")

def attack(f, x, y, ball, rng):
    with NOTES.open("a") as notes:
        notes.write(f"{os.getpid()} {min(rng.images)} {len(x)}\\n")
    until = time.monotonic() + 90
    while len({line.split()[0] for line in NOTES.read_text().splitlines()}) < int(os.environ["TOGETHER"]):
        assert time.monotonic() < until, "no other process took a part"
        time.sleep(0.01)
    return 0.3 * torch.ones_like(x)
'''
PLAIN = [sys.executable, "-m"]
TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    f"--nproc-per-node={TOGETHER}",
    "-m",
]


ALONE = ("--device", "cpu", "--threads", "1", "--json")


def with_attack(folder: Path) -> Path:
    """The folder, with the module of the attack in it."""
    folder.mkdir(exist_ok=True)
    (folder / "noting.py").write_text(ATTACK, encoding="utf-8")
    return folder


def start(launcher: list[str], folder: Path, *words: str) -> "subprocess.Popen[str]":
    """The command, in ``TOGETHER`` processes."""
    return subprocess.Popen(
        [*launcher, "freeat", *words, *ALONE],
        cwd=with_attack(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOGETHER": str(TOGETHER)},
    )


@pytest.fixture
def by_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command in this process, and returns the document that it prints."""

    def document(folder: Path, *words: str) -> Any:
        monkeypatch.chdir(with_attack(folder))
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setenv("TOGETHER", "1")
        capsys.readouterr()
        assert freeat([*words, *ALONE]) == 0
        return json.loads(capsys.readouterr().out)

    return document


def finished(process: "subprocess.Popen[str]") -> Any:
    """The one document that it prints."""
    with process:
        out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return json.loads(out)


def timeless(value: Any) -> Any:
    """A document without what every computation of it has of its own."""
    own = {"seconds", "command", "stored", "folder"}
    if isinstance(value, dict):
        return {key: timeless(one) for key, one in value.items() if key not in own}
    return [timeless(one) for one in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    carry_out(folder, ema=0.9)
    return folder


def evaluating(run: Path) -> list[str]:
    words = ["evaluate", str(run), "--attack", "noting:attack", "--eps", "0.3,0.5", "--batch-size", "128"]
    return [*words, "--out", "results"]


def transferring(run: Path) -> list[str]:
    words = ["transfer", str(run), "--to", str(run), f"{run}@ema", "--attack", "noting:attack"]
    return [*words, "--eps", "0.3,0.5", "--batch-size", "128", "--out", "results"]


@pytest.mark.parametrize(
    ("command", "launcher"), [(evaluating, TORCHRUN), (transferring, TORCHRUN), (transferring, PLAIN)]
)
def test_processes_of_one_store_divide_the_images_and_print_the_same_table(
    command: Callable[[Path], list[str]],
    launcher: list[str],
    run: Path,
    tmp_path: Path,
    by_one: Callable[..., Any],
) -> None:
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    expected = by_one(alone, *command(run))
    if launcher is TORCHRUN:
        found = [finished(start(TORCHRUN, shared, *command(run)))]  # one of them prints
    else:
        processes = [start(PLAIN, shared, *command(run)) for _ in range(TOGETHER)]
        found = [finished(process) for process in processes]
        assert found[0] == found[1]
    assert timeless(found[0]) == timeless(expected)
    noted, once = ((folder / "notes.txt").read_text().splitlines() for folder in (shared, alone))
    assert len({line.split()[0] for line in noted}) == TOGETHER
    assert sorted(line.split()[1:] for line in noted) == sorted(line.split()[1:] for line in once)
    assert not [*shared.rglob("*.blocks"), *shared.rglob("lease.json")]


def test_torchrun_divides_a_study_and_ends_with_the_summary_of_one_process(
    tmp_path: Path, by_one: Callable[..., Any]
) -> None:
    text = """stability --algorithms fast,free-2 --train-size 30 --batch-size 8 --updates 4 --replaced 2 --seeds 1
        --probes 10 --eval-size 10 --probe-times 1 --engine separate --jobs 1 --out study"""
    words = text.split()
    expected = by_one(tmp_path / "one", *words)
    assert timeless(finished(start(TORCHRUN, tmp_path / "two", *words))) == timeless(expected)
    assert not list(tmp_path.rglob("lease.json"))


def test_a_block_that_another_process_evaluates_is_left_to_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 16)
    data = load_data("digits")
    model = open_model(str(run), data)
    sweep = Sweep(data=data, attacks=(Pgd(steps=1),), balls=(L2(0.3),), n=64, batch_size=16)
    (condition,) = sweep.conditions(model)
    calls: list[int] = []
    real = blocks.evaluate

    def counted(net: nn.Module, images: Images, *rest: Any, **settings: Any) -> Evaluation:
        calls.append(len(images))
        return real(net, images, *rest, **settings)

    monkeypatch.setattr(blocks, "evaluate", counted)
    done: list[int] = []
    work = blocks.BlockwiseEvaluation(model, sweep, condition, lambda title, n: done.append, keep_delta=False)
    whole = joined(list(work.blocks(Blocks())))
    kept = Blocks(tmp_path / "kept")
    with kept.evaluating(2):  # by another process
        assert not work.share(kept, published=lambda: False)
        assert len(calls) == 4 + 3
        kept.save(2, list(work.blocks(kept))[2])
    assert work.share(kept, published=lambda: False)
    assert len(calls) == 4 + 3 + 1
    with kept.publishing():
        again = joined(list(work.blocks(kept)))
        with pytest.raises(Busy), kept.publishing():
            pass
    assert len(calls) == 4 + 3 + 1
    assert torch.equal(again.index, whole.index)
    assert torch.equal(again.robust_correct, whole.robust_correct)
    assert again.cost == whole.cost
    assert not any(tmp_path.iterdir())


def test_nothing_is_evaluated_once_the_result_is_published(run: Path, tmp_path: Path) -> None:
    data = load_data("digits")
    model = open_model(str(run), data)
    sweep = Sweep(data=data, attacks=(Pgd(steps=1),), balls=(L2(0.3),), batch_size=128)
    (condition,) = sweep.conditions(model)
    begun: list[str] = []
    work = blocks.BlockwiseEvaluation(
        model, sweep, condition, lambda title, n: begun.append(title), keep_delta=False
    )
    assert work.share(Blocks(tmp_path / "kept"), published=lambda: True)
    assert begun == []
    assert not any(tmp_path.iterdir())


def test_attempts_that_another_process_holds_up_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "PAUSES", (0.001, 0.002))
    tried: list[str] = []

    def attempt(name: str, failures: int) -> Callable[[], str | None]:
        def once() -> str | None:
            tried.append(name)
            if tried.count(name) > failures:
                return name
            if tried.count(name) % 2:
                raise Busy("another process has it")
            return None

        return once

    assert blocks.all_found(attempt(name, n) for name, n in (("a", 3), ("b", 0), ("c", 1))) == ["a", "b", "c"]
    assert tried == ["a", "b", "c", "a", "c", "a", "a"]


@pytest.fixture(scope="module")
def streamed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a stream of wide images, of which a frame shows the middle half, and its crops the whole."""
    root = tmp_path_factory.mktemp("wide")
    draws = np.random.default_rng(0)
    for i in range(60):
        path = root / "pets" / ("train" if i < 40 else "test") / ("cat", "dog")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.integers(0, 256, (8, 16, 3), dtype=np.uint8)).save(path)
    spec = TrainSpec(
        data=str(root / "pets"), image_size=8, stream=True, augment="random-resized-crop", model="mlp-w12",
        updates=4, batch_size=8, algorithm="free-2", validation=0.2, eps=8 / 255,
    )  # fmt: skip
    evaluation = EvalSpec(attack="pgd-2", eval_every=4, eval_size=10)
    execute(spec, evaluation, RunOptions(folder=root / "run", device="cpu", workers=0))
    return root / "run"


@pytest.mark.parametrize("on", ["the CPU", "a device"])
def test_a_streamed_run_is_evaluated_as_in_its_training(
    streamed_run: Path,
    on: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also where the images are elsewhere than the model: windows are cut from the files, not from the frames."""
    if on == "a device":
        monkeypatch.setattr(FilePixels, "device", torch.device("cpu", 0))  # another than "cpu", to torch
    monkeypatch.setattr(blocks, "BLOCK", 16)
    words = ["evaluate", str(streamed_run), "--out", str(tmp_path), "--batch-size", "16", "--workers", "2"]
    assert freeat([*words, *ALONE]) == 0
    found = {one["split"]: one for one in json.loads(capsys.readouterr().out)["results"]}
    result = RunFolder(streamed_run).result
    assert result is not None
    assert result.train_augmented is not None
    assert result.train_augmented.robust_loss != pytest.approx(result.train.robust_loss, rel=1e-4)
    for split in ("train", "train_augmented", "test", "validation"):
        expected = getattr(result, split)
        assert found[split]["robust_accuracy"] == expected.robust_accuracy
        assert found[split]["robust_loss"] == pytest.approx(expected.robust_loss, rel=1e-6)


def test_perturbations_of_augmented_images_are_applied_to_the_same_views(tmp_path: Path) -> None:
    """To its own source a transfer is the evaluation."""
    carry_out(tmp_path / "run", augment="crop-flip", updates=60)
    data = load_data("digits")
    model = open_model(str(tmp_path / "run"), data)
    attack = Pgd(steps=2, iterate="last")
    sweep = Sweep(data=data, attacks=(attack,), balls=(L2(0.3),), splits=("train_augmented",))
    (own,) = evaluate_models([model], sweep, checks=False).results
    (applied,) = transfer_models([model], [model], sweep, checks=False).results
    assert applied.misclassified == own.misclassified
    assert applied.fooled == own.fooled


@pytest.mark.parametrize("where", ["stream", "cache", "memory"])
def test_results_are_named_without_the_pixels_of_their_images(
    where: str, streamed_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of all images would be read by every process, for every model and split; in memory, once."""
    limit = {"memory_limit": 0} if where == "cache" else {}
    how: dict[str, Any] = {
        "image_size": 8,
        "data_dir": tmp_path,
        "stream": where == "stream",
        "workers": 0,
    } | limit
    load_data(streamed_run.parent / "pets", **how)
    data = load_data(streamed_run.parent / "pets", **how)
    models = [replace(open_model(str(streamed_run), data), name=name) for name in ("one", "two")]
    splits = tuple(split for split in SPLITS if where == "stream" or split in ("train", "test"))
    sweep = Sweep(
        data=data, attacks=(Pgd(steps=1),), balls=(L2(0.3), L2(0.5)), splits=splits, n=6, batch_size=4
    )
    expected = evaluate_models(models, sweep, folder=tmp_path / "results")
    assert {result.split for result in expected.results} == {*splits}
    digested: list[tuple[int, ...]] = []

    def noted(shape: tuple[int, ...], dtype: torch.dtype) -> Any:
        digested.append(shape)
        return pixels_digest(shape, dtype)

    def read(*rest: Any) -> None:
        raise AssertionError("pixels were read")

    monkeypatch.setattr("freeat.data.images.pixels_digest", noted)
    for kind in (FilePixels, CachedPixels):
        monkeypatch.setattr(kind, "__getitem__", read)
    assert evaluate_models(models, replace(sweep), folder=tmp_path / "results") == expected
    assert len(digested) == (len(splits) if where == "memory" else 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_images_of_a_stream_are_decoded_by_workers_for_all_blocks(
    streamed_run: Path, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 8)
    monkeypatch.setattr(blocks, "AT_ONCE", 4)
    read = FilePixels.__getitem__

    def noted(pixels: FilePixels, rows: Tensor) -> Tensor:
        (tmp_path / f"{os.getpid()}-{'-'.join(map(str, rows.tolist()))}").touch()
        return read(pixels, rows)

    data = load_data(streamed_run.parent / "pets", image_size=8, stream=True, workers=workers)
    model = open_model(str(streamed_run), data)
    sweep = Sweep(data=data, attacks=(Pgd(steps=1),), balls=(L2(0.3),), batch_size=8)
    (condition,) = sweep.conditions(model)
    whole = blocks.evaluate(model.model, condition.images, condition.attack, condition.ball, classes=2)
    monkeypatch.setattr(FilePixels, "__getitem__", noted)
    work = blocks.BlockwiseEvaluation(model, sweep, condition, blocks.no_progress, keep_delta=False)
    kept = Blocks(tmp_path / "kept")
    assert work.share(kept, published=lambda: False)
    readers = {path.name.partition("-")[0] for path in tmp_path.glob("*-*")}
    assert len(readers) == max(1, workers)
    assert (str(os.getpid()) in readers) == (workers == 0)
    found = joined(list(work.blocks(kept)))
    assert torch.equal(found.robust_correct, whole.robust_correct)
    assert torch.equal(found.index, whole.index)
    assert not [*tmp_path.rglob("lease.json")]


def test_blocks_that_are_read_ahead_are_taken_and_given_back(
    streamed_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 2)
    data = load_data(streamed_run.parent / "pets", image_size=8, stream=True, workers=1)
    model = open_model(str(streamed_run), data)
    sweep = Sweep(data=data, attacks=(Pgd(steps=1),), balls=(L2(0.3),), batch_size=2)
    (condition,) = sweep.conditions(model)
    kept = Blocks(tmp_path / "kept")
    held: list[list[str]] = []

    def interrupted(*rest: Any, **settings: Any) -> Evaluation:
        held.append(sorted(path.parent.name for path in tmp_path.rglob("lease.json")))
        raise KeyboardInterrupt

    monkeypatch.setattr(blocks, "AT_ONCE", 2)
    monkeypatch.setattr(blocks, "prefetched", lambda make, keys, workers: map_ahead(make, keys))
    monkeypatch.setattr(blocks, "evaluate", interrupted)
    work = blocks.BlockwiseEvaluation(model, sweep, condition, blocks.no_progress, keep_delta=False)
    with kept.evaluating(1), pytest.raises(KeyboardInterrupt):  # by another process
        work.share(kept, published=lambda: False)
    assert held == [["00000", "00001", "00002", "00003"]]
    assert not any(tmp_path.iterdir())


def map_ahead(make: Callable[[Tensor], Any], keys: Any) -> Any:
    """What a worker makes, two keys ahead of its reader."""
    waiting = [make(next(keys)) for _ in range(3)]
    while waiting:
        yield waiting.pop(0)
        waiting += [make(key) for _, key in zip(range(1), keys, strict=False)]
