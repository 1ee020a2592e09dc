"""Evaluations under attack: their table, robust accuracy against the radius, and adversarial examples to look at."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freeat.errors import InputError
from freeat.evaluation.evaluator import Scores
from freeat.experiments.evaluations import SweepReport
from freeat.experiments.examples import AdversarialExamples
from freeat.reports.plots import look, save_figure, styled
from freeat.reports.tables import NOTHING, aligned, percent, percent_interval
from freeat.reports.text import accuracy_lines, run_remarks
from freeat.runs.results import StoredEvaluation
from freeat.units import in_255ths, radius_text

COLUMNS = (
    "model",
    "attack",
    "norm",
    "ε",
    "split",
    "n",
    "clean %",
    "robust %",
    "95 % interval",
    "turned wrong",
    "queries",
    "time",
)
ENTRY, LETTER = 0.65, 0.082
"""Inches that an entry of the legend takes: its mark with the space around it, and each letter of its name."""

ROWS = 8
"""Adversarial examples that are drawn."""


def robustness_lines(
    report: SweepReport, *, plot: Path | None = None, examples: Sequence[tuple[str, str]] = ()
) -> list[str]:
    """The whole report of a sweep, line by line; ``examples`` are pairs of a file and its picture."""
    lines = aligned([COLUMNS, *(_row(result) for result in report.results)])
    for gap in report.gaps:
        lines.append(
            f"gap of {gap.model} ({gap.attack}, {gap.norm} {radius_text(gap.eps)}): "
            f"{percent(gap.value)} points {percent_interval(gap.low, gap.high)}"
        )
    notes = dict.fromkeys(note for result in report.results for note in result.notes)
    lines += [f"note: {note}" for note in notes]
    lines += [f"{'ok' if check.passed else 'WARNING'}: {check.sentence}" for check in report.checks]
    if failed := [check for check in report.checks if not check.passed]:
        checks = "1 sanity check" if len(failed) == 1 else f"{len(failed)} sanity checks"
        lines.append(f"{checks} failed: do not trust these numbers before you know why.")
    lines += [f"stored in: {place}" for place in report.stored]
    if not report.stored:
        lines.append("nothing was stored: there is no place for it; name a folder with --out")
    if plot is not None:
        lines.append(f"plot: {plot}")
    return [*lines, *(f"examples: {arrays}, drawn in {picture}" for arrays, picture in examples)]


def trained_lines(report: SweepReport, algorithm: str, update: int) -> tuple[list[str], list[str]]:
    """A run that was evaluated as its training did: the table of its training, and what its reader must know."""
    splits = {result.split: result for result in report.results}
    (gap,) = report.gaps
    notes = list(dict.fromkeys(note for result in report.results for note in result.notes))
    scores = Scores(
        attack=gap.attack,
        iterate=splits["test"].iterate,
        norm=gap.norm,
        eps=gap.eps,
        train=splits["train"],
        test=splits["test"],
        gap=gap,
        clean_gap=gap.clean,
    )
    return accuracy_lines(algorithm, update, scores), run_remarks(algorithm, scores, notes)


def attack_text(attack: str, iterate: str, settings: Mapping[str, Any]) -> str:
    """The attack's name, with what about it is not as usual."""
    alpha, precision = settings.get("alpha"), settings.get("precision", "fp32")
    usual = "zero" if attack.startswith("fgsm") else "uniform"
    start = settings.get("start", usual)
    words = [
        "last" if iterate == "last" else "",
        "" if precision == "fp32" else precision,
        "" if alpha is None else f"α = {radius_text(alpha)}",
        "" if start == usual else f"{start} start",
    ]
    said = ", ".join(word for word in words if word)
    return f"{attack} ({said})" if said else attack


def _row(result: StoredEvaluation) -> tuple[str, ...]:
    return (
        result.model,
        attack_text(result.attack, result.iterate, result.settings),
        result.norm,
        radius_text(result.eps),
        result.split,
        str(result.n),
        percent(result.clean_accuracy),
        percent(result.robust_accuracy),
        percent_interval(*result.robust_interval),
        f"{result.turned_wrong} of {result.n - result.wrong_when_clean}",
        f"{result.queries.mean:.0f}" if result.queries else NOTHING,
        f"{result.seconds:.1f} s",
    )


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


def draw_examples(path: Path, examples: AdversarialExamples, *, rows: int = ROWS, title: str = "") -> None:
    """A row per image: original, perturbation magnified, adversarial, with true and given labels.

    Shown are the first images that the attack turned from right to wrong; where there are fewer, others follow.
    """
    import matplotlib.pyplot as plt

    shown = chosen(examples, rows)
    with styled(**{"axes.grid": False}):
        figure, axes = plt.subplots(
            len(shown), 3, figsize=(4.2, 1.45 * len(shown) + 0.4), layout="constrained", squeeze=False
        )
        for line, i in zip(axes, shown, strict=True):
            _draw_row(line, examples, i)
        if title:
            figure.suptitle(title, fontsize=10.5)
        save_figure(figure, path)


def chosen(examples: AdversarialExamples, rows: int) -> list[int]:
    """The images to show: first those that the attack turned from right to wrong, then others."""
    turned = examples.turned_wrong
    if not len(turned):
        raise InputError("no adversarial examples to draw: the file holds no images")
    return [int(i) for i in np.argsort(~turned, kind="stable")[:rows]]


def views(examples: AdversarialExamples, i: int) -> list[tuple[np.ndarray, str]]:
    """Image i, its perturbation magnified, and what the model was shown, each with a caption; values in [0, 1].

    An image that the model gets wrong without any perturbation is marked: no attack is needed there.
    """
    x, delta, classes = examples.x[i], examples.delta[i], examples.classes
    largest = float(np.abs(delta).max())
    factor = 0.5 / largest if largest else 1.0
    given = "right" if examples.predicted[i] == examples.y[i] else f"given: {classes[examples.predicted[i]]}"
    true = f"true: {classes[examples.y[i]]}"
    return [
        (_displayable(x), true if examples.clean_correct[i] else f"{true}\n(wrong when clean)"),
        (_displayable(0.5 + factor * delta), f"perturbation × {factor:.3g}"),
        (_displayable(np.clip(x + delta, 0, 1)), given),
    ]


def _draw_row(axes: Any, examples: AdversarialExamples, i: int) -> None:
    for axis, (picture, caption) in zip(axes, views(examples, i), strict=True):
        axis.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axis.set_title(caption, fontsize=8)
        axis.axis("off")


def _displayable(picture: np.ndarray) -> np.ndarray:
    """(C, H, W) as matplotlib and PIL want it: colours last, or one plane where there are not three channels."""
    return np.moveaxis(picture, 0, -1) if len(picture) == 3 else picture.mean(0)
