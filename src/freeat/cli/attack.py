"""``freeat attack``: how robust a model is."""

from pathlib import Path
from typing import Any

import click

from freeat.cli.judging_options import judging_arithmetic, judging_options, make_plan, open_models


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL…")
@judging_options(iterate="worst")
@click.option("--examples", is_flag=True, help="store the adversarial examples (.npz) and a picture of some")
def attack(
    models: tuple[str, ...], examples: bool, plot: Path | None, out: Path | None, as_json: bool, **given: Any
) -> None:
    """Attack each MODEL and report its robust accuracy, with honesty checks.

    A MODEL is a run folder, or NETWORK@WEIGHTS-FILE, or package.module:factory@WEIGHTS-FILE, each with NAME= in
    front if you like; one without is called by the end of its path that tells it from the others. What is measured is
    stored at once: the same command goes on where it was interrupted.
    """
    from freeat.cli.progress import SweepProgress
    from freeat.experiments.examples import load_examples
    from freeat.experiments.sweep import attack_models
    from freeat.files.documents import to_json
    from freeat.reports.pictures import draw_examples
    from freeat.reports.radius import draw_radii
    from freeat.reports.robustness import robustness_lines
    from freeat.units import radius_text

    plan = make_plan(models, given)
    opened = open_models(models, plan.data, given)
    with judging_arithmetic(given), SweepProgress() as progress:
        report = attack_models(opened, plan, folder=out, examples=examples, watch=progress.watch)
    if plot is not None:
        draw_radii(plot, report["cells"])
        report["plot"] = str(plot)
    for cell in report["cells"] if examples else ():
        stored = Path(cell["examples"])
        title = f"{cell['model']}, {cell['attack']}\n{cell['norm']} ε = {radius_text(cell['eps'])}, {cell['split']}"
        draw_examples(stored.with_suffix(".png"), load_examples(stored), title=title)
        report.setdefault("examples", []).append(
            {"arrays": str(stored), "picture": str(stored.with_suffix(".png"))}
        )
    click.echo(to_json(report) if as_json else "\n".join(robustness_lines(report)))
