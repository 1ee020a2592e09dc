"""``freeat compare``: several algorithms and seeds on one data set."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freeat.cli.options import (
    StopRequest,
    gather_settings,
    json_option,
    make_run_options,
    run_options,
    setting_options,
    split_run_options,
    stop_on_signal,
    typed_code,
)
from freeat.errors import InputError, unknown_name
from freeat.runs.spec import EvalSpec, TrainSpec, split_settings

if TYPE_CHECKING:
    from freeat.experiments.tasks import TrainTask
    from freeat.tasks import Done

DEFAULT_ALGORITHMS = "vanilla-10,fast,free-4"


@click.command()
@click.argument("spec", required=False, type=click.Path(path_type=Path))
@click.option(
    "--algorithms", default=None, help=f"names, separated by commas  [default: {DEFAULT_ALGORITHMS}]"
)
@click.option("--seeds", default=None, help="how many seeds, or which, separated by commas  [default: 3]")
@click.option("--preset", default=None, help="a ready-made comparison: demo")
@setting_options(TrainSpec, EvalSpec, leave_out=("algorithm", "seed"))
@click.option(
    "--jobs", type=click.IntRange(min=1), help="runs at the same time  [default: as the cores allow]"
)
@click.option(
    "--axis",
    type=click.Choice(["epochs", "updates", "gradients", "seconds"]),
    default="epochs",
    help="x-axis",
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("comparison"), help="folder of the comparison"
)
@run_options
@json_option
def compare(
    spec: Path | None,
    algorithms: str | None,
    seeds: str | None,
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
    """
    from freeat.experiments.comparison import (
        PRESETS,
        check_folder,
        check_tasks,
        comparison_tasks,
        curves_of,
        summarize,
        write_comparison,
    )
    from freeat.files.documents import plain, to_json, write_text
    from freeat.reports.plots import draw_curves
    from freeat.reports.text import comparison_markdown, comparison_table, remarks
    from freeat.training.trainer import Stopped

    if preset is not None and preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    settings, place_given = split_run_options(given)
    words = dict(PRESETS[preset]) if preset else {}
    words |= gather_settings(settings, spec)
    asked = algorithms if algorithms is not None else words.pop("algorithms", DEFAULT_ALGORITHMS)
    names = _names(asked)
    numbers = parse_seeds(seeds or str(words.pop("seeds", "3")))
    words.pop("algorithms", None)
    words.pop("seeds", None)
    options = words.pop("algorithm_args", None)
    training, evaluation = split_settings({"threads": 1, **words})
    typed = {"model": settings["model"], "algorithms": algorithms}
    place = make_run_options(out, place_given, names_code=typed_code(typed, words | {"algorithms": asked}))
    work = comparison_tasks(training, evaluation, names, numbers, place, options)
    settings_now = (
        training.settings() | evaluation.settings() | ({"algorithm_args": options} if options else {})
    )
    check_folder(out, settings_now)
    check_tasks(work)
    try:
        with stop_on_signal() as stop:
            done = _run(work, jobs, stop)
    except Stopped as stopped:
        click.echo(str(stopped), err=True)
        return stop.exit_code
    summary = summarize(done, names, settings_now)
    if summary.algorithms:
        setting = f"{training.data}, {training.model}, {training.norm} ε = {training.eps:.4g}"
        title = f"{setting}, seeds {', '.join(map(str, numbers))}"
        curves = [(row.label, curves_of(row)) for row in summary.algorithms]
        draw_curves(out / "curves.png", curves, axis=axis, title=title)
        write_comparison(out, summary)
        write_text(out / "table.md", comparison_markdown(summary))
    if as_json:
        click.echo(to_json({"folder": str(out), **plain(summary), "notes": remarks(summary)}))
    else:
        comparison_table(summary)
        if summary.algorithms:
            click.echo(f"curves: {out / 'curves.png'}\ntable:  {out / 'table.md'}")
    return 1 if summary.failures else 0


def _names(asked: Any) -> list[str]:
    """Algorithms as a text with commas, or as a list in a settings file."""
    names = asked.split(",") if isinstance(asked, str) else asked
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"algorithms {asked!r}: write their names, e.g. vanilla-10,free-4")
    return [name.strip() for name in names]


def parse_seeds(text: str) -> list[int]:
    """``3`` means seeds 0, 1, 2; ``4,7`` means those; ``4,`` means that one."""
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"--seeds {text!r}: write how many (3), or which (0,1,2)") from None
    if not numbers or min(numbers) < 0 or ("," not in text and numbers[0] < 1):
        raise InputError(f"--seeds {text!r}: write how many (3), or which (0,1,2)")
    return numbers if "," in text else list(range(numbers[0]))


def _run(work: "list[TrainTask]", workers: int | None, stop: StopRequest) -> "list[Done[TrainTask]]":
    from freeat.cli.progress import TaskProgress
    from freeat.tasks import make_backend, run_tasks

    threads = max(task.threads for task in work)
    with (
        TaskProgress("comparing", [task.name for task in work]) as progress,
        make_backend(threads=threads, device=work[0].options.device, jobs=workers) as backend,
    ):
        return run_tasks(work, backend, progress, should_stop=stop)
