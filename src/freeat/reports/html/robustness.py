"""Robust accuracy against the radius (the form of Figures 2, 3, 6 to 9), transferred attacks, and examples."""

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from freeat.errors import InputError
from freeat.experiments.examples import load_examples
from freeat.experiments.sweep import gaps
from freeat.files.documents import decoded
from freeat.reports.html.blocks import (
    Axis,
    Block,
    Cell,
    Curve,
    Lines,
    Matrix,
    Panel,
    Picture,
    Pictures,
    Section,
    Series,
    Table,
)
from freeat.reports.html.gather import FROM, Examples, Gathered, Json
from freeat.reports.html.numbers import ball_text, norm_text, seconds, share, thinned
from freeat.reports.pictures import chosen, views
from freeat.reports.robustness import attack_text
from freeat.reports.text import NOTHING, percent
from freeat.runs.results import StoredEvaluation
from freeat.units import in_255ths, radius_text

MATRICES = 6


def robustness_section(cells: Sequence[Json]) -> Section:
    """Every attack made on the models themselves, against the radius."""
    own = [cell for cell in cells if cell["source"] is None]
    return Section(
        key="robustness",
        title="Robust accuracy against the radius",
        lead="What part of the images is still classified right when the attack may move each by ε. Bands are 95 % "
        "intervals over the images (Wilson's).",
        blocks=_against_radius(own, "Attacks on each model"),
    )


def _against_radius(cells: Sequence[Json], title: str) -> list[Block]:
    """A chart where there are several radii, the table alone where there is one, nothing where there is none."""
    radii = {cell["eps"] for cell in cells}
    return [_chart(cells, title) if len(radii) > 1 else _table(cells)] if radii else []


def _panel(cell: Json) -> str:
    """Where a cell is drawn; attacks from each model have a panel of their own, as in Figure 3."""
    place = f"{cell['split']} images, {norm_text(cell['norm'])}"
    return f"{_attack(cell)}, {place}" if cell["source"] is not None else place


def _chart(cells: Sequence[Json], title: str) -> Lines:
    panels = list(dict.fromkeys(_panel(cell) for cell in cells))
    axes = [Axis(key="eps", label="radius ε"), Axis(key="levels", label="radius ε in 255ths")]
    if in_255ths(cell["eps"] for cell in cells):
        axes.reverse()
    series = []
    for name, own in _lines(cells).items():
        curves = [
            _curve([cell for cell in own if _panel(cell) == key], place) for place, key in enumerate(panels)
        ]
        series.append(Series(name=name, curves=[curve for curve in curves if curve.y]))
    return Lines(
        title=title,
        description=f"Robust accuracy against the radius for {', '.join(one.name for one in series)}",
        axes=axes,
        panels=[Panel(title=panel, unit="% right") for panel in panels],
        series=series,
        numbers=_table(cells),
    )


def _lines(cells: Sequence[Json]) -> dict[str, list[Json]]:
    """The cells by model and attack, named by what tells the lines apart."""
    made = [() if cell["source"] is not None else (_attack(cell),) for cell in cells]
    words = [
        (*own, f"{cell['n']} images", f"seed {cell['seed']}") for own, cell in zip(made, cells, strict=True)
    ]
    varied = [place for place, said in enumerate(zip(*words, strict=True)) if len(set(said)) > 1]
    lines: dict[str, list[Json]] = {}
    for cell, own in zip(cells, words, strict=True):
        lines.setdefault(", ".join([cell["model"], *(own[place] for place in varied)]), []).append(cell)
    return lines


def _curve(cells: list[Json], place: int) -> Curve:
    cells = sorted(cells, key=lambda cell: float(cell["eps"]))
    return Curve(
        panel=place,
        x={"eps": [cell["eps"] for cell in cells], "levels": [255 * cell["eps"] for cell in cells]},
        y=[100 * cell["robust_accuracy"] for cell in cells],
        low=[100 * cell["robust_interval"][0] for cell in cells],
        high=[100 * cell["robust_interval"][1] for cell in cells],
    )


