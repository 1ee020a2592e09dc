"""What a table or figure consists of: for each of its rows or series, the runs and measurements behind it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from freeat.experiments.tasks import Measurement, Training

Piece = Training | Measurement
Kind = Literal["table", "curves", "radius", "size", "norms"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One row of a table's block, or one point set of a figure's series, with what it is made of.

    ``data`` and ``norm`` name the block or panel; ``panel`` tells apart panels that share them (the target network
    of Figures 8 and 9). ``runs`` differ in their seed only. ``n`` is the training set's size in the n-study.
    ``at`` is the part of the training after which the row is read (Table 6: a quarter). ``targets`` are the
    standard models that the perturbations made on ``runs`` are applied to (Figures 8 and 9).
    """

    data: str
    norm: str
    label: str
    runs: tuple[Training, ...]
    measurements: tuple[Measurement, ...] = ()
    panel: str = ""
    n: int | None = None
    at: float = 1.0
    targets: tuple[Training, ...] = ()

    @property
    def judged(self) -> frozenset[str]:
        """Keys of the models whose cells the series is made of: a measurement may hold those of other series."""
        return frozenset(run.key for run in self.targets or self.runs)

    @property
    def tasks(self) -> tuple[Piece, ...]:
        """Its runs, those its measurements open besides (Figure 3's sources, Figure 9's targets), and these."""
        opened = (run for measurement in self.measurements for run in measurement.runs)
        return (*self.runs, *opened, *self.measurements)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or figure of the paper."""

    name: str
    title: str
    kind: Kind
    entries: tuple[Entry, ...]

    def tasks(self) -> Iterator[Piece]:
        """Every piece of work it needs; what two entries share comes twice, with one key."""
        for entry in self.entries:
            yield from entry.tasks
