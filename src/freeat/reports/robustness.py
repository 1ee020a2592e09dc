"""Evaluations under attack: their table, robust accuracy against the radius, and adversarial examples to look at."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from freeat.algorithms.registry import parse_algorithm
from freeat.data.images import stratified_order
from freeat.errors import InputError
from freeat.evaluation.evaluator import Scores
from freeat.evaluation.statistics import class_text
from freeat.experiments.evaluations import SweepReport
from freeat.experiments.examples import AdversarialExamples
from freeat.reports.charts import ChartAxis, ChartPanel, ChartSeries, Curve, LineChart
from freeat.reports.plots import draw_line_chart, save_figure, styled
from freeat.reports.tables import NO_VALUE, ReportTable, norm_text, percent, percent_interval, seconds_text
from freeat.reports.text import accuracy_lines, run_remarks
from freeat.runs.results import StoredEvaluation
from freeat.runs.spec import TrainSpec
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
ROWS = 8
"""Adversarial examples that are drawn."""


def robustness_lines(
    report: SweepReport, *, plot: Path | None = None, examples: Sequence[tuple[str, str]] = ()
) -> list[str]:
    """The whole report of a sweep, line by line; ``examples`` are pairs of a file and its figure."""
    table = evaluations_table(with_attack_settings(report.results))
    lines = table.lines()
    for gap in report.gaps:
        lines.append(
            f"gap of {gap.model} ({gap.attack}, {gap.norm} {radius_text(gap.eps)}): "
            f"{percent(gap.value)} points {percent_interval(gap.low, gap.high)}"
        )
    lines += [f"note: {note}" for note in table.notes]
    lines += [f"{'ok' if check.passed else 'WARNING'}: {check.sentence}" for check in report.checks]
    if failed := [check for check in report.checks if not check.passed]:
        checks = "1 sanity check" if len(failed) == 1 else f"{len(failed)} sanity checks"
        lines.append(f"{checks} failed: do not trust these numbers before you know why.")
    lines += [f"stored in: {folder}" for folder in report.stored]
    if not report.stored:
        lines.append("nothing was stored: the model has no folder; name one with --out")
    if plot is not None:
        lines.append(f"plot: {plot}")
    return [*lines, *(f"examples: {arrays}, drawn in {figure}" for arrays, figure in examples)]


def trained_lines(
    report: SweepReport, spec: TrainSpec, weights: str, update: int
) -> tuple[list[str], list[str]]:
    """These weights of a run evaluated as in its training: the table of its training, with notes."""
    label = spec.label_of(weights)
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
        adversarial=parse_algorithm(spec.algorithm).adversarial,
    )
    return accuracy_lines(label, update, scores), run_remarks(label, scores, notes)


def attack_text(attack: str, iterate: str, settings: Mapping[str, Any]) -> str:
    """The attack's name, with settings that differ from the defaults."""
    alpha, precision = settings.get("alpha"), settings.get("precision", "fp32")
    usual = "zero" if attack.startswith("fgsm") else "uniform"
    start = settings.get("start", usual)
    changed = [
        "last" if iterate == "last" else "",
        "" if precision == "fp32" else precision,
        "" if alpha is None else f"α = {radius_text(alpha)}",
        "" if start == usual else f"{start} start",
    ]
    settings_text = ", ".join(filter(None, changed))
    return f"{attack} ({settings_text})" if settings_text else attack


