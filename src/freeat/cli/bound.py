"""``freeat bound``: Theorems 2, 4 and 5 and bounds beside them, for given constants or for a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freeat.cli.options import (
    all_of,
    data_dir_option,
    json_option,
    path_option,
    print_result,
    trust_code_option,
    trusts_code,
)
from freeat.errors import InputError, unknown_name
from freeat.theory import BoundDocument, ComparisonRow, FreeStepsRow, bound_document, bound_lines
from freeat.theory.derived import completed
from freeat.theory.problem import COUNTS, MEANINGS, THEOREMS, USED
from freeat.units import parse_number

if TYPE_CHECKING:
    from freeat.stability.bound_of_run import RunBound
    from freeat.stability.constants import Constants

Parameters = Mapping[str, float | None]

OPTIONS = {
    "beta": "beta",
    "c": "c",
    "L": "lipschitz",
    "L_w": "lipschitz-w",
    "psi": "psi",
    "eps": "eps",
    "alpha": "alpha-delta",
    "m": "m",
    "b": "batch-size",
    "n": "n",
    "T": "updates",
    "eta": "eta",
    "step": "weight-step",
    "decay": "weight-decay",
    "rho": "proximal",
    "ell": "weak-convexity",
}
"""The parameters of the bounds and what they are called on the command line."""


@click.command()
@click.option(
    "--algorithm",
    help="vanilla, fast or free (free-4: with --m 4), or a bound derived here: approximate, convex or proximal; "
    "several with commas  [default: the paper's three, or the run's]",
)
@all_of(*(click.option(f"--{o}", name.lower() + "_", help=MEANINGS[name]) for name, o in OPTIONS.items()))
@click.option(
    "--average",
    is_flag=True,
    help="bound the gap of the mean of the weights after every update instead of the last weights (derived here)",
)
@path_option("--from", "run", help="run folder that parameters which are not given are taken from")
@click.option(
    "--points",
    default=64,
    show_default=True,
    help="with --from: training images at which L, L_w and β are estimated",
)
@click.option(
    "--tables", is_flag=True, help="also compare with Vanilla for T = O(n), and print Remark 3 on m"
)
@path_option("--plots", help="folder for figures of the bounds along T, n, ε, β and their other parameters")
@data_dir_option
@trust_code_option
@json_option
def bound(
    algorithm: str | None,
    average: bool,
    run: Path | None,
    points: int,
    tables: bool,
    plots: Path | None,
    data_dir: Path | None,
    trust_code: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Evaluate bounds on the generalization gap, with the hypotheses they need.

    --alpha-delta is the paper's relative step (a step moves δ by α_δ·ε); --updates counts weight updates, so Free
    uses T/m. Parameters that a bound does not use are reported as unused.

    \b
    freeat bound --algorithm free --beta 2 --c 0.1 --lipschitz 1 --lipschitz-w 1 --psi 4 --eps 0.5 \\
        --alpha-delta 0.2 --m 4 --batch-size 10 --n 1000 --updates 1000
    freeat bound --algorithm convex --beta 2 --eps 0.01 --lipschitz-w 1 --weight-step 0.1 \\
        --batch-size 10 --n 1000 --updates 1000
    """
    from freeat.files.documents import plain
    from freeat.reports.bounds import TABLE_SIZES, comparison_rows, draw_bounds, free_steps_rows

    own = {name: _number(name, given[name.lower() + "_"]) for name in OPTIONS}
    found = None if run is None else _of_run(run, own, points, data_dir, trust_code)
    given_here = {name: value for name, value in own.items() if value is not None}
    parameters = own if found is None else {**found.parameters, **given_here}
    if algorithm:
        named = [_bound_of(name.strip()) for name in algorithm.split(",")]
        names = tuple(dict.fromkeys(name for name, _ in named))
        parameters = _with_steps(parameters, [m for _, m in named if m is not None], own["m"])
    else:
        names = (found.algorithm,) if found else tuple(THEOREMS)
    facts = {} if found is None else dict(found.facts)
    if own["eta"] is not None:  # what is doubted of a run is the default, 2βε
        facts.pop("approximately_smooth", None)
    output = Output(
        constants=None if found is None else found.constants,
        bounds=tuple(_bound(name, parameters, facts, average=average) for name in names),
    )
    if tables:
        _require(parameters, USED["free"])
        output = replace(
            output,
            comparison=comparison_rows(parameters, TABLE_SIZES),
            free_steps=free_steps_rows(parameters),
        )
    if plots is not None:
        drawn = draw_bounds(plots, parameters, names, average=average)
        output = replace(output, plots=tuple(str(path) for path in drawn))
    flat = plain(output.bounds[0]) if len(names) == 1 else {}
    print_result(plain(output) | flat, _lines(output), as_json=as_json)


