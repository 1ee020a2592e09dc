"""Tables 1 to 6 and Figures 1 to 12 of the paper, and a table of two radii: the runs and measurements behind them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from freeat.errors import unknown_name
from freeat.experiments.paper.settings import (
    COMPARED,
    ERM,
    EVALUATION_STARTS,
    FAST,
    FAST_LONG_STEP,
    FAST_SHORT_STEP,
    FAST_TO_COLLAPSE,
    FREE,
    FREE_STEPS,
    FREE_TRADES,
    FRIENDLY,
    FRIENDLY_TWICE,
    NORMS,
    TRADES,
    VANILLA,
    RadiusGrid,
    Scale,
    free,
    half_radius,
    radius,
    run_of,
    train_size,
)
from freeat.experiments.tasks import Measurement, PaperTask, Store, TrainTask

TABLE_1 = ("vanilla-7", VANILLA, FAST, *map(free, FREE_STEPS))
TABLE_5 = (VANILLA, FREE, TRADES, FREE_TRADES, ERM)
"""With a row for ERM, which the paper's table lacks: the paper compares with its gap in the text."""

EARLY = 0.25
"""The part of the training after which Table 6 is read: 50 of 200 epochs."""

HEADLINE = (VANILLA, FAST, FREE, free(8), TRADES, FREE_TRADES, ERM)
"""The algorithms whose runs decide the first claims: they have several seeds at every scale."""

TRANSFERRED_FROM = (VANILLA, FREE)
"""The independently trained robust models whose perturbations are transferred in Figures 3 and 7."""

SIZED = (VANILLA, FAST, FREE, free(6))
CIFAR = ("cifar10", "cifar100")
ATTACKED = ("cifar10", "cifar100", "tiny-imagenet")
TRANSFER_ATTACK = "pgd-10"

