"""What the paper's experiments have in common: radii, budgets, starts, and how a run of each is judged."""

from typing import Any

from freeat.algorithms.registry import parse_algorithm
from freeat.data.sources import SOURCES, data_folder
from freeat.errors import unknown_name
from freeat.experiments.paper.labels import ERM, FAST, FREE, VANILLA
from freeat.experiments.paper.scales import Scale
from freeat.experiments.tasks import Site, Training
from freeat.runs.spec import split_words
from freeat.units import radius_text

NORMS = ("l2", "linf")
FAST_TO_COLLAPSE = 10 / 255
"""The step with which Fast collapses (Figure 11), and which Table 6 stops early."""

NEAR = 0.02
"""Evaluations this part of the training apart count as made at one point: they fall on the ends of batches."""

READ_EARLY = {("cifar10", "linf", VANILLA), ("cifar10", "linf", FREE), ("cifar10", "linf", FAST)}
"""Data, norm and algorithm of the runs that Table 6 reads at a quarter of the training."""


def radius(data: str, norm: str) -> float:
    """The paper's ε: 128/255 in L2; 8/255 in Linf, 4/255 for Tiny-ImageNet."""
    if norm == "l2":
        return 128 / 255
    return (4 if data == "tiny-imagenet" else 8) / 255


def train_size(scale: Scale, data: str) -> int:
    """The images a data set is trained on at a scale."""
    if data not in scale.setups:
        raise unknown_name("data set of the paper", data, scale.setups)
    return scale.setups[data].n or SOURCES[data].n_train


def updates(scale: Scale, data: str) -> int:
    """T = 200·⌈n/b⌉, the same for every algorithm and, in the n-study, for every n."""
    return scale.passes * -(-train_size(scale, data) // scale.setups[data].b)


def start_of(norm: str, algorithm: str) -> str | None:
    """Where the training attack starts, as the code that made the published numbers had it."""
    name = parse_algorithm(algorithm)
    if name.family == "erm":
        return None
    if name.objective == "trades":
        return "gaussian"
    return "radius" if norm == "l2" else None


def run_of(
    scale: Scale, site: Site, data: str, norm: str, algorithm: str, seed: int = 0, **changes: Any
) -> Training:
    """The run of an algorithm at a scale; ``changes`` are settings in which it departs from the common ones.

    Runs with other images or another network are no part of a figure of curves, and are judged at the end only.
    """
    common = _common(scale, data, norm, algorithm) | {"data": source(scale, site, data), "seed": seed}
    if changes.get("train_size") == train_size(scale, data):
        del changes["train_size"]
    changes = {name: value for name, value in changes.items() if value != common.get(name)}
    if changes.keys() & {"train_size", "model"}:
        common["eval_every"] = common["updates"]
    spec, evaluation = split_words(common | changes)
    name = " ".join([data, norm, algorithm, *_said(changes), f"seed {seed}"])
    return Training(name=name, spec=spec, evaluation=evaluation, site=site)


def _common(scale: Scale, data: str, norm: str, algorithm: str) -> dict[str, Any]:
    """The settings of an algorithm on a data set, as words."""
    setup, total = scale.setups[data], updates(scale, data)
    early = (data, norm, algorithm) in READ_EARLY
    return {
        "model": setup.network,
        "train_size": setup.n,
        "batch_size": setup.b,
        "lr": setup.lr,
        "warmup": setup.warmup if algorithm != ERM else 0.0,
        "norm": norm,
        "eps": radius(data, norm),
        "algorithm": algorithm,
        "start": start_of(norm, algorithm),
        "updates": total,
        "threads": scale.threads,
        "precision": scale.precision,
        "iterate": "last",
        "eval_every": max(1, total // scale.curve_points),
        "eval_size": scale.early_size if early else scale.curve_size,
        "final_size": scale.final_size,
    }


def source(scale: Scale, site: Site, data: str) -> str:
    """The data set by its name; at a miniature scale the path of the files that were made in its form."""
    if not scale.miniature:
        return data
    return str(data_folder(site.data_dir) / SOURCES[data].forms[0].path)


def _said(changes: dict[str, Any]) -> list[str]:
    """What tells a run apart from the common one, for people."""
    words = []
    for name, value in changes.items():
        match name, value:
            case ("train_size", int(n)):
                words.append(f"n={n}")
            case ("eps" | "alpha", float(number)):
                words.append(f"{name}={radius_text(number)}")
            case ("model", str(network)):
                words.append(network)
    return words
