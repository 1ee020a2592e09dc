"""What a page is made of, as plain values: sections of tables, charts, images, checks and facts.

All of it is text and numbers; the templates add the markup and escape the texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from freeat.reports.charts import HeatMap, LineChart
from freeat.reports.tables import ReportTable


@dataclass(frozen=True, kw_only=True)
class AccuracyMatrix:
    """Shares in rows and columns, each coloured by its size; None where there is none."""

    kind: ClassVar[str] = "matrix"
    caption: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[float | None]]]


@dataclass(frozen=True, kw_only=True)
class ExampleImage:
    """An image as a data URI, with its caption."""

    source: str
    text: str


@dataclass(frozen=True, kw_only=True)
class ExampleImages:
    """Rows of images, each row with a name; ``folded`` ones are closed at first."""

    kind: ClassVar[str] = "images"
    caption: str
    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[ExampleImage]]]
    folded: bool = False


@dataclass(frozen=True, kw_only=True)
class CheckLine:
    """Whether something holds (None: undecided), and what was found, in a sentence."""

    passed: bool | None
    sentence: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckList:
    """Checks of one kind, and the reason why they matter."""

    kind: ClassVar[str] = "checks"
    caption: str
    reason: str
    checks: Sequence[CheckLine]


@dataclass(frozen=True, kw_only=True)
class VerdictCounts:
    """How often each verdict occurs: whether it confirms the claim, and its text."""

    label: str
    counts: Sequence[tuple[bool | None, str]]


@dataclass(frozen=True, kw_only=True)
class ClaimBlock:
    """A claim, how often each verdict occurs, and its comparisons one by one."""

    kind: ClassVar[str] = "claim"
    sentence: str
    source: str
    tallies: Sequence[VerdictCounts]
    checks: Sequence[CheckLine]


@dataclass(frozen=True, kw_only=True)
class FactList:
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
class BoundExplorer:
    """The bounds, each with its source, with a slider for every parameter, and settings to begin with."""

    kind: ClassVar[str] = "explorer"
    sliders: Sequence[Slider]
    algorithms: Sequence[tuple[str, str]]
    presets: Sequence[tuple[str, Mapping[str, float]]] = ()


Chart = LineChart | HeatMap | BoundExplorer
Block = Chart | ReportTable | AccuracyMatrix | ExampleImages | CheckList | ClaimBlock | FactList


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page with a heading, a sentence or two, and blocks."""

    key: str
    title: str
    lead: str
    blocks: Sequence[Block]


@dataclass(frozen=True, kw_only=True)
class ReportPage:
    """The whole page: the answer first, then the sections that have something to show."""

    title: str
    setting: str
    answers: Sequence[str]
    tables: Sequence[ReportTable]
    remarks: Sequence[str]
    sections: Sequence[Section]
    left_out: Sequence[str] = field(default=())
