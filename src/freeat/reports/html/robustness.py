"""Robust accuracy against the radius (the form of Figures 2, 3, 6 to 9), transferred attacks, and examples."""

import base64
import io
from collections.abc import Iterator, Sequence
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
from freeat.reports.tables import (
    ReportTable,
    TableCell,
    ball_text,
    percent,
    share_cell,
)
from freeat.runs.results import StoredEvaluation

MATRICES = 6


def robustness_section(evaluations: Sequence[StoredEvaluation]) -> Section:
    """Every attack made on the models themselves, against the radius."""
    own = [one for one in evaluations if one.source is None]
    return Section(
        key="robustness",
        title="Robust accuracy against the radius",
        lead="What part of the images is still classified right when the attack may move each by ε. Bands are 95 % "
        "intervals over the images (Wilson's).",
        blocks=_against_radius("Attacks on each model", own),
    )


def _against_radius(title: str, evaluations: Sequence[StoredEvaluation]) -> list[Block]:
    """A chart where there are several radii, the table alone where there is one, nothing where there is none."""
    radii = {one.eps for one in evaluations}
    if len(radii) > 1:
        return [radius_chart(title, evaluations)]
    return [evaluations_table(evaluations)] if radii else []


def transfer_section(evaluations: Sequence[StoredEvaluation]) -> Section:
    """Perturbations made on one model and applied to another, a matrix for each radius."""
    of_pairs = [one for one in evaluations if one.source is not None]
    keys = list(dict.fromkeys(_place(one) for one in of_pairs))
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
        blocks=[
            *(_matrix(of_pairs, key) for key in shown),
            *_against_radius("Transferred attacks", of_pairs),
        ],
    )


def _place(one: StoredEvaluation) -> tuple[str, float, str, str]:
    """The matrix that an evaluation belongs to."""
    return one.norm, one.eps, one.split, one.attack.split(FROM)[0]


def _matrix(evaluations: Sequence[StoredEvaluation], key: tuple[str, float, str, str]) -> AccuracyMatrix:
    norm, eps, split, attack = key
    own = {(one.source, one.model): one.robust_accuracy for one in evaluations if _place(one) == key}
    sources, targets = (sorted(set(names)) for names in zip(*own, strict=True))
    return AccuracyMatrix(
        caption=f"{attack}, {ball_text(norm, eps)}, {split} images",
        corner="made on ↓, evaluated →",
        columns=targets,
        rows=[(source, [own.get((source, target)) for target in targets]) for source in sources],
    )


def evaluated_again(evaluations: Sequence[StoredEvaluation]) -> Section:
    """What ``freeat evaluate`` found on both splits: the gap of the same weights under other attacks and radii."""
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
                share_cell(gap.value, gap.low, gap.high),
                percent(test.clean_accuracy),
            ]
        )
    columns = ("model", "attack", "ball", "robust train %", "robust test %", "robust gap", "clean test %")
    table = ReportTable(
        caption="Models under other attacks or radii", columns=columns, rows=rows, text_columns=3
    )
    return Section(
        key="evaluations",
        title="Evaluated again",
        lead="The same weights, evaluated on both splits by another attack or at another radius than while training.",
        blocks=[table] if rows else [],
    )


def largest_samples(evaluations: Sequence[StoredEvaluation]) -> list[StoredEvaluation]:
    """The evaluations in order; of the same one made on several numbers of images, that on the most."""
    best: dict[tuple[str | float, ...], StoredEvaluation] = {}
    for one in sorted(evaluations, key=lambda one: one.n):
        best[one.model, one.attack, one.split, one.eps, one.weights, one.norm, one.seed] = one
    return sorted(best.values(), key=lambda one: (one.model, one.attack, one.split, one.eps))


ROWS = 8
BUDGET = 1_500_000
"""Characters that pictures may take of the page."""


def examples_section(files: Sequence[ExampleFile]) -> tuple[Section, list[str]]:
    """A block for every file as far as the budget goes, and sentences about what was left out.

    Of every attack on a model one radius is open, the smallest at which a whole block was fooled.
    """
    blocks: list[ExampleImages] = []
    left_out, spent, opened = [], 0, set()
    for file in _by_attack(files):
        try:
            examples = load_examples(file.path)
            block = _block(_title(file), examples)
        except (InputError, IndexError) as error:
            left_out.append(f"{file.path} holds no adversarial examples that can be shown: {error}")
            continue
        size = sum(len(picture.source) for _, row in block.rows for picture in row)
        if spent + size > BUDGET:
            left_out.append(f"{_title(file)}: the page has no room for its pictures")
            continue
        spent += size
        fooled = int(examples.turned_wrong.sum())
        folded = _line(file) in opened or (fooled < ROWS and not _is_last(file, files))
        if not folded:
            opened.add(_line(file))
        blocks.append(replace(block, folded=folded))
    section = Section(
        key="examples",
        title="Adversarial examples",
        lead="The image, its perturbation δ magnified, and what the model was shown. Images that the attack turned"
        " from right to wrong come first.",
        blocks=[block for folded in (False, True) for block in blocks if block.folded is folded],
    )
    return section, left_out


def _line(file: ExampleFile) -> tuple[str, ...]:
    """What the files of one attack have in common: all but the radius."""
    if (one := file.evaluation) is None:
        return (str(file.path),)
    return one.model, one.attack, one.norm, one.split


def _radius(file: ExampleFile) -> float:
    return 0.0 if file.evaluation is None else file.evaluation.eps


def _by_attack(files: Sequence[ExampleFile]) -> Iterator[ExampleFile]:
    """Attack by attack, the radii ascending."""
    for line in dict.fromkeys(_line(file) for file in files):
        yield from sorted((file for file in files if _line(file) == line), key=_radius)


def _is_last(file: ExampleFile, files: Sequence[ExampleFile]) -> bool:
    return all(_radius(other) <= _radius(file) for other in files if _line(other) == _line(file))


def _title(file: ExampleFile) -> str:
    if (one := file.evaluation) is None:
        return file.path.stem
    return f"{one.model}: {one.attack}, {ball_text(one.norm, one.eps)}, {one.split} images"


def _block(title: str, examples: AdversarialExamples) -> ExampleImages:
    rows = []
    for i in _shown(examples):
        pictures = [
            ExampleImage(
                source=data_uri(picture), text=caption.replace("perturbation", "δ")
            )  # they are narrow
            for picture, caption in views(examples, i)
        ]
        rows.append((f"image {examples.index[i]}", pictures))
    return ExampleImages(caption=title, heads=("image", "perturbation", "what the model saw"), rows=rows)


def _shown(examples: AdversarialExamples) -> list[int]:
    """Images that were right before the attack, as long as there are any."""
    attacked = [i for i in chosen(examples, len(examples.y)) if examples.clean_correct[i]]
    return attacked[:ROWS] or chosen(examples, ROWS)


def data_uri(picture: Any) -> str:
    """An array of values in [0, 1], (H, W) or (H, W, 3), as a PNG inside a URI."""
    levels = np.clip(np.rint(255 * np.asarray(picture)), 0, 255).astype(np.uint8)
    with io.BytesIO() as file:
        Image.fromarray(levels).save(file, format="PNG", optimize=True)
        return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
