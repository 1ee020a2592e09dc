"""``freeat reproduce``: the paper's tables and figures, ours beside the published ones."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freeat.cli.options import json_option
from freeat.cli.stopping import StopWish, stop_wish
from freeat.errors import InputError

if TYPE_CHECKING:
    from freeat.experiments.paper.experiment import Piece
    from freeat.experiments.paper.planner import Plan
    from freeat.experiments.paper.reproduction import Reproduction
    from freeat.experiments.paper.scales import Scale
    from freeat.experiments.paper.sessions import Session
    from freeat.experiments.tasks import Site
    from freeat.tasks import Backend, Done


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
    finished ones are found in the store, interrupted ones go on.

    \b
    freeat reproduce table-1 figure-2 --scale hour --data cifar10
    freeat reproduce all --scale paper --dry-run
    freeat reproduce all --scale night --so-far
    """
    from freeat.experiments.paper.reproduction import prepare
    from freeat.experiments.paper.scales import find_scale
    from freeat.tasks import make_backend
    from freeat.training.trainer import Stopped

    size, folder = find_scale(scale), out or store / scale
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file: name the folder that tables and figures go to")
    site = _site(size, store.resolve(), device, data_dir, checkpoint_every)
    asked = [name.strip() for name in data.split(",")] if data is not None else None
    if dry_run and so_far:
        raise InputError("--dry-run shows what would be done, --so-far what is: ask for one of them")
    if so_far:
        work = prepare(names, size, site, data=asked)
        _publish(work, work.document(work.begun_plan(), []), folder, as_json)
        return 0
    workers = make_backend(
        backend,
        threads=size.threads,
        device=device,
        jobs=jobs,
        address=address,
        gpus_per_run=gpus_per_run,
    )
    work = prepare(names, size, site, data=asked, workers=workers.workers, dry=dry_run)
    if dry_run:
        with workers:
            _show(work, as_json)
        return 0
    session = work.begin()
    work.check_data()
    plan = work.plan()
    try:
        with stop_wish() as wish, workers:
            done = _run(work, plan, workers, session, wish)
    except Stopped as stopped:
        click.echo(str(stopped), err=True)
        return wish.exit_code
    document = work.document(plan, done)
    _publish(work, document, folder, as_json, session)
    return 1 if document["failures"] else 0


def _site(scale: "Scale", store: Path, device: str, data_dir: Path | None, checkpoint_every: float) -> "Site":
    from freeat.experiments.tasks import Site

    if scale.miniature:
        if data_dir is not None:
            raise InputError(f"--data-dir {data_dir}: --scale {scale.name} makes its own data, in the store")
        data_dir = store / "data"
    return Site(store=store, device=device, data_dir=data_dir, checkpoint_every=checkpoint_every)


def _show(work: "Reproduction", as_json: bool) -> None:
    """What would be done."""
    from freeat.reports.plan import plan_table

    words, absent = work.outlook().words(), {one.what: one.reason for one in work.absent}
    if as_json:
        click.echo(json.dumps(words | {"absent": absent}))
    else:
        plan_table(words, absent)


def _run(
    work: "Reproduction", plan: "Plan", backend: "Backend", session: "Session", wish: StopWish
) -> "list[Done[Piece]]":
    from freeat.cli.progress import TaskProgress
    from freeat.experiments.paper.outlook import Outlook
    from freeat.reports.plan import plan_lines

    outlook = Outlook(plan=plan, finished=work.finished(plan))
    for line in plan_lines(outlook.words(), {one.what: one.reason for one in work.absent}):
        click.echo(line, err=True)
    weights = {item.name: item.seconds for item in plan.items}
    with TaskProgress("reproducing", weights, weights) as progress:
        return work.run(plan, backend, session, progress, wish)


def _publish(
    work: "Reproduction",
    document: dict[str, Any],
    folder: Path,
    as_json: bool,
    session: "Session | None" = None,
) -> None:
    """Write everything, and show the tables, where the files are, and last what is missing."""
    from freeat.reports.claims import missing_lines
    from freeat.reports.paper_tables import print_tables
    from freeat.reports.reproduction import write_document, write_outputs

    claims, *_ = write_outputs(document, folder)
    if session is not None:
        session.ended()
        document["seconds"]["taken"] = work.taken()
    everything = write_document(document, folder)
    if as_json:
        click.echo(json.dumps({"folder": str(folder), **document}))
        return
    print_tables(document)
    click.echo(f"claims: {claims}\nall of it: {everything}, with tables and figures beside it")
    for line in missing_lines(document):
        click.echo(line)
