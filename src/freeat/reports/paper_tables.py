"""The paper's tables, published beside measured, in the paper's layout: terminal, Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freeat.experiments.paper.documents import Printed, Row, SeedMean, Table
from freeat.reports.tables import NOTHING, percent_spread

if TYPE_CHECKING:
    from rich.table import Table as RichTable

DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "Tiny-ImageNet", "svhn": "SVHN"}
NORMS = {"l2": "L2", "linf": "Linf"}
LABELS = {
    "erm": "ERM",
    "fast": "Fast",
    "fast-7/255": "Fast (7/255)",
    "fast-10/255": "Fast (10/255)",
    "friendly-10": "Friendly (ε)",
    "friendly-10-2eps": "Friendly (2ε)",
    "trades-10": "TRADES",
    "free-trades-4": "Free-TRADES",
}
NETWORKS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50", "wrn34": "Wide-ResNet-34"}
COLUMNS = {
    "clean_train": "Clean Train Acc.",
    "clean_test": "Clean Test Acc.",
    "clean_gap": "Clean Gen. Gap",
    "robust_train": "Robust Train Acc.",
    "robust_test": "Robust Test Acc.",
    "robust_gap": "Robust Gen. Gap",
}


def data_name(data: str) -> str:
    return DATA.get(data, data)


def norm_name(norm: str) -> str:
    return NORMS.get(norm, norm)


def label_name(label: str) -> str:
    """An algorithm as the paper writes it; ``vanilla-10`` is Vanilla-10."""
    return LABELS.get(label, label[:1].upper() + label[1:])


def panel_name(data: str, norm: str, panel: str) -> str:
    """The title of a figure's panel."""
    if panel.startswith("from "):
        panel = f"perturbations from {label_name(panel.removeprefix('from '))}"
    elif panel:
        panel = f"target {NETWORKS.get(panel, panel)}"
    return ", ".join(word for word in (data_name(data), norm_name(norm), panel) if word)


MISPRINT = "†"
SIDE_BY_SIDE = ("table-2", "table-3", "table-6")
"""The tables that put the norms beside each other; the others put the blocks below each other."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """An algorithm, under the heading of its block where blocks stand side by side."""

    name: str
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of the grid: its leading words, then a text per column."""

    words: tuple[str, ...]
    cells: tuple[str, ...]
    opens_block: bool = False


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Headings and lines; ``words`` are the headings of the leading columns."""

    words: tuple[str, ...]
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    @property
    def grouped(self) -> bool:
        return any(column.group for column in self.columns)

    def groups(self) -> list[tuple[str, int]]:
        """Headings above the columns, with how many columns they span."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if spans and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1] + 1)
            else:
                spans.append((column.group, 1))
        return spans


def grids(table: Table) -> list[Grid]:
    """The table as one grid, or as one for each data set where the paper stacks them."""
    if table.name not in SIDE_BY_SIDE:
        return [_below(table)]
    datas = dict.fromkeys(row.data for row in table.rows)
    return [_beside(table, data) for data in datas]


def _below(table: Table) -> Grid:
    """Tables 1, 4, 5: the blocks below each other, a column per algorithm."""
    labels = list(dict.fromkeys(row.label for row in table.rows))
    blocks = list(dict.fromkeys((row.data, row.norm) for row in table.rows))
    lines = []
    for data, norm in blocks:
        own = {row.label: row for row in table.rows if (row.data, row.norm) == (data, norm)}
        block = (data_name(data), norm_name(norm))
        lines += list(_lines(table.columns, [own.get(label) for label in labels], block))
    return Grid(
        words=("Dataset", "Attack", "Results (%)", ""),
        columns=tuple(Column(name=label_name(label)) for label in labels),
        lines=tuple(lines),
    )


def _beside(table: Table, data: str) -> Grid:
    """Tables 2, 3, 6: one data set, its norms side by side."""
    rows = [row for row in table.rows if row.data == data]
    return Grid(
        words=("Results (%)", ""),
        columns=tuple(
            Column(name=label_name(row.label), group=f"{data_name(data)}, {norm_name(row.norm)} attack")
            for row in rows
        ),
        lines=tuple(_lines(table.columns, rows, ())),
    )


