"""``freeat transfer``: perturbations made on some models, applied to others."""

from pathlib import Path
from typing import Any

import click

from freeat.cli.judging_options import judging_arithmetic, judging_options, make_plan, open_models
from freeat.errors import InputError


class _Sides(click.Command):
    """``SOURCES… --to TARGETS…``: everything after ``--to`` up to the next option is a target."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        among_targets = False
        for word in args:
            if word.startswith("-"):
                among_targets = word == "--to"
            if not among_targets:
                words.append(word)
            elif word != "--to":
                words += ["--to", word]
        return super().parse_args(ctx, words)


@click.command(cls=_Sides)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCES…")
@click.option("--to", "targets", multiple=True, metavar="TARGETS…", help="the models that are judged")
@judging_options(iterate="last")
def transfer(
    sources: tuple[str, ...],
    targets: tuple[str, ...],
    plot: Path | None,
    out: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Make perturbations on each of SOURCES and judge every one of TARGETS by them.

    Every perturbation is made once, whatever the number of targets. Models are written as for `freeat attack`.
    """
    from freeat.cli.progress import SweepProgress
    from freeat.experiments.transfer import transfer_models
    from freeat.files.documents import to_json
    from freeat.reports.radius import draw_radii
    from freeat.reports.robustness import robustness_lines

    if not targets:
        raise InputError("no target: write freeat transfer SOURCES… --to TARGETS…")
    plan = make_plan([*sources, *targets], given)
    named = list(dict.fromkeys([*sources, *targets]))
    opened = dict(zip(named, open_models(named, plan.data, given), strict=True))
    with judging_arithmetic(given), SweepProgress() as progress:
        report = transfer_models(
            [opened[text] for text in sources],
            [opened[text] for text in targets],
            plan,
            folder=out,
            watch=progress.watch,
        )
    if plot is not None:
        draw_radii(plot, report["cells"])
        report["plot"] = str(plot)
    click.echo(to_json(report) if as_json else "\n".join(robustness_lines(report)))
