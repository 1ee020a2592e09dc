"""A reproduction from its store: the rows of tables, the series of figures, the claims decided on them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from freeat.evaluation.gradient_norms import NormCounts
from freeat.experiments.paper.catalogue import Entry, Experiment
from freeat.experiments.paper.claims import decide_claims, sufficiency_of
from freeat.experiments.paper.documents import (
    Collapse,
    CurveFigure,
    CurveSeries,
    Exponent,
    Figure,
    Gathered,
    NormFigure,
    NormSeries,
    Panel,
    RadiusFigure,
    RadiusSeries,
    Row,
    SeedMean,
    Series,
    SizeFigure,
    SizeSeries,
    Table,
)
from freeat.experiments.paper.estimate import PROPORTION, Estimate, exponent, proportion_error, seed_mean
from freeat.experiments.paper.published import published_tables
from freeat.experiments.paper.records import (
    above_chance,
    all_above_chance,
    describe_measurements,
    describe_runs,
    evaluations,
    finished,
    means,
    notes_of,
    over_seeds,
    record_at,
)
from freeat.experiments.tasks import Accuracy, AttackTask, TrainTask, TransferTask
from freeat.training.records import Record

USUAL = ("robust_train", "robust_test", "robust_gap")
TENTHS = 10
"""Bins of gradient norms per decade."""

S = TypeVar("S", bound=Series)
V = TypeVar("V")


def gather(experiments: Sequence[Experiment]) -> Gathered:
    """What the store says of the experiments; what is missing in it is None or absent, never invented."""
    tables = tuple(gather_table(e) for e in experiments if e.kind == "table")
    figures = tuple(gather_figure(e) for e in experiments if e.kind != "table")
    runs, measurements = describe_runs(experiments), describe_measurements(experiments)
    made = [*runs.values(), *measurements.values()]
    return Gathered(
        experiments=tuple(experiment.name for experiment in experiments),
        commits=_distinct(one.commit for one in made),
        machines=_distinct(one.machine for one in made),
        training_seconds=math.fsum(run.seconds or 0.0 for run in runs.values()),
        notes=tuple(dict.fromkeys(note for run in runs.values() for note in run.notes)),
        sufficiency=sufficiency_of(tables),
        tables=tables,
        figures=figures,
        claims=decide_claims(tables, figures),
        runs=runs,
        measurements=measurements,
    )


def _distinct(values: Iterable[V | None]) -> tuple[V, ...]:
    """The values, each once, in the order they are found; what is absent counts for nothing."""
    found: list[V] = []
    for value in values:
        if value is not None and value not in found:
            found.append(value)
    return tuple(found)


def gather_table(experiment: Experiment) -> Table:
    """A table; rows whose runs are missing have nothing measured."""
    published = published_tables().get(experiment.name)
    columns = published.columns if published else USUAL
    rows = []
    for entry in experiment.entries:
        printed = published.row(entry.data, entry.norm, entry.label) if published else None
        read = [(run, r) for run in finished(entry.runs) if (r := record_at(run, entry.at)) is not None]
        records = [record for _, record in read]
        rows.append(
            Row(
                data=entry.data,
                norm=entry.norm,
                label=entry.label,
                at=entry.at,
                measured=means(records, columns, "augmented") if records else None,
                plain=means(records, columns, "plain") if records else None,
                published=printed.cells if printed else None,
                above_chance=all(above_chance(run, record) for run, record in read) if read else None,
                collapsed=sum(record.collapsed for record in records),
                seeds=len(records),
                runs=tuple(run.key for run in entry.runs),
            )
        )
    return Table(
        name=experiment.name,
        title=experiment.title,
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(notes_of(run for entry in experiment.entries for run in entry.runs)),
    )


def gather_figure(experiment: Experiment) -> Figure:
    """A figure; what has no finished run or measurement is absent."""
    name, title, entries = experiment.name, experiment.title, experiment.entries
    match experiment.kind:
        case "curves":
            return CurveFigure(name=name, title=title, panels=_panels(curves(entries)))
        case "radius":
            return RadiusFigure(name=name, title=title, panels=_panels(radii(entries)))
        case "size":
            return SizeFigure(name=name, title=title, panels=_panels(sizes(entries)))
        case "norms":
            return NormFigure(name=name, title=title, panels=_panels(norms(entries)))
    raise AssertionError(f"{name} is no figure")


@dataclass(frozen=True, kw_only=True)
class _Place:
    """The panel a series is drawn in."""

    data: str
    norm: str
    panel: str


def _place(entry: Entry, panel: str | None = None) -> _Place:
    return _Place(data=entry.data, norm=entry.norm, panel=entry.panel if panel is None else panel)


def _panels(placed: Iterable[tuple[_Place, S]]) -> tuple[Panel[S], ...]:
    panels: dict[_Place, list[S]] = {}
    for place, series in placed:
        panels.setdefault(place, []).append(series)
    return tuple(
        Panel(data=place.data, norm=place.norm, panel=place.panel, series=tuple(series))
        for place, series in panels.items()
    )


def _errors(column: Sequence[SeedMean]) -> dict[str, Any]:
    """What a series of points keeps of its means besides their values."""
    names = ("low", "high", "std", "image_error")
    kept = {name: tuple(getattr(mean, name) for mean in column) for name in names}
    seeds = tuple(mean.seeds for mean in column)
    return {**kept, "seeds_at": seeds, "seeds": min(seeds)}


def _each(column: Iterable[V], read: Callable[[V], Any]) -> tuple[Any, ...]:
    return tuple(read(one) for one in column)


def curves(entries: Sequence[Entry]) -> Iterator[tuple[_Place, CurveSeries]]:
    """Figures 1, 5, 11: robust errors and their gap against the updates, on the augmented view as the paper's."""
    for entry in entries:
        histories = {run: evaluations(run) for run in finished(entry.runs)}
        if not histories:
            continue
        points = list(zip(*histories.values(), strict=False))  # the points that all seeds have
        train, test, gap = (
            [over_seeds(point, f"robust_{name}", "augmented") for point in points]
            for name in ("train", "test", "gap")
        )
        first = next(iter(histories.values()))[: len(points)]
        yield (
            _place(entry),
            CurveSeries(
                label=entry.label,
                above_chance=all_above_chance(histories),
                epochs=_each(first, lambda record: record.equivalent_epoch),
                updates=_each(first, lambda record: record.update),
                train=_each(train, lambda mean: 1 - mean.mean),
                test=_each(test, lambda mean: 1 - mean.mean),
                gap=_each(gap, lambda mean: mean.mean),
                **_errors(gap),
                images=_each(first, lambda record: record.test.n),
                collapse=tuple(_collapse(run, history) for run, history in histories.items()),
            ),
        )


