"""Robust accuracy against the radius (the form of Figures 2, 3, 6 to 9), and the transfer matrix."""

from collections.abc import Sequence

from freeat.reports.html.blocks import Axis, Cell, Curve, Lines, Matrix, Panel, Section, Series, Table
from freeat.reports.html.gather import FROM, Gathered, Json, Run
from freeat.reports.html.tasks import NORMS
from freeat.reports.html.texts import seconds
from freeat.reports.html.thinning import thinned
from freeat.reports.robustness import attack_text
from freeat.reports.text import percent
from freeat.units import in_255ths, radius_text

MATRICES = 6


def robustness_section(cells: Sequence[Json]) -> Section | None:
    """Every attack made on the models themselves, against the radius."""
    own = [cell for cell in cells if "source" not in cell]
    if not own:
        return None
    return Section(
        key="robustness",
        title="Robust accuracy against the radius",
        lead="What part of the images is still classified right when the attack may move each by ε. Bands are 95 % "
        "intervals over the images (Wilson's).",
        blocks=[_against_radius(own, "Attacks on each model")],
    )


def _against_radius(cells: Sequence[Json], title: str) -> Lines | Table:
    """A chart where there are several radii, otherwise the table alone."""
    return _chart(cells, title) if len({cell["eps"] for cell in cells}) > 1 else _table(cells)


def _panel(cell: Json) -> str:
    """Where a cell is drawn; attacks from each model have a panel of their own, as in Figure 3."""
    place = f"{cell['split']} images, {NORMS.get(cell['norm'], cell['norm'])}"
    return f"{attack_text(cell)}, {place}" if "source" in cell else place


def _chart(cells: Sequence[Json], title: str) -> Lines:
    panels = list(dict.fromkeys(_panel(cell) for cell in cells))
    axes = [Axis(key="eps", label="radius ε"), Axis(key="levels", label="radius ε in 255ths")]
    if in_255ths(cell["eps"] for cell in cells):
        axes.reverse()
    series = []
    for name, own in _lines(cells).items():
        curves = [
            _curve([cell for cell in own if _panel(cell) == key], place) for place, key in enumerate(panels)
        ]
        series.append(Series(name=name, curves=[curve for curve in curves if curve.y]))
    return Lines(
        title=title,
        description=f"Robust accuracy against the radius for {', '.join(one.name for one in series)}",
        axes=axes,
        panels=[Panel(title=panel, unit="% right") for panel in panels],
        series=series,
        numbers=_table(cells),
    )


def _lines(cells: Sequence[Json]) -> dict[str, list[Json]]:
    """The cells by model and attack, named by what tells the lines apart."""
    made = [() if "source" in cell else (attack_text(cell),) for cell in cells]
    words = [
        (*own, f"{cell['n']} images", f"seed {cell['seed']}") for own, cell in zip(made, cells, strict=True)
    ]
    varied = [place for place, said in enumerate(zip(*words, strict=True)) if len(set(said)) > 1]
    lines: dict[str, list[Json]] = {}
    for cell, own in zip(cells, words, strict=True):
        lines.setdefault(", ".join([cell["model"], *(own[place] for place in varied)]), []).append(cell)
    return lines


def _curve(cells: list[Json], place: int) -> Curve:
    cells = sorted(cells, key=lambda cell: float(cell["eps"]))
    return Curve(
        panel=place,
        x={"eps": [cell["eps"] for cell in cells], "levels": [255 * cell["eps"] for cell in cells]},
        y=[100 * cell["robust_accuracy"] for cell in cells],
        low=[100 * cell["robust_interval"][0] for cell in cells],
        high=[100 * cell["robust_interval"][1] for cell in cells],
    )


def _table(cells: Sequence[Json]) -> Table:
    columns = ("model", "attack", "norm", "split", "ε", "images", "clean %", "robust %", "queries", "time")
    return Table(
        caption="Every measurement, with 95 % intervals over the images",
        columns=columns,
        rows=[_row(cell) for cell in cells],
        words=4,
        notes=list(dict.fromkeys(note for cell in cells for note in cell["notes"])),
    )


