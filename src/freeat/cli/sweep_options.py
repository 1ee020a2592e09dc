"""The options that ``freeat evaluate`` and ``freeat transfer`` share, and the models and sweep they describe."""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freeat.cli.options import (
    Decorator,
    all_of,
    choice_option,
    data_dir_option,
    device_option,
    json_option,
    parse_arguments,
    path_option,
    print_result,
    trust_code_option,
    trusts_code,
    workers_option,
)
from freeat.errors import InputError

if TYPE_CHECKING:
    from freeat.data import DataSet
    from freeat.experiments.evaluations import SweepReport
    from freeat.experiments.sweep import Sweep
    from freeat.runs.open import Opened, Reference
    from freeat.runs.spec import TrainSpec

_NAMED = re.compile(r"([\w .+-]+)=(.+)")


def sweep_options(*, iterate: str) -> Decorator:
    """The options of both commands; ``iterate`` is PGD's default."""
    return all_of(
        click.option(
            "--attack",
            "attacks",
            multiple=True,
            help="fgsm, pgd-50-10, square, autoattack, … (see `freeat attacks`) or package.module:name; may be "
            "repeated  [default: pgd-10]",
        ),
        click.option("--norm", help="norm of the perturbations: l2 or linf  [default: the run's]"),
        click.option("--eps", help="radius 8/255, list, or range 1/255:9/255:1/255  [default: the run's]"),
        choice_option(
            "--split",
            *("test", "train", "both", "all"),
            help="images to evaluate on; both gives the gap, all adds a run's augmented and validation images",
        ),
        click.option(
            "-n",
            "n",
            type=int,
            help="evaluate on a sample of n images of a split: classes in proportion, the same for all models  "
            "[default: all]",
        ),
        click.option("--data", help="data set by name or path  [default: the run's]"),
        click.option(
            "--image-size", type=int, help="side that images of a folder are resized to  [default: the run's]"
        ),
        click.option(
            "--skip-unreadable",
            is_flag=True,
            help="leave out images of a folder that cannot be read, and say how many",
        ),
        click.option("--alpha", help="step size of PGD in input units  [default: ε/4]"),
        click.option("--start", help="start of PGD: uniform, radius, gaussian or zero"),
        choice_option(
            "--iterate",
            *("worst", "last"),
            default=iterate,
            help="iterate of PGD that decides: the worst of all, or the last",
        ),
        click.option(
            "--precision",
            default="fp32",
            show_default=True,
            help="arithmetic of gradients, and of Square alone: fp32, bf16, fp16 or auto; fp32 decides correctness",
        ),
        click.option("--seed", type=int, default=0, show_default=True, help="seed of every random draw"),
        click.option("--batch-size", type=int, default=256, show_default=True, help="images per batch"),
        click.option(
            "--model-args", help="arguments of factories and of timm: networks, as JSON or key=value,…"
        ),
        click.option("--normalize", help="normalization in front of weights files that contain none"),
        click.option(
            "--plot",
            type=click.Path(path_type=Path, dir_okay=False),
            callback=_check_figure,
            help="draw robust accuracy against ε to this file (.png, .pdf or .svg)",
        ),
        path_option(
            "--out", help="folder of the results  [default: RUN/results, NAME.results beside a file]"
        ),
        device_option,
        click.option("--threads", type=int, help="CPU threads  [default: torch's choice]"),
        click.option(
            "--deterministic/--nondeterministic",
            default=True,
            show_default=True,
            help="same bits every time, or whatever is fastest",
        ),
        data_dir_option,
        workers_option,
        trust_code_option,
        json_option,
    )


