"""Two real models on the first CIFAR-10 test images, evaluated by freeat and by pyautoattack's own evaluation.

    python benchmarks/real_models.py --robust RUN --out results/robustness

The models are a robust one (a run folder) in the ball it was trained for, and the ResNet-18 that pyautoattack
ships, which is not robust, in Linf 8/255. Every result is stored when it is done; the same command resumes.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import torch
from attacks import autoattack, autoattack_apgd, models
from torch import Tensor, nn

from freeat.attacks.registry import parse_attack
from freeat.compute.machine import provenance
from freeat.data import DataSet, load_data
from freeat.evaluation.evaluate import BATCH
from freeat.evaluation.statistics import wilson
from freeat.experiments.evaluations import evaluate_models
from freeat.experiments.sweep import Sweep
from freeat.files.documents import identity_of, plain, read_json, write_json, write_text
from freeat.runs.open import Opened
from freeat.threat import Ball

OURS = {"pgd-10": 1000, "pgd-50-10": 256, "square": 256, "autoattack": 100}
SHORT = "apgd-ce-10"  # pyautoattack has no PGD; this is its APGD with the steps of PGD-10
THEIRS = {SHORT: 1000, "apgd-ce": 256, "square": 256, "standard": 100}
HEADER = "| model | ball | attack | by | images | clean % | robust % | 95 % interval | seconds |"


def theirs(model: nn.Module, x: Tensor, y: Tensor, ball: Ball, what: str) -> Tensor:
    """Which images survive pyautoattack's own evaluation, called as its documentation shows, with a seed."""
    if what == SHORT:
        batches = zip(x.split(BATCH), y.split(BATCH), strict=True)
        perturbed = torch.cat([autoattack_apgd(model, *batch, ball, 0) for batch in batches])
    else:
        perturbed = autoattack(what)(model, x, y, ball, 0)
    with torch.no_grad():
        return model(perturbed).argmax(-1) == y


def evaluated_by_pyautoattack(
    opened: Opened, ball: Ball, data: DataSet, out: Path
) -> Iterator[dict[str, Any]]:
    """pyautoattack's evaluations of a model, those stored already taken from the store."""
    for what, n in THEIRS.items():
        key = {"by": "pyautoattack", "what": what, "n": n, "weights": opened.digest, "eps": ball.eps}
        path = out / "theirs" / f"{identity_of(key)}.json"
        if not path.is_file():
            x, y = data.test.sample(n).batch(torch.arange(n))
            x = x.contiguous(memory_format=torch.contiguous_format)
            began = time.perf_counter()
            with torch.no_grad():
                clean = opened.model(x).argmax(-1) == y
            robust = theirs(opened.model, x, y, ball, what)
            write_json(
                path,
                {
                    "attack": what,
                    "n": n,
                    "clean_accuracy": float(clean.double().mean()),
                    "robust_accuracy": float(robust.double().mean()),
                    "robust_interval": list(wilson(int(robust.sum()), n)),
                    "seconds": time.perf_counter() - began,
                },
                format=1,
            )
        yield read_json(path, format=1)


def row(opened: Opened, ball: Ball, cell: dict[str, Any], by: str) -> str:
    low, high = cell["robust_interval"]
    size = f"{ball.norm} {ball.eps * 255:g}/255"
    figures = f"{100 * cell['clean_accuracy']:.1f} | {100 * cell['robust_accuracy']:.1f}"
    return (
        f"| {opened.name} | {size} | {cell['attack']} | {by} | {cell['n']} | {figures} | "
        f"[{100 * low:.1f}, {100 * high:.1f}] | {cell['seconds']:.0f} |"
    )


class Report:
    """The table and the document, written anew whenever a cell is added, so that an interrupted run leaves both."""

    def __init__(self, out: Path, threads: int) -> None:
        self.out = out
        self.lines = [HEADER, "|---|---|---|---|---:|---:|---:|---:|---:|"]
        self.checks: dict[str, None] = {}
        self.document: dict[str, Any] = {
            "cells": [],
            **asdict(provenance(torch.device("cpu"))),
            "threads": threads,
        }

    def add(
        self, opened: Opened, ball: Ball, cells: list[dict[str, Any]], by: str, checks: Sequence[str] = ()
    ) -> None:
        self.lines += [row(opened, ball, cell, by) for cell in cells]
        self.checks |= dict.fromkeys(f"- {sentence}" for sentence in checks)
        self.document["cells"] += [cell | {"model": opened.name, "by": by} for cell in cells]
        seconds = sum(cell["seconds"] for cell in self.document["cells"])
        total = f"Altogether {seconds / 60:.0f} minutes."
        write_text(self.out / "table.md", "\n".join([*self.lines, "", total, "", *self.checks]) + "\n")
        write_json(self.out / "robustness.json", self.document, format=1)


def announcing(say: Callable[[str], None]) -> Callable[[str, int], Callable[[int], None]]:
    def watch(title: str, images: int) -> Callable[[int], None]:
        say(f"{time.strftime('%H:%M:%S')} {title}, {images} images")
        return lambda done: None

    return watch


@click.command()
@click.option("--robust", required=True, help="a robust CIFAR-10 model: run folder or NETWORK@FILE")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--data-dir", type=click.Path(path_type=Path))
def main(robust: str, out: Path, threads: int, data_dir: Path | None) -> None:
    """Evaluate both models by both libraries and write a table."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    data = load_data("cifar10", data_dir=data_dir)
    report = Report(out, threads)
    for opened, ball in models(robust, data):
        for name, n in OURS.items():
            sweep = Sweep(data=data, attacks=(parse_attack(name),), balls=(ball,), n=n)
            found = evaluate_models([opened], sweep, folder=out, watch=announcing(click.echo))
            results = [plain(result) for result in found.results]
            report.add(opened, ball, results, "freeat", [check.sentence for check in found.checks])
        for cell in evaluated_by_pyautoattack(opened, ball, data, out):
            report.add(opened, ball, [cell], "pyautoattack")
    click.echo((out / "table.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
