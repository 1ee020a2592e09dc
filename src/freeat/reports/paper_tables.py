"""The paper's tables, published beside measured, in the paper's layout: terminal, Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Any

from freeat.evaluation.statistics import not_above_chance
from freeat.experiments.paper.documents import FigurePanel, PaperTable, Printed, SeedMean, TableRow
from freeat.reports.tables import (
    NO_VALUE,
    listed,
    markdown_table,
    markdown_text,
    norm_text,
    percent_spread,
    print_lines,
    print_table,
)

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
    "vanilla-10-half-eps": "Vanilla-10 (ε/2)",
    "free-4-half-eps": "Free-4 (ε/2)",
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


def panel_name(panel: FigurePanel[Any]) -> str:
    """The title of a figure's panel."""
    about = panel.panel
    if about.startswith("from "):
        about = f"perturbations from {label_name(about.removeprefix('from '))}"
    elif about:
        about = f"target {NETWORKS.get(about, about)}"
    return ", ".join(filter(None, (data_name(panel.data), norm_text(panel.norm), about)))


def heading(name: str) -> str:
    """The name of a table or figure as the paper writes it: ``table-1`` is Table 1."""
    return name.replace("-", " ").capitalize()


MISPRINT = "†"
SIDE_BY_SIDE = ("table-2", "table-3", "table-6")
"""The tables that put the norms beside each other; the others put the blocks below each other."""


@dataclass(frozen=True, kw_only=True)
class LayoutLine:
    """A line of a table: its leading texts, then a cell per algorithm."""

    leading: tuple[str, ...]
    cells: tuple[str, ...]
    opens_block: bool = False


@dataclass(frozen=True, kw_only=True)
class TableLayout:
    """A table as text: headings of the leading columns and of the algorithms, and lines.

    ``groups`` has the heading of its block above each algorithm, where blocks stand side by side.
    """

    leading: tuple[str, ...]
    algorithms: tuple[str, ...]
    groups: tuple[str, ...] = ()
    lines: tuple[LayoutLine, ...]

    def spans(self) -> list[tuple[str, int]]:
        """The groups, each with the number of columns below it."""
        return [(name, len(list(same))) for name, same in groupby(self.groups)]

    def headings(self, between: str) -> list[str]:
        """The algorithms, each with its group before it."""
        if not self.groups:
            return list(self.algorithms)
        return [f"{group}{between}{name}" for group, name in zip(self.groups, self.algorithms, strict=True)]


def layouts(table: PaperTable) -> list[TableLayout]:
    """The table as one layout, or as one for each data set where the paper stacks them."""
    if table.name not in SIDE_BY_SIDE:
        return [_below(table)]
    data_sets = dict.fromkeys(row.data for row in table.rows)
    return [_beside(table, data) for data in data_sets]


def _below(table: PaperTable) -> TableLayout:
    """Tables 1, 4, 5: the blocks below each other, a column per algorithm."""
    labels = list(dict.fromkeys(row.label for row in table.rows))
    rows = {(row.data, row.norm, row.label): row for row in table.rows}
    lines: list[LayoutLine] = []
    for data, norm in dict.fromkeys((row.data, row.norm) for row in table.rows):
        block = (data_name(data), norm_name(norm))
        lines += _lines(table.columns, [rows.get((data, norm, label)) for label in labels], block)
    return TableLayout(
        leading=("Dataset", "Attack", "Results (%)", ""),
        algorithms=tuple(map(label_name, labels)),
        lines=tuple(lines),
    )


def _beside(table: PaperTable, data: str) -> TableLayout:
    """Tables 2, 3, 6: one data set, its norms side by side."""
    rows = [row for row in table.rows if row.data == data]
    return TableLayout(
        leading=("Results (%)", ""),
        algorithms=tuple(label_name(row.label) for row in rows),
        groups=tuple(f"{data_name(data)}, {norm_name(row.norm)} attack" for row in rows),
        lines=tuple(_lines(table.columns, rows, ())),
    )


def _lines(
    columns: Sequence[str], rows: Sequence[TableRow | None], block: tuple[str, ...]
) -> Iterator[LayoutLine]:
    """For each column: the paper's numbers, ours, and ours on the plain training images where that differs."""
    opens = True
    for column in columns:
        for source in ("published", *sources(column)):
            leading = (
                *(block if opens else [""] * len(block)),
                COLUMNS[column] if source == "published" else "",
                SOURCES[source],
            )
            cells = tuple(_cell(row, source, column) for row in rows)
            yield LayoutLine(leading=leading, cells=cells, opens_block=opens)
            opens = False


def sources(column: str) -> tuple[str, ...]:
    """How a column was measured: on the augmented images as in the paper, and plain; test images are always plain."""
    return ("measured",) if column.endswith("_test") else ("measured", "plain")


SOURCES = {"published": "paper", "measured": "measured", "plain": "measured, plain images"}


def _cell(row: TableRow | None, source: str, column: str) -> str:
    number = (getattr(row, source) or {}).get(column) if row is not None else None
    if number is None:
        return NO_VALUE
    if isinstance(number, Printed):
        return printed(number) + (MISPRINT if number.recomputed is not None else "")
    return percent_spread(number.mean, number.std)


