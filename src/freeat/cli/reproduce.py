"""``freeat reproduce``: the paper's tables and figures, ours beside the published ones."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from freeat.cli.options import json_option, stop_on_signal
from freeat.errors import InputError

if TYPE_CHECKING:
    from freeat.experiments.paper.costs import TaskCost
    from freeat.experiments.paper.documents import ReproductionDocument
    from freeat.experiments.paper.reproduction import DryRun
    from freeat.experiments.paper.settings import Scale
    from freeat.experiments.tasks import Store


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--scale",
    type=click.Choice(["paper", "night", "hour", "smoke"]),
    default="hour",
    show_default=True,
    help="how large: the paper's own settings (for GPUs), a night or an hour on two cores, or seconds per run",
)
@click.option("--data", default=None, help="data sets, separated by commas  [default: all that are here]")
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    default=Path("reproduction"),
    show_default=True,
    help="folder of the runs, which may be shared by any number of processes and machines",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="folder of tables and figures  [default: STORE/SCALE]"
)
@click.option(
    "--backend",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="where runs run",
)
@click.option("--address", default=None, help="address of the Ray cluster, e.g. auto")
@click.option(
    "--gpus-per-run",
    type=float,
    default=None,
    help="GPUs, or a part of one, that a run takes  [default: 1 where there are any and --device lets them be used]",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="runs at the same time  [default: as the cores allow]"
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps")
@click.option("--data-dir", type=click.Path(path_type=Path), help="folder of the data sets (or $FREEAT_DATA)")
@click.option(
    "--checkpoint-every", type=float, default=60.0, show_default=True, help="seconds between checkpoints"
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="print the runs, what they cost, what of them is finished and the estimated time; train nothing",
)
@click.option("--so-far", is_flag=True, help="make tables and figures of what is finished; train nothing")
@json_option
def reproduce(
    names: tuple[str, ...],
    scale: str,
    data: str | None,
    store: Path,
    out: Path | None,
    backend: str,
    address: str | None,
    gpus_per_run: float | None,
    jobs: int | None,
    device: str,
    data_dir: Path | None,
    checkpoint_every: float,
    dry_run: bool,
    so_far: bool,
    as_json: bool,
) -> int:
    """Run what tables and figures of the paper need, and put our numbers beside the published ones.

    NAME is table-1 … table-6, figure-1 … figure-12, or all. Runs that several of them need are trained once;
    finished ones are found in the store, interrupted ones resume.

    \b
    freeat reproduce table-1 figure-2 --scale hour --data cifar10
    freeat reproduce all --scale paper --dry-run
    freeat reproduce all --scale night --so-far
    """
    from freeat.cli.progress import TaskProgress
    from freeat.experiments.paper.reproduction import prepare
    from freeat.experiments.paper.settings import find_scale
    from freeat.tasks import make_backend
    from freeat.training.trainer import Stopped

    size, folder = find_scale(scale), out or store / scale
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file: name the folder that tables and figures go to")
    if dry_run and so_far:
        raise InputError("--dry-run shows what would be done, --so-far what is: ask for one of them")
    where = _store(size, store.resolve(), device, data_dir, checkpoint_every)
    asked = [name.strip() for name in data.split(",")] if data is not None else None
    work = prepare(names, size, where, data=asked, dry=dry_run)
    if so_far:
        work.check_begun()
        _publish(work.document(), folder, as_json)
        return 0
    workers = make_backend(
        backend, threads=size.threads, device=device, jobs=jobs, address=address, gpus_per_run=gpus_per_run
    )
    if dry_run:
        with workers:
            _show(work.dry_run(workers.workers), as_json)
        return 0
    work.check_data()
    weights = work.weights()
    click.echo(_counted(weights.values()), err=True)
    for one in work.absent:
        click.echo(f"left out: {one.what} ({one.reason})", err=True)
    try:
        with stop_on_signal() as stop, workers, TaskProgress("reproducing", weights, weights) as progress:
            done = work.run(workers, progress, stop)
    except Stopped as stopped:
        click.echo(str(stopped), err=True)
        return stop.exit_code
    document = work.document(done)
    _publish(document, folder, as_json)
    return 1 if document.failures else 0


def _store(
    scale: "Scale", store: Path, device: str, data_dir: Path | None, checkpoint_every: float
) -> "Store":
    from freeat.experiments.tasks import Store

    if scale.synthetic:
        if data_dir is not None:
            raise InputError(f"--data-dir {data_dir}: --scale {scale.name} makes its own data, in the store")
        data_dir = store / "data"
    return Store(path=store, device=device, data_dir=data_dir, checkpoint_every=checkpoint_every)


def _counted(passes: "Collection[float]") -> str:
    return f"{len(passes)} tasks, {sum(passes):,.0f} forward–backward passes of single images"


def _show(dry: "DryRun", as_json: bool) -> None:
    """What would be done."""
    from rich.console import Console
    from rich.table import Table

    from freeat.cli.progress import duration
    from freeat.files.documents import plain, to_json
    from freeat.reports.tables import NARROWEST

    if as_json:
        click.echo(to_json(plain(dry)))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("task", no_wrap=True)
    for name in ("passes", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for cost in dry.tasks:
        state = "absent" if cost.absent else "finished" if cost.finished else ""
        table.add_row(cost.name, f"{cost.passes:,.0f}", duration(cost.seconds), state)
    console = Console(soft_wrap=True)
    console.width = max(console.width, NARROWEST)
    console.print(table)
    for line in _cost_lines(dry):
        console.print(line, markup=False, highlight=False)


def _cost_lines(dry: "DryRun") -> "list[str]":
    """What it comes to, what remains of it, what absent data sets would add, and what is left out."""
    from freeat.cli.progress import duration

    def passes(costs: "Sequence[TaskCost]") -> str:
        return _counted([cost.passes for cost in costs])

    here = [cost for cost in dry.tasks if not cost.absent]
    absent = [cost for cost in dry.tasks if cost.absent]
    at_a_time = f"{dry.workers} at a time" if dry.workers > 1 else "one at a time"
    lines = [f"{passes(here)}: about {duration(dry.seconds)} on this machine, {at_a_time}"]
    if finished := sum(cost.finished for cost in here):
        some = f"{finished} of them are finished: about {duration(dry.remaining)} remain"
        lines.append(some if finished < len(here) else "all of them are finished")
    if absent:
        seconds = sum(cost.seconds for cost in absent) / dry.workers
        lines.append(f"with the absent data sets {passes(absent)} more: about {duration(seconds)}")
    return lines + [f"left out: {one.what} ({one.reason})" for one in dry.left_out]


def _publish(document: "ReproductionDocument", folder: Path, as_json: bool) -> None:
    """Write everything, and show the tables, where the files are, and last what is missing."""
    from freeat.files.documents import plain, to_json
    from freeat.reports.paper_tables import print_tables
    from freeat.reports.reproduction import missing_lines, write_outputs

    claims, *_, everything = write_outputs(document, folder)
    if as_json:
        click.echo(to_json({"folder": str(folder), **plain(document)}))
        return
    print_tables(document.tables)
    click.echo(f"claims: {claims}\nall of it: {everything}, with tables and figures beside it")
    for line in missing_lines(document):
        click.echo(line)