def _table(cells: Sequence[Json]) -> Table:
    columns = ("model", "attack", "norm", "split", "ε", "images", "clean %", "robust %", "queries", "time")
    return Table(
        caption="Every measurement, with 95 % intervals over the images",
        columns=columns,
        rows=[_row(cell) for cell in cells],
        words=4,
        notes=list(dict.fromkeys(note for cell in cells for note in cell["notes"])),
    )


def _row(cell: Json) -> list[str | Cell]:
    return [
        cell["model"],
        _attack(cell),
        norm_text(cell["norm"]),
        cell["split"],
        radius_text(cell["eps"]),
        str(cell["n"]),
        percent(cell["clean_accuracy"]),
        share(cell["robust_accuracy"], *cell["robust_interval"]),
        f"{cell['queries']['mean']:.0f}" if cell["queries"] else NOTHING,
        seconds(cell["seconds"]),
    ]


def transfer_section(cells: Sequence[Json]) -> Section:
    """Perturbations made on one model and applied to another, a matrix for each radius."""
    of_pairs = [cell for cell in cells if cell["source"] is not None]
    keys = list(dict.fromkeys(_place(cell) for cell in of_pairs))
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
            *_against_radius(of_pairs, "Transferred attacks"),
        ],
    )


def _place(cell: Json) -> tuple[str, float, str, str]:
    """The matrix that a cell belongs to."""
    return cell["norm"], cell["eps"], cell["split"], cell["attack"].split(FROM)[0]


def _matrix(cells: Sequence[Json], key: tuple[str, float, str, str]) -> Matrix:
    norm, eps, split, attack = key
    own = {
        (cell["source"], cell["model"]): float(cell["robust_accuracy"])
        for cell in cells
        if _place(cell) == key
    }
    sources, targets = (sorted(set(names)) for names in zip(*own, strict=True))
    return Matrix(
        caption=f"{attack}, {ball_text(norm, eps)}, {split} images",
        corner="made on ↓, evaluated →",
        columns=targets,
        rows=[(source, [own.get((source, target)) for target in targets]) for source in sources],
    )


def evaluated_again(cells: Sequence[Json]) -> Section:
    """What ``freeat evaluate`` found on both splits: the gap of the same weights under other attacks and radii."""
    own = [decoded(cell | {"attack": _attack(cell)}, StoredEvaluation, "a result") for cell in cells]
    own = [result for result in own if result.source is None]
    found = {(one.model, one.attack, one.norm, one.eps, one.split): one for one in own}
    rows: list[list[str | Cell]] = []
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
                share(gap.value, gap.low, gap.high),
                percent(test.clean_accuracy),
            ]
        )
    columns = ("model", "attack", "ball", "robust train %", "robust test %", "robust gap", "clean test %")
    table = Table(caption="Models under other attacks or radii", columns=columns, rows=rows, words=3)
    return Section(
        key="evaluations",
        title="Evaluated again",
        lead="The same weights, evaluated on both splits by another attack or at another radius than while training.",
        blocks=[table] if rows else [],
    )


def _attack(cell: Json) -> str:
    return attack_text(cell["attack"], cell["iterate"], cell["settings"])


def attacked(found: Gathered) -> list[Json]:
    """The measurements; of the same one made on several numbers of images, that on the most."""
    best: dict[tuple[str, ...], Json] = {}
    for cell in sorted(found.measurements, key=lambda cell: int(cell["n"])):
        keys = ("model", "weights", "norm", "eps", "split", "seed")
        best[_attack(cell), *(str(cell[key]) for key in keys)] = cell
    kept = {id(cell) for cell in best.values()}
    ordered = [cell for cell in found.measurements if id(cell) in kept]
    return sorted(ordered, key=lambda cell: (cell["model"], cell["attack"], cell["split"], cell["eps"]))


ROWS = 8
BUDGET = 1_500_000
"""Characters that pictures may take of the page."""


def examples_section(files: Sequence[Examples]) -> tuple[Section, list[str]]:
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
    return (
        f"{cell['model']}: {cell['attack']}, {ball_text(cell['norm'], cell['eps'])}, {cell['split']} images"
    )


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
