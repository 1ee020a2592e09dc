"""``freeat reproduce``: the paper's tables and figures, our numbers beside the published ones."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import click

from freeat.cli.options import (
    checkpoint_option,
    choice_option,
    data_dir_option,
    device_option,
    jobs_option,
    json_option,
    path_option,
)
from freeat.errors import InputError

if TYPE_CHECKING:
    from freeat.experiments.paper.documents import ReproductionDocument
    from freeat.experiments.paper.reproduction import DryRun
    from freeat.experiments.paper.settings import Scale
    from freeat.experiments.tasks import Store


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@choice_option(
    "--scale",
    *("paper", "night", "hour", "smoke"),
    default="hour",
    help="size of the runs: the paper's own (for GPUs), a night or an hour on two cores, or seconds per run",
)
@click.option("--data", help="data sets, separated by commas  [default: all that are present]")
@path_option(
    "--store",
    default=Path("reproduction"),
    show_default=True,
    help="folder of the runs, which several processes and machines may share",
)
@path_option("--out", help="folder of tables and figures  [default: STORE/SCALE]")
@choice_option("--backend", "local", "ray", help="where runs are executed: this machine, or a Ray cluster")
@click.option("--address", help="address of the Ray cluster, e.g. auto")
@click.option(
    "--gpus-per-run",
    type=float,
    help="GPUs, or a fraction of one, per run  [default: 1 where there are any and --device allows them]",
)
@jobs_option
@device_option
@data_dir_option
@checkpoint_option
@click.option(
    "--dry-run", is_flag=True, help="print the runs, their cost and the estimated time; train nothing"
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
    """Train and evaluate what the paper's tables and figures need; show our numbers beside the published ones.

    NAME is table-1 … table-6, figure-1 … figure-12, radii (not in the paper: Vanilla and Free at ε/2 and ε), or all. A
    run that several of them need is trained once. Finished runs are taken from the store, interrupted ones resume.

    \b
    freeat reproduce table-1 figure-2 --scale hour --data cifar10
    freeat reproduce all --scale paper --dry-run
    freeat reproduce all --scale night --so-far
    """
    from freeat.cli.progress import run_all
    from freeat.experiments.paper.reproduction import prepare
    from freeat.experiments.paper.settings import find_scale
    from freeat.files.documents import check_output
    from freeat.tasks import make_backend

    size, folder = find_scale(scale), out or store / scale
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file: name the folder that tables and figures go to")
    check_output(*(folder / part / "file" for part in (".", "tables", "figures")), store / "runs" / "run")
    if dry_run and so_far:
        raise InputError("--dry-run shows what would be done, --so-far what is done: choose one of them")
    where = _store(size, store.resolve(), device, data_dir, checkpoint_every)
    chosen = [name.strip() for name in data.split(",")] if data is not None else None
    work = prepare(names, size, where, data=chosen, dry=dry_run)
    if so_far:
        work.check_begun()
        _publish(work.document(), folder, as_json)
        return 0
    workers = make_backend(
        backend, threads=size.threads, device=device, jobs=jobs, address=address, gpus_per_run=gpus_per_run
    )
    if dry_run:
        with workers:
            _print_dry_run(work.dry_run(workers.workers), as_json)
        return 0
    work.make_data()
    work.check_data()
    weights = work.weights()
    click.echo(_total(weights.values()), err=True)
    for one in work.absent:
        click.echo(f"left out: {one.what} ({one.reason})", err=True)
    document = work.document(run_all("reproducing", work.tasks, workers, weights))
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


def _total(passes: Collection[float]) -> str:
    return f"{len(passes)} tasks, {sum(passes):,.0f} forward–backward passes of single images"


def _print_dry_run(dry: "DryRun", as_json: bool) -> None:
    """A line per task, and the total: what it costs, what remains, what absent data sets would add."""
    from freeat.cli.progress import duration
    from freeat.files.documents import plain, to_json
    from freeat.reports.tables import print_table

    if as_json:
        click.echo(to_json(plain(dry)))
        return
    rows = []
    for cost in dry.tasks:
        state = "absent" if cost.absent else "finished" if cost.finished else ""
        rows.append([cost.name, f"{cost.passes:,.0f}", duration(cost.seconds), state])
    print_table(["task", "forward–backward passes", "time", ""], rows, numbers=(1, 2), wrap=False)
    present = [cost for cost in dry.tasks if not cost.absent]
    absent = [cost for cost in dry.tasks if cost.absent]
    at_a_time = f"{dry.workers} at a time" if dry.workers > 1 else "one at a time"
    total = _total([cost.passes for cost in present])
    click.echo(f"{total}: about {duration(dry.seconds)} on this machine, {at_a_time}")
    if finished := sum(cost.finished for cost in present):
        some = f"{finished} of them are finished: about {duration(dry.remaining)} remain"
        click.echo(some if finished < len(present) else "all of them are finished")
    if absent:
        seconds = sum(cost.seconds for cost in absent) / dry.workers
        total = _total([cost.passes for cost in absent])
        click.echo(f"with the absent data sets {total} more: about {duration(seconds)}")
    for one in dry.left_out:
        click.echo(f"left out: {one.what} ({one.reason})")


def _publish(document: "ReproductionDocument", folder: Path, as_json: bool) -> None:
    """Write all documents, tables and figures; print the tables, the paths and last what is missing."""
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
