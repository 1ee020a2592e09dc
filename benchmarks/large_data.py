"""What grows with the data: start-up, decoding, memory; *listing*: memory per image of a data set that is listed.

    python benchmarks/large_data.py measure --images 100000 --out results/scaling/data.json

*measure* writes a folder of JPEGs of 224 pixels in 100 classes. A few distinct images are encoded, and each is written
many times under other names: files differ by name and place, decoding costs what it costs for any, and the disk holds
them all. Then, each in a new process:

- *first start*: ``load_data`` with an empty cache, which decodes all images once.
- *second start*: the same command again.
- *train*: batches of 64 for a network of one layer, so that the data are what takes time; from the cache
  (``cached``), and decoded from the files by worker processes (``stream``), with random windows cut and mirrored.
- *decode*: images decoded per second by this process and by worker processes.

Memory is that of the process and its workers together, each page counted once: ``anonymous`` cannot be given back,
``file`` is of files and of batches that are passed on.
"""

import gc
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from PIL import Image
from torch import nn

from freeat import Erm
from freeat.compute.machine import CpuClock, provenance
from freeat.data import load_data
from freeat.data.augmentation import CropFlip, RandomResizedCrop
from freeat.data.batches import Batches
from freeat.data.prefetch import prefetched
from freeat.files import reading
from freeat.files.documents import plain
from freeat.learner import Learner
from freeat.rng import permutation
from freeat.training.loop import train

CLASSES = 100
SIDE = 224
BATCH = 64
SAMPLES = 6
"""How often memory is looked at during a training."""


@click.group()
def main() -> None:
    """Cost against the size of the problem."""


@main.command()
@click.option("--images", default=20_000, show_default=True, help="JPEGs of 224 pixels")
@click.option("--distinct", default=64, show_default=True, help="distinct images among them")
@click.option("--updates", default=300, show_default=True, help="batches of 64 in each training")
@click.option("--workers", default=2, show_default=True)
@click.option(
    "--folder", type=click.Path(path_type=Path), help="where the JPEGs and the cache are written, and left"
)
@click.option(
    "--parts", default="start,train,decode", show_default=True, help="others stay as they are in --out"
)
@click.option("--validation", type=float, help="train also with this part held out, e.g. 0.1")
@click.option("--out", type=click.Path(path_type=Path), help="a JSON file for the results")
def measure(
    images: int,
    distinct: int,
    updates: int,
    workers: int,
    folder: Path | None,
    parts: str,
    validation: float | None,
    out: Path | None,
) -> None:
    """Start-up, decoding and memory of a folder of JPEGs."""
    root = folder or Path(tempfile.mkdtemp(prefix="scaling-"))
    try:
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out and out.exists() else {}
        if not (root / "jpegs").exists():
            size = write_jpegs(root / "jpegs", images, distinct)
            found |= {
                "images": images,
                "distinct": distinct,
                "mean_jpeg_bytes": size / images,
                "workers": workers,
            }
        count = ["--updates", str(updates)]
        kinds = {
            "start": [(f"{which} start", workers, ["start"]) for which in ("first", "second", "third")],
            "train": [
                (f"train {kind}{held_out}", workers, ["train", "--kind", kind, *count, *option])
                for kind in ("cached", "stream")
                for held_out, option in (
                    ("", []),
                    *(
                        [(f", validation {validation:g}", ["--validation", str(validation)])]
                        if validation
                        else []
                    ),
                )
            ],
            "decode": [(f"decode by {k}", k, ["decode", *count]) for k in (0, 1, workers)],
        }
        for name, own, arguments in (one for part in parts.split(",") for one in kinds[part]):
            command = [sys.executable, __file__, *arguments, "--folder", str(root), "--workers", str(own)]
            answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            measured = json.loads(answer.stdout.splitlines()[-1])
            click.echo(f"{name}: {measured}")
            origin = plain(provenance(torch.device("cpu")))
            origin["command"] = shlex.join(["python", "benchmarks/large_data.py", *sys.argv[1:]])
            found[name] = measured | {"provenance": origin}
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    finally:
        if folder is None:
            shutil.rmtree(root)


def write_jpegs(root: Path, images: int, distinct: int) -> int:
    """Write the folder; returns the bytes of all files."""
    draws, encoded = np.random.default_rng(0), []
    for _ in range(distinct):
        # Smooth colours with detail on top: about 20 kB, as photographs of this size have.
        small = Image.fromarray(draws.integers(0, 256, (28, 28, 3), dtype=np.uint8))
        smooth = np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.int16)
        detail = smooth + draws.integers(-12, 13, smooth.shape)
        out = io.BytesIO()
        Image.fromarray(detail.clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=80)
        encoded.append(out.getvalue())
    for split in ("train", "test"):
        for label in range(CLASSES):
            (root / split / f"class{label:03}").mkdir(parents=True, exist_ok=True)
    total = 0
    for i in range(images):
        split = "test" if i % 20 == 0 else "train"
        content = encoded[i % distinct]
        (root / split / f"class{(i // 20) % CLASSES:03}" / f"{i:07}.jpg").write_bytes(content)
        total += len(content)
    return total


common = [
    click.option("--folder", type=click.Path(path_type=Path), required=True),
    click.option("--workers", type=int, required=True),
]


def with_common(command: Any) -> Any:
    for option in common:
        command = option(command)
    return command


