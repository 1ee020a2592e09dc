"""The bounds as text and as figures, with the paper's comparison and Remark 3."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from freeat.files.documents import check_output
from freeat.reports.plots import save_figure, series_style, styled
from freeat.reports.tables import aligned
from freeat.theory import (
    BoundDocument,
    ComparisonRow,
    FreeStepsRow,
    Problem,
    comparison,
    free_steps,
    m_scale,
    printed_m_scale,
    sweep,
)
from freeat.theory.derived import completed, source
from freeat.theory.problem import MEANINGS, THEOREMS, USED
from freeat.theory.report import MARKS, number_or_power

PARAMETERS = {"T": "weight updates T", "n": "training examples n", "m": "free steps m"}
PARAMETERS |= {"alpha": "relative attack step α_δ", "eps": "radius ε", "beta": "smoothness β"}
PARAMETERS |= {"step": "weight step α_w", "rho": "proximal weight ρ", "decay": "weight decay γ"}
POINTS = 33
TABLE_SIZES = (1, 3.16, 10, 31.6, 100, 1000)
"""The multiples of n at which the paper's comparison is printed."""

Parameters = Mapping[str, float | None]


def bound_comparison_lines(documents: Sequence[BoundDocument]) -> list[str]:
    """Several bounds for the same parameters: parameters and hypotheses once, a table between."""
    return [
        *_parameters(documents),
        "",
        *aligned([("algorithm", "source", "λ", "bound", "t₀", ""), *map(_row, documents)]),
        *(f"note ({one.algorithm}): {note}" for one in documents for note in one.notes),
        "",
        *_hypotheses(documents),
    ]


def _parameters(documents: Sequence[BoundDocument]) -> list[str]:
    lines = ["parameters"]
    for name, meaning in MEANINGS.items():
        users = [one for one in documents if name in one.parameters]
        if users:
            only = _only([one.algorithm for one in users], documents)
            lines.append(f"  {name} = {users[0].parameters[name]:g}{only}: {meaning}")
    return lines


def _row(one: BoundDocument) -> tuple[str, ...]:
    remarks = ["vacuous: above 1"] if one.vacuous else []
    remarks += [f"t₀ outside 1 to {one.steps:g} batches"] if one.t0_outside else []
    return (
        one.algorithm,
        one.source,
        number_or_power(one.lam, one.log10_lam, 4),
        number_or_power(one.bound, one.log10_bound, 4),
        _t0(one),
        ", ".join(remarks),
    )


def _t0(one: BoundDocument) -> str:
    if one.t0 is None:
        return "–" if one.log10_lam is None else "beyond every float"
    return f"{one.t0:.4g}"


def _hypotheses(documents: Sequence[BoundDocument]) -> list[str]:
    """Every hypothesis once, with the algorithms whose bound needs it where not all do."""
    found = {h.key: h for one in documents for h in one.hypotheses}
    unknown = any(hypothesis.status == "unknown" for hypothesis in found.values())
    lines = ["hypotheses" + (" (?: not decided by the numbers; --from checks a run)" if unknown else "")]
    for key, hypothesis in found.items():
        needing = [one.algorithm for one in documents if any(h.key == key for h in one.hypotheses)]
        lines.append(f"  {MARKS[hypothesis.status]} {key}{_only(needing, documents)}: {hypothesis.sentence}")
    return lines


def _only(algorithms: Sequence[str], documents: Sequence[BoundDocument]) -> str:
    if len(algorithms) == len(documents):
        return ""
    *first, last = algorithms
    return f" ({', '.join(first)} and {last} only)" if first else f" ({last} only)"


def table_lines(rows: Sequence[ComparisonRow] | Sequence[FreeStepsRow]) -> list[str]:
    """The rows of a comparison or of Remark 3 as a table, with their fields as columns."""
    heads = [field.name for field in fields(rows[0])]
    values = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in astuple(row)] for row in rows]
    return [f"  {line}" for line in aligned([heads, *values], right=True)]


def sweep_values(parameter: str, around: float, at_least: float = 1.0) -> list[float]:
    """Values from a hundredth to a hundred times ``around``, evenly in the logarithm; whole where counted."""
    if parameter == "m":
        return [float(m) for m in range(1, max(12, 2 * round(around)) + 1)]
    values = [around * 10 ** (4 * k / (POINTS - 1) - 2) for k in range(POINTS)]
    if parameter in ("T", "n"):
        return sorted({float(max(round(v), math.ceil(at_least))) for v in values})
    return values


def draw_bounds(
    folder: Path, parameters: Parameters, names: Sequence[str], *, average: bool = False
) -> list[Path]:
    """A figure of the bounds along each parameter; where the paper's three are drawn, its comparison and Remark 3."""
    check_output(*(folder / name for name in ("bounds.png", "comparison.png", "remark-3.png")))
    with styled():
        figures = [_draw_sweeps(folder / "bounds.png", parameters, names, average=average)]
        if set(THEOREMS) <= set(names):
            figures += [
                _draw_comparison(folder / "comparison.png", parameters),
                _draw_free_steps(folder / "remark-3.png", parameters),
            ]
        return figures


def comparison_rows(parameters: Parameters, multiples: Iterable[float]) -> list[ComparisonRow]:
    """The paper's comparison for T = O(n), at these multiples of n and with as many updates per example."""
    p, T, alpha, m = _of_free(parameters)
    sizes = [max(1, round(p.n * multiple)) for multiple in multiples]
    return comparison(p, ns=sizes, updates_per_example=max(1, round(T / p.n)), alpha=alpha, m=m)