def with_attack_settings(evaluations: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    """The evaluations, each attack named with its settings that differ from the defaults."""
    return [replace(one, attack=attack_text(one.attack, one.iterate, one.settings)) for one in evaluations]


def evaluations_table(evaluations: Sequence[StoredEvaluation]) -> ReportTable:
    """A row for every evaluation, with 95 % intervals over the images."""
    return ReportTable(
        caption="Every evaluation, with 95 % intervals over the images",
        columns=COLUMNS,
        rows=[_row(one) for one in evaluations],
        text_columns=5,
        notes=list(dict.fromkeys(note for one in evaluations for note in (*_constant(one), *one.notes))),
    )


def _constant(one: StoredEvaluation) -> list[str]:
    """The remark on a model that gives the same answer to every image."""
    if one.constant_answer is None:
        return []
    answer = class_text(one.constant_answer, one.constant_class)
    return [f"{one.model} answers {answer} to every {one.split} image: its gap says nothing."]


def _row(one: StoredEvaluation) -> tuple[str, ...]:
    return (
        one.model,
        one.attack,
        one.norm,
        radius_text(one.eps),
        one.split,
        str(one.n),
        percent(one.clean_accuracy),
        percent(one.robust_accuracy),
        percent_interval(*one.robust_interval),
        f"{one.turned_wrong} of {one.n - one.wrong_when_clean}",
        f"{one.queries.mean:.0f}" if one.queries else NO_VALUE,
        seconds_text(one.seconds),
    )


def draw_radii(path: Path, results: Sequence[StoredEvaluation], *, title: str = "") -> None:
    """Draw robust accuracy against the radius: PNG, PDF or SVG by the name's ending."""
    if not results:
        raise InputError("no results to draw: evaluate a model at one radius or more first")
    draw_line_chart(path, radius_chart(title, with_attack_settings(results)))


def radius_chart(title: str, evaluations: Sequence[StoredEvaluation]) -> LineChart:
    """Robust accuracy against the radius, in the form of Figures 2, 3 and 6 to 9, with 95 % intervals.

    A line for every model and attack, a panel for every norm and split; perturbations made on another model have
    a panel for each source.
    """
    panels = list(dict.fromkeys(_panel_title(one) for one in evaluations))
    axes = [ChartAxis(key="eps", label="radius ε"), ChartAxis(key="levels", label="radius ε in 255ths")]
    if in_255ths(one.eps for one in evaluations):
        axes.reverse()
    series = []
    for name, own in radius_lines(evaluations).items():
        by_panel = [[one for one in own if _panel_title(one) == panel] for panel in panels]
        curves = [_radius_curve(k, points) for k, points in enumerate(by_panel) if points]
        series.append(ChartSeries(name=name, curves=curves))
    return LineChart(
        title=title,
        description=f"Robust accuracy against the radius for {', '.join(one.name for one in series)}",
        axes=axes,
        panels=[ChartPanel(title=panel, unit="robust accuracy, %") for panel in panels],
        series=series,
        numbers=evaluations_table(evaluations),
    )


def _panel_title(one: StoredEvaluation) -> str:
    images = f"{one.split.replace('train_augmented', 'augmented train')} images, {norm_text(one.norm)}"
    return images if one.source is None else f"{one.attack}, {images}"


def radius_lines(evaluations: Sequence[StoredEvaluation]) -> dict[str, list[StoredEvaluation]]:
    """The evaluations by model, attack, number of images and seed, named by those in which any two differ."""
    settings = [
        ("" if one.source is not None else one.attack, f"{one.n} images", f"seed {one.seed}")
        for one in evaluations
    ]
    varied = [k for k, values in enumerate(zip(*settings, strict=True)) if len(set(values)) > 1]
    lines: dict[str, list[StoredEvaluation]] = {}
    for one, own in zip(evaluations, settings, strict=True):
        lines.setdefault(", ".join([one.model, *(own[k] for k in varied if own[k])]), []).append(one)
    return lines


def _radius_curve(panel: int, evaluations: Sequence[StoredEvaluation]) -> Curve:
    ordered = sorted(evaluations, key=lambda one: one.eps)
    return Curve(
        panel=panel,
        x={"eps": [one.eps for one in ordered], "levels": [255 * one.eps for one in ordered]},
        y=[100 * one.robust_accuracy for one in ordered],
        low=[100 * one.robust_interval[0] for one in ordered],
        high=[100 * one.robust_interval[1] for one in ordered],
    )


def draw_examples(path: Path, examples: AdversarialExamples, *, rows: int = ROWS, title: str = "") -> None:
    """A row per image: original, perturbation magnified, adversarial, with true and given labels.

    Shown are images that the attack turned from right to wrong; where there are fewer, others follow.
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
    """The images to show: first those that the attack turned from right to wrong, then others; of all classes."""
    turned = examples.turned_wrong
    if not len(turned):
        raise InputError("no adversarial examples to draw: the file holds no images")
    order = stratified_order(examples.y, examples.index, 0, "shown")
    return [int(i) for i in order[np.argsort(~turned[order], kind="stable")][:rows]]


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
    for axis, (image, caption) in zip(axes, views(examples, i), strict=True):
        axis.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axis.set_title(caption, fontsize=8)
        axis.axis("off")


def _displayable(image: np.ndarray) -> np.ndarray:
    """(C, H, W) as matplotlib and PIL want it: colours last, or one plane where there are not three channels."""
    return np.moveaxis(image, 0, -1) if len(image) == 3 else image.mean(0)
