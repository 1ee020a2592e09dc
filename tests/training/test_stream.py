"""Images that are decoded while a model trains: the same bits for any number of workers and processes."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import synthetic_files
from freeat.cli.main import run as command_line
from freeat.data import Images, load_data
from freeat.data.augmentation import CropFlip, RandomResizedCrop
from freeat.data.batches import Batches
from freeat.data.dataset import content_digest
from freeat.data.prefetch import prefetched
from freeat.errors import InputError
from freeat.evaluation.evaluate import image_batches
from freeat.learner.distributed import ProcessGroup
from freeat.rng import ImageRng
from freeat.runs.folder import RunFolder
from freeat.runs.run import RunOptions, execute
from freeat.runs.spec import EvalSpec, TrainSpec
from freeat.training.loop import own_view
from freeat.training.trainer import Stopped
from small_runs import arguments, outcome


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEGs of several sizes in two classes."""
    root = tmp_path_factory.mktemp("jpegs") / "pets"
    draws = np.random.default_rng(0)
    for i in range(48):
        path = root / ("train" if i < 36 else "test") / ("cat", "dog")[i % 2] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        small = draws.integers(0, 256, (4, 5, 3), dtype=np.uint8)
        Image.fromarray(small).resize((24 + i % 7, 20 + i % 5)).save(path, quality=90)
    return root


def streamed(folder: Path, workers: int = 0) -> Images:
    return load_data(folder, image_size=16, stream=True, workers=workers).train


def test_a_stream_shows_what_a_cache_would(folder: Path, tmp_path: Path) -> None:
    whole = load_data(folder, image_size=16, data_dir=tmp_path)
    stream = streamed(folder)
    assert torch.equal(stream.x, whole.train.x)
    rest, held_out = stream.split(0.25)
    assert rest.streamed
    assert torch.equal(held_out.x, whole.train.split(0.25)[1].x)