@main.command(hidden=True)
@with_common
def start(folder: Path, workers: int) -> None:
    """One start, as every command makes it: the data set and its digest."""
    clock, began, own = CpuClock.now(), time.monotonic(), cpu_seconds()
    found = load_data(folder / "jpegs", data_dir=folder / "data", workers=workers)
    digest = found.digest
    click.echo(
        json.dumps(
            {
                "seconds": time.monotonic() - began,
                "cpu_seconds": cpu_seconds() - own,
                "others": clock.cores_of_others() if clock else None,
                "digest": digest[:16],
                **memory(),
            }
        )
    )


@main.command("train", hidden=True)
@click.option("--kind", required=True)
@click.option("--updates", type=int, required=True)
@click.option("--validation", type=float)
@with_common
def train_(kind: str, updates: int, validation: float | None, folder: Path, workers: int) -> None:
    """Train a layer on the data, or on what a validation split leaves, and look at the memory."""
    torch.set_num_threads(1)
    streams = kind == "stream"
    found = load_data(folder / "jpegs", data_dir=folder / "data", workers=workers, stream=streams)
    model = nn.Sequential(nn.AvgPool2d(28), nn.Flatten(), nn.Linear(192, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    learner = Learner(model, optimizer, seed=0, total_updates=updates)
    images = found.train if validation is None else found.train.split(validation)[0]
    batches = Batches(n=len(images), size=BATCH, seed=0)
    augment = RandomResizedCrop() if streams else CropFlip(pad=28)
    samples, began = [], time.monotonic()
    for k, _ in enumerate(train(learner, Erm(), images, batches, augment), 1):
        if k % max(1, updates // SAMPLES) == 0:
            samples.append({"update": k, **memory()})
    seconds = time.monotonic() - began
    click.echo(json.dumps({"images_per_second": updates * BATCH / seconds, "memory": samples}))


@main.command(hidden=True)
@click.option("--updates", type=int, required=True)
@with_common
def decode(updates: int, folder: Path, workers: int) -> None:
    """Decode batches of 64 in the order of the files."""
    torch.set_num_threads(1)
    images = load_data(folder / "jpegs", data_dir=folder / "data", stream=True, workers=0).train
    rows = torch.split(torch.arange(updates * BATCH) % len(images), BATCH)
    began, own = time.monotonic(), cpu_seconds()
    for _ in prefetched(lambda part: images.view(part)[0], rows, workers):
        pass
    count = updates * BATCH
    seconds, spent = time.monotonic() - began, cpu_seconds() - own
    click.echo(json.dumps({"images_per_second": count / seconds, "cpu_ms_per_image": 1e3 * spent / count}))


@main.command()
@click.option("--entries", default=100_000, show_default=True, help="images, made up: one pixel each")
@click.option("--out", type=click.Path(path_type=Path), help="a JSON file for the results")
def listing(entries: int, out: Path | None) -> None:
    """Bytes of memory per image of a listed data set, at the second start and after it."""
    with tempfile.TemporaryDirectory(prefix="scaling-") as name:
        root, pixel = Path(name), io.BytesIO()
        Image.new("RGB", (1, 1)).save(pixel, "JPEG")
        for i in range(entries):
            split = "test" if i % 20 == 0 else "train"
            path = root / "listed" / split / f"class{(i // 20) % CLASSES:03}" / f"{i:07}.jpg"
            if i < 20 * CLASSES:
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pixel.getvalue())
        where: dict[str, Any] = {"data_dir": root / "data", "image_size": 1, "stream": True, "workers": 0}
        load_data(root / "listed", **where)
        gc.collect()
        # The buffer of a document has the largest size there is; the system gives only the pages that are written.
        reading.read_text.__kwdefaults__["limit"] = 1 << 20
        tracemalloc.start()
        found = load_data(root / "listed", **where)
        gc.collect()
        stays, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    train, n = found.train, len(found.train)
    names = train.parts[0].names  # type: ignore[union-attr]
    view = train.subset(n - 1)
    assert view.rows is not None
    per_image = {
        "peak of the start": peak / entries,
        "of it stays": stays / entries,
        "names": (len(names._text) + names._ends.nbytes) / n,
        "labels": train.y.nbytes / n,
        "numbers": train.index.nbytes / n,
        "of a view: labels, numbers and rows": (view.y.nbytes + view.index.nbytes + view.rows.nbytes)
        / (n - 1),
        "order of an epoch": permutation(n, 0, "order", 0).nbytes / n,
    }
    measured = {name: round(value, 1) for name, value in per_image.items()}
    click.echo(json.dumps(measured, indent=2))
    if out is not None:
        document: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
        origin = plain(provenance(torch.device("cpu")))
        origin["command"] = shlex.join(["python", "benchmarks/large_data.py", *sys.argv[1:]])
        document["listing, bytes per image"] = {"entries": entries, **measured, "provenance": origin}
        out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def cpu_seconds() -> float:
    """Processor seconds of this process and of the workers that have ended."""
    return sum(os.times()[:4])


def memory() -> dict[str, float]:
    """Megabytes of this process and its workers, each page counted once."""
    totals = {"anonymous_mb": 0.0, "file_mb": 0.0}
    for pid in (os.getpid(), *children(os.getpid())):
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
            fields = {line.split(":")[0]: line.split() for line in rollup}
        totals["anonymous_mb"] += int(fields["Pss_Anon"][1]) / 1024
        totals["file_mb"] += (int(fields["Pss_File"][1]) + int(fields["Pss_Shmem"][1])) / 1024
    return {name: round(value, 1) for name, value in totals.items()}


def children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text(encoding="ascii").split())


if __name__ == "__main__":
    main()
