"""How cost grows: of a step with n, image size, batch, processes and twins, and of data; what a step consists of.

    python benchmarks/scaling.py --out results/scaling [--only n,image,batch,processes,twins,shares,data]

Each curve is measured in turns over its points and the medians are kept; an exponent is the slope of a least-squares
line through the logarithms. One thread unless ``--threads`` says otherwise; ``processes`` have one thread each.
``data`` is ``large_data.py measure`` with 20,000 JPEGs: first and second start, memory, decoding.
"""

import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from stability import learner_of, sample
from torch.profiler import ProfilerActivity, profile
from training_contenders import Problem, ours

from freeat.algorithms import make_algorithm
from freeat.compute.machine import provenance
from freeat.compute.precision import Precision
from freeat.data import CropFlip, Images
from freeat.data.batches import Batches
from freeat.learner import Learner
from freeat.models import build
from freeat.stability import make_runs
from freeat.threat import L2, Linf
from freeat.training.loop import train

CPU = torch.device("cpu")
EPS = 8 / 255
CONVOLUTION = ("convolution", "mm", "bmm", "linear")
BATCH_NORM = ("batch_norm",)


def medians(steps: Mapping[Any, Callable[[], object]], rounds: int) -> dict[Any, float]:
    """Seconds of each step, the median over rounds in which they take turns; the first round is not counted."""
    seconds: dict[Any, list[float]] = {key: [] for key in steps}
    for k in range(rounds + 1):
        for key, step in steps.items():
            began = time.perf_counter()
            step()
            if k:
                seconds[key].append(time.perf_counter() - began)
    return {key: statistics.median(values) for key, values in seconds.items()}


def curve(steps: Mapping[int, Callable[[], object]], rounds: int) -> dict[str, Any]:
    """The seconds at each point, and the exponent fitted to them."""
    found = medians(steps, rounds)
    slope = np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0]
    return {"seconds": {str(x): value for x, value in found.items()}, "exponent": float(slope)}


def training_step(
    name: str, shape: tuple[int, int, int], b: int, n: int, algorithm: str
) -> Callable[[], object]:
    """A whole training step: the next batch with crops and flips, the attack, the update."""
    x = torch.randint(256, (n, *shape), dtype=torch.uint8)
    model = build(name, classes=10, shape=shape).to(memory_format=torch.channels_last).train()
    learner = Learner(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01),
        precision=Precision("fp32", CPU),
        total_updates=10**9,
    )
    batches = Batches(n=n, size=b, seed=0)
    images = Images.of(x, torch.randint(10, (n,)))
    steps = train(learner, make_algorithm(algorithm, Linf(EPS)), images, batches, CropFlip())
    return lambda: next(steps)


def against_n(rounds: int) -> dict[str, Any]:
    """A step of Fast on a small net, and the draw of a batch of 128 by both kinds of sampling."""
    sizes = [10**k for k in (3, 4, 5, 6)]
    shape = (1, 8, 8)
    steps = {n: training_step("mlp-w64", shape, 128, n, "fast") for n in sizes}
    counters = {n: iter(range(1, 10**9)) for n in sizes}

    def draw(n: int, sampling: Any) -> Callable[[], object]:
        batches = Batches(n=n, size=128, seed=1, sampling=sampling)
        return lambda: batches(next(counters[n]))

    def whole_epoch(n: int) -> Callable[[], object]:
        seeds = iter(range(2, 10**9))
        return lambda: Batches(n=n, size=128, seed=next(seeds))(1)

    return {
        "step": curve(steps, rounds),
        "independent batch": curve({n: draw(n, "independent") for n in sizes}, 5 * rounds),
        "order of an epoch": curve({n: whole_epoch(n) for n in sizes}, rounds),
    }


def against_image(rounds: int) -> dict[str, Any]:
    """A step of Free-4 on 16 images against the pixels of a side, and the same for Vanilla-10."""
    sides = (16, 32, 64, 128)
    return {
        name: curve({s: training_step("resnet18-w16", (3, s, s), 16, 64, name) for s in sides}, rounds)
        for name in ("free-4", "vanilla-10")
    }


def against_batch(rounds: int) -> dict[str, Any]:
    """A step of Free-4 and Vanilla-10 on 32×32 images against the batch."""
    sizes = (8, 16, 32, 64, 128, 256)
    return {
        name: curve({b: training_step("resnet18-w8", (3, 32, 32), b, 512, name) for b in sizes}, rounds)
        for name in ("free-4", "vanilla-10")
    }


def against_twins(rounds: int) -> dict[str, Any]:
    """A step of K coupled runs of a dense net as one stack, and of K separate ones."""
    x, y = sample((1, 8, 8), 32).batch(torch.arange(32))
    found = {}
    for engine in ("stacked", "separate"):
        steps: dict[int, Callable[[], object]] = {}
        for members in (1, 4, 16, 64):
            runs = make_runs(
                engine, build("mlp-w64-softplus", classes=10, shape=(1, 8, 8)), members, learner_of
            )
            batch = x.expand(members, *x.shape), y.expand(members, *y.shape)
            everyone = torch.ones(members, dtype=torch.bool)
            algorithm = make_algorithm("free-4", L2(0.5))
            steps[members] = lambda runs=runs, batch=batch, everyone=everyone, a=algorithm: runs.step(  # type: ignore[misc]
                a, *batch, everyone
            )
        found[engine] = curve(steps, rounds)
    return found


