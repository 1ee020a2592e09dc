"""Images per second of every training algorithm, beside plain loops and ART's trainers.

    python benchmarks/training.py --threads 2 --json results/training-speed.json

What is timed is the whole training step on a batch of CIFAR-sized images: fetching it (ours with crop and flip),
the attack, every pass, the optimizer. **Images per second = batch size × weight updates of the step / seconds of
the step**: an image counts once for each weight update it takes part in, however many passes its perturbation
took, so Free-4 counts a batch four times and Vanilla-10 once.

- *freeat*: the library's own loop, deterministic, channels_last, in fp32 and bf16.
- *plain*: the loops of ``plain_training.py``, the same crops, flips and passes in NCHW fp32.
- *ART*: its trainers as its documentation shows, where it has one for the algorithm. Its attacks go through the
  batch in parts of 32 images, their default, and its TRADES attacks cross-entropy.

Contenders take turns within a round; a turn repeats the step for some seconds; the median over the rounds is
kept, and × is the plain loop's time by the contender's. The matrix peak is the fastest product of two square
matrices, measured in every round; a step's share of it counts the products and convolutions the step needs
(``torch.utils.flop_counter``) and nothing else. That counter includes products with the zeros of the padding,
which kernels may leave out, so that a share can exceed 100 %; the table says how many these are. On a busy
machine ``--clock cpu --threads 1`` is steadier.
"""

import gc
import json
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import torch
from operations import matrix_peak, padding_share, step_flops
from plain_training import EPS, PLAIN
from training_contenders import CPU, Problem, Step, contenders, setting

from freeat.algorithms import make_algorithm
from freeat.compute.machine import provenance
from freeat.threat import Linf

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass
class Row:
    """What one contender needed for one problem."""

    model: str
    algorithm: str
    contender: str
    updates: int
    seconds: list[float] = field(default_factory=list)
    images_per_second: float = 0.0
    times_plain: float | None = None
    flops: int | None = None
    padding_share: float | None = None
    share_of_peak: float | None = None


@dataclass(frozen=True, kw_only=True)
class Race:
    """How measurements are made."""

    repeats: int
    precisions: list[str]
    clock: Callable[[], float]
    seconds: float

    def run(self, problem: Problem, peaks: dict[str, float]) -> list[Row]:
        updates = make_algorithm(problem.algorithm, Linf(EPS)).updates_per_batch
        steps = contenders(problem, self.precisions)
        rows = {name: Row(problem.model, problem.algorithm, name, updates) for name in steps}
        for _ in range(self.repeats):
            for precision, dtype in DTYPES.items():
                peaks[precision] = max(peaks[precision], matrix_peak(dtype, self.clock))
            for name, step in steps.items():
                gc.collect()
                with setting(name, problem.threads):
                    rows[name].seconds.append(self.turn(step))
        flops, padding = step_flops(problem), padding_share(problem)
        plain_time = statistics.median(rows["plain fp32"].seconds)
        for row in rows.values():
            median = statistics.median(row.seconds)
            row.images_per_second = problem.batch * updates / median
            row.times_plain = plain_time / median
            if row.contender.startswith("freeat"):
                row.flops, row.padding_share = flops, padding
        return list(rows.values())

    def turn(self, step: Step) -> float:
        """Seconds of one step, in a turn long enough that what only its first step pays hardly counts."""
        began, steps = self.clock(), 0
        while not steps or self.clock() - began < self.seconds:
            step()
            steps += 1
        return (self.clock() - began) / steps


def shared(rows: list[Row], peaks: dict[str, float]) -> None:
    """Fill in each step's share of the matrix peak, which is known when all is measured."""
    for row in rows:
        if row.flops is not None:
            rate = row.flops / statistics.median(row.seconds)
            row.share_of_peak = rate / peaks[row.contender.split()[-1]]


def markdown(rows: list[Row], peaks: dict[str, float]) -> str:
    names = list(dict.fromkeys(row.contender for row in rows))
    title = ["model", "algorithm", *names]
    lines = ["| " + " | ".join(title) + " |", "|---|---|" + "---:|" * len(names)]
    cells = {(row.model, row.algorithm, row.contender): row for row in rows}
    for model, algorithm in dict.fromkeys((row.model, row.algorithm) for row in rows):
        found = [cells.get((model, algorithm, name)) for name in names]
        lines.append("| " + " | ".join([model, algorithm, *map(_cell, found)]) + " |")
    rates = ", ".join(f"{peak / 1e9:.0f} GFLOP/s in {precision}" for precision, peak in peaks.items())
    padding = {row.model: row.padding_share for row in rows if row.padding_share is not None}
    zeros = ", ".join(f"{share:.0%} of {model}'s" for model, share in padding.items())
    lines += ["", f"Images per second (× plain fp32; share of the matrix peak, which is {rates})."]
    return "\n".join([*lines, f"Of the operations counted, {zeros} are with zeros of the padding."])


def _cell(row: Row | None) -> str:
    if row is None:
        return "–"
    share = "" if row.share_of_peak is None else f"; {row.share_of_peak:.0%}"
    return f"{row.images_per_second:.1f} ({row.times_plain:.2f}×{share})"


def _names(text: str, known: list[str]) -> list[str]:
    chosen = text.split(",")
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(known)}")
    return chosen


@click.command(help=__doc__.split("\n")[0])
@click.option("--quick", is_flag=True, help="batches of 32 and one round: do the wheels turn?")
@click.option("--threads", default=torch.get_num_threads(), show_default="all cores")
@click.option("--models", default="resnet18,resnet18-w16", show_default=True)
@click.option("--algorithms", default=",".join(PLAIN), show_default=True)
@click.option("--precisions", default="fp32,bf16", show_default=True)
@click.option("--batch-size", default=128, show_default=True)
@click.option("--repeats", default=3, show_default=True, help="interleaved rounds; the median is kept")
@click.option("--seconds", default=4.0, show_default=True, help="what a turn lasts at least")
@click.option("--clock", type=click.Choice(list(CLOCKS)), default="wall", show_default=True)
@click.option(
    "--json", "target", type=click.Path(dir_okay=False, path_type=Path), help="write all numbers here"
)
def main(
    quick: bool,
    threads: int,
    models: str,
    algorithms: str,
    precisions: str,
    batch_size: int,
    repeats: int,
    seconds: float,
    clock: str,
    target: Path | None,
) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(0)  # the plain loops and ART draw from the global generator
    if quick:
        batch_size, repeats, seconds = min(batch_size, 32), 1, 0.0
    race = Race(
        repeats=repeats,
        precisions=_names(precisions, list(DTYPES)),
        clock=CLOCKS[clock],
        seconds=seconds,
    )
    rows: list[Row] = []
    peaks = dict.fromkeys(DTYPES, 0.0)
    for model in models.split(","):
        for algorithm in _names(algorithms, list(PLAIN)):
            rows += race.run(
                Problem(model=model, algorithm=algorithm, batch=batch_size, threads=threads), peaks
            )
            print(f"{model} {algorithm} done", file=sys.stderr)
    shared(rows, peaks)
    print(markdown(rows, peaks))
    if target is not None:
        report: dict[str, Any] = {
            "settings": {
                "threads": threads,
                "batch_size": batch_size,
                "repeats": repeats,
                "seconds": seconds,
                "clock": clock,
            },
            "matrix_peak_flops": peaks,
            "rows": [asdict(row) for row in rows],
            **asdict(provenance(CPU)),
            "command": shlex.join(["python", "benchmarks/training.py", *sys.argv[1:]]),
        }
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