Kind = Literal["table", "curves", "radius", "size", "norms"]


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """The runs and measurements behind one row of a table or one series of a figure.

    ``data`` and ``norm`` name the block or panel; ``panel`` distinguishes panels that share them (the target network
    of Figures 8 and 9). ``runs`` differ in their seed only. ``n`` is the training set's size in the n-study.
    ``at`` is the part of the training after which the row is read (Table 6: a quarter). ``targets`` are the
    standard models that the perturbations made on ``runs`` are applied to (Figures 8 and 9).
    """

    data: str
    norm: str
    label: str
    runs: tuple[TrainTask, ...]
    measurements: tuple[Measurement, ...] = ()
    panel: str = ""
    n: int | None = None
    at: float = 1.0
    targets: tuple[TrainTask, ...] = ()

    @property
    def evaluated(self) -> frozenset[str]:
        """Keys of the models whose results the series consists of: a measurement may hold those of other series."""
        return frozenset(run.key for run in self.targets or self.runs)

    @property
    def tasks(self) -> tuple[PaperTask, ...]:
        """Its runs, those its measurements open besides (Figure 3's sources, Figure 9's targets), and these."""
        opened = (run for measurement in self.measurements for run in measurement.runs)
        return (*self.runs, *opened, *self.measurements)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or figure of the paper at a scale."""

    name: str
    title: str
    kind: Kind
    groups: tuple[RunGroup, ...]

    def tasks(self) -> Iterator[PaperTask]:
        """Every task it needs; what two groups share comes twice, with one key."""
        for group in self.groups:
            yield from group.tasks


@dataclass(frozen=True, kw_only=True)
class GroupMaker:
    """Makes the groups of tables and figures at a scale, with their runs in a store."""

    scale: Scale
    store: Store

    def run(self, data: str, norm: str, algorithm: str, seed: int = 0, **changes: Any) -> TrainTask:
        return run_of(self.scale, self.store, data, norm, algorithm, seed, **changes)

    def seeds(self, algorithm: str) -> range:
        """The seeds an algorithm is trained with: Table 3 has a number of its own."""
        if algorithm in (TRADES, FREE_TRADES):
            return range(self.scale.trades_seeds)
        return range(self.scale.seeds if algorithm in HEADLINE else self.scale.other_seeds)

    def row(
        self,
        data: str,
        norm: str,
        algorithm: str,
        *,
        label: str | None = None,
        at: float = 1.0,
        **changes: Any,
    ) -> RunGroup:
        """A row: one algorithm with all its seeds."""
        runs = tuple(self.run(data, norm, algorithm, seed, **changes) for seed in self.seeds(algorithm))
        return RunGroup(data=data, norm=norm, label=label or algorithm, runs=runs, at=at)

    def rows(
        self, data_sets: Iterable[str], algorithms: Iterable[str] = COMPARED, norms: Iterable[str] = NORMS
    ) -> Iterator[RunGroup]:
        """A row for every data set, norm and algorithm."""
        for data, norm, algorithm in product(data_sets, norms, algorithms):
            yield self.row(data, norm, algorithm)

    def attacked(self, data: str) -> tuple[str, ...]:
        """The algorithms that Square and transferred attacks are run on."""
        return self.scale.attacked.get(data, COMPARED)

    def attacked_rows(self, data_sets: Iterable[str]) -> Iterator[RunGroup]:
        """A row for every data set, norm and attacked algorithm."""
        for data in data_sets:
            yield from self.rows((data,), self.attacked(data))

    def fast_with_long_step(self, *, at: float = 1.0) -> RunGroup:
        return self.row("cifar10", "linf", FAST, label=FAST_LONG_STEP, at=at, alpha=FAST_TO_COLLAPSE)

    def friendly(self) -> Iterator[RunGroup]:
        """Table 2: Friendly AT trained at ε and at 2ε, both evaluated at ε, beside Vanilla."""
        for norm in NORMS:
            eps = radius("cifar10", norm)
            yield self.row("cifar10", norm, VANILLA)
            yield self.row("cifar10", norm, FRIENDLY)
            yield self.row("cifar10", norm, FRIENDLY, label=FRIENDLY_TWICE, eps=2 * eps, eval_eps=eps)

    def two_radii(self) -> Iterator[RunGroup]:
        """Not in the paper: algorithms trained and evaluated at ε/2, beside the same at ε."""
        for norm, algorithm in product(NORMS, (VANILLA, FREE)):
            yield self.row("cifar10", norm, algorithm)
            eps = radius("cifar10", norm) / 2
            yield self.row("cifar10", norm, algorithm, label=half_radius(algorithm), eps=eps)

    def stopped_early(self) -> Iterator[RunGroup]:
        """Table 6: after a quarter of the training, the paper's 50th epoch."""
        yield self.row("cifar10", "linf", VANILLA, at=EARLY)
        yield self.fast_with_long_step(at=EARLY)
        yield self.row("cifar10", "linf", FREE, at=EARLY)

    def fast_with_both_steps(self) -> Iterator[RunGroup]:
        """Figure 11: Fast with the steps 7/255 and 10/255."""
        yield self.row("cifar10", "linf", FAST, label=FAST_SHORT_STEP)
        yield self.fast_with_long_step()

    def sizes(self, data_sets: Iterable[str]) -> Iterator[RunGroup]:
        """The n-study: nested subsets, and the same T for every n and algorithm."""
        for base in self.rows(data_sets, SIZED):
            for n in self.scale.sizes:
                full = n == train_size(self.scale, base.data)
                seeds = self.seeds(base.label) if full else range(self.scale.other_seeds)
                runs = tuple(self.run(base.data, base.norm, base.label, s, train_size=n) for s in seeds)
                yield replace(base, runs=runs, n=n)

    def under_square(self, data_sets: Iterable[str]) -> Iterator[RunGroup]:
        """Every seed of the attacked algorithms under the Square attack."""
        scale = self.scale
        for base in self.attacked_rows(data_sets):
            attacks = tuple(
                Measurement(
                    name=f"{scale.square} on {run.name}",
                    store=self.store,
                    targets=(run,),
                    attack=scale.square,
                    norm=base.norm,
                    radii=scale.square_grid.radii(base.norm),
                    n=scale.square_images,
                )
                for run in base.runs
            )
            yield replace(base, measurements=attacks)

    def under_transfer(self, data_sets: Iterable[str]) -> Iterator[RunGroup]:
        """Every seed of the attacked algorithms under perturbations made on robust models of another seed.

        The perturbations of a source are made once for all attacked algorithms of a seed.
        """
        for base in self.attacked_rows(data_sets):
            seeds = sorted({run.spec.seed for run in base.runs})
            measurements = tuple(
                self._transfer(
                    self.run(base.data, base.norm, source, self.another_seed(seed)),
                    [self.run(base.data, base.norm, target, seed) for target in self.attacked(base.data)],
                    f"seed {seed}",
                    self.scale.transfer_grid,
                )
                for source in TRANSFERRED_FROM
                for seed in seeds
            )
            yield replace(base, measurements=measurements)

    def against_standard(self, networks: Mapping[str, tuple[str, ...]]) -> Iterator[RunGroup]:
        """Perturbations made on the compared algorithms, applied to standard models; a panel per target network.

        The perturbations of a run are made once for all its targets.
        """
        for base in self.rows(networks):
            panels = networks[base.data]
            measurements = tuple(
                self._transfer(
                    run,
                    [self._standard(base.data, panel, run.spec.seed) for panel in panels],
                    "standard models",
                    self.scale.standard_grid,
                )
                for run in base.runs
            )
            for index, panel in enumerate(panels):
                targets = tuple(dict.fromkeys(measurement.targets[index] for measurement in measurements))
                yield replace(base, panel=panel, measurements=measurements, targets=targets)

    def _transfer(
        self, source: TrainTask, targets: Iterable[TrainTask], described: str, grid: RadiusGrid
    ) -> Measurement:
        return Measurement(
            name=f"transfer from {source.name} to {described}",
            store=self.store,
            source=source,
            targets=tuple(targets),
            attack=TRANSFER_ATTACK,
            norm=source.spec.norm,
            radii=grid.radii(source.spec.norm),
            n=self.scale.transfer_images,
            iterate="last",
            start=EVALUATION_STARTS[source.spec.norm],
        )

    def another_seed(self, seed: int) -> int:
        """The next seed, after the last the first: a model that shares neither initial weights nor batches."""
        return (seed + 1) % max(2, self.scale.seeds)

    def _standard(self, data: str, network: str, seed: int) -> TrainTask:
        """A standard model, trained without an adversary, for the sources of a seed.

        Its seed is one that no source has, and every seed of the sources has its own model.
        """
        model = self.scale.targets[network] if data == "cifar10" else self.scale.setups[data].network
        return self.run(data, "l2", ERM, self.scale.seeds + seed, model=model)


