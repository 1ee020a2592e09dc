"""``freeat population``: the exact generalization gap on a Gaussian mixture."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freeat.cli.options import (
    jobs_option,
    json_option,
    parse_variants,
    path_option,
    split_commas,
    take_times,
    time_options,
    with_each,
    with_option,
)
from freeat.errors import InputError
from freeat.units import parse_finite, parse_radius, parse_whole

if TYPE_CHECKING:
    from freeat.stability.population import PopulationTask

DEFAULT_ARMS = "vanilla-exact,fast,free-4,vanilla-weak,vanilla-weak-replay"


@click.command(context_settings={"show_default": True})
@click.option("--model", default="linear", help="linear, or tanh (one hidden layer, no biases)")
@click.option(
    "--algorithms",
    "arms",
    default=DEFAULT_ARMS,
    help="names as elsewhere; vanilla-exact (exact maximizer); vanilla-weak and vanilla-weak-replay (controls)",
)
@with_option
@time_options
@click.option("--match", default="free-4", help="the Free run that the controls are matched to")
@click.option("--norm", default="l2", help="l2 or linf; several separated by commas")
@click.option("--eps", default="1/4", help="radii ε/‖μ‖ in the ball's norm, separated by commas")
@click.option("--n", "sizes", default="100", help="sample sizes, separated by commas")
@click.option("--d", "dimensions", default="50", help="dimensions, separated by commas")
@click.option(
    "--alpha", help="relative steps α_δ of Fast and Free, separated by commas  [default: 1/2 or 7/8, 1]"
)
@click.option("--distance", default=2.0, help="‖μ‖₂: half the distance of the class means")
@click.option("--sigma", default=1.0, help="standard deviation of the noise")
@click.option("--width", default=16, help="hidden units of the tanh net")
@click.option("--initial-scale", default=0.5, help="‖w₀‖, or the gain of the net's layers")
@click.option("--updates", default=2000, help="weight updates T")
@click.option("--batch-size", default=10, help="examples per batch")
@click.option("--replay", default=1, help="use each batch this many times in a row; T counts weight updates")
@click.option("--lr", default=0.1, help="learning rate; with --theorem the c of c/t")
@click.option(
    "--theorem", is_flag=True, help="as the theorems assume: steps c/t, loss 1 − p_y, bounded inputs"
)
@click.option("--seeds", default=100, help="samples S, each with its weights, batches and starts")
@click.option("--times", default=16, help="how often risks are measured along the training")
@click.option("--fresh", default=2000, help="fresh examples per seed that estimate a net's risk")
@click.option("--attack-steps", default=20, help="steps of the PGD that estimates a net's risk")
@jobs_option
@path_option("--out", default="population", help="folder of the study")
@json_option
def population(
    as_json: bool, out: Path, jobs: int | None, arms: str, added: str, match: str, **given: Any
) -> int:
    """Measure the generalization gap exactly, without a test set.

    Draws samples from a mixture of two Gaussians, trains every algorithm on each of them (all seeds as one stack), and
    compares the robust training risk with the robust risk of the population, which is a formula for linear classifiers.
    Lists of radii, sizes and dimensions make a grid. The same command resumes where it stopped.

    \b
    freeat population --n 25,100,400 --eps 1/8,1/4,1/2 --norm l2,linf
    freeat population --theorem --d 2 --distance 0.6 --sigma 0.1 --lr 0.1 --n 2000
    """
    import torch

    from freeat.cli.progress import run_all
    from freeat.compute.machine import provenance
    from freeat.files.documents import check_output, plain, to_json, write_document, write_text
    from freeat.reports.population import draw_population, population_lines, population_markdown
    from freeat.stability.population_summary import POPULATION, PopulationStudy, summarize_population
    from freeat.tasks import make_backend

    tasks = _tasks(out, split_commas(arms), parse_variants(added), match, given)
    check_output(*(out / name for name in (POPULATION, "table.md", "population.png", "results/result")))
    ended = run_all("measuring", tasks, make_backend(threads=1, device="cpu", jobs=jobs))
    failures = {done.task.name: done.failure for done in ended if done.failure is not None}
    results = [result for task in tasks if (result := task.result()) is not None]
    summary = summarize_population(results)
    study = PopulationStudy(summary=summary, failures=failures, provenance=provenance(torch.device("cpu")))
    write_document(out / POPULATION, "population study", study)
    if results:
        write_text(out / "table.md", population_markdown(summary))
        figure = draw_population(out / "population.png", summary)
    if as_json:
        click.echo(to_json({"folder": str(out), **plain(study)}))
    elif results:
        click.echo("\n".join([*population_lines(summary), f"figure: {figure}"]))
    return 1 if failures else 0


def _tasks(
    out: Path, arms: Sequence[str], variants: Sequence[str], match: str, given: dict[str, Any]
) -> "list[PopulationTask]":
    """The grid: every arm on every instance; a control comes with the Free run that it is matched to.

    Every arm but the controls is there with each of the variants.
    """
    from freeat.algorithms import parse_algorithm
    from freeat.stability.population import CONTROLS, PopulationSettings, PopulationTask, make_arm

    controls = [arm for arm in arms if arm in CONTROLS]
    varied = with_each([arm for arm in arms if arm not in CONTROLS], variants)
    names = [_canonical_arm(arm) for arm in (*varied, *controls)]
    matched = str(parse_algorithm(match))
    if parse_algorithm(match).family != "free":
        raise InputError(f"--match {match}: the controls are matched to a Free run, such as free-4")
    if not names:
        raise InputError("--algorithms names none: give at least one, such as free-4")
    if any(name in CONTROLS for name in names) and matched not in names:
        names.append(matched)
    sizes = [parse_whole(part) for part in split_commas(given.pop("sizes"))]
    dimensions = [parse_whole(part) for part in split_commas(given.pop("dimensions"))]
    radii = [parse_radius(part) for part in split_commas(given.pop("eps"))]
    steps: list[float | None] = [parse_finite(part) for part in split_commas(given.pop("alpha") or "")]
    norms = [part.lower() for part in split_commas(given.pop("norm"))]
    given |= take_times(given)
    instances = [
        PopulationSettings(norm=norm, d=d, eps=eps, n=n, alpha=alpha, **given)
        for norm, d, eps, alpha, n in product(norms, dimensions, radii, steps or [None], sizes)
    ]
    for settings in instances:
        for name in names:
            make_arm(name, settings, settings.ball)
    return [
        PopulationTask(settings=settings, arm=name, folder=out, matched=matched if name in CONTROLS else None)
        for settings in instances
        for name in dict.fromkeys(names)
    ]


def _canonical_arm(arm: str) -> str:
    """An arm with its parts, written in one way; the exact maximizer and the controls are no algorithms' names."""
    from freeat.runs.spec import canonical_parts, split_parts
    from freeat.stability.population import CONTROLS, EXACT

    name, parts = split_parts(arm)
    if name not in (EXACT, *CONTROLS):
        return canonical_parts(arm)
    return arm if parts else name
