"""``freeat evaluate``: the robustness of models, as in their training or under any attack."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freeat.cli.options import print_result, trusts_code
from freeat.cli.sweep_options import (
    NamedReference,
    make_sweep,
    open_models,
    parse_models,
    publish_report,
    sweep_arithmetic,
    sweep_options,
)

if TYPE_CHECKING:
    from freeat.experiments.evaluations import SweepReport

EXECUTION = {
    *("out", "device", "threads", "deterministic", "data_dir", "trust_code", "as_json", "batch_size"),
    "workers",
}
"""Options of how to compute; any other is about what to evaluate."""


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL…")
@sweep_options(iterate="worst")
@click.option("--examples", is_flag=True, help="store the adversarial examples (.npz) and a figure of some")
@click.pass_context
def evaluate(
    context: click.Context,
    /,
    models: tuple[str, ...],
    examples: bool,
    plot: Path | None,
    out: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Evaluate each MODEL: its clean and robust accuracy, the gap, and sanity checks.

    A MODEL is a run folder (RUN, RUN@ema, RUN@slow, RUN@best), an exported folder, hf://NAME[@COMMIT] for one on the
    Hugging Face Hub, NETWORK@WEIGHTS-FILE (also timm:NAME@FILE, torchvision:NAME@FILE), or
    package.module:factory@WEIGHTS-FILE. NAME= in front names it in tables; the default is the shortest distinct end of
    its path. Without options a run is evaluated as in its training: by its own attack and radius, on every split. With
    options, all attacks, radii and splits are combined. Each result is stored at once: the same command resumes where
    it was interrupted. Identical processes, also those of `torchrun -m freeat evaluate`, divide the images.
    """
    from freeat.cli.progress import SweepProgress
    from freeat.experiments.evaluations import evaluate_models
    from freeat.experiments.examples import load_examples
    from freeat.files.documents import plain
    from freeat.learner.distributed import is_main_process
    from freeat.reports.robustness import draw_examples
    from freeat.runs.folder import RunFolder
    from freeat.units import radius_text

    chosen = {
        name
        for name in context.params
        if context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE
    }
    named = parse_models(models)
    are_runs = all(isinstance(model.reference.folder, RunFolder) for model in named)
    if chosen <= EXECUTION | {"models"} and are_runs:
        report, tables, notes = _as_trained(named, out, given)
        print_result(plain(report) | {"notes": notes}, [*tables, *notes], as_json=as_json)
        return
    sweep = make_sweep(named, given)
    opened = open_models(named, sweep.data, given)
    with sweep_arithmetic(given), SweepProgress(given["device"]) as progress:
        report = evaluate_models(opened, sweep, folder=out, examples=examples, watch=progress.watch)
    if not is_main_process():
        return
    drawn: list[tuple[str, str]] = []
    for result in report.results:
        if result.examples is not None:
            arrays, figure = Path(result.examples), Path(result.examples).with_suffix(".png")
            ball = f"{result.norm} ε = {radius_text(result.eps)}"
            title = f"{result.model}, {result.attack}\n{ball}, {result.split}"
            draw_examples(figure, load_examples(arrays), title=title)
            drawn.append((str(arrays), str(figure)))
    publish_report(report, plot=plot, as_json=as_json, examples=drawn)


def _as_trained(
    models: list[NamedReference], out: Path | None, given: dict[str, Any]
) -> "tuple[SweepReport, list[str], list[str]]":
    """Every run under the attack and radius of its training, on all its splits; the tables, and the notes."""
    from freeat.cli.progress import SweepProgress
    from freeat.compute.machine import arithmetic, resolve_device, resolve_threads
    from freeat.experiments.evaluations import SweepReport, check_distinct, evaluate_models, merged_reports
    from freeat.experiments.sweep import OTHER_DATA, Sweep, as_trained
    from freeat.reports.robustness import trained_lines
    from freeat.runs.build import build_data
    from freeat.runs.folder import RunFolder
    from freeat.runs.open import Opened, open_model

    reports: list[SweepReport] = []
    tables: list[str] = []
    notes: dict[str, None] = {}
    check_distinct([model.name for model in models])
    opened: list[tuple[NamedReference, RunFolder, Opened, Sweep]] = []
    for named in models:  # all are checked before the first is evaluated
        folder = named.reference.folder
        assert isinstance(folder, RunFolder)
        data = build_data(folder.spec, data_dir=given["data_dir"], workers=given["workers"])
        folder.check_data(data, OTHER_DATA)
        model = open_model(
            named.text,
            data,
            device=resolve_device(given["device"]),
            name=named.name,
            trust_code=trusts_code(given["trust_code"], names_code=False),
        )
        sweep = replace(as_trained(model, data, folder.evaluation), batch_size=given["batch_size"])
        opened.append((named, folder, model, sweep))
    with SweepProgress(given["device"]) as progress:
        for named, folder, model, sweep in opened:
            threads = given["threads"] or folder.description.chosen.threads
            with arithmetic(threads=resolve_threads(threads), deterministic=folder.spec.deterministic):
                report = evaluate_models([model], sweep, folder=out, checks=False, watch=progress.watch)
            weights = named.reference.weights or "model"
            reports.append(report)
            lines, remarks = trained_lines(report, folder.spec, weights, folder.weights_update(weights))
            tables += lines
            notes |= dict.fromkeys(remarks)
    return merged_reports(reports), tables, list(notes)
