"""``freeat compare``: several algorithms and seeds on one data set."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freeat.cli.options import (
    choice_option,
    gather_settings,
    jobs_option,
    json_option,
    make_run_options,
    parse_list,
    parse_variants,
    path_option,
    run_options,
    setting_options,
    split_run_options,
    typed_code,
    with_each,
    with_option,
)
from freeat.errors import InputError, unknown_name
from freeat.runs.spec import EvalSpec, TrainSpec, parse_parts, split_settings
from freeat.units import radius_text

if TYPE_CHECKING:
    from freeat.experiments.tasks import TrainTask
    from freeat.tasks import EndedTask

DEFAULT_ALGORITHMS = "vanilla-10,fast,free-4"


@click.command()
@click.argument("spec", required=False, type=click.Path(path_type=Path))
@click.option("--algorithms", help=f"names, separated by commas  [default: {DEFAULT_ALGORITHMS}]")
@with_option
@click.option("--seeds", help="number of seeds, or the seeds separated by commas  [default: 3]")
@click.option(
    "--budget",
    type=click.Choice(("updates", "gradients", "seconds")),
    help="what every algorithm spends alike: updates (of the weights), gradients (evaluations, in images) or seconds "
    "(of training on this machine, from a timed step); the first algorithm sets the amount  [default: updates]",
)
@click.option(
    "--preset",
    help="a ready-made comparison: demo (six algorithms on digits), or mechanism (which part of Free matters: "
    "vanilla-10; the same at Free's strength; the same with replayed batches; free-4)",
)
@setting_options(TrainSpec, EvalSpec, leave_out=("algorithm", "seed"))
@jobs_option
@choice_option("--axis", "epochs", "updates", "gradients", "seconds", help="x-axis of the learning curves")
@path_option("--out", default=Path("comparison"), show_default=True, help="folder of the comparison")
@run_options
@json_option
def compare(
    spec: Path | None,
    algorithms: str | None,
    added: str | None,
    seeds: str | None,
    budget: str | None,
    preset: str | None,
    jobs: int | None,
    axis: str,
    out: Path,
    as_json: bool,
    **given: Any,
) -> int:
    """Train several algorithms with several seeds on one data set; print train, test and gap, draw the curves.

    Runs that are finished are not trained again; interrupted ones resume.

    \b
    freeat compare --data digits --model cnn --norm l2 --eps 0.6 --algorithms vanilla-10,free-4 --seeds 3
    freeat compare --data digits --algorithms vanilla-10,free-4,n-fgsm --with none,ema,awp,label-smoothing,proximal
    """
    from freeat.cli.progress import plan_lines, run_all
    from freeat.compute.machine import provenance, resolve_device
    from freeat.experiments import mechanism
    from freeat.experiments.budget import resolve_budget, within_budget
    from freeat.experiments.comparison import (
        CURVES,
        LOG,
        PARTS,
        PRESETS,
        TABLE,
        check_folder,
        check_tasks,
        comparison_tasks,
        curves_of,
        first_label,
        keep_budget,
        preset_settings,
        stored_budget,
        summarize,
        weak_arms,
        write_comparison,
    )
    from freeat.files.documents import plain, to_json, write_text
    from freeat.reports.text import comparison_markdown, print_comparison, remarks
    from freeat.reports.training import draw_curves, draw_parts
    from freeat.runs.folder import RunFolder
    from freeat.tasks import make_backend

    if preset is not None and preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    typed, how = split_run_options(
        given | {"algorithms": algorithms, "with": added, "seeds": seeds, "budget": budget}
    )
    chosen: dict[str, Any] = {
        "algorithms": DEFAULT_ALGORITHMS,
        "with": "none",
        "seeds": "3",
        "threads": 1,
        "budget": "updates",
    }
    own = gather_settings(typed, spec)
    chosen |= (preset_settings(preset, own) if preset else {}) | own
    options = make_run_options(out, how, names_code=typed_code(typed, chosen))
    names = parse_list(chosen.pop("algorithms"), "algorithms", "their names, e.g. vanilla-10,free-4")
    numbers = parse_seeds(str(chosen.pop("seeds")))
    variants = parse_variants(chosen.pop("with"), chosen)
    if preset == mechanism.PRESET:
        names = list(mechanism.pair_of(names))
        if len(variants) > 1:
            raise InputError(
                f"--preset {preset} --with {','.join(variants)}: its arms share their parts; give one, such as awp+ema"
            )
        chosen |= parse_parts(variants[0])
    else:
        names = with_each(names, variants)
    algorithm_args, kind = chosen.pop("algorithm_args", None), str(chosen.pop("budget"))
    if preset == mechanism.PRESET and kind != "updates":
        raise InputError(
            f"--preset {preset} --budget {kind}: its arms differ in one part each at equal updates; leave --budget out"
        )
    training, evaluation = split_settings(chosen)
    tasks = comparison_tasks(training, evaluation, names, numbers, options, algorithm_args)
    settings = training.settings() | evaluation.settings()
    settings |= {"algorithm_args": algorithm_args} if algorithm_args else {}
    settings |= {"budget": kind} if kind != "updates" else {}
    settings |= {"preset": preset} if preset == mechanism.PRESET else {}
    check_folder(out, settings)
    first = first_label(training, names)
    spends = resolve_budget(kind, tasks, reference=first, stored=stored_budget(out))
    tasks = within_budget(tasks, spends)
    if (plan := check_tasks(tasks, jobs)) is not None:
        click.echo("\n".join(plan_lines(plan)), err=True)
    keep_budget(out, settings, spends)

    def run(tasks: "list[TrainTask]") -> "list[EndedTask[TrainTask]]":
        threads = max(task.threads for task in tasks)
        return run_all("comparing", tasks, make_backend(threads=threads, device=options.device, jobs=jobs))

    done, found = run(tasks), None
    if preset == mechanism.PRESET:
        found, weak = weak_arms(out, settings, done, names, run)
        done += weak
    summary = replace(
        summarize(done, names, settings, spends, found), provenance=provenance(resolve_device(options.device))
    )
    if summary.algorithms:
        network = RunFolder(Path(summary.algorithms[0].folders[0])).spec.model
        setting = f"{training.data}, {network}, {training.norm} ε = {radius_text(training.eps)}"
        title = f"{setting}, seeds {', '.join(map(str, numbers))}"
        curves = [(row.label, curves_of(row)) for row in summary.algorithms]
        write_comparison(out, summary)  # first: it says what the folder is
        write_text(out / TABLE, comparison_markdown(summary))
        draw_curves(out / CURVES, curves, axis=axis, title=title)
        if summary.parts:
            draw_parts(out / PARTS, summary.algorithms, title=title)
    if as_json:
        click.echo(to_json({"folder": str(out), **plain(summary), "notes": remarks(summary)}))
    else:
        print_comparison(summary, whole=logging.getLogger("freeat").isEnabledFor(logging.INFO))
        if summary.algorithms:
            files = {"curves": CURVES, "parts": PARTS, "table": TABLE, "log": LOG}
            files = {what: name for what, name in files.items() if name != PARTS or summary.parts}
            click.echo("\n".join(f"{what + ':':<7} {out / name}" for what, name in files.items()))
    return 1 if summary.failures else 0


def parse_seeds(text: str) -> list[int]:
    """``3`` means seeds 0, 1, 2; ``4,7`` means those; ``4,`` means that one."""
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0 or ("," not in text and numbers[0] < 1):
        raise InputError(f"--seeds {text!r}: write how many (3), or which (0,1,2)")
    return numbers if "," in text else list(range(numbers[0]))
