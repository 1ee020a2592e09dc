"""Numbers as texts, and tables as plain values that are printed as text, as Markdown and in HTML."""

import re
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from freeat.errors import printable
from freeat.units import radius_text

if TYPE_CHECKING:
    from rich.console import Console

NO_VALUE = "–"
"""A table cell without a value."""
NORMS = {"l2": "L2", "linf": "L∞"}


@dataclass(frozen=True, kw_only=True)
class TableCell:
    """A cell of a table: a text with a smaller one beneath it, or a span between two shares of the whole."""

    text: str = ""
    detail: str = ""
    span: tuple[float, float] | None = None

    def __str__(self) -> str:
        return f"{self.text} {self.detail}".strip()


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """Rows under headings; the first ``text_columns`` columns hold texts, the others numbers."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | TableCell]]
    text_columns: int = 1
    notes: Sequence[str] = ()

    def under_name(self, name: str) -> "ReportTable":
        """The table with the name of what it is about in the caption."""
        return replace(self, caption=f"{name}: {self.caption}")

    def lines(self) -> list[str]:
        """The table as lines of text under its headings, without caption and notes."""
        return aligned([self.columns, *([str(cell) for cell in row] for row in self.rows)])

    def markdown(self) -> str:
        """The table in Markdown, without caption and notes."""
        return markdown_table(self.columns, self.rows, text_columns=self.text_columns)


class Markdown(str):
    """A text that is Markdown already: no sign of it is escaped."""


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, text_columns: int = 1) -> str:
    """A table in Markdown: the first ``text_columns`` columns to the left, the others, numbers, to the right."""
    heading, *lines = (
        f"| {' | '.join(cell if isinstance(cell, Markdown) else markdown_text(str(cell)) for cell in row)} |"
        for row in (columns, *rows)
    )
    rule = "|" + "---|" * text_columns + "---:|" * (len(columns) - text_columns)
    return "\n".join([heading, rule, *lines])


def listed(lines: Iterable[str]) -> str:
    """A list in Markdown."""
    return "\n".join(f"- {markdown_text(line)}" for line in lines)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Collection[int] = (),
    title: str | None = None,
    wrap: bool = True,
) -> None:
    """Print rows under their headings; columns of ``numbers`` are aligned to the right, an empty row is a blank line.

    Without ``wrap`` a narrow terminal breaks lines rather than the text of a column.
    """
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    title = None if title is None else escape(printable(title))
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if index in numbers else "left"
        table.add_column(Text(column), justify=justify, no_wrap=index == 0 or not wrap)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))  # as text: markup in a name is none
    console = _terminal()
    if not wrap:
        widest = console.measure(table, options=console.options.update(width=1000)).maximum
        console.width = max(console.width, widest)
    console.print(table)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of text, which a terminal breaks."""
    for line in lines:
        _terminal().print(printable(line), markup=False, highlight=False)


def _terminal() -> "Console":
    """The console on standard output, which writes past the filter of untrusted text: pass it `printable`."""
    from rich.console import Console

    return Console(file=getattr(sys.stdout, "unfiltered", sys.stdout), soft_wrap=True)


def markdown_text(text: str) -> str:
    """A user's text as one line in which Markdown and HTML have no effect."""
    line = " ".join(printable(str(text)).split())
    signs = "\\`*<>|#&~" + ("[]" if "](" in line or "][" in line else "")  # intervals stay as they are
    escaped = "".join(f"\\{sign}" if sign in signs else sign for sign in line)
    return re.sub(r"(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])", r"\\_", escaped)  # inside a word it has no effect


def aligned(rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """One line per row, every column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if right else text.ljust(width) for text, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def percent(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:.1f}"  # the sum turns -0.0 into 0.0


def share_text(share: float, whole: str) -> str:
    """A part of ``whole`` in percent; more than twice the whole as a multiple."""
    if share <= 2:
        return f"{percent(share)} % of {whole}"
    return f"{share:,.{0 if share >= 10 else 1}f} times {whole}"


def percent_spread(mean: float, std: float | None) -> str:
    """Mean ± standard deviation over the seeds, in percent; one seed has no standard deviation."""
    return percent(mean) if std is None else f"{percent(mean)} ± {percent(std)}"


def percent_interval(low: float, high: float) -> str:
    """An interval in percent."""
    return f"[{percent(low)}, {percent(high)}]"


class HasInterval(Protocol):
    """A value with the ends of its interval; any of them may be missing."""

    @property
    def value(self) -> float | None: ...

    @property
    def low(self) -> float | None: ...

    @property
    def high(self) -> float | None: ...


def with_interval(estimate: HasInterval | None, digits: int = 3) -> TableCell:
    """A value with its interval beneath it."""
    if estimate is None or estimate.value is None:
        return TableCell(text=NO_VALUE)
    low, high = estimate.low, estimate.high
    detail = "" if low is None or high is None else f"[{low:.{digits}g}, {high:.{digits}g}]"
    return TableCell(text=f"{estimate.value:.{digits}g}", detail=detail)


def norm_text(norm: str) -> str:
    """A norm as papers write it; one that is not built in by its name."""
    return NORMS.get(norm, norm)


def ball_text(norm: str, eps: float) -> str:
    """A norm with its radius: L∞ ε = 8/255."""
    return f"{norm_text(norm)} ε = {radius_text(eps)}"


def count_text(value: float) -> str:
    """A whole number with a narrow space between thousands."""
    return f"{value:,.0f}".replace(",", "\u202f")


def seconds_text(value: float) -> str:
    """A duration in the unit in which it is a short number."""
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"


def size_text(count: int) -> str:
    """A number of bytes."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def number_text(value: float | None) -> str:
    """A number to four digits, or a dash."""
    return NO_VALUE if value is None else f"{value:.4g}"