@dataclass(frozen=True, kw_only=True)
class Output:
    """All that the command computed; tables and plots that were not requested are None."""

    bounds: tuple[BoundDocument, ...]
    constants: "Constants | None" = None
    comparison: list[ComparisonRow] | None = None
    free_steps: list[FreeStepsRow] | None = None
    plots: tuple[str, ...] | None = None


def _of_run(run: Path, own: Parameters, points: int, data_dir: Path | None, trust_code: bool) -> "RunBound":
    """The parameters of the run, and which hypotheses it meets."""
    from freeat.stability.bound_of_run import bound_of_run

    trusted = trusts_code(trust_code, names_code=False)
    found = bound_of_run(run, points=points, data_dir=data_dir, trust_code=trusted)
    if found.parameters["beta"] is None and own["beta"] is None:
        raise InputError(f"--from {run}: {found.constants.no_beta} with --beta")
    return found


def _number(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    value = parse_number(text)
    return int(value) if name in COUNTS and float(value).is_integer() else value


def _require(parameters: Parameters, needed: tuple[str, ...]) -> None:
    """Refuse parameters of which a needed one is neither given nor has a default."""
    values = completed(parameters)
    missing = [f"--{OPTIONS[name]} ({MEANINGS[name]})" for name in needed if values.get(name) is None]
    if missing:
        raise InputError(f"missing: {', '.join(missing)}; give them, or a run with --from")


def _bound(algorithm: str, parameters: Parameters, facts: dict[str, bool], *, average: bool) -> BoundDocument:
    if algorithm not in USED:
        raise unknown_name("algorithm", algorithm, USED)
    _require(parameters, USED[algorithm])
    return bound_document(algorithm, parameters, facts=facts, average=average)


def _bound_of(algorithm: str) -> tuple[str, int | None]:
    """The bound that an algorithm's name means, and the m in it: ``free-4`` is that of Free with m = 4."""
    if algorithm in USED or algorithm.partition("-")[0] not in THEOREMS:
        return algorithm, None
    from freeat.algorithms.registry import parse_algorithm

    name = parse_algorithm(algorithm)
    if name.objective != "ce":
        raise InputError(
            f"algorithm {algorithm!r}: no theorem covers it; write {name.family!r} for that without"
        )
    return name.family, name.m if "m" in USED[name.family] else None


def _with_steps(parameters: Parameters, named: Sequence[int], given: float | None) -> dict[str, float | None]:
    """The parameters with the m of the algorithm's name; other values of m beside it are refused."""
    if not named:
        return dict(parameters)
    found = sorted({*named, *(() if given is None else (given,))})
    if len(found) > 1:
        raise InputError(f"m = {', '.join(map(str, found))}: give it once, as free-4 or --m 4")
    return {**parameters, "m": named[0]}


def _lines(output: Output) -> list[str]:
    from freeat.reports.bounds import bound_comparison_lines, table_lines

    lines: list[str] = []
    if (c := output.constants) is not None:
        lines.append(f"constants estimated at {c.points} points, ψ from {c.gradients} gradients: {c.caveat}")
    if len(output.bounds) > 1:
        lines.extend([*bound_comparison_lines(output.bounds), ""])
    else:
        lines.extend([*bound_lines(output.bounds[0]), ""])
    if output.comparison:
        title = "Free and Fast against Vanilla for T = O(n); log10, and the paper's ratio of orders"
        lines.extend([title, *table_lines(output.comparison), ""])
    if output.free_steps:
        lines.extend(["Remark 3: Theorem 4's bound along m", *table_lines(output.free_steps), ""])
    lines.extend(f"figure: {path}" for path in output.plots or ())
    return lines
