"""A reproduction from its store: the rows of tables, the series of figures, the claims decided on them."""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from freeat.compute.machine import Provenance
from freeat.evaluation.matched import Interval, best_minus_last
from freeat.experiments.curves import comparable
from freeat.experiments.paper.catalogue import Experiment, RunGroup
from freeat.experiments.paper.claims import decide_claims, sufficiency_of
from freeat.experiments.paper.documents import (
    Collapse,
    CurveFigure,
    CurveSeries,
    Figure,
    FigurePanel,
    LeftOut,
    NormFigure,
    NormSeries,
    PaperTable,
    RadiusFigure,
    RadiusSeries,
    ReproductionDocument,
    S,
    SeedMean,
    SizeFigure,
    SizeSeries,
    TableRow,
    TaskFailure,
)
from freeat.experiments.paper.estimate import PROPORTION, ErrorEstimate, exponent, proportion_error, seed_mean
from freeat.experiments.paper.published import published_tables
from freeat.experiments.paper.records import (
    Learnt,
    View,
    above_chance,
    finished,
    learnt,
    learnt_at_end,
    notes_of,
    origins,
    over_seeds,
    record_at,
)
from freeat.experiments.tasks import Accuracy, TrainTask
from freeat.stability.results import GradientRecord, gradient_records
from freeat.training.records import Record

USUAL = ("robust_train", "robust_test", "robust_gap")
BINS_PER_DECADE = 10
"""Bins of gradient norms."""

PanelKey = tuple[str, str, str]
"""Data set, norm, and what else names a panel."""


def gather(
    experiments: Sequence[Experiment],
    *,
    scale: str,
    provenance: Provenance,
    left_out: Iterable[LeftOut] = (),
    failures: Iterable[TaskFailure] = (),
) -> ReproductionDocument:
    """The document of the experiments as far as the store holds them; what is missing is None or absent."""
    tables = tuple(gather_table(e) for e in experiments if e.kind == "table")
    figures = tuple(gather_figure(e) for e in experiments if e.kind != "table")
    runs, measurements = origins(experiments)
    made_by = [one.provenance for one in (*runs.values(), *measurements.values()) if one.provenance]
    return ReproductionDocument(
        scale=scale,
        experiments=tuple(experiment.name for experiment in experiments),
        commits=tuple(dict.fromkeys(one.commit for one in made_by if one.commit is not None)),
        machines=tuple(dict.fromkeys(one.machine for one in made_by)),
        training_seconds=math.fsum(run.seconds or 0.0 for run in runs.values()),
        notes=tuple(dict.fromkeys(note for run in runs.values() for note in run.notes)),
        sufficiency=sufficiency_of(tables),
        tables=tables,
        figures=figures,
        claims=decide_claims(tables, figures),
        runs=runs,
        measurements=measurements,
        left_out=tuple(left_out),
        failures=tuple(failures),
        provenance=provenance,
    )


def gather_table(experiment: Experiment) -> PaperTable:
    """A table; rows whose runs are missing have nothing measured."""
    published = published_tables().get(experiment.name)
    columns = published.columns if published else USUAL
    views: tuple[View, View] = ("augmented", "plain")
    rows = []
    for group in experiment.groups:
        printed = published.row(group.data, group.norm, group.label) if published else None
        read = _by_seed(group)
        records, seeds = list(read.values()), list(read)
        by_then = learnt(records)
        measured, plain = (
            {column: over_seeds(records, column, view, seeds) for column in columns} if records else None
            for view in views
        )
        rows.append(
            TableRow(
                data=group.data,
                norm=group.norm,
                label=group.label,
                at=group.at,
                measured=measured,
                plain=plain,
                published=printed.cells if printed else None,
                above_chance=by_then.above_chance if read else None,
                constant_answers=by_then.constant_answers,
                collapsed=sum(record.collapsed for record in records),
                seeds=by_then.models,
                runs=tuple(run.key for run in group.runs),
            )
        )
    return PaperTable(
        name=experiment.name,
        title=experiment.title,
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(notes_of(run for group in experiment.groups for run in group.runs)),
    )


def _by_seed(group: RunGroup) -> dict[int, Record]:
    """The records of a group's finished runs at the point where they are read, by seed."""
    read = ((run.spec.seed, record_at(run, group.at)) for run in finished(group.runs))
    return {seed: record for seed, record in read if record is not None}


