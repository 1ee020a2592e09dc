"""Learning curves in the form of Figure 1: robust training error, test error and gap."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freeat.files.documents import atomic
from freeat.reports.style import HOLLOW, look, styled

History = list[dict[str, Any]]

AXES = {
    "epochs": ("equivalent_epoch", "epochs (Free's × m: equal numbers of weight updates)"),
    "updates": ("update", "weight updates"),
    "passes": ("gradient_passes", "gradient passes (images)"),
    "seconds": ("seconds", "seconds"),
}


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
            _draw_line(axes, [comparable(history) for history in histories], key, name, look(place))
            apart = [history[-1:] for history in histories if len(comparable(history)) < len(history)]
            if apart:
                _draw_apart(axes, apart, key, look(place))
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
        with atomic(path) as temporary:
            figure.savefig(temporary, format=path.suffix.lstrip("."))
        plt.close(figure)


def _draw_line(axes: Any, histories: list[History], key: str, name: str, looks: dict[str, Any]) -> None:
    x, values = aligned(histories, key)
    for panel, rows in zip(axes, values, strict=True):
        panel.plot(x, rows.mean(0), label=name, markevery=max(1, len(x) // 8), **looks)
        if len(rows) > 1:
            panel.fill_between(x, rows.min(0), rows.max(0), color=looks["color"], alpha=0.15, linewidth=0)


def _draw_apart(axes: Any, histories: list[History], key: str, looks: dict[str, Any]) -> None:
    x, values = aligned(histories, key)
    for panel, rows in zip(axes, values, strict=True):
        panel.plot(x, rows.mean(0), **(looks | HOLLOW))


def comparable(history: History) -> History:
    """The records made on as many images as the first one, so that no step in the curve is one of the sample."""
    sizes = [(record["train"].get("n"), record["test"].get("n")) for record in history]
    return [record for record, size in zip(history, sizes, strict=True) if size == sizes[0]]


def aligned(histories: list[History], key: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """The points all seeds have, as arrays (seeds, points): training error, test error, gap, in percent."""
    length = min(len(history) for history in histories)
    x = np.array([[record[key] for record in history[:length]] for history in histories], float).mean(0)

    def of(split: str) -> np.ndarray:
        rows = [[record[split]["robust_accuracy"] for record in history[:length]] for history in histories]
        return 100 * (1 - np.array(rows, float))

    train, test = of("train"), of("test")
    return x, [train, test, test - train]
