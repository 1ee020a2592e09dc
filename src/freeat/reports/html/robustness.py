"""Robust accuracy against the radius (the form of Figures 2, 3, 6 to 9), transferred attacks, and examples."""

import base64
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from freeat.errors import InputError
from freeat.experiments.evaluations import gaps
from freeat.experiments.examples import AdversarialExamples, load_examples
from freeat.reports.charts import thinned
from freeat.reports.html.blocks import AccuracyMatrix, Block, ExampleImage, ExampleImages, Section
from freeat.reports.html.gather import FROM, ExampleFile
from freeat.reports.robustness import chosen, evaluations_table, radius_chart, views
from freeat.reports.tables import ReportTable, TableCell, ball_text, percent, percent_interval
from freeat.runs.results import StoredEvaluation

MATRICES = 6


def robustness_section(evaluations: Sequence[StoredEvaluation]) -> Section:
    """Robust accuracy against the radius for attacks on the model itself (not transferred)."""
    own = [one for one in evaluations if one.source is None]
    return Section(
        key="robustness",
        title="Robust accuracy against the radius",
        lead="The share of images that stay correctly classified when an attack may perturb each by at most ε. Bands "
        "are 95 % intervals over the images (Wilson's).",
        blocks=_against_radius("Attacks on each model", own),
    )


def _against_radius(title: str, evaluations: Sequence[StoredEvaluation]) -> list[Block]:
    """A chart if there are several radii, only the table if there is one."""
    radii = {one.eps for one in evaluations}
    if len(radii) > 1:
        return [radius_chart(title, evaluations)]
    return [evaluations_table(evaluations)] if radii else []


def transfer_section(evaluations: Sequence[StoredEvaluation]) -> Section:
    """Transferred attacks: a source × target matrix for each radius."""
    transferred = [one for one in evaluations if one.source is not None]
    keys = list(dict.fromkeys(_matrix_key(one) for one in transferred))
    shown = [keys[k] for k in thinned(len(keys), MATRICES)]
    more = len(keys) - len(shown)
    left_out = f" {more} more radii are in the numbers of the chart." if more else ""
    return Section(
        key="transfer",
        title="Transferred attacks",
        lead="Robust accuracy, in %, of the model in the column against perturbations made on the model in the row. "
        f"Where both are the same, the attack is a white-box attack.{left_out}",
        blocks=[
            *(_matrix(transferred, key) for key in shown),
            *_against_radius("Transferred attacks", transferred),
        ],
    )


def _matrix_key(one: StoredEvaluation) -> tuple[str, float, str, str]:
    """The matrix that an evaluation belongs to."""
    return one.norm, one.eps, one.split, one.attack.split(FROM)[0]


def _matrix(evaluations: Sequence[StoredEvaluation], key: tuple[str, float, str, str]) -> AccuracyMatrix:
    norm, eps, split, attack = key
    own = {(one.source, one.model): one.robust_accuracy for one in evaluations if _matrix_key(one) == key}
    sources, targets = (sorted(set(names)) for names in zip(*own, strict=True))
    return AccuracyMatrix(
        caption=f"{attack}, {ball_text(norm, eps)}, {split} images",
        corner="source ↓, target →",
        columns=targets,
        rows=[(source, [own.get((source, target)) for target in targets]) for source in sources],
    )


def gaps_section(evaluations: Sequence[StoredEvaluation]) -> Section:
    """The gap of the same weights by attack and radius, from evaluations on both splits."""
    own = [one for one in evaluations if one.source is None]
    found = {(one.model, one.attack, one.norm, one.eps, one.split): one for one in own}
    rows: list[list[str | TableCell]] = []
    for gap in gaps(own):
        key = (gap.model, gap.attack, gap.norm, gap.eps)
        train, test = found[*key, "train"], found[*key, "test"]
        rows.append(
            [
                gap.model,
                gap.attack,
                ball_text(gap.norm, gap.eps),
                percent(train.robust_accuracy),
                percent(test.robust_accuracy),
                TableCell(text=percent(gap.value), detail=percent_interval(gap.low, gap.high)),
                percent(test.clean_accuracy),
            ]
        )
    columns = ("model", "attack", "ball", "robust train %", "robust test %", "robust gap", "clean test %")
    table = ReportTable(
        caption="Generalization gap by attack and radius", columns=columns, rows=rows, text_columns=3
    )
    return Section(
        key="evaluations",
        title="Generalization gap by attack",
        lead="The same weights on both splits, under every attack and radius that they were evaluated with.",
        blocks=[table] if rows else [],
    )