@pytest.mark.parametrize("augment", [None, CropFlip(pad=2), RandomResizedCrop()])
@pytest.mark.parametrize("workers", [1, 4])
def test_batches_of_workers_and_of_processes_have_the_same_bits(
    folder: Path, augment: CropFlip | RandomResizedCrop | None, workers: int
) -> None:
    images = streamed(folder)
    batches = Batches(n=len(images), size=10, seed=3)

    def views(rank: int, size: int, workers: int) -> list[torch.Tensor]:
        processes = ProcessGroup(rank=rank, size=size)
        made = prefetched(lambda t: own_view(images, batches, augment, 5, processes, t), range(1, 6), workers)
        return [x for x, *_ in made]

    alone = views(0, 1, 0)
    for x, ahead, *parts in zip(
        alone, views(0, 1, workers), *(views(rank, 2, workers) for rank in (0, 1)), strict=True
    ):
        assert torch.equal(x, ahead)
        assert torch.equal(x, torch.cat(parts))
        assert x.dtype == torch.uint8


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_training_are_made_by_its_workers(
    folder: Path, tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    made.mkdir()

    def noted(*settings: Any) -> Any:
        (made / f"{settings[-1]} {os.getpid()}").touch()
        return own_view(*settings)

    monkeypatch.setattr("freeat.training.loop.own_view", noted)
    run(folder, tmp_path / "run", workers)
    notes = [path.name.split() for path in made.iterdir()]
    by = {batch: int(pid) for batch, pid in notes}
    assert len(by) == len(notes), "a batch was made twice"
    assert by.keys() >= set("12345")  # 10 updates, 2 of each batch
    assert len({*by.values()}) == max(1, workers)
    assert (os.getpid() in by.values()) == (workers == 0)


def test_evaluations_ahead_have_the_same_bits_and_views(folder: Path) -> None:
    model = torch.nn.Flatten()
    for augment in (None, RandomResizedCrop()):
        alone, ahead = (
            torch.cat([b.x for b in image_batches(model, streamed(folder, k), 7, seed=2, augment=augment)])
            for k in (0, 2)
        )
        assert torch.equal(alone, ahead)


def test_windows_of_a_stream_are_cut_from_the_whole_files(folder: Path, tmp_path: Path) -> None:
    """From the frame of a cache, the left and right of a wide image are never seen."""
    root = tmp_path / "wide"
    for split in ("train", "test"):
        for label in ("a", "b"):
            (root / split / label).mkdir(parents=True)
            wide = np.zeros((16, 64, 3), np.uint8)
            wide[:, :16] = 255
            Image.fromarray(wide).save(root / split / label / "0.png")
    whole = RandomResizedCrop(scale=(1, 1), ratio=(4, 4), flip=False)
    rows = torch.tensor([0, 1])
    stream = load_data(root, image_size=16, stream=True).train.batch(rows, whole, ImageRng(0, [0, 1]))[0]
    cached = load_data(root, image_size=16, data_dir=tmp_path).train.batch(rows, whole, ImageRng(0, [0, 1]))[
        0
    ]
    assert float(stream.amax()) == 1
    assert float(cached.amax()) == 0


def test_neighbours_of_a_stream_see_the_same_windows_of_the_images_that_they_share(
    folder: Path,
) -> None:
    images, crop = streamed(folder), RandomResizedCrop()
    instead = torch.full(images.shape, 200, dtype=torch.uint8)
    rows = torch.tensor([0, 5, 7, 1])
    seen, neighbour = (
        one.view(rows, crop, ImageRng(0, rows.tolist()))[0]
        for one in (images, images.neighbour(0, instead, 1))
    )
    assert torch.equal(seen[rows > 0], neighbour[rows > 0])
    assert torch.equal(neighbour[rows == 0], torch.full_like(neighbour[rows == 0], 200))
    assert not torch.equal(seen[rows == 0], neighbour[rows == 0])
    plain, draws = images.neighbour(0, images.x[3], 1), ImageRng(0, [0, 1])
    window, _ = plain.view(torch.tensor([0, 1]), crop, draws)
    assert torch.equal(window[:1], crop(images.x[3:4], ImageRng(0, [0])))


def run(folder: Path, out: Path, workers: int, stop_at: int | None = None) -> str | None:
    spec = TrainSpec(
        data=str(folder), image_size=16, stream=True, augment="random-resized-crop", model="cnn-w4", updates=10,
        batch_size=8, algorithm="free-2", validation=0.2,
    )  # fmt: skip
    evaluation = EvalSpec(attack="pgd-2", eval_every=4, eval_size=10, final_size=20)
    options = RunOptions(folder=out, device="cpu", workers=workers, checkpoint_every=0)
    began: list[float] = []

    def should_stop() -> bool:
        began.append(time.monotonic())
        return stop_at is not None and len(began) >= stop_at

    try:
        result = execute(spec, evaluation, options, should_stop=should_stop)
    except Stopped:
        return None
    assert result is not None
    return f"{result.weights} {result.train} {result.train_augmented} {result.validation}"


def test_a_run_has_the_same_bits_for_any_number_of_workers_and_after_a_stop(
    folder: Path, tmp_path: Path
) -> None:
    expected = run(folder, tmp_path / "0", 0)
    assert run(folder, tmp_path / "2", 2) == expected
    assert run(folder, tmp_path / "stopped", 2, stop_at=3) is None
    assert run(folder, tmp_path / "stopped", 1) == expected


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="children are looked up in /proc")
def test_a_killed_process_leaves_no_worker_and_is_resumed_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    settings = {
        "data": folder, "image_size": 16, "augment": "random-resized-crop", "model": "cnn-w4", "norm": "linf",
        "eps": "8/255", "train_size": None, "updates": 120, "eval_every": 40, "algorithm": "free-2", "stream": True,
        "validation": 0.2, "device": "cpu", "checkpoint_every": 0,
    }  # fmt: skip

    def start(out: Path, workers: int) -> subprocess.Popen[str]:
        words = arguments(**settings, workers=workers, out=out)
        return subprocess.Popen(
            [sys.executable, "-m", "freeat", "train", *words], stderr=subprocess.PIPE, text=True
        )

    def finish(out: Path, workers: int) -> dict[str, object]:
        with start(out, workers) as process:
            _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return outcome(out)

    expected = finish(tmp_path / "whole", 0)
    with start(tmp_path / "killed", 2) as process:
        workers: set[Path] = set()
        until = time.monotonic() + 60
        while len(workers) < 2 or not any((tmp_path / "killed").glob("checkpoints/update-*")):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until
            workers = children(process.pid)
        process.kill()
    assert not (tmp_path / "killed" / "result.json").exists()
    until = time.monotonic() + 30  # torch's workers look for their parent every 5 seconds
    while any(map(Path.exists, workers)):
        assert time.monotonic() < until, "a worker outlives the process that started it"
        time.sleep(0.1)
    assert finish(tmp_path / "killed", 2) == expected


