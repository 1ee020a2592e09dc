"""Robust accuracy against the radius, several models in one picture: the form of Figures 2, 3 and 6 to 9."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from freeat.errors import InputError
from freeat.reports.plots import look, save_figure, styled
from freeat.runs.results import StoredEvaluation
from freeat.units import in_255ths

ENTRY, LETTER = 0.65, 0.082
"""Inches that an entry of the legend takes: its mark with the space around it, and each letter of its name."""


def draw_radii(path: Path, results: Sequence[StoredEvaluation], *, title: str = "") -> None:
    """A line with its 95 % band per model and attack; one panel per norm and split. PNG, PDF or SVG by the name."""
    import matplotlib.pyplot as plt

    panels = list(dict.fromkeys((result.norm, result.split) for result in results))
    if not panels:
        raise InputError("no results to draw: evaluate a model at one radius or more first")
    series = list(dict.fromkeys((result.model, result.attack) for result in results))
    one_attack = len({attack for _, attack in series}) == 1
    names = {pair: pair[0] if one_attack else ", ".join(pair) for pair in series}
    scale, unit = (255, ", in 255ths") if in_255ths(result.eps for result in results) else (1, "")
    entry = ENTRY + LETTER * max(map(len, names.values()))
    width = max(4.2 * len(panels) + 0.6, entry + 0.4)
    with styled():
        figure, axes = plt.subplots(
            1, len(panels), figsize=(width, 3.8), layout="constrained", squeeze=False, sharey=True
        )
        for axis, (norm, split) in zip(axes[0], panels, strict=True):
            for place, (model, attack) in enumerate(series):
                line = _line(results, model=model, attack=attack, norm=norm, split=split)
                if line:
                    _draw(axis, line, names[model, attack], place, scale)
            axis.set_xlabel(f"radius ε ({'L2' if norm == 'l2' else 'Linf'}){unit}")
            axis.set_title(f"{split} images" + (f", {series[0][1]}" if one_attack else ""))
            axis.set_ylim(bottom=0)
        axes[0][0].set_ylabel("robust accuracy (%)")
        if title:
            figure.suptitle(title, fontsize=10.5)
        handles, labels = axes[0][0].get_legend_handles_labels()
        columns = max(1, min(len(labels), int((width - 0.4) / entry)))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)
        save_figure(figure, path)


def _line(results: Sequence[StoredEvaluation], **wanted: str) -> list[StoredEvaluation]:
    chosen = [one for one in results if all(getattr(one, name) == value for name, value in wanted.items())]
    return sorted(chosen, key=lambda result: result.eps)


def _draw(axis: Any, line: list[StoredEvaluation], label: str, place: int, scale: int) -> None:
    eps = [scale * result.eps for result in line]
    axis.plot(eps, [100 * result.robust_accuracy for result in line], label=label, **look(place))
    low, high = ([100 * result.robust_interval[end] for result in line] for end in (0, 1))
    axis.fill_between(eps, low, high, color=look(place)["color"], alpha=0.15, linewidth=0)
