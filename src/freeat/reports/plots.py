"""Plots: their look, safe for colour-blind readers, and learning curves in the form of Figure 1."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from freeat.files.documents import atomic
from freeat.training.records import Record

matplotlib.use("Agg")

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", ":", "-.")

HOLLOW: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "none", "markersize": 7}
"""Over a series' look: a mark of its own, apart from the line."""

SETTINGS: dict[str, Any] = {
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.7,
    "lines.markersize": 4,
}

AXES = {
    "epochs": ("equivalent_epoch", "epochs (Free's × m: equal numbers of weight updates)"),
    "updates": ("update", "weight updates"),
    "gradients": ("gradient_evaluations", "gradient evaluations (images)"),
    "seconds": ("seconds", "seconds"),
}

History = list[Record]


def look(place: int) -> dict[str, Any]:
    """Colour, marker and line of the series at this place; where the colours begin anew, the line is another."""
    rounds, at = divmod(place, len(OKABE_ITO))
    return {"color": OKABE_ITO[at], "marker": MARKERS[at], "linestyle": LINES[rounds % len(LINES)]}


def styled(**changes: Any) -> AbstractContextManager[None]:
    """Figures drawn inside have the look of this package; the caller's settings come back afterwards."""
    settings: Any = {**SETTINGS, **changes}  # the stub wants a literal type for every key
    return matplotlib.rc_context(settings)


def save_figure(figure: Any, path: Path) -> Path:
    """Write the figure whole and close it: PNG, PDF or SVG by the name's ending, PNG without one."""
    import matplotlib.pyplot as plt

    ending = path.suffix.lstrip(".") or "png"
    with atomic(path) as temporary:
        # A date would make every PDF another file.
        figure.savefig(temporary, format=ending, metadata={"CreationDate": None} if ending == "pdf" else None)
    plt.close(figure)
    return path


def draw_band(panel: Any, x: Any, rows: np.ndarray, name: str, looks: dict[str, Any]) -> None:
    """The mean over the seeds of values (seeds, points), with the band from the lowest to the highest."""
    panel.plot(x, rows.mean(0), label=name, markevery=max(1, len(x) // 8), **looks)
    if len(rows) > 1:
        panel.fill_between(x, rows.min(0), rows.max(0), color=looks["color"], alpha=0.15, linewidth=0)


def draw_curves(
    path: Path, series: Sequence[tuple[str, list[History]]], *, axis: str = "epochs", title: str
) -> None:
    """Mean over the seeds with the band between the lowest and the highest; PNG or PDF by the name's ending.

    Where the last evaluation was made on more images than those before it, it stands apart as a hollow mark.
    """
    import matplotlib.pyplot as plt

    panels = ("robust training error (%)", "robust test error (%)", "robust generalization gap (points)")
    key, label = AXES[axis]
    with styled():
        figure, axes = plt.subplots(1, 3, figsize=(11.5, 3.8), layout="constrained")
        seen_apart = False
        for place, (name, histories) in enumerate(series):
            x, values = errors([comparable(history) for history in histories], key)
            for panel, rows in zip(axes, values, strict=True):
                draw_band(panel, x, rows, name, look(place))
            if apart := larger_last(histories):
                x, values = errors(apart, key)
                for panel, rows in zip(axes, values, strict=True):
                    panel.plot(x, rows.mean(0), **(look(place) | HOLLOW))
                seen_apart = True
        if seen_apart:
            caption = "hollow: the last evaluation, on more images"
            axes[0].plot([], [], label=caption, marker="o", color="0.4", **HOLLOW)
        for panel, text in zip(axes, panels, strict=True):
            panel.set_title(text)
            panel.set_ylim(bottom=0 if panel is not axes[2] else None)
        axes[2].axhline(0, color="0.6", linewidth=0.8)
        axes[1].set_xlabel(label)
        figure.suptitle(title, fontsize=10.5)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)))
        save_figure(figure, path)


def comparable(history: History) -> History:
    """The records made on as many images as the first one, so that no step in the curve is one of the sample."""
    sizes = [(record.train.n, record.test.n) for record in history]
    return [record for record, size in zip(history, sizes, strict=True) if size == sizes[0]]


def larger_last(histories: list[History]) -> list[History]:
    """The last records that were made on more images than those before them, each a history of its own."""
    return [history[-1:] for history in histories if len(comparable(history)) < len(history)]


def errors(histories: list[History], key: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """The points all seeds have, as arrays (seeds, points): training error, test error, gap, in percent."""
    length = min(len(history) for history in histories)
    x = np.array(
        [[getattr(record, key) for record in history[:length]] for history in histories], float
    ).mean(0)

    accuracies = np.array(
        [
            [(record.train.robust_accuracy, record.test.robust_accuracy) for record in history[:length]]
            for history in histories
        ]
    )
    train, test = np.moveaxis(100 * (1 - accuracies), -1, 0)
    return x, [train, test, test - train]