def children(pid: int) -> set[Path]:
    """The processes that a process has started."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            if status.read_text().rpartition(")")[2].split()[1] == str(pid):
                found.add(status.parent)
    return found


def test_files_with_other_times_are_the_same_data_where_their_content_is_known(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a copy. Without the digest of the content, a listing with other times is other data."""
    monkeypatch.setenv("FREEAT_DATA", str(tmp_path / "data"))
    root = Path(shutil.copytree(folder, tmp_path / "pets"))
    expected = run(root, tmp_path / "whole", 0)
    assert run(root, tmp_path / "unknown", 0, stop_at=3) is None
    content_digest(root)
    assert run(root, tmp_path / "known", 0, stop_at=3) is None
    begun = RunFolder(tmp_path / "known").description

    def touch(file: Path, t: int) -> None:
        os.utime(file, ns=(t, t))

    files = sorted(root.rglob("*.jpg"))
    for k, file in enumerate(files):
        touch(file, k)
    with pytest.raises(InputError, match="the data are not those"):
        run(root, tmp_path / "known", 0)
    content_digest(root)
    with pytest.raises(InputError, match="the data are not those"):
        run(root, tmp_path / "unknown", 0)
    assert run(root, tmp_path / "known", 0) == expected
    assert RunFolder(tmp_path / "known").description == begun
    assert (
        command_line(["evaluate", str(tmp_path / "known"), "--device", "cpu", "-n", "8", "--split", "all"])
        == 0
    )
    files[0].write_bytes(files[2].read_bytes())
    content_digest(root)
    with pytest.raises(InputError, match="the data are not those"):
        run(root, tmp_path / "known", 0)


def as_parquet(folder: Path, root: Path) -> Path:
    """The images of both splits in a folder of two parquet files."""
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    (root / "table").mkdir()
    for split in ("train", "test"):
        files = sorted((folder / split).rglob("*.jpg"))
        table = {
            "image": [{"bytes": file.read_bytes(), "path": file.name} for file in files],
            "label": [file.parent.name for file in files],
        }
        parquet.write_table(arrow.table(table), root / "table" / f"{split}.parquet")
    return root / "table"


def as_one_parquet(folder: Path, root: Path) -> Path:
    return as_parquet(folder, root) / "train.parquet"


def as_published(folder: Path, root: Path) -> Path:
    synthetic_files.tiny_imagenet(root / "tiny-imagenet-200")
    return root / "tiny-imagenet-200"


