"""``freeat stability``: twin runs on S and S′, compared with the bounds."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freeat.cli.options import (
    choice_option,
    data_dir_option,
    device_option,
    jobs_option,
    json_option,
    parse_arguments,
    parse_variants,
    path_option,
    split_commas,
    take_times,
    time_options,
    trusts_code,
    with_each,
    with_option,
)
from freeat.errors import InputError
from freeat.runs.spec import TrainSpec
from freeat.units import radius_text

if TYPE_CHECKING:
    from freeat.data import DataSet
    from freeat.stability.results import TwinResult
    from freeat.stability.study import StabilityStudy, StudyDocument
    from freeat.stability.summary import StudySummary


@click.command(context_settings={"show_default": True})
@click.option("--data", default="digits", help="data set by name, .npz file or image folder")
@click.option("--image-size", type=int, help="side that images of a folder are resized to")
@click.option("--skip-unreadable", is_flag=True, help="leave out images of a folder that cannot be read")
@click.option(
    "--algorithms",
    default="vanilla-10,fast,free-4",
    help="names or package.module:Class, separated by commas",
)
@with_option
@time_options
@click.option("--algorithm-args", help="the algorithms' own options, as JSON or key=value,…")
@click.option("--model", default="mlp-w64-softplus", help="network by name; β is estimated of smooth ones")
@click.option("--theorem", is_flag=True, help="as the theorems assume: steps c/t, plain SGD, loss 1 − p_y")
@click.option("--norm", default="l2", help="norm of the perturbations: l2 or linf")
@click.option("--eps", help="radius in input units  [default: 128/255 for l2, 8/255 for linf]")
@click.option("--train-size", default="500", help="training examples n; several with --sweep n")
@click.option("--sweep", type=click.Choice(["n"]), help="repeat for every size in --train-size, T fixed")
@click.option("--updates", default=500, help="weight updates T")
@click.option("--batch-size", default=32, help="images per batch")
@click.option("--lr", default=0.1, help="learning rate; with --theorem the c of c/t")
@click.option(
    "--augment",
    default="auto",
    help="auto, none, crop, flip, crop-flip or random-resized-crop; none with --theorem",
)
@click.option("--replay", default=1, help="use each batch this many times in a row; T counts weight updates")
@click.option("--replaced", default=16, help="neighbouring data sets S′ (one example replaced) per seed")
@click.option("--seeds", default=4, help="number of seeds of initial weights, batches and starts")
@click.option("--probes", default=128, help="unseen images at which losses are compared")
@click.option("--attack-steps", default=20, help="steps of the PGD that approximates max_δ h")
@click.option("--eval-size", default=300, help="images for robust train and test accuracy")
@click.option("--probe-times", default=5, help="number of times that losses and accuracies are measured")
@choice_option("--engine", "auto", "stacked", "separate", help="how twins are trained; auto times both once")
@jobs_option
@click.option("--threads", type=int, default=1, help="CPU threads of a run; another number gives other bits")
@device_option
@data_dir_option
@path_option("--out", default="stability", help="folder of the study")
@json_option
def stability(as_json: bool, **given: Any) -> int:
    """Measure algorithmic stability: how far two runs diverge when one training example is replaced.

    Trains on S and on neighbouring data sets S′ with the same initial weights, batches, augmentation and starts.
    Prints, for each algorithm, the distance of the weights, the uniform stability with its guaranteed lower bound,
    the mean largest difference, the measured gap, the bound where a theorem covers the setting, and the accuracies;
    writes figures. The lower bound needs many seeds: about 40. The same command resumes where it stopped.
    Identical processes, also those of `torchrun -m freeat stability`, divide the runs.

    \b
    freeat stability --data digits --algorithms vanilla-10,fast,free-4 --seeds 4
    freeat stability --sweep n --train-size 125,250,500,1000 --updates 500
    """
    from freeat.cli.progress import run_all
    from freeat.files.documents import plain, to_json
    from freeat.learner.distributed import is_main_process
    from freeat.tasks import make_backend

    study = _study(given)
    data = study.settings.load(given["data_dir"])
    document, tasks = study.prepare(data)
    backend = make_backend(threads=study.threads, device=given["device"], jobs=given["jobs"])
    ended = run_all("measuring", tasks, backend)
    failures = {done.task.name: done.failure for done in ended if done.failure is not None}
    if not is_main_process():
        return 1 if failures else 0
    finished = [task.result() for task in tasks if task.name not in failures]
    results = [result for result in finished if result is not None]
    summary = _summary(study, document, results, failures, data)
    if as_json:
        click.echo(to_json({"folder": str(study.folder), **plain(summary)}))
    elif summary.rows:
        click.echo("\n".join(_lines(summary, study.folder)))
    return 1 if failures else 0


def parse_sizes(text: str) -> tuple[int, ...]:
    """Sample sizes: ``125,250,500``."""
    sizes = text.split(",")
    if not all(size.strip().isdecimal() for size in sizes):
        raise InputError(f"sample sizes {', '.join(sizes)}: write whole numbers such as 125,250,500")
    return tuple(sorted({int(size) for size in sizes}))


def _study(given: dict[str, Any]) -> "StabilityStudy":
    from freeat.compute.machine import resolve_device, resolve_threads
    from freeat.runs.run import RunOptions
    from freeat.stability.results import StudySettings
    from freeat.stability.study import StabilityStudy

    sizes = parse_sizes(given["train_size"])
    if len(sizes) > 1 and given["sweep"] is None:
        raise InputError(f"--train-size {given['train_size']}: give one size, or several with --sweep n")
    args = given["algorithm_args"]
    ball = {name: given[name] for name in ("norm", "eps") if given[name] is not None}
    same = ["data", "model", "norm", "updates", "batch_size", "lr", "augment", "replay", "replaced", "probes"]
    same += ["attack_steps", "eval_size", "probe_times", "image_size", "skip_unreadable"]
    settings = StudySettings(
        **{name: given[name] for name in same},
        **take_times(given),
        mode="theorem" if given["theorem"] else "ordinary",
        eps=TrainSpec.of(ball).eps,
        algorithm_args=parse_arguments(args, "--algorithm-args") if args else None,
    )
    device = resolve_device(given["device"])
    options = RunOptions(
        folder=given["out"],
        # Without a number, unless one was asked for: each worker has a GPU of its own.
        device=str(device) if ":" in given["device"] else device.type,
        data_dir=given["data_dir"],
        trust_code=trusts_code(False, names_code=True),  # every import path is typed
    )
    return StabilityStudy(
        settings=settings,
        algorithms=tuple(with_each(split_commas(given["algorithms"]), parse_variants(given["added"]))),
        seeds=given["seeds"],
        sizes=sizes,
        options=options,
        threads=resolve_threads(given["threads"]),
        engine=None if given["engine"] == "auto" else given["engine"],
    )


def _summary(
    study: "StabilityStudy",
    document: "StudyDocument",
    results: "list[TwinResult]",
    failures: dict[str, str],
    data: "DataSet",
) -> "StudySummary":
    """The summary of all results, drawn and stored."""
    import torch

    from freeat.compute.machine import provenance
    from freeat.files.documents import write_document
    from freeat.reports.stability import distance_bounds, draw_study, results_by_algorithm
    from freeat.stability.results import converged
    from freeat.stability.study import SUMMARY
    from freeat.stability.summary import StudySummary, differences, exponents, summarize

    settings = study.settings
    rows = summarize(settings, results, data.train)
    fits = exponents(results, rows)
    by_name = results_by_algorithm(whole) if (whole := converged(results)) else {}
    title = f"{settings.data}, {settings.model}, {settings.norm} ε = {radius_text(settings.eps)}"
    bounds = distance_bounds(settings, by_name)
    figures = draw_study(study.folder, by_name, bounds, fits, title) if by_name else []
    summary = StudySummary(
        settings=settings,
        engines=document.engines,
        rows=rows,
        exponents=fits,
        figures=tuple(path.name for path in figures),
        notes=document.notes,
        failures=failures,
        differences=differences(settings, results, rows),
        **vars(provenance(torch.device(study.options.device))),
    )
    write_document(study.folder / SUMMARY, "study summary", summary)
    return summary


def _lines(summary: "StudySummary", folder: Path) -> list[str]:
    from freeat.reports.stability import study_lines

    return [
        *study_lines(summary.rows, summary.exponents, summary.differences),
        *summary.notes,
        *(f"figure: {folder / name}" for name in summary.figures),
    ]
