"""``freeat algorithms``, ``freeat attacks`` and ``freeat models``: what there is to choose from."""

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from freeat.cli.options import json_option


def _show(columns: list[str], rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows))
        return
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in ("parameters", "gradients") else "left",
            no_wrap=column == "name",
        )
    for row in rows:
        table.add_row(*(_cell(row[column]) for column in columns))
    Console(soft_wrap=True).print(table)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


@click.command()
@json_option
def algorithms(as_json: bool) -> None:
    """List the training algorithms, with the gradient evaluations of an update per image and the options of their own.

    Every m ≥ 1 works: free-2, vanilla-7, … So does your own class, as package.module:Class.
    """
    from freeat.algorithms.registry import (
        EXAMPLES,
        algorithm_class,
        make_algorithm,
        options_of,
        parse_algorithm,
    )
    from freeat.threat import Linf

    rows = [
        {
            "name": name,
            "gradients": make_algorithm(name, Linf(8 / 255)).cost.gradient_evaluations,
            "options": sorted(options_of(algorithm_class(parse_algorithm(name)))),
            "what it does": what,
        }
        for name, what in EXAMPLES.items()
    ]
    _show(["name", "gradients", "options", "what it does"], rows, as_json)


@click.command()
@json_option
def attacks(as_json: bool) -> None:
    """List the attacks. Every number of steps, restarts and queries works: pgd-20, pgd-100-5, square-500, …

    So does your own function, as package.module:name.
    """
    from freeat.attacks.registry import EXAMPLES, parse_attack

    rows = [
        {"name": n, "sees": "scores" if parse_attack(n).black_box else "gradients", "what it does": what}
        for n, what in EXAMPLES.items()
    ]
    _show(["name", "sees", "what it does"], rows, as_json)


@click.command()
@click.option("--classes", default=10, show_default=True, help="number of classes")
@click.option("--shape", default="3x32x32", show_default=True, help="channels x height x width of the images")
@json_option
def models(classes: int, shape: str, as_json: bool) -> None:
    """List the networks with their parameter counts.

    Suffixes change them: -w16 (width), -s2 or -s4 (stem of stride 2 or 4), -gn or -nonorm, -softplus or -silu.
    """
    from freeat.errors import InputError
    from freeat.models import catalogue, size

    sides = shape.lower().split("x")
    if len(sides) != 3 or not all(side.isdecimal() for side in sides):
        raise InputError(f"--shape {shape!r}: write channels x height x width, e.g. 3x32x32")
    c, h, w = (int(side) for side in sides)
    rows = [
        {
            "name": entry.name,
            "parameters": size(entry.name, classes=classes, shape=(c, h, w)),
            "about": entry.about,
        }
        for entry in catalogue()
    ]
    _show(["name", "parameters", "about"], rows, as_json)