def against_processes(rounds: int) -> dict[str, Any]:
    """Seconds per weight update of one training in 1 and 2 processes of one thread, start-up left out.

    And what two processes exchange in a batch: collective calls and their bytes.
    """
    found: dict[str, Any] = {}
    for network in ("cnn-w8", "resnet18-w16"):
        times, exchanged = {}, {}
        for count in (1, 2):
            worker = [str(Path(__file__).resolve()), "--worker", network, "--rounds", str(rounds)]
            launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count), *worker]
            run = subprocess.run(
                [sys.executable, *launch],
                check=True,
                capture_output=True,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            printed = json.loads(run.stdout.strip().splitlines()[-1])
            times[str(count)], exchanged = printed["seconds"], printed["exchanged"]
        found[network] = {"seconds": times, "speed-up": times["1"] / times["2"], "a batch of 2": exchanged}
    return found


@contextmanager
def exchanges() -> Iterator[dict[str, int]]:
    """Inside, the all-reduces of this process and their bytes are counted."""
    import torch.distributed as dist

    counted, reduce = {"all-reduces": 0, "bytes": 0}, dist.all_reduce

    def counting(tensor: torch.Tensor, *given: Any, **options: Any) -> Any:
        counted["all-reduces"] += 1
        counted["bytes"] += tensor.numel() * tensor.element_size()
        return reduce(tensor, *given, **options)

    dist.all_reduce = counting
    try:
        yield counted
    finally:
        dist.all_reduce = reduce


def worker(network: str, rounds: int) -> None:
    """One of the processes of a training on batches of 64 images; the first prints seconds per update and exchanges."""
    import torch.distributed as dist

    from freeat.learner.distributed import join_process_group

    torch.set_num_threads(1)
    shape = (3, 32, 32)
    with join_process_group(CPU) as processes:
        model = build(network, classes=10, shape=shape).to(memory_format=torch.channels_last).train()
        learner = Learner(
            model, torch.optim.SGD(model.parameters(), lr=0.01), total_updates=10**9, processes=processes
        )
        images = Images.of(torch.randint(256, (256, *shape), dtype=torch.uint8), torch.randint(10, (256,)))
        steps = train(learner, make_algorithm("free-4", Linf(EPS)), images, Batches(n=256, size=64, seed=0))
        seconds = []
        for k in range(rounds + 1):
            if processes.size > 1:
                dist.barrier()
            began = time.perf_counter()
            next(steps)
            if k:
                seconds.append((time.perf_counter() - began) / 4)
        with exchanges() as exchanged:
            next(steps)
        if processes.is_main:
            print(json.dumps({"seconds": statistics.median(seconds), "exchanged": exchanged}))


def shares(rounds: int) -> dict[str, Any]:
    """The parts of a step's time: convolutions and products, batch norms, other tensor operations, Python.

    The profiler's own time counts as Python.
    """
    found = {}
    for network, precision in (("resnet18", "bf16"), ("resnet18-w16", "bf16"), ("mlp", "fp32")):
        for algorithm in ("free-4", "vanilla-10"):
            problem = Problem(model=network, algorithm=algorithm, batch=64, threads=1)
            step = ours(problem, precision)
            step()
            with profile(activities=[ProfilerActivity.CPU]) as profiled:
                began = time.perf_counter()
                for _ in range(rounds):
                    step()
                total = time.perf_counter() - began
            parts: dict[str, float] = defaultdict(float)
            for event in profiled.key_averages():
                if event.key.startswith("aten::"):
                    parts[kind_of(event.key)] += event.self_cpu_time_total * 1e-6 / total
            parts["Python and the rest"] = 1 - sum(parts.values())
            found[f"{network}, {precision}, {algorithm}"] = {
                "seconds": total / rounds,
                **{key: round(value, 4) for key, value in parts.items()},
            }
    return found


def kind_of(operation: str) -> str:
    """The part of a step that an operation belongs to."""
    name = operation.removeprefix("aten::")
    if any(part in name for part in CONVOLUTION):
        return "convolutions and products"
    return "batch norms" if any(part in name for part in BATCH_NORM) else "other operations"


def data(_: int) -> dict[str, Any]:
    """Start-up of a folder of JPEGs, first and second time, memory of a training, and images decoded per second."""
    with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
        out = Path(folder) / "data.json"
        measure = [sys.executable, str(Path(__file__).parent / "large_data.py"), "measure", "--out", str(out)]
        subprocess.run(measure, check=True, stdout=sys.stderr)
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


SECTIONS: dict[str, Callable[[int], dict[str, Any]]] = {
    "n": against_n,
    "image": against_image,
    "batch": against_batch,
    "processes": against_processes,
    "twins": against_twins,
    "shares": shares,
    "data": data,
}


@click.command(help=__doc__.split("\n")[0])
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="folder of scaling.json")
@click.option("--only", default=",".join(SECTIONS), show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--worker", "network", hidden=True)
def main(out: Path | None, only: str, rounds: int, threads: int, network: str | None) -> None:
    if network is not None:
        worker(network, rounds)
        return
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    file = None if out is None else out / "scaling.json"
    report: dict[str, Any] = {"format": 1, "sections": {}}
    if file is not None and file.is_file():
        report = json.loads(file.read_text(encoding="utf-8"))
    for name in only.split(","):
        found = SECTIONS[name](rounds)
        report["sections"][name] = {
            **asdict(provenance(CPU)),
            "command": shlex.join(["python", "benchmarks/scaling.py", *sys.argv[1:]]),
            "threads": threads,
            "found": found,
        }
        print(name, json.dumps(found, indent=1), flush=True)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
