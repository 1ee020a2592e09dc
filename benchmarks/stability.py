"""64 twins with their base as the program runs them, against the same runs one after another.

    python benchmarks/stability.py [--members 65] [--batches 6] [--json FILE]

Both sides train the same members from the same initial weights on the same batches, in one process, with one thread
unless OMP_NUM_THREADS says otherwise, and take turns batch by batch, so that a busy machine slows both alike.
The number to look at is the ratio. Aim: at least 5 for dense nets, 0.95 for any net.
"""

import argparse
import json
import os
import statistics
import time
from dataclasses import asdict
from pathlib import Path

import torch

from freeat.algorithms import make_algorithm
from freeat.compute.machine import provenance
from freeat.data import Images
from freeat.learner import Learner
from freeat.learner.schedules import Constant
from freeat.models import build
from freeat.rng import generator, stream_key
from freeat.stability import choose_engine, make_runs
from freeat.threat import L2

CASES = {
    "dense": ("mlp-w64-softplus", (1, 8, 8), 32),
    "dense, wide": ("mlp-w256", (1, 8, 8), 32),
    "convolutions, 8×8": ("cnn-w8-gn", (1, 8, 8), 32),
    "convolutions, 32×32": ("cnn-w8-gn", (3, 32, 32), 16),
}


def learner_of(model: torch.nn.Module) -> Learner:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return Learner(model, optimizer, schedule=Constant(lr=0.05))


def sample(shape: tuple[int, int, int], b: int) -> Images:
    g = generator(torch.device("cpu"), stream_key(0, "benchmark"))
    return Images.of(torch.rand(b, *shape, generator=g), torch.randint(0, 10, (b,), generator=g))


def compare(
    name: str, shape: tuple[int, int, int], b: int, algorithm_name: str, members: int, batches: int
) -> dict:
    """Seconds per batch of both sides, and their ratio."""
    model = build(name, classes=10, shape=shape)
    algorithm = make_algorithm(algorithm_name, L2(0.5))
    x, y = sample(shape, b).batch(torch.arange(b))
    choice = choose_engine(model, members, learner_of, algorithm, x, y)
    everyone = torch.ones(members, dtype=torch.bool)
    stacked_x, stacked_y = x.expand(members, *x.shape), y.expand(members, *y.shape)
    runs = make_runs(choice.engine, model, members, learner_of)
    alone = [learner_of(build(name, classes=10, shape=shape)) for _ in range(members)]
    ours, theirs = [], []
    for _ in range(batches + 1):
        begun = time.perf_counter()
        runs.step(algorithm, stacked_x, stacked_y, everyone)
        between = time.perf_counter()
        for learner in alone:
            algorithm.step(learner, x, y)
        ours.append(between - begun)
        theirs.append(time.perf_counter() - between)
    ratios = [t / o for t, o in zip(theirs[1:], ours[1:], strict=True)]  # the first batch warms up
    return {
        "model": name,
        "algorithm": algorithm_name,
        "members": members,
        "batch": b,
        "engine": choice.engine,
        "seconds": statistics.median(ours[1:]),
        "seconds_one_after_another": statistics.median(theirs[1:]),
        "ratio": statistics.median(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=65, help="twins and their base")
    parser.add_argument("--batches", type=int, default=6, help="timed batches")
    parser.add_argument("--algorithms", default="vanilla-10,fast,free-4")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    rows = []
    for title, (name, shape, b) in CASES.items():
        for algorithm in options.algorithms.split(","):
            row = {"case": title, **compare(name, shape, b, algorithm, options.members, options.batches)}
            rows.append(row)
            print(
                f"{title:20} {algorithm:11} {row['engine']:9} {1e3 * row['seconds']:8.1f} ms   one after another "
                f"{1e3 * row['seconds_one_after_another']:8.1f} ms   ratio {row['ratio']:.2f}",
                flush=True,
            )
    if options.json:
        facts = asdict(provenance(torch.device("cpu")))
        options.json.write_text(json.dumps({"format": 1, "rows": rows, **facts}, indent=2) + "\n")


if __name__ == "__main__":
    main()