def printed(number: Printed) -> str:
    """A number as the paper prints it."""
    return f"{number.value:.1f}" if number.std is None else f"{number.value:.1f} ± {number.std:.1f}"


def notes(table: PaperTable) -> list[str]:
    """Notes under the table."""
    lines = [
        "Measured: mean ± standard deviation over the seeds; without ± there was one seed. Training accuracy is on "
        "augmented images, as in the paper, and on the images as they are in the lines marked plain."
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
        if row.constant_answers:
            lines.append(f"{not_above_chance(name, row.constant_answers, runs=row.seeds)}.")
        if row.collapsed:
            lines.append(f"{name} had collapsed in {row.collapsed} of {row.seeds} runs.")
        if row.seeds < len(row.runs):
            fewer.append(f"{name} ({row.seeds} of {len(row.runs)})")
    if at_chance:
        lines.append(f"Not above chance, so that their gaps say nothing: {'; '.join(at_chance)}.")
    if fewer:
        lines.append(f"Finished with fewer seeds than requested: {'; '.join(fewer)}.")
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


def markdown(table: PaperTable) -> str:
    """The table in Markdown."""
    parts = [f"# {markdown_text(f'{heading(table.name)}: {table.title}')}"]
    for layout in layouts(table):
        columns = (*layout.leading, *layout.headings(": "))
        rows = [(*line.leading, *line.cells) for line in layout.lines]
        parts.append(markdown_table(columns, rows, text_columns=len(layout.leading)))
    return "\n\n".join([*parts, listed(notes(table))]) + "\n"


def latex(table: PaperTable) -> str:
    """The table in LaTeX; needs the package booktabs."""
    lines = [r"\begin{table}", r"  \centering", rf"  \caption{{{_tex(table.title)}}}"]
    lines.append(rf"  \label{{tab:{table.name}}}")
    for layout in layouts(table):
        lines += [f"  {line}" for line in _tabular(layout)]
    lines += [rf"  \par\footnotesize {_tex(note)}" for note in notes(table)]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _tabular(layout: TableLayout) -> list[str]:
    width = len(layout.leading)
    lines = [rf"\begin{{tabular}}{{{'l' * width}{'r' * len(layout.algorithms)}}}", r"  \toprule"]
    if layout.groups:
        spans = [rf"\multicolumn{{{count}}}{{c}}{{{_tex(name)}}}" for name, count in layout.spans()]
        ends = list(accumulate((count for _, count in layout.spans()), initial=width))
        rules = [rf"\cmidrule(lr){{{start + 1}-{end}}}" for start, end in pairwise(ends)]
        lines.append("  " + " & ".join([""] * width + spans) + r" \\")
        lines.append("  " + " ".join(rules))
    lines.append("  " + " & ".join(map(_tex, (*layout.leading, *layout.algorithms))) + r" \\")
    for line in layout.lines:
        if line.opens_block:
            lines.append(r"  \midrule")
        lines.append("  " + " & ".join(map(_tex, (*line.leading, *line.cells))) + r" \\")
    return [*lines, r"  \bottomrule", r"\end{tabular}"]


def _tex(text: str) -> str:
    for plain, command in LATEX.items():
        text = text.replace(plain, command)
    return text


def comma_separated(table: PaperTable) -> str:
    """The table as CSV in long form, for programs: a line for each cell of each row, numbers in percent.

    ``view`` is that of the training images and is empty for test images; what was published is in the line that is
    compared with it.
    """
    file = io.StringIO()
    writer = csv.DictWriter(file, CSV_FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in table.rows:
        about = {"table": table.name, "algorithm": row.label, "data": row.data, "norm": row.norm}
        for column in table.columns:
            for source in sources(column):
                view = "" if column.endswith("_test") else VIEWS[source]
                known: dict[str, str | float | None] = {**about, "column": column, "view": view}
                number = (row.published or {}).get(column)
                if source == "measured" and number is not None:
                    known |= {"published": number.value, "published_std": number.std}
                    known |= {"recomputed": number.recomputed}
                mean = (getattr(row, source) or {}).get(column)
                writer.writerow(known | _in_percent(mean))
    return file.getvalue()


def _in_percent(mean: SeedMean | None) -> dict[str, float | None]:
    if mean is None:
        return {}
    numbers = {"mean": mean.mean, "std": mean.std, "low": mean.low, "high": mean.high}
    shown = {name: None if value is None else round(100 * value, 4) for name, value in numbers.items()}
    return {**shown, "seeds": mean.seeds}


def print_tables(tables: Sequence[PaperTable]) -> None:
    """Print tables to the terminal."""
    for table in tables:
        print_lines([f"{heading(table.name)}: {table.title}"])
        for layout in layouts(table):
            columns = (*layout.leading, *layout.headings("\n"))
            numbers = range(len(layout.leading), len(columns))
            print_table(columns, _rows(layout), numbers=numbers, wrap=False)
        print_lines([*notes(table), ""])


def _rows(layout: TableLayout) -> Iterator[tuple[str, ...]]:
    """The lines of a table with an empty one between its blocks."""
    for number, line in enumerate(layout.lines):
        if line.opens_block and number:
            yield ()
        yield *line.leading, *line.cells