def gather_figure(experiment: Experiment) -> Figure:
    """A figure; what has no finished run or measurement is absent."""
    name, title, groups = experiment.name, experiment.title, experiment.groups
    match experiment.kind:
        case "curves":
            return CurveFigure(name=name, title=title, panels=_panels(curves(groups)))
        case "radius":
            return RadiusFigure(name=name, title=title, panels=_panels(radii(groups)))
        case "size":
            return SizeFigure(name=name, title=title, panels=_panels(sizes(groups)))
        case "norms":
            return NormFigure(name=name, title=title, panels=_panels(norms(groups)))
    raise AssertionError(f"{name} is no figure")


def _panels(found: Iterable[tuple[PanelKey, S]]) -> tuple[FigurePanel[S], ...]:
    panels: dict[PanelKey, list[S]] = {}
    for key, series in found:
        panels.setdefault(key, []).append(series)
    return tuple(
        FigurePanel(data=data, norm=norm, panel=panel, series=tuple(series))
        for (data, norm, panel), series in panels.items()
    )


def _key(group: RunGroup) -> PanelKey:
    return group.data, group.norm, group.panel


def curves(groups: Sequence[RunGroup]) -> Iterator[tuple[PanelKey, CurveSeries]]:
    """Figures 1, 5, 11: robust errors and their gap against the updates, on the augmented view as the paper's.

    What is compared at equal fit is of the plain images, which define the robust training risk.
    """
    for group in groups:
        histories = {run: comparable(list(run.folder.history())) for run in finished(group.runs)}
        if not histories:
            continue
        shared = list(zip(*histories.values(), strict=False))  # the points that all seeds have
        seeds = [run.spec.seed for run in histories]
        views: tuple[tuple[str, View], ...] = (
            ("train", "augmented"),
            ("test", "augmented"),
            ("gap", "augmented"),
            ("train", "plain"),
            ("gap", "plain"),
        )
        train, test, gap, fits, fit_gaps = (
            [over_seeds(point, f"robust_{name}", view, seeds) for point in shared] for name, view in views
        )
        first = [point[0] for point in shared]
        series = CurveSeries(
            label=group.label,
            **vars(learnt_at_end(histories)),
            epochs=tuple(record.equivalent_epoch for record in first),
            updates=tuple(record.update for record in first),
            train=tuple(1 - mean.mean for mean in train),
            test=tuple(1 - mean.mean for mean in test),
            points=tuple(gap),
            images=tuple(record.test.n for record in first),
            collapse=tuple(map(_collapse, histories.values())),
            fits=tuple(fits),
            fit_gaps=tuple(fit_gaps),
            overfitting=_overfitting(list(zip(*shared, strict=True)), seeds),
        )
        yield _key(group), series


def _overfitting(histories: Sequence[Sequence[Record]], seeds: Sequence[int]) -> SeedMean | None:
    """Best minus last robust test accuracy; the error of the images as if both were on images of their own."""
    halves = [[record.test_halves for record in history] for history in histories]
    n = histories[0][0].test.n
    if n < 2 or any(None in run for run in halves):
        return None
    right = np.array(halves)
    ends = right.sum(-1)[:, -1] / n
    errors = [math.hypot(*[proportion_error(float(end), n)] * 2) for end in ends]
    return seed_mean(best_minus_last(right, n).tolist(), errors, (-1.0, 1.0), of_seeds=seeds)


def _collapse(history: Sequence[Record]) -> Collapse:
    robust = [record.train.robust_accuracy for record in history]
    return Collapse(
        left=robust[-1] / max(robust) if max(robust) else 1.0,
        seen=any(record.collapsed for record in history),
        learnt=any(above_chance(record) for record in history),
    )