EXPERIMENTS: dict[str, tuple[Kind, str, Callable[[GroupMaker], Iterable[RunGroup]]]] = {
    "table-1": (
        "table",
        "Robust accuracy and generalization gap on CIFAR-10 and CIFAR-100",
        lambda make: make.rows(CIFAR, TABLE_1),
    ),
    "table-2": ("table", "Friendly and vanilla adversarial training on CIFAR-10", GroupMaker.friendly),
    "table-3": (
        "table",
        "TRADES and Free-TRADES on CIFAR-10 and CIFAR-100",
        lambda make: make.rows(CIFAR, (TRADES, FREE_TRADES)),
    ),
    "table-4": (
        "table",
        "Robust accuracy and generalization gap on Tiny-ImageNet and SVHN",
        lambda make: make.rows(("tiny-imagenet", "svhn"), TABLE_1),
    ),
    "table-5": (
        "table",
        "Clean and robust accuracy and generalization gap on CIFAR-10",
        lambda make: make.rows(("cifar10",), TABLE_5),
    ),
    "table-6": (
        "table",
        "Vanilla, Fast (step 10/255) and Free stopped at a quarter of the training, Linf, CIFAR-10",
        GroupMaker.stopped_early,
    ),
    "radii": ("table", "Vanilla and Free at two radii on CIFAR-10", GroupMaker.two_radii),
    "figure-1": ("curves", "Learning curves on CIFAR-10", lambda make: make.rows(("cifar10",))),
    "figure-2": (
        "radius",
        "Robust accuracy against the Square attack on CIFAR-10",
        lambda make: make.under_square(("cifar10",)),
    ),
    "figure-3": (
        "radius",
        "Robust accuracy against transferred attacks on CIFAR-10",
        lambda make: make.under_transfer(("cifar10",)),
    ),
    "figure-4": (
        "size",
        "Generalization gap against the number of training images of CIFAR-10",
        lambda make: make.sizes(("cifar10",)),
    ),
    "figure-5": (
        "curves",
        "Learning curves on CIFAR-10 and CIFAR-100",
        lambda make: make.rows(CIFAR, TABLE_1),
    ),
    "figure-6": (
        "radius",
        "Robust accuracy against the Square attack on CIFAR-10, CIFAR-100 and Tiny-ImageNet",
        lambda make: make.under_square(ATTACKED),
    ),
    "figure-7": (
        "radius",
        "Robust accuracy against transferred attacks on CIFAR-10, CIFAR-100 and Tiny-ImageNet",
        lambda make: make.under_transfer(ATTACKED),
    ),
    "figure-8": (
        "radius",
        "Standard models on CIFAR-100 and Tiny-ImageNet against attacks made on robust ones",
        lambda make: make.against_standard({"cifar100": ("resnet18",), "tiny-imagenet": ("resnet50",)}),
    ),
    "figure-9": (
        "radius",
        "Standard models on CIFAR-10 against attacks made on robust ones",
        lambda make: make.against_standard({"cifar10": tuple(make.scale.targets)}),
    ),
    "figure-10": (
        "size",
        "Generalization gap against the number of training images of CIFAR-10 and CIFAR-100",
        lambda make: make.sizes(CIFAR),
    ),
    "figure-11": (
        "curves",
        "Learning curves of Fast with steps 7/255 and 10/255, Linf, CIFAR-10",
        GroupMaker.fast_with_both_steps,
    ),
    "figure-12": (
        "norms",
        "Norms of the perturbation's gradient over the training, L2",
        lambda make: make.rows(CIFAR, (FREE, free(6)), norms=("l2",)),
    ),
}
"""Kind, title and groups of every table and figure, in the paper's order; ``radii`` is a table of our own."""

