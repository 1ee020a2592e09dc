"""Adversarial examples to look at, from the ``.npz`` files that ``freeat attack --examples`` stored."""

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from freeat.attacks.examples import load_examples
from freeat.errors import InputError
from freeat.reports.html.blocks import Block, Picture, Pictures, Section
from freeat.reports.pictures import chosen, views

ROWS = 8
BUDGET = 1_500_000
"""Characters that pictures may take of the page."""


def examples_section(files: Sequence[tuple[str, Path]]) -> tuple[Section | None, list[str]]:
    """A block for every file as far as the budget goes, and sentences about what was left out."""
    blocks: list[Block] = []
    left_out, spent = [], 0
    for name, path in files:
        try:
            block = _block(name, load_examples(path))
        except (InputError, KeyError, IndexError) as error:
            left_out.append(f"{path} holds no adversarial examples that can be shown: {error}")
            continue
        size = sum(len(picture.source) for _, row in block.rows for picture in row)
        if spent + size > BUDGET:
            left_out.append(f"{name}: the page has no room for its pictures")
            continue
        spent += size
        blocks.append(block)
    if not blocks:
        return None, left_out
    section = Section(
        key="examples",
        title="Adversarial examples",
        lead="The image, its perturbation magnified, and what the model was shown. Images that the attack turned"
        " from right to wrong come first.",
        blocks=blocks,
    )
    return section, left_out


def _block(name: str, examples: dict[str, Any]) -> Pictures:
    rows = []
    for i in chosen(examples, ROWS):
        shown = views(examples, i)
        pictures = [Picture(source=data_uri(picture), text=caption) for picture, caption in shown]
        rows.append((f"image {examples['index'][i]}", pictures))
    return Pictures(caption=name, heads=("image", "perturbation", "what the model saw"), rows=rows)


def data_uri(picture: Any) -> str:
    """An array of values in [0, 1], (H, W) or (H, W, 3), as a PNG inside a URI."""
    levels = np.clip(np.rint(255 * np.asarray(picture)), 0, 255).astype(np.uint8)
    with io.BytesIO() as file:
        Image.fromarray(levels).save(file, format="PNG", optimize=True)
        return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
