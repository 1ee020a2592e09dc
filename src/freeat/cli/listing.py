"""``freeat algorithms``, ``freeat attacks``, ``freeat models``, and what ``freeat data list`` has of each data set.

Their rows are stored in ``lists.json``, so that a list appears without importing torch. The command
``python -m freeat.cli.listing`` writes the file again; a test compares it with what is there.
"""

import json
from pathlib import Path
from typing import Any

import click

from freeat.cli.options import json_option
from freeat.reports.tables import print_table

LISTS = Path(__file__).with_name("lists.json")
CLASSES, SHAPE = 10, "3x32x32"
"""The classes and the shape of images for which the stored list of networks counts parameters."""

Row = dict[str, Any]


def _print_rows(rows: list[Row], as_json: bool) -> None:
    """Rows that have the same keys, as JSON or as a table."""
    if as_json:
        click.echo(json.dumps(rows))
        return
    numbers = [index for index, value in enumerate(rows[0].values()) if isinstance(value, int)]
    print_table(list(rows[0]), [[_text(value) for value in row.values()] for row in rows], numbers=numbers)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def algorithm_rows() -> list[Row]:
    """The algorithms as their classes declare them."""
    from freeat.algorithms.registry import (
        algorithm_class,
        example_names,
        make_algorithm,
        options_of,
        parse_algorithm,
    )
    from freeat.threat import Linf

    return [
        {
            "name": name,
            "gradients": make_algorithm(name, Linf(8 / 255)).cost.gradient_evaluations,
            "options": sorted(options_of(algorithm_class(parse_algorithm(name)))),
            "what it does": what,
        }
        for name, what in example_names().items()
    ]


def attack_rows() -> list[Row]:
    """The attacks as their names are parsed."""
    from freeat.attacks.registry import EXAMPLES, parse_attack

    return [
        {"name": n, "sees": "scores" if parse_attack(n).black_box else "gradients", "what it does": what}
        for n, what in EXAMPLES.items()
    ]


def model_rows(classes: int, shape: str) -> list[Row]:
    """The networks with their parameters for this many classes and this shape of images."""
    from freeat.errors import InputError
    from freeat.models import catalogue, size

    sides = shape.lower().split("x")
    if len(sides) != 3 or not all(side.isdecimal() for side in sides):
        raise InputError(f"--shape {shape!r}: write channels x height x width, e.g. 3x32x32")
    c, h, w = (int(side) for side in sides)
    return [
        {
            "name": entry.name,
            "parameters": size(entry.name, classes=classes, shape=(c, h, w)),
            "about": entry.about,
        }
        for entry in catalogue()
    ]


def data_rows() -> list[Row]:
    """The published data sets as their readers declare them."""
    from freeat.data.catalogue import SOURCES, as_published

    return [
        {**vars(known), "shape": [*known.shape], "paths": [*known.paths]}
        for known in map(as_published, SOURCES.values())
    ]


def make_lists() -> dict[str, list[Row]]:
    """The rows of every list, from the code that they are about."""
    return {
        "algorithms": algorithm_rows(),
        "attacks": attack_rows(),
        "models": model_rows(CLASSES, SHAPE),
        "data": data_rows(),
    }


def stored_rows(name: str) -> list[Row]:
    """The stored rows of a list."""
    rows: list[Row] = json.loads(LISTS.read_text(encoding="utf-8"))[name]
    return rows


@click.command()
@json_option
def algorithms(as_json: bool) -> None:
    """List the training algorithms, with their gradient evaluations per update and image, and their own options.

    Any m ≥ 1 is accepted: free-2, vanilla-7, … So is your own class, as package.module:Class.
    """
    _print_rows(stored_rows("algorithms"), as_json)


@click.command()
@json_option
def attacks(as_json: bool) -> None:
    """List the attacks.

    Any number of steps, restarts and queries is accepted: pgd-20, pgd-100-5, square-500, … So is your own function, as
    package.module:name.
    """
    _print_rows(stored_rows("attacks"), as_json)


@click.command()
@click.option("--classes", default=CLASSES, show_default=True, help="number of classes")
@click.option("--shape", default=SHAPE, show_default=True, help="channels x height x width of an image")
@json_option
def models(classes: int, shape: str, as_json: bool) -> None:
    """List the networks with their parameter counts.

    Suffixes vary them: -w16 (width), -s2 or -s4 (stem of stride 2 or 4), -gn or -nonorm, -softplus or -silu. Further
    networks are those of timm and torchvision, where these are installed (timm:NAME, torchvision:NAME), and your own
    (package.module:factory).
    """
    usual = (classes, shape) == (CLASSES, SHAPE)
    _print_rows(stored_rows("models") if usual else model_rows(classes, shape), as_json)


if __name__ == "__main__":
    LISTS.write_text(json.dumps(make_lists(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
