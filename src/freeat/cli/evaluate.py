"""``freeat evaluate``: a trained run judged again."""

from pathlib import Path
from typing import Any

import click

from freeat.cli.options import json_option, setting_options, trusts_code
from freeat.runs.spec import EvalSpec


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@setting_options(EvalSpec, leave_out=("eval_every", "eval_size"))
@click.option(
    "--weights", default="model", show_default=True, help="which weights: model (the last), ema or best"
)
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or mps")
@click.option("--data-dir", type=click.Path(path_type=Path), help="folder of the data sets (or $FREEAT_DATA)")
@click.option("--model", default=None, help="repeat the import path of the run's model to allow importing it")
@click.option("--trust-code", is_flag=True, help="allow importing code that the run folder names")
@json_option
def evaluate(
    run: Path,
    weights: str,
    device: str,
    data_dir: Path | None,
    model: str | None,
    trust_code: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Judge the trained run in folder RUN again, with another attack, radius or set of weights.

    The result is stored in the run's folder, by the weights and the attack: asking again costs nothing.
    """
    from freeat.files.documents import to_json
    from freeat.reports.text import accuracy_lines, run_remarks
    from freeat.runs.folder import RunFolder
    from freeat.runs.judgement import judge_run

    folder = RunFolder(run)
    evaluation = folder.evaluation.asked({name: value for name, value in given.items() if value is not None})
    trusted = trusts_code(trust_code, model == folder.spec.model)
    result = judge_run(
        folder, evaluation, weights=weights, device=device, data_dir=data_dir, trust_code=trusted
    )
    algorithm = folder.spec.algorithm
    notes = run_remarks(algorithm, result)
    if as_json:
        click.echo(to_json({**result, "notes": notes}))
    else:
        click.echo("\n".join([*accuracy_lines(algorithm, result), *notes]))