def radii(groups: Sequence[RunGroup]) -> Iterator[tuple[PanelKey, RadiusSeries]]:
    """Figures 2, 3, 6 to 9: accuracy against the radius, over the seeds that were measured.

    A measurement may hold other series too. Perturbations made elsewhere and applied to the group's own runs have a
    panel for each algorithm they come from.
    """
    for group in groups:
        panels: dict[str, list[tuple[int, Accuracy]]] = {}
        opened: dict[str, set[TrainTask]] = {}
        for measurement in group.measurements:
            document = measurement.found()
            own = [
                accuracy
                for accuracy in (document.results if document else ())
                if accuracy.split == "test" and accuracy.model in group.evaluated
            ]
            if own:
                panel = group.panel
                seeds = {run.key: run.spec.seed for run in group.runs}
                if measurement.source is not None:
                    made_on = measurement.source.spec
                    if group.targets:
                        seeds |= dict.fromkeys(group.evaluated, made_on.seed)
                    else:
                        panel = f"from {made_on.algorithm}"
                panels.setdefault(panel, []).extend((seeds[one.model], one) for one in own)
                used = (r for r in measurement.runs if r == measurement.source or r.key in group.evaluated)
                opened.setdefault(panel, set()).update(used)
        for panel, found in panels.items():
            series = _against_radius(group.label, learnt_at_end(opened[panel]), found)
            yield (group.data, group.norm, panel), series


def _against_radius(label: str, models: Learnt, found: Sequence[tuple[int, Accuracy]]) -> RadiusSeries:
    """The accuracies of runs by their seed; a seed that was measured twice cannot be paired."""
    by_eps: dict[float, list[tuple[int, float]]] = {}
    for seed, accuracy in found:
        by_eps.setdefault(accuracy.eps, []).append((seed, accuracy.robust_accuracy))
    n = min(accuracy.n for _, accuracy in found)
    points = []
    for _, measured in sorted(by_eps.items()):
        seeds, values = zip(*measured, strict=True)
        of_seeds = seeds if len(set(seeds)) == len(seeds) else ()
        errors = [proportion_error(p, n) for p in values]
        points.append(seed_mean(values, errors, PROPORTION, of_seeds=of_seeds))
    return RadiusSeries(
        label=label,
        **vars(models),
        eps=tuple(sorted(by_eps)),
        points=tuple(points),
        n=n,
        attack=found[0][1].attack.split(" from ")[0],
    )


def sizes(groups: Sequence[RunGroup]) -> Iterator[tuple[PanelKey, SizeSeries]]:
    """Figures 4, 10: the gap against the number of training images, and its exponent."""
    by_series: dict[tuple[PanelKey, str], dict[int, SeedMean]] = {}
    runs: dict[tuple[PanelKey, str], list[TrainTask]] = {}
    for group in groups:
        read = _by_seed(group)
        if read and group.n is not None:
            series = _key(group), group.label
            gap = over_seeds(list(read.values()), "robust_gap", "augmented", list(read))
            by_series.setdefault(series, {})[group.n] = gap
            runs.setdefault(series, []).extend(group.runs)
    for (key, label), by_size in by_series.items():
        numbers = sorted(by_size)
        points = tuple(by_size[n] for n in numbers)
        fitted = exponent(numbers, [ErrorEstimate.of_mean(mean) for mean in points])
        series_of_n = SizeSeries(
            label=label,
            **vars(learnt_at_end(runs[key, label])),
            n=tuple(numbers),
            points=points,
            exponent=_with_interval(fitted),
        )
        yield key, series_of_n


def _with_interval(estimate: ErrorEstimate | None) -> Interval | None:
    if estimate is None:
        return None
    low, high = estimate.interval()
    return Interval(value=estimate.value, low=low, high=high)


def norms(groups: Sequence[RunGroup]) -> Iterator[tuple[PanelKey, NormSeries]]:
    """Figure 12: counts of images by ‖∇_δ h‖ over all seeds, and the smallest so far."""
    for group in groups:
        read = {run: gradient_records(run.folder.history()) for run in finished(group.runs)}
        counted = {run: records for run, records in read.items() if records}
        if counted:
            yield _key(group), _norm_series(group.label, learnt_at_end(counted), list(counted.values()))


def _norm_series(label: str, models: Learnt, histories: Sequence[Sequence[GradientRecord]]) -> NormSeries:
    points = list(zip(*histories, strict=False))
    found = sorted({int(k) for point in points for norms in point for k in norms.bins}) or [0]
    bins = range(found[0], found[-1] + 1)
    return NormSeries(
        label=label,
        **vars(models),
        updates=tuple(point[0].update for point in points),
        bins=tuple(k / BINS_PER_DECADE for k in (*bins, bins.stop)),
        counts=tuple(
            tuple(sum(norms.bins.get(str(k), 0) for norms in point) for k in bins) for point in points
        ),
        smallest=tuple(min(norms.smallest_so_far for norms in point) for point in points),
        smallest_of_seeds=tuple(history[-1].smallest_so_far for history in histories),
    )