def _lines(columns: Sequence[str], rows: Sequence[Row | None], block: tuple[str, ...]) -> Iterator[Line]:
    """For each result: the paper's numbers, ours, and ours on the plain training images where that differs."""
    opens = True
    for column in columns:
        for source in ("published", *views(column)):
            words = (
                *(block if opens else [""] * len(block)),
                COLUMNS[column] if source == "published" else "",
            )
            cells = tuple(_cell(row, source, column) for row in rows)
            yield Line(words=(*words, SOURCES[source]), cells=cells, opens_block=opens)
            opens = False


def views(column: str) -> tuple[str, ...]:
    """How a column was measured: on the augmented images as in the paper, and plain; test images are always plain."""
    return ("measured",) if column.endswith("_test") else ("measured", "plain")


SOURCES = {"published": "paper", "measured": "measured", "plain": "measured, plain images"}


def _cell(row: Row | None, source: str, column: str) -> str:
    if row is None:
        return NOTHING
    if source == "published":
        return _printed((row.published or {}).get(column))
    mean = ((row.measured if source == "measured" else row.plain) or {}).get(column)
    return NOTHING if mean is None else percent_spread(mean.mean, mean.std)


def _printed(number: Printed | None) -> str:
    if number is None:
        return NOTHING
    std = "" if number.std is None else f" ± {number.std:.1f}"
    return f"{number.value:.1f}{std}" + (MISPRINT if number.recomputed is not None else "")


def notes(table: Table) -> list[str]:
    """What a reader of the table must know."""
    lines = [
        "Measured: mean ± standard deviation over the seeds; without ± there was one seed. Training accuracy is on "
        "augmented images, as in the paper, and on the images as they are where it says plain."
    ]
    at_chance, fewer = [], []
    for row in table.rows:
        name = f"{data_name(row.data)}, {norm_name(row.norm)}, {label_name(row.label)}"
        for column, cell in (row.published or {}).items():
            if cell.recomputed is not None:
                lines.append(
                    f"{MISPRINT} {name}: printed {COLUMNS[column].lower()} {cell.value:.1f}, "
                    f"its columns give {cell.recomputed:.1f}."
                )
        if row.above_chance is False:
            at_chance.append(name)
        if row.collapsed:
            lines.append(f"{name} had collapsed in {row.collapsed} of {row.seeds} runs.")
        if row.seeds < len(row.runs):
            fewer.append(f"{name} ({row.seeds} of {len(row.runs)})")
    if at_chance:
        lines.append(f"Not above chance, so that their gaps say nothing: {'; '.join(at_chance)}.")
    if fewer:
        lines.append(f"Finished with fewer seeds than asked for: {'; '.join(fewer)}.")
    return [*lines, *table.notes]


LATEX = {
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "±": r"$\pm$",
    "–": "--",
    "−": "$-$",
    "ε": r"$\varepsilon$",
    "α": r"$\alpha$",
    "†": r"$^\dagger$",
    "≥": r"$\geq$",
    "Linf": r"$\ell_\infty$",
    "L2": r"$\ell_2$",
}

CSV_FIELDS = (
    *("table", "data", "norm", "algorithm", "column", "view"),
    *("published", "published_std", "recomputed"),
    *("mean", "std", "low", "high", "seeds"),
)
VIEWS = {"measured": "augmented", "plain": "plain"}


def number(table: Table) -> str:
    """``table-1`` is Table 1."""
    return table.name.replace("-", " ").capitalize()


def markdown(table: Table) -> str:
    """The table in Markdown."""
    parts = [f"# {number(table)}: {table.title}"]
    for grid in grids(table):
        names = _joined(grid)
        lines = ["| " + " | ".join([*grid.words, *names]) + " |"]
        lines.append("|" + "---|" * len(grid.words) + "---:|" * len(names))
        lines += ["| " + " | ".join([*line.words, *line.cells]) + " |" for line in grid.lines]
        parts.append("\n".join(lines))
    parts.append("\n".join(f"- {note}" for note in notes(table)))
    return "\n\n".join(parts) + "\n"


