"""Learning curves in the form of Figure 1, along epochs, updates, passes or time."""

from collections.abc import Sequence
from typing import Any

from freeat.reports.html.blocks import Axis, Block, Curve, Lines, Panel, Section, Series, Table
from freeat.reports.html.tasks import Group, Task
from freeat.reports.html.thinning import thinned
from freeat.reports.plots import AXES, comparable, errors, larger_last

PANELS = (
    Panel(title="robust training error", unit="%"),
    Panel(title="robust test error", unit="%"),
    Panel(title="robust generalization gap", unit="points", level=0.0, meaning="no gap"),
)
LABELS = {"epochs": "epochs", "updates": "updates", "passes": "gradient passes", "seconds": "time"}


def curves_section(tasks: Sequence[Task]) -> Section | None:
    """A chart for every task whose runs were evaluated on the way."""
    blocks: list[Block] = [chart for task in tasks if (chart := _chart(task)) is not None]
    if not blocks:
        return None
    return Section(
        key="curves",
        title="Learning curves",
        lead="How robust training error, test error and their difference develop. Lines are means over the seeds, "
        "bands reach from the lowest to the highest. Epochs of Free are counted m-fold: equal epochs are equal "
        "numbers of weight updates. A hollow mark is a last evaluation on more images than those before it.",
        blocks=blocks,
    )


def _chart(task: Task) -> Lines | None:
    series = [one for group in task.groups if (one := _series(group)) is not None]
    if all(sum(len(curve.y) for curve in one.curves if curve.panel == 0) < 2 for one in series):
        return None
    return Lines(
        title=task.title,
        description=f"Robust training error, test error and gap of {', '.join(one.name for one in series)}",
        axes=[Axis(key=key, label=text) for key, (_, text) in AXES.items()],
        panels=PANELS,
        series=series,
        numbers=_numbers(series),
    )


def _series(group: Group) -> Series | None:
    histories = [run.history for run in group.runs if run.history]
    if not histories:
        return None
    curves = _curves([comparable(history) for history in histories], apart=False)
    ends = larger_last(histories)
    return Series(name=group.label, curves=[*curves, *(_curves(ends, apart=True) if ends else [])])


def _curves(histories: list[list[dict[str, Any]]], *, apart: bool) -> list[Curve]:
    keep = thinned(min(map(len, histories)))
    x = {axis: errors(histories, key)[0][keep].tolist() for axis, (key, _) in AXES.items()}
    _, panels = errors(histories, "update")
    several = len(histories) > 1
    return [
        Curve(
            panel=place,
            x=x,
            y=rows.mean(0)[keep].tolist(),
            low=rows.min(0)[keep].tolist() if several and not apart else None,
            high=rows.max(0)[keep].tolist() if several and not apart else None,
            apart=apart,
        )
        for place, rows in enumerate(panels)
    ]


def _numbers(series: Sequence[Series]) -> Table:
    rows = []
    for one in series:
        for apart in (False, True):
            curves = [curve for curve in one.curves if curve.apart is apart]
            if curves:
                columns = zip(
                    *(curves[0].x[axis] for axis in AXES), *(curve.y for curve in curves), strict=True
                )
                rows += [[one.name, *(f"{value:.4g}" for value in values)] for values in columns]
    heads = ["algorithm", *LABELS.values(), "train error %", "test error %", "gap (points)"]
    return Table(caption="Learning curves as numbers, means over the seeds", columns=heads, rows=rows)
