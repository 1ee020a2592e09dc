"""``freeat bound``: Theorems 2, 4 and 5 evaluated, for given constants or for a run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from freeat.cli.options import json_option, trusts_code
from freeat.errors import InputError
from freeat.theory.problem import MEANINGS

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
}
"""The parameters of the bounds and what they are called on the command line."""

COUNTS = ("m", "b", "n", "T")


def parameter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """An option for every parameter of the bounds."""
    for name, option in reversed(OPTIONS.items()):
        command = click.option(f"--{option}", name.lower() + "_", default=None, help=MEANINGS[name])(command)
    return command


@click.command()
@click.option(
    "--algorithm", default=None, help="vanilla, fast or free; by default all three, or the run's own"
)
@parameter_options
@click.option("--from", "run", type=click.Path(path_type=Path), help="take what is not given from this run")
@click.option(
    "--points",
    default=64,
    show_default=True,
    help="with --from: training images at which L, L_w and β are estimated",
)
@click.option(
    "--tables", is_flag=True, help="also the comparison with Vanilla for T = O(n), and Remark 3 on m"
)
@click.option(
    "--plots", type=click.Path(path_type=Path), help="draw the bounds along T, n, m, α_δ, ε and β here"
)
@click.option("--data-dir", type=click.Path(path_type=Path), help="folder of the data sets (or $FREEAT_DATA)")
@click.option("--trust-code", is_flag=True, help="allow importing code that the run folder names")
@json_option
def bound(
    algorithm: str | None,
    run: Path | None,
    points: int,
    tables: bool,
    plots: Path | None,
    data_dir: Path | None,
    trust_code: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Evaluate the paper's bound on the generalization gap, with the hypotheses it needs.

    --alpha-delta is the paper's relative step (a step moves δ by α_δ·ε); --updates counts weight updates, so Free
    uses T/m. Parameters that an algorithm does not use are reported as unused.

    \b
    freeat bound --algorithm free --beta 2 --c 0.1 --lipschitz 1 --lipschitz-w 1 --psi 4 --eps 0.5 \\
        --alpha-delta 0.2 --m 4 --batch-size 10 --n 1000 --updates 1000
    """
    from freeat.theory.recursion import USED

    parameters, facts, document = _gather(given, run, points, data_dir, trust_code)
    names = [algorithm] if algorithm else [document["algorithm"]] if run else list(USED)
    document["bounds"] = [_bound(name, parameters, facts) for name in names]
    if tables:
        document |= _tables(parameters)
    if plots is not None:
        document["plots"] = _plots(plots, parameters)
    if as_json:
        flat = document["bounds"][0] if len(names) == 1 else {}
        click.echo(json.dumps({**document, **flat}))
    else:
        click.echo("\n".join(_lines(document)))


def _gather(
    given: dict[str, Any], run: Path | None, points: int, data_dir: Path | None, trust_code: bool
) -> tuple[dict[str, Any], dict[str, bool], dict[str, Any]]:
    """The parameters, what is known of the hypotheses, and where both come from."""
    own = {name: _number(name, given[name.lower() + "_"]) for name in OPTIONS}
    if run is None:
        return own, {}, {}
    from freeat.stability.bound_of_run import bound_of_run

    trusted = trusts_code(trust_code, names_code=False)
    found = bound_of_run(run, points=points, data_dir=data_dir, trust_code=trusted)
    parameters = found.parameters | {name: value for name, value in own.items() if value is not None}
    if parameters["beta"] is None:
        raise InputError(f"--from {run}: {found.constants.no_beta} with --beta")
    return parameters, found.facts, {"algorithm": found.algorithm, "constants": found.constants.row()}


def _number(name: str, text: str | None) -> float | int | None:
    from freeat.units import parse_number

    if text is None:
        return None
    value = parse_number(text)
    return int(value) if name in COUNTS and float(value).is_integer() else value


def _required(parameters: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    missing = [f"--{OPTIONS[name]} ({MEANINGS[name]})" for name in names if parameters[name] is None]
    if missing:
        raise InputError(f"missing: {', '.join(missing)}; give them, or a run with --from")
    return {name: parameters[name] for name in names}


def _bound(algorithm: str, parameters: dict[str, Any], facts: dict[str, bool]) -> dict[str, Any]:
    from freeat.errors import unknown_name
    from freeat.theory import bound_document
    from freeat.theory.recursion import USED

    if algorithm not in USED:
        raise unknown_name("algorithm", algorithm, USED)
    _required(parameters, USED[algorithm])
    return bound_document(algorithm, **parameters, facts=facts)


def _problem(parameters: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    from freeat.theory import Problem

    values = _required(parameters, tuple(OPTIONS))
    run = {name: values.pop(name) for name in ("T", "alpha", "m")}
    return Problem(**values), run


def _tables(parameters: dict[str, Any]) -> dict[str, Any]:
    from freeat.reports.bounds import comparison_sizes
    from freeat.theory import comparison, free_steps

    p, run = _problem(parameters)
    passes = max(1, round(run["T"] / p.n))
    rows = comparison(p, ns=comparison_sizes(p.n), passes=passes, alpha=run["alpha"], m=run["m"])
    steps = free_steps(p, ms=range(1, max(12, 2 * run["m"]) + 1), T=run["T"], alpha=run["alpha"])
    return {"comparison": rows, "free_steps": steps}


def _plots(folder: Path, parameters: dict[str, Any]) -> list[str]:
    from freeat.reports.bounds import draw_bounds

    p, run = _problem(parameters)
    return [str(path) for path in draw_bounds(folder, p, **run)]


def _lines(document: dict[str, Any]) -> list[str]:
    from freeat.reports.bound_text import bound_comparison_lines
    from freeat.theory import bound_lines

    lines: list[str] = []
    if "constants" in document:
        c = document["constants"]
        lines.append(
            f"constants estimated at {c['points']} points, ψ from {c['gradients']} gradients: {c['caveat']}"
        )
    if len(document["bounds"]) > 1:
        lines.extend([*bound_comparison_lines(document["bounds"]), ""])
    else:
        lines.extend([*bound_lines(document["bounds"][0]), ""])
    for title, key in (
        ("Free and Fast against Vanilla for T = O(n); log10, and the paper's ratio of orders", "comparison"),
        ("Remark 3: Theorem 4's bound along m", "free_steps"),
    ):
        if key in document:
            lines.extend([title, *_table(document[key]), ""])
    lines.extend(f"picture: {path}" for path in document.get("plots", ()))
    return lines


def _table(rows: list[dict[str, Any]]) -> list[str]:
    from freeat.reports.text import aligned

    columns = list(rows[0])
    cells = [columns, *([_cell(row[column]) for column in columns] for row in rows)]
    return [f"  {line}" for line in aligned(cells, numbers=True)]


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