def latex(table: Table) -> str:
    """The table in LaTeX; needs the package booktabs."""
    lines = [r"\begin{table}", r"  \centering", rf"  \caption{{{_tex(table.title)}}}"]
    lines.append(rf"  \label{{tab:{table.name}}}")
    for grid in grids(table):
        lines += [f"  {line}" for line in _tabular(grid)]
    lines += [rf"  \par\footnotesize {_tex(note)}" for note in notes(table)]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _tabular(grid: Grid) -> list[str]:
    lines = [rf"\begin{{tabular}}{{{'l' * len(grid.words)}{'r' * len(grid.columns)}}}", r"  \toprule"]
    if grid.grouped:
        spans = [rf"\multicolumn{{{width}}}{{c}}{{{_tex(name)}}}" for name, width in grid.groups()]
        lines.append("  " + " & ".join([""] * len(grid.words) + spans) + r" \\")
        lines.append("  " + " ".join(_rules(grid)))
    lines.append("  " + " & ".join(_tex(word) for word in (*grid.words, *_names(grid))) + r" \\")
    for line in grid.lines:
        if line.opens_block:
            lines.append(r"  \midrule")
        lines.append("  " + " & ".join(map(_tex, (*line.words, *line.cells))) + r" \\")
    return [*lines, r"  \bottomrule", r"\end{tabular}"]


def _rules(grid: Grid) -> list[str]:
    first = len(grid.words) + 1
    rules = []
    for _, width in grid.groups():
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    return rules


def _names(grid: Grid) -> list[str]:
    return [column.name for column in grid.columns]


def _tex(text: str) -> str:
    for plain, command in LATEX.items():
        text = text.replace(plain, command)
    return text


def comma_separated(table: Table) -> str:
    """The table as CSV in long form, for programs: a line for each cell of each row, numbers in percent.

    ``view`` says how the training images were seen and is empty for test images; what was published stands in the
    line that is compared with it.
    """
    file = io.StringIO()
    writer = csv.DictWriter(file, CSV_FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in table.rows:
        place = {"table": table.name, "algorithm": row.label, "data": row.data, "norm": row.norm}
        for column in table.columns:
            writer.writerows(place | {"column": column} | cell for cell in _long_cells(row, column))
    return file.getvalue()


def _long_cells(row: Row, column: str) -> Iterator[dict[str, str | float | None]]:
    """What is known of a cell, one view of the training images after the other."""
    printed = (row.published or {}).get(column)
    known: dict[str, str | float | None] = {}
    if printed is not None:
        known = {"published": printed.value, "published_std": printed.std, "recomputed": printed.recomputed}
    for source in (sources := views(column)):
        view = VIEWS[source] if len(sources) > 1 else ""
        means = (row.measured if source == "measured" else row.plain) or {}
        yield known | {"view": view} | _in_percent(means.get(column))
        known = {}


def _in_percent(mean: SeedMean | None) -> dict[str, str | float | None]:
    if mean is None:
        return {}
    numbers = {"mean": mean.mean, "std": mean.std, "low": mean.low, "high": mean.high}
    shown = {name: None if value is None else round(100 * value, 4) for name, value in numbers.items()}
    return {**shown, "seeds": mean.seeds}


def _joined(grid: Grid) -> list[str]:
    return [f"{column.group}: {column.name}" if column.group else column.name for column in grid.columns]


def print_tables(tables: Sequence[Table]) -> None:
    """Tables to the terminal."""
    from rich.console import Console

    console = Console(soft_wrap=True)
    narrow = console.width
    for table in tables:
        console.print(f"{number(table)}: {table.title}", markup=False, highlight=False)
        for grid in grids(table):
            drawn = _rich(grid)
            console.width = max(
                narrow, console.measure(drawn, options=console.options.update(width=1000)).maximum
            )
            console.print(drawn)
        for note in notes(table):
            console.print(note, markup=False, highlight=False)
        console.print()


def _rich(grid: Grid) -> "RichTable":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for word in grid.words:
        table.add_column(word, no_wrap=True)
    for column in grid.columns:
        name = f"{column.group}\n{column.name}" if column.group else column.name
        table.add_column(name, justify="right", no_wrap=True)
    for line in grid.lines:
        _add(table, line)
    return table


def _add(table: "RichTable", line: Line) -> None:
    if line.opens_block and table.row_count:
        table.add_row()
    table.add_row(*line.words, *line.cells)
