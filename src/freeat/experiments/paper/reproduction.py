"""A reproduction from beginning to end: its tasks, their cost, running them, and the resulting document."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from freeat.compute.machine import provenance, resolve_device
from freeat.data import data_folder, load_data
from freeat.data.catalogue import SOURCES, available, find_source
from freeat.data.synthetic import write_synthetic
from freeat.errors import InputError, unknown_name
from freeat.experiments.paper.catalogue import (
    HEADLINE,
    Experiment,
    RunGroup,
    make_experiments,
    names_of,
    part_of,
)
from freeat.experiments.paper.costs import Estimator, TaskCost, dataset_info
from freeat.experiments.paper.documents import LeftOut, ReproductionDocument, TaskFailure
from freeat.experiments.paper.gather import gather
from freeat.experiments.paper.settings import Scale, source
from freeat.experiments.tasks import PaperTask, Store, TrainTask
from freeat.tasks import EndedTask

SYNTHETIC_IMAGES = 32
"""In each split of the synthetic data sets: more than any run at that scale uses."""


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What would be run, what it costs, and what is left out; seconds are spread over the workers."""

    scale: str
    workers: int
    tasks: tuple[TaskCost, ...]
    seconds: float
    remaining: float
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Tables and figures at a scale, from the data sets that are here; ``missing`` are those on the others."""

    scale: Scale
    store: Store
    experiments: tuple[Experiment, ...]
    absent: tuple[LeftOut, ...]
    missing: tuple[Experiment, ...] = ()

    @cached_property
    def tasks(self) -> tuple[PaperTask, ...]:
        """Every task once: by importance, one seed after the other, and of a seed the costly ones first.

        So what there is when it is stopped can be compared, and no worker is left with a long task at the end.
        """
        return _in_order(self.experiments, self.scale, self.estimator)

    @cached_property
    def estimator(self) -> Estimator:
        estimator = Estimator(data_dir=self.store.data_dir, device=self.store.device)
        if self.scale.synthetic:
            with TemporaryDirectory() as folder:  # the data are made when runs begin
                elsewhere = Store(path=self.store.path, data_dir=Path(folder))
                write_synthetic(Path(folder), SYNTHETIC_IMAGES)
                for name in self.scale.setups:
                    made, path = (source(self.scale, store, name) for store in (elsewhere, self.store))
                    estimator.set_info(path, dataset_info(made, None))
        return estimator

    def make_data(self) -> None:
        """Write the data of a synthetic scale, where they are not there."""
        if self.scale.synthetic:
            write_synthetic(data_folder(self.store.data_dir), SYNTHETIC_IMAGES)

    def check_data(self) -> None:
        """Refuse other data than the runs in the store were begun with: nothing there could be reused or resumed."""
        runs = [task for task in self.tasks if isinstance(task, TrainTask)]
        begun = [(run, digest) for run in runs if (digest := run.data_digest) is not None]
        for name in dict.fromkeys(run.spec.data for run, _ in begun):
            now = load_data(name, data_dir=self.store.data_dir).digest
            for run, before in begun:
                if run.spec.data == name and before != now:
                    raise InputError(
                        f"{name} is not what {run.name} in {run.folder.path} was begun with "
                        f"({before[:12]} → {now[:12]}): restore the data, or choose another --store"
                    )

    def dry_run(self, workers: int) -> DryRun:
        """What would be run and its cost, with that of absent data sets. Writes nothing."""
        absent = _in_order(self.missing, self.scale, self.estimator)
        costs = [
            *(self.estimator.cost(task, finished=task.found() is not None) for task in self.tasks),
            *(self.estimator.cost(task, absent=True) for task in absent),
        ]
        here = [cost for cost in costs if not cost.absent]
        return DryRun(
            scale=self.scale.name,
            workers=workers,
            tasks=tuple(costs),
            seconds=sum(cost.seconds for cost in here) / workers,
            remaining=sum(cost.seconds for cost in here if not cost.finished) / workers,
            left_out=self.absent,
        )

    def weights(self) -> dict[str, float]:
        """The share of each task in the work, by name, for progress."""
        return {task.name: self.estimator.total(task) for task in self.tasks}

    def check_begun(self) -> None:
        """Refuse a store in which nothing of this was begun."""
        if not any(isinstance(task, TrainTask) and task.folder.exists for task in self.tasks):
            raise InputError(
                f"nothing of this was begun in {self.store.path}: give the names, --scale, --data and --store "
                "of the command that runs it"
            )

    def document(self, done: "Sequence[EndedTask[PaperTask]]" = ()) -> ReproductionDocument:
        """The results beside the published numbers, and their origin.

        A task that has neither a result nor a failure is listed as left out.
        """
        damaged = {task.key: why for task in self.tasks if (why := task.damage()) is not None}
        reasons = damaged | {one.task.key: one.failure for one in done if one.failure is not None}
        waiting = [task for task in self.tasks if task.key not in reasons and task.found() is None]
        unfinished = [LeftOut(what=task.name, reason="not finished yet") for task in waiting]
        failed = [task for task in self.tasks if task.key in reasons]
        return gather(
            self.experiments,
            scale=self.scale.name,
            provenance=provenance(resolve_device(self.store.device)),
            left_out=(*self.absent, *unfinished),
            failures=[TaskFailure(task=task.name, reason=reasons[task.key]) for task in failed],
        )


def _in_order(experiments: Sequence[Experiment], scale: Scale, estimator: Estimator) -> tuple[PaperTask, ...]:
    ranks: dict[str, int] = {}
    tasks: dict[str, PaperTask] = {}
    for experiment in experiments:
        for group in experiment.groups:
            for task in group.tasks:
                rank = _rank(experiment, group, task, scale)
                tasks[task.key] = task
                ranks[task.key] = min(rank, ranks.get(task.key, rank))

    def turn(task: PaperTask) -> tuple[int, int, float]:
        seed = (task if isinstance(task, TrainTask) else task.target).spec.seed
        return ranks[task.key], seed, -estimator.total(task)

    return tuple(sorted(tasks.values(), key=turn))


def _rank(experiment: Experiment, group: RunGroup, task: PaperTask, scale: Scale) -> int:
    """First the rows that decide the first claims, then the other rows, then figures, then further seeds.

    A list has the order of its parts.
    """
    if group.data in scale.lists:
        part = part_of(scale, experiment.name, group)
        assert part is not None  # it was made
        return part
    headline = group.label.startswith(HEADLINE)
    if experiment.kind == "table" and headline:
        return 0
    if isinstance(task, TrainTask) and task.spec.seed > 0 and not headline:
        return 3
    return 1 if experiment.kind == "table" else 2


def prepare(
    names: Iterable[str],
    scale: Scale,
    store: Store,
    *,
    data: Iterable[str] | None = None,
    dry: bool = False,
) -> Reproduction:
    """The tables and figures ``names`` at a scale, on those of the requested data sets (None: all four) that are here.

    Writes nothing. With ``dry`` nothing will be run, so that no data set need be here.
    """
    requested = [_data_name(name, scale) for name in data] if data is not None else list(scale.setups)
    absent = [] if scale.synthetic else [one for name in requested for one in _absent(name, scale, store)]
    elsewhere = {one.what for one in absent}
    wanted = names_of(names)
    made = make_experiments(wanted, scale, store, [name for name in requested if name not in elsewhere])
    missing = make_experiments(wanted, scale, store, elsewhere)
    if not made and not (dry and missing):
        out = [*absent, *_unlisted(wanted, scale, store, requested)]
        reasons = "; ".join(f"{one.what}: {one.reason}" for one in out) or "they use other data sets"
        raise InputError(f"nothing of this can be reproduced here ({reasons})")
    return Reproduction(
        scale=scale,
        store=store,
        experiments=tuple(made),
        absent=(*absent, *_unlisted(wanted, scale, store, requested)),
        missing=tuple(missing),
    )


def _data_name(name: str, scale: Scale) -> str:
    source = find_source(name)
    if source is None or source.name not in scale.setups:
        raise unknown_name("data set of the paper", name, scale.setups)
    return source.name


def _unlisted(wanted: Iterable[str], scale: Scale, store: Store, data: Iterable[str]) -> Iterator[LeftOut]:
    """The requested tables and figures of which a data set's list has no row or series."""
    for name in data:
        made = {one.name for one in make_experiments(wanted, scale, store, [name])}
        every = make_experiments(wanted, replace(scale, lists={}), store, [name])
        if out := [one.name for one in every if one.name not in made]:
            reason = f"not in the list of {name} at the scale {scale.name}"
            yield LeftOut(what=f"{name}: {', '.join(out)}", reason=reason)


def _absent(name: str, scale: Scale, store: Store) -> Iterator[LeftOut]:
    """Why a data set cannot be used, if so."""
    entry = next(entry for entry in available(store.data_dir) if entry.name == name)
    fetch = f"run `freeat data fetch {name}`, or name the folder that has it with --data-dir"
    needed = scale.setups[name].n or SOURCES[name].n_train
    if not entry.present:
        yield LeftOut(what=name, reason=f"{entry.title} is not here: {fetch}")
    elif scale.published_only and entry.state != "published":
        reason = f"only a substitute for {entry.title} is here, not the published data set: {fetch}"
        yield LeftOut(what=name, reason=reason)
    elif entry.n_train < needed:
        yield LeftOut(what=name, reason=f"{needed} training images are needed, {entry.n_train} are here")