ALL = "all"


def names_of(requested: Iterable[str]) -> tuple[str, ...]:
    """The requested experiments in the paper's order; ``all`` means every one."""
    wanted = set(requested)
    for name in wanted - {ALL}:
        if name not in EXPERIMENTS:
            raise unknown_name("experiment", name, [*EXPERIMENTS, ALL])
    return tuple(name for name in EXPERIMENTS if ALL in wanted or name in wanted)


def make_experiment(name: str, scale: Scale, store: Store) -> Experiment:
    """The table or figure of that name at a scale; of a data set with a list, what is in it."""
    kind, title, groups = EXPERIMENTS[name]
    made = groups(GroupMaker(scale=scale, store=store))
    kept = (group for group in made if part_of(scale, name, group) is not None)
    return Experiment(name=name, title=title, kind=kind, groups=tuple(kept))


def part_of(scale: Scale, experiment: str, group: RunGroup) -> int | None:
    """The number of the part of its data set's list that has a row or series; 0 without a list, None if none has."""
    if group.data not in scale.lists:
        return 0
    parts = enumerate(scale.lists[group.data])
    return next((k for k, p in parts if experiment in p.experiments and group.label in p.labels), None)


def make_experiments(
    names: Iterable[str], scale: Scale, store: Store, data: Collection[str]
) -> list[Experiment]:
    """The experiments at a scale, without the rows and panels of other data sets, and only where some are left."""
    made = []
    for experiment in (make_experiment(name, scale, store) for name in names):
        kept = tuple(group for group in experiment.groups if group.data in data)
        if kept:
            made.append(replace(experiment, groups=kept))
    return made