def _check_figure(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Refuse the name of a figure that cannot be drawn, before anything is computed for it."""
    if path is not None and path.suffix not in (".png", ".pdf", ".svg"):
        raise InputError(f"{path}: a figure is drawn as .png, .pdf or .svg, by the ending of its name")
    if path is not None:
        from freeat.files.documents import check_output

        check_output(path)
    return path


def sweep_arithmetic(given: dict[str, Any]) -> AbstractContextManager[None]:
    """The arithmetic with the threads and determinism of the options."""
    from freeat.compute.machine import arithmetic, resolve_threads

    return arithmetic(threads=resolve_threads(given["threads"]), deterministic=given["deterministic"])


def publish_report(
    report: "SweepReport", *, plot: Path | None, as_json: bool, examples: Sequence[tuple[str, str]] = ()
) -> None:
    """Draw the figure that was asked for, and print the report; ``examples`` are pairs of a file and its figure."""
    from freeat.files.documents import plain
    from freeat.reports.robustness import draw_radii, robustness_lines

    document = plain(report)
    if plot is not None:
        draw_radii(plot, report.results)
        document["plot"] = str(plot)
    if examples:
        document["examples"] = [{"arrays": arrays, "figure": figure} for arrays, figure in examples]
    print_result(document, robustness_lines(report, plot=plot, examples=examples), as_json=as_json)


@dataclass(frozen=True)
class NamedReference:
    """A model as the command line names it: ``[NAME=]REFERENCE``, with a name that no other model has."""

    name: str
    text: str
    reference: "Reference"


def parse_models(texts: Sequence[str]) -> list[NamedReference]:
    """The models of a command line; one without a name gets the shortest distinct end of its path."""
    from freeat.runs.open import Reference, titles

    pairs = [_split_name(text) for text in texts]
    given = {name for name, _ in pairs if name is not None}
    references = [Reference.of(text) for _, text in pairs]
    nameless = [reference for reference, (name, _) in zip(references, pairs, strict=True) if name is None]
    found = iter(titles(nameless, taken=given))
    return [
        NamedReference(next(found) if name is None else name, text, reference)
        for reference, (name, text) in zip(references, pairs, strict=True)
    ]


def _split_name(text: str) -> tuple[str | None, str]:
    named = _NAMED.fullmatch(text)
    return (named[1], named[2]) if named and not Path(text).exists() else (None, text)


def make_sweep(models: Sequence[NamedReference], given: dict[str, Any]) -> "Sweep":
    """The sweep that the options describe; the defaults are those of the runs among the models."""
    from freeat.attacks.registry import parse_attack
    from freeat.compute.machine import resolve_device
    from freeat.compute.precision import resolve_precision
    from freeat.evaluation.evaluator import SPLITS
    from freeat.experiments.sweep import Sweep
    from freeat.models.imported import is_import_path
    from freeat.runs.build import build_data
    from freeat.runs.spec import TrainSpec
    from freeat.threat import make_ball
    from freeat.units import parse_radii, parse_radius

    for model in models:
        model.reference.check()
    specs = [model.reference.folder.spec for model in models if model.reference.folder is not None]
    norm = given["norm"] or _agreed(specs, "norm")
    radii = parse_radii(given["eps"]) if given["eps"] else (float(_agreed(specs, "eps")),)
    name = given["data"] or _agreed(specs, "data")
    alpha = None if given["alpha"] is None else parse_radius(given["alpha"])
    if alpha == 0:
        raise InputError("--alpha 0 does not move: a step must be positive, e.g. 2/255")
    precision = resolve_precision(given["precision"], resolve_device(given["device"]))
    attacks = tuple(
        parse_attack(
            attack,
            iterate=given["iterate"],
            alpha=alpha,
            start=given["start"],
            precision=precision,
            trust_code=trusts_code(given["trust_code"], is_import_path(attack)),
        )
        for attack in given["attacks"] or ("pgd-10",)
    )
    first = replace(specs[0] if specs else TrainSpec(), data=name)
    first = replace(
        first,
        image_size=first.image_size if given["image_size"] is None else given["image_size"],
        skip_unreadable=given["skip_unreadable"] or first.skip_unreadable,
    )
    splits = {"both": ("train", "test"), "all": SPLITS}
    return Sweep(
        data=build_data(first, data_dir=given["data_dir"], workers=given["workers"]),
        attacks=attacks,
        balls=tuple(make_ball(norm, eps) for eps in radii),
        splits=splits.get(given["split"], (given["split"],)),
        n=given["n"],
        seed=given["seed"],
        batch_size=given["batch_size"],
    )


def open_models(models: Sequence[NamedReference], data: "DataSet", given: dict[str, Any]) -> "list[Opened]":
    """Open the models for evaluation on the data.

    A factory written on the command line is trusted. Arguments go to factories only, and a normalization only in front
    of models from weights files.
    """
    from freeat.compute.machine import resolve_device
    from freeat.runs.open import open_model

    device = resolve_device(given["device"])
    args = parse_arguments(given["model_args"]) if given["model_args"] else None
    if args and not any(model.reference.takes_arguments for model in models):
        raise InputError(
            f"--model-args {given['model_args']} fits none of the models: it is for package.module:factory@FILE and "
            "timm:NAME@FILE"
        )
    if given["normalize"] and all(model.reference.folder is not None for model in models):
        raise InputError(
            f"--normalize {given['normalize']} fits none of the models: a folder has its own; it is for "
            "models from weights files"
        )
    opened = [
        open_model(
            model.reference,
            data,
            device=device,
            args=args if model.reference.takes_arguments else None,
            normalize=given["normalize"] if model.reference.folder is None else None,
            name=model.name,
            trust_code=trusts_code(given["trust_code"], model.reference.names_code),
        )
        for model in models
    ]
    _check_data(opened, data, given["data"])
    return opened


def _check_data(models: "Sequence[Opened]", data: "DataSet", chosen: str | None) -> None:
    """Refuse data that have changed since a run was trained on them: test images may be training images.

    Other data that the user names with ``--data`` are accepted.
    """
    runs = [(model, model.spec) for model in models if model.spec is not None]
    for model, spec in runs:
        known = model.trained_on
        if known is None or known.is_same(data) or chosen not in (None, spec.data):
            continue
        raise InputError(
            f"{data.name} is not as it was when {model.name} was trained on it (SHA-256 {data.digest[:16]} instead "
            f"of {known.digest[:16]}): its test images may be training images; restore it, or name other "
            "data with --data"
        )


def _agreed(specs: "Sequence[TrainSpec]", setting: str) -> Any:
    values = {getattr(spec, setting) for spec in specs}
    if len(values) == 1:
        return values.pop()
    if not values:
        raise InputError(f"--{setting} is missing: no run folder is among the models to take it from")
    raise InputError(
        f"the runs were trained with several values of {setting} ({', '.join(sorted(map(str, values)))}): "
        f"choose with --{setting}"
    )