def _collapse(run: TrainTask, history: Sequence[Record]) -> Collapse:
    robust = [record.train.robust_accuracy for record in history]
    return Collapse(
        left=robust[-1] / max(robust) if max(robust) else 1.0,
        seen=any(record.collapsed for record in history),
        learnt=any(above_chance(run, record) for record in history),
    )


def radii(entries: Sequence[Entry]) -> Iterator[tuple[_Place, RadiusSeries]]:
    """Figures 2, 3, 6 to 9: accuracy against the radius, over the seeds that were measured."""
    for entry in entries:
        panels: dict[str, list[Accuracy]] = {}
        opened: dict[str, set[TrainTask]] = {}
        for measurement in entry.measurements:
            for panel, accuracy in _accuracies(entry, measurement):
                panels.setdefault(panel, []).append(accuracy)
                opened.setdefault(panel, set()).update(_opened(entry, measurement))
        for panel, found in panels.items():
            yield _place(entry, panel), _against_radius(entry.label, all_above_chance(opened[panel]), found)


def _accuracies(entry: Entry, measurement: AttackTask | TransferTask) -> Iterator[tuple[str, Accuracy]]:
    """The results of a measurement that belong to an entry, with the panel they are drawn in.

    A measurement may hold other series too. Perturbations made elsewhere and applied to the entry's own runs have a
    panel for each algorithm they come from.
    """
    panel = entry.panel
    if isinstance(measurement, TransferTask) and not entry.targets:
        panel = f"from {measurement.source.spec.algorithm}"
    document = measurement.found()
    for accuracy in document.results if document else ():
        if accuracy.split == "test" and accuracy.model in entry.evaluated:
            yield panel, accuracy


