"""``freeat runs``: list, show, delete and compare the runs of a store."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freeat.cli.options import (
    choice_option,
    data_dir_option,
    device_option,
    json_option,
    path_option,
    print_result,
    trust_code_option,
    trusts_code,
)
from freeat.errors import InputError

if TYPE_CHECKING:
    from freeat.runs.inventory import StoredRun


# Accepted by the group and by each subcommand, whose value takes precedence.
store_option = path_option("--store", help="folder that is searched for runs  [default: the current one]")


@click.group(invoke_without_command=True)
@store_option
@click.option("--data", help="only runs on this data set")
@click.option("--norm", help="only runs in this norm")
@click.option("--algorithm", help="only runs of this algorithm")
@click.option("--seed", type=int, help="only runs with this seed")
@click.option("--status", help="only finished, running, stopped or damaged runs")
@json_option
@click.pass_context
def runs(context: click.Context, /, store: Path | None, as_json: bool, **wanted: Any) -> None:
    """List the runs below a folder, with their status and accuracies.

    \b
    freeat runs --store STORE --algorithm free-4 --status finished
    freeat runs diff RUN RUN --store STORE
    """
    context.obj = store
    if context.invoked_subcommand is not None:
        return
    from freeat.reports.text import runs_lines
    from freeat.runs.inventory import matching, runs_in

    rows = [run.row() for run in matching(runs_in(store or Path()), **wanted)]
    print_result(rows, runs_lines(rows), as_json=as_json)


def _find(context: click.Context, store: Path | None, name: str) -> "StoredRun":
    from freeat.runs.inventory import find_run

    return find_run(store or context.obj or Path(), name)


@runs.command()
@click.argument("run")
@store_option
@json_option
@click.pass_context
def show(context: click.Context, run: str, store: Path | None, as_json: bool) -> None:
    """Show one run: its settings, data, machine and result. A unique prefix of its name is enough."""
    from freeat.files.documents import plain
    from freeat.reports.text import run_lines

    found = _find(context, store, run)
    document = plain(found.row())
    if found.status != "damaged":
        document |= {"description": found.folder.description, "result": found.result}
    print_result(document, run_lines(found), as_json=as_json)


@runs.command()
@click.argument("names", nargs=-1, required=True, metavar="RUN…")
@store_option
@click.option("--yes", is_flag=True, help="delete without confirmation")
@json_option
@click.pass_context
def delete(
    context: click.Context, names: tuple[str, ...], store: Path | None, yes: bool, as_json: bool
) -> None:
    """Delete runs, with all results in their folders. A run that is being trained is refused.

    Results of `freeat reproduce` on a deleted run are discarded, and measured again when they are needed.
    """
    from freeat.files.locks import check_free
    from freeat.runs.inventory import delete_run

    found = {run.folder.path: run for run in (_find(context, store, name) for name in names)}
    if not yes:
        if as_json:
            raise InputError("--json cannot ask for confirmation: add --yes to delete")
        for run in found.values():
            click.echo(f"{run.key} ({run.status})", err=True)
        click.confirm(f"delete {'these runs' if len(found) > 1 else 'this run'}?", abort=True, err=True)
    for run in found.values():
        check_free(run.folder.path)
    for run in found.values():
        delete_run(run)
    deleted = [run.key for run in found.values()]
    print_result({"deleted": deleted}, (f"deleted {key}" for key in deleted), as_json=as_json)


@runs.command()
@click.argument("first")
@click.argument("second")
@store_option
@click.option("--attack", help="attack on both  [default: the first run's]")
@click.option("--norm", help="l2 or linf  [default: the runs']")
@click.option("--eps", "eval_eps", help="radius of the evaluation  [default: the runs']")
@choice_option(
    "--iterate",
    "worst",
    "last",
    default=None,
    help="worst or last iterate of PGD  [default: the first run's]",
)
@click.option(
    "-n",
    "n",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="test images to evaluate on: a sample, its classes in proportion",
)
@device_option
@data_dir_option
@trust_code_option
@json_option
@click.pass_context
def diff(
    context: click.Context,
    /,
    first: str,
    second: str,
    store: Path | None,
    norm: str | None,
    n: int,
    device: str,
    data_dir: Path | None,
    trust_code: bool,
    as_json: bool,
    **given: str | None,
) -> None:
    """Compare two runs: the settings that differ, and both models on the same test images.

    The 95 % interval of the difference is a paired one: images on which both agree do not widen it.
    """
    from freeat.cli.progress import SweepProgress
    from freeat.experiments.pairing import NotComparable, RunDifference, differing_settings, evaluate_pair
    from freeat.reports.text import difference_lines

    one, other = _find(context, store, first), _find(context, store, second)
    differing = differing_settings(one.folder, other.folder)
    found = RunDifference(first=one.key, second=other.key, settings=differing)
    try:
        with SweepProgress() as progress:
            evaluated = evaluate_pair(
                one,
                other,
                asked={name: value for name, value in given.items() if value is not None},
                norm=norm,
                n=n,
                device=device,
                data_dir=data_dir,
                trust_code=trusts_code(trust_code, names_code=False),
                watch=progress.watch,
            )
        found = replace(found, evaluated=evaluated)
    except NotComparable as reason:
        found = replace(found, reason=str(reason))
    print_result(found, difference_lines(found), as_json=as_json)