@pytest.mark.parametrize("kind", [as_parquet, as_one_parquet, as_published])
def test_content_of_tables_and_published_sets_is_known_once_it_was_read(
    kind: Callable[[Path, Path], Path], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kind(folder, tmp_path)
    monkeypatch.setattr("freeat.data.dataset._check_published", lambda *_: None)
    names = [path, "tiny-imagenet"] if kind is as_published else [path]
    size = {} if kind is as_published else {"image_size": 16}

    def contents(**how: bool) -> set[str | None]:
        return {load_data(name, data_dir=tmp_path, workers=0, **size, **how).content for name in names}

    assert contents(stream=True) == {None}
    found = content_digest(names[-1], data_dir=tmp_path, workers=0)
    assert contents(stream=True) == {found}
    assert contents() == {None}
    monkeypatch.setattr("freeat.data.readers.store.file_digest", None)  # what was read once is kept
    assert content_digest(path, data_dir=tmp_path, workers=0) == found
    for file in (path,) if path.is_file() else path.rglob("*.*"):
        os.utime(file, ns=(1, 1))
    assert contents(stream=True) == {None}


def test_workers_end_with_their_reader_and_errors_come_at_their_turn() -> None:
    def make(k: int) -> int:
        if k == 3:
            raise InputError("no third")
        return k

    state = torch.get_rng_state()
    made = prefetched(make, range(10), 2)
    assert [next(made) for _ in range(3)] == [0, 1, 2]
    assert torch.equal(torch.get_rng_state(), state), "a number was drawn from torch's generator"
    began = time.monotonic()
    with pytest.raises(InputError, match=r"^no third$"):
        next(made)
    assert time.monotonic() - began < 4
    with pytest.raises(InputError, match="--workers 1000"):
        load_data("digits", workers=1000)


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
def test_a_worker_that_the_system_ends_is_one_message_at_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.5)

    def make(k: int) -> int:
        if k == 2:
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
        return k

    made = prefetched(make, range(100), 2)
    assert next(made) == 0
    until = time.monotonic() + 60
    while len(multiprocessing.active_children()) == 2:  # no error comes here, where others would be at work
        assert time.monotonic() < until
        time.sleep(0.01)
    time.sleep(0.2)
    with pytest.raises(InputError, match=r"use fewer of them, e\.g\. --workers 1$"):
        list(made)
    while multiprocessing.active_children():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_worker_that_waits_for_ever_ends_with_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.1)

    def make(k: int) -> int:
        time.sleep(3600 * (k > 0))
        return k

    made = prefetched(make, range(10), 2)
    assert next(made) == 0
    made.close()
    until = time.monotonic() + 10
    while multiprocessing.active_children():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="children are looked up in /proc")
@pytest.mark.parametrize("ends", ["kill", "exit"])
def test_a_worker_that_waits_for_ever_ends_with_its_process(ends: str) -> None:
    program = f"""
import os, signal, time
from freeat.data.prefetch import prefetched
made = prefetched(lambda k: time.sleep(3600 * (k > 0)), range(10), 2)
next(made)
print("begun", flush=True)
if {ends!r} == "kill":
    os.kill(os.getpid(), signal.SIGKILL) if input() == "now" else None
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        workers = children(process.pid)
        assert len(workers) == 2
        print("now", file=process.stdin, flush=True)
        assert process.wait(timeout=60) == (-signal.SIGKILL if ends == "kill" else 0)
    until = time.monotonic() + 10
    while any(map(Path.exists, workers)):
        assert time.monotonic() < until, "a worker outlives the process that started it"
        time.sleep(0.1)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="children are looked up in /proc")
def test_a_signal_that_reaches_the_workers_too_saves_the_state(folder: Path, tmp_path: Path) -> None:
    """As where a scheduler signals all processes of a job."""
    words = arguments(
        data=folder, image_size=16, model="cnn-w4", norm="linf", eps="8/255", train_size=None, updates=100_000,
        stream=True, device="cpu", checkpoint_every=3600, workers=2, out=tmp_path / "run",
    )  # fmt: skip
    command = [sys.executable, "-m", "freeat", "train", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        workers: set[Path] = set()
        until = time.monotonic() + 120
        while len(workers) < 2 or not (tmp_path / "run" / "history.jsonl").exists():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until
            workers = children(process.pid)
            time.sleep(0.05)
        time.sleep(0.5)
        for pid in (*(int(path.name) for path in workers), process.pid):
            os.kill(pid, signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert RunFolder(tmp_path / "run").checkpoints.latest_update
    assert not any(map(Path.exists, workers))
