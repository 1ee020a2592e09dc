"""The document of a reproduction, ``reproduction.json``: tables, figures, claims, and where their numbers come from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from freeat.compute.machine import Machine, Provenance
from freeat.errors import InputError
from freeat.evaluation.matched import Interval
from freeat.files.documents import read_document, write_document
from freeat.runs.folder import MachineSettings

Verdict = Literal["confirmed", "refuted", "undecided", "not published"]
Unit = Literal["points", "decades", "number"]
"""What a statistic counts; points are hundredths, kept as fractions."""


@dataclass(frozen=True, kw_only=True)
class SeedMean:
    """A mean over seeds with its 95 % interval; ``image_error`` is the standard error that the images leave.

    ``values`` are those of the single seeds, whose numbers are ``of_seeds``: with them, comparisons are paired by seed.
    Both are empty where only the mean is known.
    """

    mean: float
    std: float | None
    low: float
    high: float
    seeds: int
    image_error: float
    values: tuple[float, ...] = ()
    of_seeds: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Printed:
    """A number as it is printed, in percent; ``recomputed`` where it differs from what its columns give."""

    value: float
    std: float | None = None
    recomputed: float | None = None


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One algorithm in a table: measured on augmented and on plain training images, beside what was published.

    What has no finished run is None. ``runs`` are the keys of all requested runs, ``seeds`` counts the finished ones,
    ``constant_answers`` those of them that give the same answer to every image.
    """

    data: str
    norm: str
    label: str
    at: float
    measured: Mapping[str, SeedMean] | None
    plain: Mapping[str, SeedMean] | None
    published: Mapping[str, Printed] | None
    above_chance: bool | None
    collapsed: int
    seeds: int
    constant_answers: int = 0
    runs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table of the paper."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FigureSeries:
    """What all series have: a label, and whether all models behind it are above chance.

    ``constant_answers`` counts those of its ``models`` that give the same answer to every image.
    """

    label: str
    above_chance: bool
    constant_answers: int = 0
    models: int = 1

    side_by_side: ClassVar[tuple[str, ...]] = ()
    """Lists of one length."""


@dataclass(frozen=True, kw_only=True)
class PointSeries(FigureSeries):
    """A series of means over seeds: a gap along curves and sizes, an accuracy along radii."""

    points: tuple[SeedMean, ...]


@dataclass(frozen=True, kw_only=True)
class Collapse:
    """How much of its best robust training accuracy a run has at the end, and whether it was seen to collapse.

    ``learnt``: it was above chance at some point; a run that never was has nothing to lose.
    """

    left: float
    seen: bool
    learnt: bool


@dataclass(frozen=True, kw_only=True)
class CurveSeries(PointSeries):
    """A learning curve: robust errors, and their gap as points, on ``images`` of each split.

    ``fits`` are robust training accuracies on plain images and ``fit_gaps`` their gaps, for comparisons at equal fit;
    empty in a document without them.
    ``overfitting`` is best minus last robust test accuracy, cross-fitted; None where the images are not known.
    """

    epochs: tuple[float, ...]
    updates: tuple[int, ...]
    train: tuple[float, ...]
    test: tuple[float, ...]
    images: tuple[int, ...]
    collapse: tuple[Collapse, ...]
    fits: tuple[SeedMean, ...] = ()
    fit_gaps: tuple[SeedMean, ...] = ()
    overfitting: SeedMean | None = None

    side_by_side: ClassVar[tuple[str, ...]] = ("points", "epochs", "updates", "train", "test")

    @property
    def equal_samples(self) -> int:
        """The number of points that were evaluated on equal samples: the last evaluation may have more images."""
        return len(self.epochs) - (len(self.images) > 1 and self.images[-1] != self.images[0])


@dataclass(frozen=True, kw_only=True)
class RadiusSeries(PointSeries):
    """Accuracy under an attack against the radius."""

    eps: tuple[float, ...]
    n: int
    attack: str

    side_by_side: ClassVar[tuple[str, ...]] = ("points", "eps")


@dataclass(frozen=True, kw_only=True)
class SizeSeries(PointSeries):
    """The robust gap against the number of training images, and the exponent a of gap ∝ n^(−a)."""

    n: tuple[int, ...]
    exponent: Interval | None

    side_by_side: ClassVar[tuple[str, ...]] = ("points", "n")


@dataclass(frozen=True, kw_only=True)
class NormSeries(FigureSeries):
    """Counts of images by ‖∇_δ h‖ at each update; ``bins`` are the edges as powers of ten."""

    updates: tuple[int, ...]
    bins: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]
    smallest: tuple[float, ...]
    smallest_of_seeds: tuple[float, ...]

    side_by_side: ClassVar[tuple[str, ...]] = ("updates", "counts", "smallest")


S = TypeVar("S", bound=FigureSeries)


@dataclass(frozen=True, kw_only=True)
class FigurePanel(Generic[S]):
    """A panel of a figure; ``panel`` distinguishes those that share data set and norm."""

    data: str
    norm: str
    panel: str
    series: tuple[S, ...]