def largest_samples(evaluations: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    """The evaluations in order; of those that differ only in n, the one with the largest n."""
    best: dict[tuple[str | float, ...], StoredEvaluation] = {}
    for one in sorted(evaluations, key=lambda one: one.n):
        best[one.model, one.attack, one.split, one.eps, one.weights, one.norm, one.seed] = one
    return sorted(best.values(), key=lambda one: (one.model, one.attack, one.split, one.eps))


ROWS = 8
MAX_IMAGE_SIZE = 1_500_000
"""The most characters that images may add to the page."""


def examples_section(files: Sequence[ExampleFile]) -> tuple[Section, list[str]]:
    """A block for every file as long as there is room, and sentences about what was left out.

    Of every attack on a model one radius is open, the smallest at which it fooled ``ROWS`` images, or the largest.
    """
    opened, folded = [], []
    left_out, size = [], 0
    for radii in _by_attack(files):
        is_open = False
        for file in radii:
            try:
                examples = load_examples(file.path)
                block = _block(_title(file), examples)
            except (InputError, IndexError) as error:
                left_out.append(f"{file.path} holds no adversarial examples that can be shown: {error}")
                continue
            own_size = sum(len(image.source) for _, row in block.rows for image in row)
            if size + own_size > MAX_IMAGE_SIZE:
                left_out.append(f"{_title(file)}: the page has no room for its images")
                continue
            size += own_size
            if not is_open and (examples.turned_wrong.sum() >= ROWS or file is radii[-1]):
                is_open = True
                opened.append(block)
            else:
                folded.append(replace(block, folded=True))
    section = Section(
        key="examples",
        title="Adversarial examples",
        lead="The image, its perturbation δ magnified, and the adversarial example. Images whose classification the "
        "attack turned from correct to wrong come first.",
        blocks=[*opened, *folded],
    )
    return section, left_out


def _by_attack(files: Sequence[ExampleFile]) -> list[list[ExampleFile]]:
    """The files of each attack on a model, the radii ascending."""
    groups: dict[tuple[str, ...], list[tuple[float, ExampleFile]]] = {}
    for file in files:
        if (one := file.evaluation) is None:
            groups[(str(file.path),)] = [(0.0, file)]
        else:
            groups.setdefault((one.model, one.attack, one.norm, one.split), []).append((one.eps, file))
    return [[file for _, file in sorted(own, key=lambda pair: pair[0])] for own in groups.values()]


def _title(file: ExampleFile) -> str:
    if (one := file.evaluation) is None:
        return file.path.stem
    return f"{one.model}: {one.attack}, {ball_text(one.norm, one.eps)}, {one.split} images"


def _block(title: str, examples: AdversarialExamples) -> ExampleImages:
    """Images that were classified correctly before the attack, or any images where there are none."""
    correct = [i for i in chosen(examples, len(examples.y)) if examples.clean_correct[i]]
    rows = []
    for i in correct[:ROWS] or chosen(examples, ROWS):
        images = [
            ExampleImage(source=data_uri(image), text=caption.replace("perturbation", "δ"))  # they are narrow
            for image, caption in views(examples, i)
        ]
        rows.append((f"image {examples.index[i]}", images))
    return ExampleImages(caption=title, heads=("image", "perturbation", "adversarial example"), rows=rows)


def data_uri(image: Any) -> str:
    """An array of values in [0, 1], (H, W) or (H, W, 3), as a PNG inside a URI."""
    levels = np.clip(np.rint(255 * np.asarray(image)), 0, 255).astype(np.uint8)
    with io.BytesIO() as file:
        Image.fromarray(levels).save(file, format="PNG", optimize=True)
        return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
