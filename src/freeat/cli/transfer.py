"""``freeat transfer``: perturbations made on some models, applied to others."""

from pathlib import Path
from typing import Any

import click

from freeat.cli.sweep_options import (
    make_sweep,
    open_models,
    parse_models,
    publish_report,
    sweep_arithmetic,
    sweep_options,
)
from freeat.errors import InputError


class _SourcesAndTargets(click.Command):
    """``SOURCES… --to TARGETS…``: everything after ``--to`` up to the next option is a target."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        expanded: list[str] = []
        among_targets = False
        for arg in args:
            if arg.startswith("-"):
                among_targets = arg == "--to"
            if not among_targets:
                expanded.append(arg)
            elif arg != "--to":
                expanded += ["--to", arg]
        return super().parse_args(ctx, expanded)


@click.command(cls=_SourcesAndTargets)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCES…")
@click.option(
    "--to", "targets", multiple=True, metavar="TARGETS…", help="models to evaluate on the perturbations"
)
@sweep_options(iterate="last")
def transfer(
    sources: tuple[str, ...],
    targets: tuple[str, ...],
    plot: Path | None,
    out: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Make perturbations on each of SOURCES and evaluate every one of TARGETS on them.

    A perturbation is made once for all targets. Models are written as for `freeat evaluate`, and identical processes
    divide the work as there.
    """
    from freeat.cli.progress import SweepProgress
    from freeat.experiments.evaluations import transfer_models
    from freeat.learner.distributed import is_main_process

    if not targets:
        raise InputError("no target: write freeat transfer SOURCES… --to TARGETS…")
    texts = list(dict.fromkeys([*sources, *targets]))
    named = parse_models(texts)
    sweep = make_sweep(named, given)
    opened = dict(zip(texts, open_models(named, sweep.data, given), strict=True))
    with sweep_arithmetic(given), SweepProgress(given["device"]) as progress:
        report = transfer_models(
            [opened[text] for text in sources],
            [opened[text] for text in targets],
            sweep,
            folder=out,
            watch=progress.watch,
        )
    if is_main_process():
        publish_report(report, plot=plot, as_json=as_json)
