"""Adversarial examples to look at, from the ``.npz`` files that ``freeat attack --examples`` stored."""

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from freeat.errors import InputError
from freeat.experiments.examples import load_examples
from freeat.reports.html.blocks import Picture, Pictures, Section
from freeat.reports.html.gather import Examples
from freeat.reports.html.tasks import NORMS
from freeat.reports.pictures import chosen, views
from freeat.units import radius_text

ROWS = 8
BUDGET = 1_500_000
"""Characters that pictures may take of the page."""


def examples_section(files: Sequence[Examples]) -> tuple[Section | None, list[str]]:
    """A block for every file as far as the budget goes, and sentences about what was left out.

    Of every attack on a model one radius is open, the smallest at which a whole block was fooled.
    """
    blocks: list[Pictures] = []
    left_out, spent, opened = [], 0, set()
    for file in _by_attack(files):
        try:
            examples = load_examples(file.path)
            block = _block(_title(file), examples)
        except (InputError, KeyError, IndexError) as error:
            left_out.append(f"{file.path} holds no adversarial examples that can be shown: {error}")
            continue
        size = sum(len(picture.source) for _, row in block.rows for picture in row)
        if spent + size > BUDGET:
            left_out.append(f"{_title(file)}: the page has no room for its pictures")
            continue
        spent += size
        fooled = int((examples["clean_correct"] & (examples["predicted"] != examples["y"])).sum())
        folded = _line(file) in opened or (fooled < ROWS and not _is_last(file, files))
        if not folded:
            opened.add(_line(file))
        blocks.append(replace(block, folded=folded))
    if not blocks:
        return None, left_out
    section = Section(
        key="examples",
        title="Adversarial examples",
        lead="The image, its perturbation δ magnified, and what the model was shown. Images that the attack turned"
        " from right to wrong come first.",
        blocks=[block for folded in (False, True) for block in blocks if block.folded is folded],
    )
    return section, left_out


def _line(file: Examples) -> tuple[str, ...]:
    """What the files of one attack have in common: all but the radius."""
    if file.cell is None:
        return (str(file.path),)
    return tuple(str(file.cell[key]) for key in ("model", "attack", "norm", "split"))


def _radius(file: Examples) -> float:
    return 0.0 if file.cell is None else float(file.cell["eps"])


def _by_attack(files: Sequence[Examples]) -> Iterator[Examples]:
    """Attack by attack, the radii ascending."""
    for line in dict.fromkeys(_line(file) for file in files):
        yield from sorted((file for file in files if _line(file) == line), key=_radius)


def _is_last(file: Examples, files: Sequence[Examples]) -> bool:
    return all(_radius(other) <= _radius(file) for other in files if _line(other) == _line(file))


def _title(file: Examples) -> str:
    if file.cell is None:
        return file.path.stem
    cell = file.cell
    ball = f"{NORMS.get(cell['norm'], cell['norm'])} ε = {radius_text(cell['eps'])}"
    return f"{cell['model']}: {cell['attack']}, {ball}, {cell['split']} images"


def _block(title: str, examples: dict[str, Any]) -> Pictures:
    rows = []
    for i in _shown(examples):
        pictures = [
            Picture(source=data_uri(picture), text=caption.replace("perturbation", "δ"))  # they are narrow
            for picture, caption in views(examples, i)
        ]
        rows.append((f"image {examples['index'][i]}", pictures))
    return Pictures(caption=title, heads=("image", "perturbation", "what the model saw"), rows=rows)


def _shown(examples: dict[str, Any]) -> list[int]:
    """Images that were right before the attack, as long as there are any."""
    attacked = [i for i in chosen(examples, len(examples["y"])) if examples["clean_correct"][i]]
    return attacked[:ROWS] or chosen(examples, ROWS)


def data_uri(picture: Any) -> str:
    """An array of values in [0, 1], (H, W) or (H, W, 3), as a PNG inside a URI."""
    levels = np.clip(np.rint(255 * np.asarray(picture)), 0, 255).astype(np.uint8)
    with io.BytesIO() as file:
        Image.fromarray(levels).save(file, format="PNG", optimize=True)
        return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