def _row(cell: Json) -> list[str | Cell]:
    low, high = cell["robust_interval"]
    return [
        cell["model"],
        attack_text(cell),
        NORMS.get(cell["norm"], cell["norm"]),
        cell["split"],
        radius_text(cell["eps"]),
        str(cell["n"]),
        percent(cell["clean_accuracy"]),
        Cell(text=percent(cell["robust_accuracy"]), detail=f"[{percent(low)}, {percent(high)}]"),
        f"{cell['queries']['mean']:.0f}" if cell["queries"] else "–",
        seconds(cell["seconds"]),
    ]


def transfer_section(cells: Sequence[Json]) -> Section | None:
    """Perturbations made on one model and applied to another, a matrix for each radius."""
    of_pairs = [cell for cell in cells if "source" in cell]
    if not of_pairs:
        return None
    keys = list(dict.fromkeys(_place(cell) for cell in of_pairs))
    shown = [keys[k] for k in thinned(len(keys), MATRICES)]
    left = (
        f" {len(keys) - len(shown)} more radii are in the numbers of the chart."
        if len(keys) > len(shown)
        else ""
    )
    return Section(
        key="transfer",
        title="Transferred attacks",
        lead="Robust accuracy, in %, of the model in the column against perturbations made on the model in the row. "
        f"Where both are the same the attack is a white-box one.{left}",
        blocks=[*(_matrix(of_pairs, key) for key in shown), _against_radius(of_pairs, "Transferred attacks")],
    )


def _place(cell: Json) -> tuple[str, float, str, str]:
    """The matrix that a cell belongs to."""
    return cell["norm"], cell["eps"], cell["split"], cell["attack"].split(FROM)[0]


def _matrix(cells: Sequence[Json], key: tuple[str, float, str, str]) -> Matrix:
    norm, eps, split, attack = key
    own = {
        (cell["source"], cell["model"]): float(cell["robust_accuracy"])
        for cell in cells
        if _place(cell) == key
    }
    sources, targets = (sorted(set(names)) for names in zip(*own, strict=True))
    return Matrix(
        caption=f"{attack}, {NORMS.get(norm, norm)} ε = {radius_text(eps)}, {split} images",
        corner="made on ↓, judged →",
        columns=targets,
        rows=[(source, [own.get((source, target)) for target in targets]) for source in sources],
    )


def judged_again(runs: Sequence[Run]) -> Section | None:
    """What ``freeat evaluate`` found: the same weights under other attacks and radii."""
    rows = [_evaluation(run, one) for run in runs for one in run.evaluations]
    if not rows:
        return None
    columns = ("run", "attack", "ε", "robust train %", "robust test %", "robust gap", "clean test %")
    table = Table(caption="Finished runs under other attacks or radii", columns=columns, rows=rows, words=2)
    return Section(
        key="evaluations",
        title="Judged again",
        lead="The same weights, judged by another attack or at another radius than while training.",
        blocks=[table],
    )


def _evaluation(run: Run, one: Json) -> list[str | Cell]:
    gap = one["gap"]
    return [
        run.name,
        f"{one['attack']} ({one['verdict']})",
        radius_text(one["eps"]),
        percent(one["train"]["robust_accuracy"]),
        percent(one["test"]["robust_accuracy"]),
        Cell(text=percent(gap["value"]), detail=f"[{percent(gap['low'])}, {percent(gap['high'])}]"),
        percent(one["test"]["clean_accuracy"]),
    ]


def attacked(found: Gathered) -> list[Json]:
    """The measurements; of the same one made on several numbers of images, that on the most."""
    best: dict[tuple[str, ...], Json] = {}
    for cell in sorted(found.measurements, key=lambda cell: int(cell["n"])):
        keys = ("model", "weights", "norm", "eps", "split", "seed")
        best[attack_text(cell), *(str(cell[key]) for key in keys)] = cell
    kept = {id(cell) for cell in best.values()}
    ordered = [cell for cell in found.measurements if id(cell) in kept]
    return sorted(ordered, key=lambda cell: (cell["model"], cell["attack"], cell["split"], cell["eps"]))
