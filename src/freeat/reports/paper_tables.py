"""The paper's tables, published beside measured: terminal, Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from freeat.reports.paper_grid import Grid, Line, grids, notes, views

if TYPE_CHECKING:
    from rich.table import Table as RichTable

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


def number(table: Mapping[str, Any]) -> str:
    """``table-1`` is Table 1."""
    return str(table["name"]).replace("-", " ").capitalize()


def markdown(table: Mapping[str, Any]) -> str:
    """The table in Markdown."""
    parts = [f"# {number(table)}: {table['title']}"]
    for grid in grids(table):
        names = _joined(grid)
        lines = ["| " + " | ".join([*grid.words, *names]) + " |"]
        lines.append("|" + "---|" * len(grid.words) + "---:|" * len(names))
        lines += ["| " + " | ".join([*line.words, *line.cells]) + " |" for line in grid.lines]
        parts.append("\n".join(lines))
    parts.append("\n".join(f"- {note}" for note in notes(table)))
    return "\n\n".join(parts) + "\n"


def latex(table: Mapping[str, Any]) -> str:
    """The table in LaTeX; needs the package booktabs."""
    lines = [r"\begin{table}", r"  \centering", rf"  \caption{{{_tex(table['title'])}}}"]
    lines.append(rf"  \label{{tab:{table['name']}}}")
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


def comma_separated(table: Mapping[str, Any]) -> str:
    """The table as CSV in long form, for programs: a line for each cell of each row, numbers in percent.

    ``view`` says how the training images were seen and is empty for test images; what was published stands in the
    line that is compared with it.
    """
    file = io.StringIO()
    writer = csv.DictWriter(file, CSV_FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in table["rows"]:
        place = {"table": table["name"], "algorithm": row["label"]} | {k: row[k] for k in ("data", "norm")}
        for column in table["columns"]:
            writer.writerows(place | {"column": column} | cell for cell in _long_cells(row, column))
    return file.getvalue()


def _long_cells(row: Mapping[str, Any], column: str) -> Iterator[dict[str, Any]]:
    """What is known of a cell, one view of the training images after the other."""
    printed = (row["published"] or {}).get(column) or {}
    published = {"published": "value", "published_std": "std", "recomputed": "recomputed"}
    known: dict[str, Any] = {field: printed.get(name) for field, name in published.items()}
    for source in (sources := views(column)):
        view = VIEWS[source] if len(sources) > 1 else ""
        yield known | {"view": view} | _in_percent((row[source] or {}).get(column))
        known = {}


def _in_percent(cell: Mapping[str, Any] | None) -> dict[str, Any]:
    if cell is None:
        return {}
    numbers = {name: cell[name] for name in ("mean", "std", "low", "high")}
    shown = {name: None if value is None else round(100 * value, 4) for name, value in numbers.items()}
    return {**shown, "seeds": cell["seeds"]}


def _joined(grid: Grid) -> list[str]:
    return [f"{column.group}: {column.name}" if column.group else column.name for column in grid.columns]


def print_tables(document: Mapping[str, Any]) -> None:
    """All tables of a reproduction to the terminal."""
    from rich.console import Console

    console = Console(soft_wrap=True)
    narrow = console.width
    for table in document["tables"]:
        console.print(f"{number(table)}: {table['title']}", markup=False, highlight=False)
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
