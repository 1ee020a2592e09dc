"""What a page is made of, as plain values: sections of tables, charts, pictures, checks and facts.

All of it is text and numbers; markup is the template's business, and so is escaping.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell of a table: a text with a smaller one beneath it, or a span between two shares of the whole."""

    text: str = ""
    detail: str = ""
    span: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under headings; ``words`` counts the leading columns that hold words, the others hold numbers."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    words: int = 1
    notes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A quantity along x, by the key under which curves hold it."""

    key: str
    label: str
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes; ``level`` is a height that is marked, with what it means."""

    title: str
    unit: str = ""
    log: bool = False
    level: float | None = None
    meaning: str = ""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line in one panel: ``x`` by the axes' keys, ``y``, and the band from ``low`` to ``high``.

    ``limit`` marks a bound on a measured line, ``apart`` points that belong to no line.
    """

    panel: int
    x: Mapping[str, Sequence[float]]
    y: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None
    limit: bool = False
    apart: bool = False


@dataclass(frozen=True, kw_only=True)
class Series:
    """The curves of one name, which are switched on and off together."""

    name: str
    curves: Sequence[Curve]


@dataclass(frozen=True, kw_only=True)
class Lines:
    """A chart of lines in one panel or more, with its numbers as a table."""

    kind: ClassVar[str] = "lines"
    title: str
    description: str
    axes: Sequence[Axis]
    panels: Sequence[Panel]
    series: Sequence[Series]
    numbers: Table


@dataclass(frozen=True, kw_only=True)
class Heat:
    """Counts as (column, bin, images), bins being tenths of a decade; the columns' edges; the smallest so far."""

    title: str
    updates: Sequence[int]
    counts: Sequence[tuple[int, int, int]]
    smallest: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Density:
    """A heat map of counts over (x, y), y in a logarithmic scale, with a line drawn over it."""

    kind: ClassVar[str] = "density"
    title: str
    description: str
    x_label: str
    y_label: str
    panels: Sequence[Heat]
    numbers: Table


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Shares in rows and columns, each coloured by its size; None where there is none."""

    kind: ClassVar[str] = "matrix"
    caption: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float | None]]]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture as a data URI, with what it shows."""

    source: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Rows of pictures, each with a caption. ``folded``: shown when asked for."""

    kind: ClassVar[str] = "pictures"
    caption: str
    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Picture]]]
    folded: bool = False


@dataclass(frozen=True, kw_only=True)
class Check:
    """Whether something holds (None: it cannot be said), and what was found, in plain words."""

    passed: bool | None
    sentence: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Checks:
    """A list of checks; those that failed are the ones to read."""

    kind: ClassVar[str] = "checks"
    caption: str
    checks: Sequence[Check]


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How often each outcome was met: whether it speaks for the claim, and in words."""

    label: str
    counts: Sequence[tuple[bool | None, str]]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence that was put to the test, how it fared in a line, and its comparisons one by one when asked for."""

    kind: ClassVar[str] = "claim"
    sentence: str
    source: str
    tallies: Sequence[Tally]
    checks: Sequence[Check]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Names and values, folded under a title."""

    kind: ClassVar[str] = "facts"
    title: str
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Slider:
    """A parameter of the bound explorer with its range."""

    name: str
    symbol: str
    meaning: str
    value: float
    low: float
    high: float
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class Explorer:
    """The bounds of Theorems 2, 4 and 5 with a slider for every parameter, and settings to begin with."""

    kind: ClassVar[str] = "explorer"
    sliders: Sequence[Slider]
    algorithms: Sequence[tuple[str, str]]
    presets: Sequence[tuple[str, Mapping[str, float]]] = ()


Block = Table | Lines | Density | Matrix | Pictures | Checks | Claim | Facts | Explorer


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page with a heading, a sentence or two, and blocks."""

    key: str
    title: str
    lead: str
    blocks: Sequence[Block]


@dataclass(frozen=True, kw_only=True)
class Document:
    """The whole page: the answer first, then the sections that have something to show."""

    title: str
    setting: str
    answers: Sequence[str]
    tables: Sequence[Table]
    remarks: Sequence[str]
    sections: Sequence[Section]
    left_out: Sequence[str] = field(default=())
