"""``freeat train``: one model, one algorithm."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freeat.cli.main import stop_on_signal
from freeat.cli.options import (
    gather_settings,
    json_option,
    make_run_options,
    path_option,
    print_result,
    run_options,
    setting_options,
    split_run_options,
    typed_code,
)
from freeat.runs.spec import EvalSpec, TrainSpec, split_settings

if TYPE_CHECKING:
    from freeat.runs.folder import RunFolder, RunResult
    from freeat.runs.tracking import Tracking


@click.command()
@click.argument("spec", required=False, type=click.Path(path_type=Path))
@setting_options(TrainSpec, EvalSpec)
@path_option("--out", help="run folder  [default: runs/ALGORITHM-NORM-DATA-ID]")
@run_options
@click.option(
    "--track",
    multiple=True,
    metavar="TRACKER",
    help="also log to tensorboard or wandb (extras of these names); may be repeated",
)
@json_option
def train(spec: Path | None, out: Path | None, track: tuple[str, ...], as_json: bool, **given: Any) -> int:
    """Train a robust classifier and measure its generalization gap.

    Settings come from the YAML file SPEC, if there is one, and from the options, which take precedence. The same
    command run again resumes an interrupted run, and returns the stored result of a finished one.

    \b
    freeat train --data digits --model cnn --algorithm free-4 --norm l2 --eps 0.6
    freeat train --data cifar10 --model resnet18 --algorithm vanilla-10 --norm linf --eps 8/255 --epochs 200
    """
    from freeat.cli.progress import RunProgress, plan_lines
    from freeat.files.locks import LeaseLost
    from freeat.runs.folder import RunFolder
    from freeat.runs.run import execute
    from freeat.training.loop import Diverged
    from freeat.training.records import Callbacks

    with _failing_together():
        typed, how = split_run_options(given)
        settings = gather_settings(typed, spec)
        training, evaluation = split_settings(settings)
        folder = RunFolder(out or Path("runs") / _name(training))
        options = make_run_options(folder.path, how, names_code=typed_code(typed, settings))
        finished = folder.exists and folder.result is not None
    try:
        with (
            stop_on_signal() as stop,
            RunProgress(training.label_of("model"), training.batch_size) as progress,
            _tracking(track, folder) as tracking,
            redirect_stdout(sys.stderr),  # a user's model may print, and stdout is for the result
        ):
            if folder.exists and not finished:
                click.echo(f"resuming {folder.path}", err=True)
            callback = Callbacks(progress, *tracking)
            result = execute(
                training,
                evaluation,
                options,
                callback=callback,
                should_stop=stop,
                announce=lambda plan: progress.line("\n".join(plan_lines(plan))),
            )
            if finished and result:
                click.echo(f"{folder.path} is finished: this is its stored result", err=True)
            for tracker in tracking if result else ():
                tracker.catch_up()  # a run that was finished before is logged too
    except (Diverged, LeaseLost) as failure:
        click.echo(f"error: {failure}", err=True)
        return 1
    if result:
        _print(folder.path, training, result, as_json=as_json)
    return 0


@contextmanager
def _failing_together() -> Iterator[None]:
    """Inside, before a run meets its other processes, one that fails ends them too; torch is imported only then."""
    try:
        yield
    except Exception:
        if "RANK" not in os.environ:
            raise
        from freeat.learner.distributed import launched_processes

        with launched_processes().failing_together():
            raise


@contextmanager
def _tracking(kinds: tuple[str, ...], folder: "RunFolder") -> "Iterator[list[Tracking]]":
    """The trackers asked for; their module is imported only then."""
    if not kinds:
        yield []
        return
    from freeat.runs.tracking import Tracking

    with _failing_together():
        tracking = Tracking(kinds, folder)
    with tracking:
        yield [tracking]


def _name(spec: TrainSpec) -> str:
    return f"{spec.algorithm.replace(':', '.')}-{spec.norm}-{Path(spec.data).stem}-{spec.identity[:8]}"


def _print(folder: Path, spec: TrainSpec, result: "RunResult", *, as_json: bool) -> None:
    """Print the result, with the remarks that its reader needs."""
    from freeat.files.documents import plain
    from freeat.reports.text import one_attack_remark, result_lines, run_remarks, share_remark

    algorithm = spec.label_of("model")
    notes = [
        *run_remarks(algorithm, result, result.notes),
        *share_remark({algorithm: result.evaluation_share}),
        one_attack_remark(result.attack, run=shlex.quote(str(folder))),
    ]
    document = {"folder": str(folder), **plain(result), "notes": notes}
    lines = [*result_lines(spec, result), *notes, f"run folder: {folder}"]
    print_result(document, lines, as_json=as_json)
