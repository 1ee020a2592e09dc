"""The bounds of Theorems 2, 4 and 5 as text and as figures, with the paper's comparison and Remark 3."""

import math
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path

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
from freeat.theory.problem import MEANINGS, USED
from freeat.theory.report import MARKS, number_or_power

PARAMETERS = {"T": "weight updates T", "n": "training examples n", "m": "free steps m"}
PARAMETERS |= {"alpha": "relative attack step α_δ", "eps": "radius ε", "beta": "smoothness β"}
POINTS = 33


def bound_comparison_lines(documents: Sequence[BoundDocument]) -> list[str]:
    """The bounds of several algorithms for the same parameters: parameters and hypotheses once, a table between."""
    return [
        *_parameters(documents),
        "",
        *aligned([("algorithm", "theorem", "λ", "bound", "t₀", ""), *map(_row, documents)]),
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
        one.theorem,
        number_or_power(one.lam, one.log10_lam, 4),
        number_or_power(one.bound, one.log10_bound, 4),
        "beyond every float" if one.t0 is None else f"{one.t0:.4g}",
        ", ".join(remarks),
    )


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
    return "" if len(algorithms) == len(documents) else f" ({' and '.join(algorithms)} only)"


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


def draw_bounds(folder: Path, p: Problem, *, T: int, alpha: float, m: int) -> list[Path]:
    """A figure of the three bounds along each parameter, one of the comparison, one of Remark 3."""
    with styled():
        return [
            _draw_sweeps(folder / "bounds.png", p, T=T, alpha=alpha, m=m),
            _draw_comparison(folder / "comparison.png", p, T=T, alpha=alpha, m=m),
            _draw_free_steps(folder / "remark-3.png", p, T=T, alpha=alpha, m=m),
        ]


def comparison_sizes(n: int) -> list[int]:
    """The sample sizes at which the paper's comparison is shown."""
    return [max(1, round(n * factor)) for factor in (1, 3.16, 10, 31.6, 100, 1000)]


def _draw_sweeps(path: Path, p: Problem, *, T: int, alpha: float, m: int) -> Path:
    import matplotlib.pyplot as plt

    here = {"T": float(T), "n": float(p.n), "m": float(m), "alpha": alpha, "eps": p.eps, "beta": p.beta}
    figure, axes = plt.subplots(2, 3, figsize=(11, 6.2), layout="constrained")
    for panel, (parameter, label) in zip(axes.flat, PARAMETERS.items(), strict=True):
        if not here[parameter]:  # ε = 0: plain training has no radius to vary
            panel.axis("off")
            continue
        values = sweep_values(parameter, here[parameter], at_least=p.b if parameter == "n" else 1)
        rows = sweep(p, parameter, values, T=T, alpha=alpha, m=m)
        for index, name in enumerate(USED):
            own = [row for row in rows if row.algorithm == name]
            heights = [10 ** min(row.log10_bound, 12) for row in own]
            panel.plot([row.value for row in own], heights, label=name, markevery=6, **series_style(index))
        panel.axhline(1, color="0.4", linewidth=0.9, linestyle="--")
        panel.axvline(here[parameter], color="0.7", linewidth=0.9)
        panel.set(xscale="linear" if parameter == "m" else "log", yscale="log", xlabel=label)
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(USED))
    title = "Bounds of Theorems 2 (Vanilla), 5 (Fast) and 4 (Free)"
    figure.suptitle(f"{title}; above the dashed 1 vacuous; vertical: the given values", fontsize="medium")
    return save_figure(figure, path)


def _draw_comparison(path: Path, p: Problem, *, T: int, alpha: float, m: int) -> Path:
    import matplotlib.pyplot as plt

    sizes = [round(p.n * 10 ** (k / 8)) for k in range(33)]
    rows = comparison(p, ns=sizes, updates_per_example=max(1, round(T / p.n)), alpha=alpha, m=m)
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


def _draw_free_steps(path: Path, p: Problem, *, T: int, alpha: float, m: int) -> Path:
    import matplotlib.pyplot as plt

    ms = range(1, max(12, 2 * m) + 1)
    rows = free_steps(p, ms=ms, T=T, alpha=alpha)
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