class PaperFigure(msgspec.Struct, Generic[S], frozen=True, kw_only=True, tag_field="kind"):
    """A figure of the paper. A structure of msgspec, as only those distinguish the kinds of a union by a field."""

    name: str
    title: str
    panels: tuple[FigurePanel[S], ...]


class CurveFigure(PaperFigure[CurveSeries], frozen=True, kw_only=True, tag="curves"):
    """Figures 1, 5 and 11."""


class RadiusFigure(PaperFigure[RadiusSeries], frozen=True, kw_only=True, tag="radius"):
    """Figures 2, 3 and 6 to 9."""


class SizeFigure(PaperFigure[SizeSeries], frozen=True, kw_only=True, tag="size"):
    """Figures 4 and 10."""


class NormFigure(PaperFigure[NormSeries], frozen=True, kw_only=True, tag="norms"):
    """Figure 12."""


Figure = CurveFigure | RadiusFigure | SizeFigure | NormFigure


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The statistic of a claim in one panel, signed so that the claim says it is positive; or why there is none."""

    panel: str
    detail: str
    statistic: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: int = 0


@dataclass(frozen=True, kw_only=True)
class Decision(Finding):
    """A finding with its verdict."""

    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class StatedClaim:
    """A sentence of the paper, where it is shown, and the statistic that it says is positive.

    ``beside`` are words of the paper that qualify the sentence. ``ours`` marks a claim that the paper does not make.
    """

    id: str
    sentence: str
    beside: str = ""
    ours: bool = False
    where: tuple[str, ...]
    statistic: str
    unit: Unit = "points"


@dataclass(frozen=True, kw_only=True)
class ClaimReport(StatedClaim):
    """A claim with its verdicts, on the published tables and on what was measured.

    The primary one is over all panels, None where there is no number; the others are on single panels.
    """

    published_primary: Decision | None = None
    published: tuple[Decision, ...]
    measured_primary: Decision | None = None
    measured: tuple[Decision, ...]


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Whether Vanilla-10 fits its training images in one norm; None where it was not measured."""

    norm: str
    robust_train: float | None
    least: float
    fits: bool | None


@dataclass(frozen=True, kw_only=True)
class AtChance:
    """An algorithm that is not above chance; ``constant`` where it gives the same answer to every image."""

    norm: str
    label: str
    constant: bool = False


@dataclass(frozen=True, kw_only=True)
class Sufficiency:
    """Whether the comparisons on a data set count; None where nothing decides yet."""

    data: str
    counts: bool | None
    vanilla: tuple[Fit, ...]
    at_chance: tuple[AtChance, ...]


@dataclass(frozen=True, kw_only=True)
class DataOrigin:
    """The data of a run."""

    name: str | None
    digest: str | None


@dataclass(frozen=True, kw_only=True)
class MeasurementOrigin:
    """A measurement and its provenance."""

    name: str
    provenance: Provenance | None = None


@dataclass(frozen=True, kw_only=True)
class RunOrigin(MeasurementOrigin):
    """A run: its settings, the settings chosen for the machine, its data, its notes and its time."""

    spec: dict[str, Any]
    seconds: float | None
    chosen: MachineSettings | None
    data: DataOrigin | None
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """What is not in a reproduction, and why."""

    what: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class TaskFailure:
    """A task that failed, and why."""

    task: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ReproductionDocument:
    """A reproduction: tables, figures and claims, their origin, what is missing, and the program that gathered it.

    ``commits`` and ``machines`` are those of the runs and measurements; ``provenance`` is that of the document.
    """

    scale: str
    experiments: tuple[str, ...]
    commits: tuple[str, ...]
    machines: tuple[Machine, ...]
    training_seconds: float
    notes: tuple[str, ...]
    sufficiency: tuple[Sufficiency, ...]
    tables: tuple[PaperTable, ...]
    figures: tuple[Figure, ...]
    claims: tuple[ClaimReport, ...]
    runs: dict[str, RunOrigin]
    measurements: dict[str, MeasurementOrigin]
    left_out: tuple[LeftOut, ...]
    failures: tuple[TaskFailure, ...]
    provenance: Provenance


NAME = "reproduction.json"


def write_reproduction(folder: Path, document: ReproductionDocument) -> Path:
    """Write the document into a folder; returns its path."""
    write_document(folder / NAME, "reproduction", document)
    return folder / NAME


def read_reproduction(folder: Path) -> ReproductionDocument:
    """The document in a folder."""
    document = read_document(folder / NAME, "reproduction", ReproductionDocument)
    for one in (one for figure in document.figures for panel in figure.panels for one in panel.series):
        if len({len(getattr(one, name)) for name in one.side_by_side}) > 1:
            names = ", ".join(one.side_by_side)
            raise InputError(
                f"{folder / NAME} is damaged: {names} of the series {one.label!r} differ in length"
            )
    return document