def free_steps_rows(parameters: Parameters) -> list[FreeStepsRow]:
    """Remark 3: Theorem 4's bound along m, up to twice the given one."""
    p, T, alpha, m = _of_free(parameters)
    return free_steps(p, ms=range(1, max(12, 2 * m) + 1), T=T, alpha=alpha)


def _of_free(parameters: Parameters) -> tuple[Problem, int, float, int]:
    """The problem, T, α_δ and m of Theorem 4."""
    values: dict[str, Any] = {name: parameters[name] for name in USED["free"]}
    T, alpha, m = (values.pop(name) for name in ("T", "alpha", "m"))
    return Problem(**values), T, alpha, m


def _draw_sweeps(path: Path, parameters: Parameters, names: Sequence[str], *, average: bool) -> Path:
    """One panel for each parameter that a bound here uses, with a curve for every bound that can be computed there.

    A parameter that is 0 (standard training, no weight decay) has no panel: its axis is logarithmic.
    """
    import matplotlib.pyplot as plt

    used = {parameter for name in names for parameter in USED[name]}
    if {"approximate", "convex"} & set(names) and parameters.get("eta") is None:
        used.add("eps")  # through η = 2βε
    here: dict[str, Any] = completed(parameters)
    shown = {name: here[name] for name in PARAMETERS if name in used and here[name]}
    columns = min(3, len(shown))
    rows_of_panels = -(-len(shown) // columns)
    figure, axes = plt.subplots(
        rows_of_panels,
        columns,
        figsize=(3.67 * columns, 3.1 * rows_of_panels),
        layout="constrained",
        squeeze=False,
    )
    for panel in axes.flat[len(shown) :]:
        panel.axis("off")
    for panel, (parameter, value) in zip(axes.flat, shown.items(), strict=False):
        values = sweep_values(parameter, value, at_least=here["b"] if parameter == "n" else 1)
        for index, name in enumerate(names):
            allowed = [at for at in values if _exists(name, completed({**parameters, parameter: at}))]
            own = sweep(parameters, parameter, allowed, names=[name], average=average)
            heights = [10 ** min(row.log10_bound, 12) for row in own]
            label = f"{name} ({source(name, average=average)})"
            panel.plot([row.value for row in own], heights, label=label, markevery=6, **series_style(index))
        panel.axhline(1, color="0.4", linewidth=0.9, linestyle="--")
        panel.axvline(value, color="0.7", linewidth=0.9)
        panel.set(xscale="linear" if parameter == "m" else "log", yscale="log", xlabel=PARAMETERS[parameter])
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names))
    title = "Bounds; above the dashed 1 vacuous for a loss in [0, 1]; vertical: the given values"
    figure.suptitle(title, fontsize="medium")
    return save_figure(figure, path)


def _exists(name: str, at: Mapping[str, Any]) -> bool:
    """Whether the parameters are such that the bound exists: α_w(β + γ) ≤ 1 for convex, ℓ < ρ for proximal."""
    if name == "convex":
        return bool(at["step"] * (at["beta"] + at["decay"]) <= 1)
    return name != "proximal" or bool(at["ell"] < at["rho"])


def _draw_comparison(path: Path, parameters: Parameters) -> Path:
    import matplotlib.pyplot as plt

    rows = comparison_rows(parameters, (10 ** (k / 8) for k in range(33)))
    sizes = [row.n for row in rows]
    figure, panel = plt.subplots(figsize=(5.4, 3.8), layout="constrained")
    fast = [(10**row.log10_fast_over_vanilla, row.order_fast_over_vanilla) for row in rows]
    free = [(10**row.log10_free_over_vanilla, row.order_free_over_vanilla) for row in rows]
    for index, (name, values) in enumerate((("fast", fast), ("free", free)), start=1):
        ratios, orders = zip(*values, strict=True)
        panel.plot(sizes, ratios, label=f"{name}: ratio of bounds", markevery=6, **series_style(index))
        panel.plot(
            sizes, orders, label=f"{name}: ratio of orders", linestyle=":", color=series_style(index)["color"]
        )
    panel.set(xscale="log", yscale="log", xlabel="n, with T = O(n)", ylabel="bound over Vanilla's")
    panel.legend()
    return save_figure(figure, path)


def _draw_free_steps(path: Path, parameters: Parameters) -> Path:
    import matplotlib.pyplot as plt

    rows, (p, _, alpha, _) = free_steps_rows(parameters), _of_free(parameters)
    ms = [row.m for row in rows]
    figure, panel = plt.subplots(figsize=(5.4, 3.8), layout="constrained")
    panel.plot(ms, [10**row.log10_over_m1 for row in rows], **series_style(2))
    scales = (("m = α_δεψ/c, as printed", printed_m_scale), ("m = c/(α_δεψ)", m_scale))
    for (label, scale), style in zip(scales, ("--", ":"), strict=True):
        if 1 <= scale(p, alpha=alpha) <= ms[-1]:
            panel.axvline(scale(p, alpha=alpha), color="0.4", linestyle=style, linewidth=1, label=label)
    panel.set(yscale="log", xlabel="free steps m", ylabel="Theorem 4's bound over that at m = 1")
    if panel.get_legend_handles_labels()[0]:
        panel.legend()
    return save_figure(figure, path)