def _opened(entry: Entry, measurement: AttackTask | TransferTask) -> Iterator[TrainTask]:
    """The runs that an entry's part of a measurement says something about: whose model was evaluated, or attacked."""
    made_on = measurement.source if isinstance(measurement, TransferTask) else None
    yield from (run for run in measurement.runs if run == made_on or run.key in entry.evaluated)


def _against_radius(label: str, learnt: bool, found: Sequence[Accuracy]) -> RadiusSeries:
    by_eps: dict[float, list[float]] = {}
    for accuracy in found:
        by_eps.setdefault(accuracy.eps, []).append(accuracy.robust_accuracy)
    n = min(accuracy.n for accuracy in found)
    column = [
        seed_mean(values, [proportion_error(p, n) for p in values], PROPORTION)
        for _, values in sorted(by_eps.items())
    ]
    return RadiusSeries(
        label=label,
        above_chance=learnt,
        eps=tuple(sorted(by_eps)),
        accuracy=_each(column, lambda mean: mean.mean),
        **_errors(column),
        n=n,
        attack=found[0].attack.split(" from ")[0],
    )


def sizes(entries: Sequence[Entry]) -> Iterator[tuple[_Place, SizeSeries]]:
    """Figures 4, 10: the gap against the number of training images, and its exponent."""
    by_series: dict[tuple[_Place, str], dict[int, SeedMean]] = {}
    learnt: dict[tuple[_Place, str], bool] = {}
    for entry in entries:
        records = [r for run in finished(entry.runs) if (r := record_at(run, entry.at)) is not None]
        if records and entry.n is not None:
            series = _place(entry), entry.label
            by_series.setdefault(series, {})[entry.n] = over_seeds(records, "robust_gap", "augmented")
            learnt[series] = learnt.get(series, True) and all_above_chance(entry.runs)
    for (place, label), column in by_series.items():
        numbers = sorted(column)
        ordered = [column[n] for n in numbers]
        fitted = exponent(numbers, [Estimate.of_mean(mean) for mean in ordered])
        yield (
            place,
            SizeSeries(
                label=label,
                above_chance=learnt[place, label],
                n=tuple(numbers),
                gap=_each(ordered, lambda mean: mean.mean),
                **_errors(ordered),
                exponent=_with_interval(fitted),
            ),
        )


def _with_interval(estimate: Estimate | None) -> Exponent | None:
    if estimate is None:
        return None
    low, high = estimate.interval()
    return Exponent(value=estimate.value, low=low, high=high)


def norms(entries: Sequence[Entry]) -> Iterator[tuple[_Place, NormSeries]]:
    """Figure 12: how many images had which ‖∇_δ h‖ when, over all seeds, and the smallest so far."""
    for entry in entries:
        histories = {run: history for run in finished(entry.runs) if (history := _norm_history(run))}
        if histories:
            yield _place(entry), _heat(entry.label, histories)


def _norm_history(run: TrainTask) -> list[tuple[int, NormCounts]]:
    """The updates of a run at which norms were counted, and the counts."""
    return [
        (record.update, record.gradient_norms)
        for record in evaluations(run)
        if record.gradient_norms is not None
    ]


def _heat(label: str, histories: Mapping[TrainTask, Sequence[tuple[int, NormCounts]]]) -> NormSeries:
    points = list(zip(*histories.values(), strict=False))
    bins = sorted({int(k) for point in points for _, norms in point for k in norms.bins}) or [0]
    places = range(bins[0], bins[-1] + 1)
    return NormSeries(
        label=label,
        above_chance=all_above_chance(histories),
        updates=tuple(point[0][0] for point in points),
        bins=tuple(k / TENTHS for k in range(bins[0], bins[-1] + 2)),
        counts=tuple(
            tuple(sum(norms.bins.get(str(k), 0) for _, norms in point) for k in places) for point in points
        ),
        smallest=tuple(min(norms.smallest_so_far for _, norms in point) for point in points),
        smallest_of_seeds=tuple(history[-1][1].smallest_so_far for history in histories.values()),
        seeds=len(histories),
    )
