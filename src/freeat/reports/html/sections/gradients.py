"""Figure 12: the norms ‖∇_δ h‖ met in training as a heat map, and their running minimum, which is 1/ψ."""

from collections.abc import Mapping, Sequence
from typing import Any

from freeat.reports.html.blocks import Block, Density, Heat, Section, Table
from freeat.reports.html.gather import Study
from freeat.reports.html.sections.stability import cells_by_algorithm
from freeat.reports.html.tasks import Task
from freeat.reports.html.thinning import thinned

COLUMNS = 40
"""Columns of a heat map; more records than this are added up."""

Counts = dict[int, int]


def gradients_section(tasks: Sequence[Task], studies: Sequence[Study]) -> Section | None:
    """A heat map for every algorithm whose training shows gradients; the first seed speaks for the others."""
    blocks: list[Block] = []
    for task in tasks:
        records = {
            group.label: [
                _of_record(record) for record in group.runs[0].history if record.get("gradient_norms")
            ]
            for group in task.groups
        }
        blocks += _charts(task.title, records)
    for study in studies:
        if study.cells:
            shown = {name: cells[0]["gradient_norms"] for name, cells in cells_by_algorithm(study).items()}
            blocks += _charts(study.name, shown)
    if not blocks:
        return None
    return Section(
        key="gradients",
        title="Gradient norms",
        lead="How many images had which norm ‖∂h/∂δ‖ of the loss gradient in δ, and when: the stronger the colour, the "
        "more. The line is the smallest norm so far: the 1/ψ of Theorems 4 and 5. Zero norms are shown in "
        "the lowest row.",
        blocks=blocks,
    )


def _of_record(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"update": record["update"], **record["gradient_norms"]}


def _charts(title: str, records: Mapping[str, list[dict[str, Any]]]) -> list[Density]:
    shown = {name: _merged(rows) for name, rows in records.items() if rows}
    if not shown:
        return []
    panels = [_panel(name, rows) for name, rows in shown.items()]
    rows = [_quantiles(name, row) for name, own in shown.items() for row in own]
    columns = ("algorithm", "update", "images", "5 % below", "median", "95 % below", "smallest so far")
    return [
        Density(
            title=title,
            description=f"Counts of the gradient norms of {', '.join(shown)} against updates, with the running minimum",
            x_label="weight updates",
            y_label="‖∂h/∂δ‖",
            panels=panels,
            numbers=Table(
                caption="Gradient norms as numbers, to a tenth of a decade", columns=columns, rows=rows
            ),
        )
    ]


def _merged(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """At most ``COLUMNS`` records, each the sum of those since the one before."""
    merged, counts = [], Counts()
    ends = {place - 1 for place in thinned(len(rows) + 1, COLUMNS + 1)}
    for place, row in enumerate(rows):
        for bin_, images in row["bins"].items():
            counts[int(bin_)] = counts.get(int(bin_), 0) + images
        if place in ends:
            merged.append({"update": row["update"], "smallest": row["smallest_so_far"], "counts": counts})
            counts = Counts()
    return merged


def _panel(name: str, rows: Sequence[Mapping[str, Any]]) -> Heat:
    return Heat(
        title=name,
        updates=[0, *(row["update"] for row in rows)],
        counts=[
            (column, bin_, images)
            for column, row in enumerate(rows)
            for bin_, images in sorted(row["counts"].items())
        ],
        smallest=[row["smallest"] for row in rows],
    )


def _quantiles(name: str, row: Mapping[str, Any]) -> list[str]:
    counts: Counts = row["counts"]
    total = sum(counts.values())
    cells = []
    for share in (0.05, 0.5, 0.95):
        seen = 0
        for bin_ in sorted(counts):
            seen += counts[bin_]
            if seen >= share * total:
                cells.append(f"{10 ** ((bin_ + 0.5) / 10):.2g}")
                break
    return [name, str(row["update"]), str(total), *cells, f"{row['smallest']:.3g}"]
