"""Tables 1 to 6 and Figures 1 to 12 of the paper: for each row and series, the runs and measurements behind it.

A table or figure is a function from a scale and a store to its entries, registered under its name.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from freeat.errors import unknown_name
from freeat.experiments.paper.settings import (
    ERM,
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
    Scale,
    free,
    radius,
    run_of,
    train_size,
)
from freeat.experiments.tasks import AttackTask, PaperTask, Store, TrainTask, TransferTask

TABLE_1 = ("vanilla-7", VANILLA, FAST, *map(free, FREE_STEPS))
TABLE_5 = (VANILLA, FREE, TRADES, FREE_TRADES)
EARLY = 0.25
"""The part of the training after which Table 6 is read: 50 of 200 epochs."""

HEADLINE = (VANILLA, FAST, FREE, free(8), TRADES, FREE_TRADES, ERM)
"""The algorithms whose runs decide the first claims: they have several seeds at every scale."""

COMPARED = (VANILLA, FAST, FREE)
"""What "vanilla, fast, and free" stands for in the figures."""

TRANSFERRED_FROM = (VANILLA, FREE)
"""The independently trained robust models whose perturbations are transferred in Figures 3 and 7."""

SIZED = (VANILLA, FAST, FREE, free(6))
CIFAR = ("cifar10", "cifar100")
ATTACKED = ("cifar10", "cifar100", "tiny-imagenet")
TRANSFER_ATTACK = "pgd-10"

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
    runs: tuple[TrainTask, ...]
    measurements: tuple[AttackTask | TransferTask, ...] = ()
    panel: str = ""
    n: int | None = None
    at: float = 1.0
    targets: tuple[TrainTask, ...] = ()

    @property
    def evaluated(self) -> frozenset[str]:
        """Keys of the models whose results the series is made of: a measurement may hold those of other series."""
        return frozenset(run.key for run in self.targets or self.runs)

    @property
    def tasks(self) -> tuple[PaperTask, ...]:
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

    def tasks(self) -> Iterator[PaperTask]:
        """Every task it needs; what two entries share comes twice, with one key."""
        for entry in self.entries:
            yield from entry.tasks


Entries = Callable[[Scale, Store], Iterable[Entry]]
EXPERIMENTS: dict[str, Callable[[Scale, Store], Experiment]] = {}
ALL = "all"


def experiment(name: str, title: str, kind: Kind = "table") -> Callable[[Entries], Entries]:
    """Register the entries of a table or figure under its name."""

    def register(entries: Entries) -> Entries:
        def made(scale: Scale, store: Store) -> Experiment:
            return Experiment(name=name, title=title, kind=kind, entries=tuple(entries(scale, store)))

        EXPERIMENTS[name] = made
        return entries

    return register


def names_of(asked: Iterable[str]) -> tuple[str, ...]:
    """The experiments asked for, in the paper's order; ``all`` means every one."""
    wanted = set(asked)
    for name in wanted - {ALL}:
        if name not in EXPERIMENTS:
            raise unknown_name("experiment", name, [*EXPERIMENTS, ALL])
    return tuple(name for name in EXPERIMENTS if ALL in wanted or name in wanted)


def experiments(names: Iterable[str], scale: Scale, store: Store, data: Collection[str]) -> list[Experiment]:
    """The experiments at a scale, without the rows and panels of other data sets, and only where some are left."""
    made = []
    for name in names:
        whole = EXPERIMENTS[name](scale, store)
        kept = tuple(entry for entry in whole.entries if entry.data in data)
        if kept:
            made.append(replace(whole, entries=kept))
    return made


def seeds_of(scale: Scale, algorithm: str) -> range:
    """The seeds an algorithm is trained with: Table 3 has trials of its own."""
    if algorithm in (TRADES, FREE_TRADES):
        return range(scale.trials)
    return range(scale.seeds if algorithm in HEADLINE else scale.other_seeds)


def row(
    scale: Scale,
    store: Store,
    data: str,
    norm: str,
    algorithm: str,
    *,
    label: str | None = None,
    at: float = 1.0,
    **changes: Any,
) -> Entry:
    """A row: one algorithm with all its seeds."""
    runs = tuple(
        run_of(scale, store, data, norm, algorithm, seed, **changes) for seed in seeds_of(scale, algorithm)
    )
    return Entry(data=data, norm=norm, label=label or algorithm, runs=runs, at=at)


def block(scale: Scale, store: Store, datas: Iterable[str], algorithms: Iterable[str]) -> tuple[Entry, ...]:
    """A row for every data set, norm and algorithm."""
    algorithms = tuple(algorithms)
    return tuple(
        row(scale, store, data, norm, algorithm)
        for data in datas
        for norm in NORMS
        for algorithm in algorithms
    )


def collapsing_fast(scale: Scale, store: Store, *, at: float = 1.0) -> Entry:
    """Fast with the longer step, in Table 6 and Figure 11."""
    return row(scale, store, "cifar10", "linf", FAST, label=FAST_LONG_STEP, at=at, alpha=FAST_TO_COLLAPSE)


@experiment("table-1", "Robust accuracy and generalization gap on CIFAR-10 and CIFAR-100")
def table_1(scale: Scale, store: Store) -> Iterable[Entry]:
    return block(scale, store, CIFAR, TABLE_1)


@experiment("table-2", "Friendly and vanilla adversarial training on CIFAR-10")
def table_2(scale: Scale, store: Store) -> Iterable[Entry]:
    """Friendly AT trained at ε and at 2ε, both evaluated at ε, beside Vanilla."""
    for norm in NORMS:
        eps = radius("cifar10", norm)
        yield row(scale, store, "cifar10", norm, VANILLA)
        yield row(scale, store, "cifar10", norm, FRIENDLY)
        wide = {"eps": 2 * eps, "eval_eps": eps}
        yield row(scale, store, "cifar10", norm, FRIENDLY, label=FRIENDLY_TWICE, **wide)


@experiment("table-3", "TRADES and Free-TRADES on CIFAR-10 and CIFAR-100")
def table_3(scale: Scale, store: Store) -> Iterable[Entry]:
    return block(scale, store, CIFAR, (TRADES, FREE_TRADES))


@experiment("table-4", "Robust accuracy and generalization gap on Tiny-ImageNet and SVHN")
def table_4(scale: Scale, store: Store) -> Iterable[Entry]:
    return block(scale, store, ("tiny-imagenet", "svhn"), TABLE_1)


@experiment("table-5", "Clean and robust accuracy and generalization gap on CIFAR-10")
def table_5(scale: Scale, store: Store) -> Iterable[Entry]:
    """Clean beside robust accuracy; the row of ERM, with whose gap the paper compares in words, is ours."""
    return block(scale, store, ("cifar10",), (*TABLE_5, ERM))


@experiment(
    "table-6", "Vanilla, Fast (step 10/255) and Free stopped at a quarter of the training, Linf, CIFAR-10"
)
def table_6(scale: Scale, store: Store) -> Iterable[Entry]:
    """After a quarter of the training: the paper's 50th epoch."""
    yield row(scale, store, "cifar10", "linf", VANILLA, at=EARLY)
    yield collapsing_fast(scale, store, at=EARLY)
    yield row(scale, store, "cifar10", "linf", FREE, at=EARLY)


@experiment("figure-1", "Learning curves on CIFAR-10", "curves")
def figure_1(scale: Scale, store: Store) -> Iterable[Entry]:
    return block(scale, store, ("cifar10",), COMPARED)


@experiment("figure-2", "Robust accuracy against the Square attack on CIFAR-10", "radius")
def figure_2(scale: Scale, store: Store) -> Iterable[Entry]:
    return _under_square(scale, store, ("cifar10",))


@experiment("figure-3", "Robust accuracy against transferred attacks on CIFAR-10", "radius")
def figure_3(scale: Scale, store: Store) -> Iterable[Entry]:
    return _under_transfer(scale, store, ("cifar10",))


@experiment("figure-4", "Generalization gap against the number of training images of CIFAR-10", "size")
def figure_4(scale: Scale, store: Store) -> Iterable[Entry]:
    return _sizes(scale, store, ("cifar10",))


@experiment("figure-5", "Learning curves on CIFAR-10 and CIFAR-100", "curves")
def figure_5(scale: Scale, store: Store) -> Iterable[Entry]:
    return block(scale, store, CIFAR, TABLE_1)


@experiment(
    "figure-6",
    "Robust accuracy against the Square attack on CIFAR-10, CIFAR-100 and Tiny-ImageNet",
    "radius",
)
def figure_6(scale: Scale, store: Store) -> Iterable[Entry]:
    return _under_square(scale, store, ATTACKED)


@experiment(
    "figure-7",
    "Robust accuracy against transferred attacks on CIFAR-10, CIFAR-100 and Tiny-ImageNet",
    "radius",
)
def figure_7(scale: Scale, store: Store) -> Iterable[Entry]:
    return _under_transfer(scale, store, ATTACKED)


@experiment(
    "figure-8", "Standard models on CIFAR-100 and Tiny-ImageNet against attacks made on robust ones", "radius"
)
def figure_8(scale: Scale, store: Store) -> Iterable[Entry]:
    return _against_standard(scale, store, {"cifar100": ("resnet18",), "tiny-imagenet": ("resnet50",)})


@experiment("figure-9", "Standard models on CIFAR-10 against attacks made on robust ones", "radius")
def figure_9(scale: Scale, store: Store) -> Iterable[Entry]:
    return _against_standard(scale, store, {"cifar10": tuple(scale.targets)})


@experiment(
    "figure-10", "Generalization gap against the number of training images of CIFAR-10 and CIFAR-100", "size"
)
def figure_10(scale: Scale, store: Store) -> Iterable[Entry]:
    return _sizes(scale, store, CIFAR)


@experiment("figure-11", "Learning curves of Fast with steps 7/255 and 10/255, Linf, CIFAR-10", "curves")
def figure_11(scale: Scale, store: Store) -> Iterable[Entry]:
    yield row(scale, store, "cifar10", "linf", FAST, label=FAST_SHORT_STEP)
    yield collapsing_fast(scale, store)


@experiment("figure-12", "Norms of the perturbation's gradient over the training, L2", "norms")
def figure_12(scale: Scale, store: Store) -> Iterable[Entry]:
    for data in CIFAR:
        yield from (row(scale, store, data, "l2", algorithm) for algorithm in (FREE, free(6)))


def _under_square(scale: Scale, store: Store, datas: Iterable[str]) -> Iterator[Entry]:
    """Every seed of the compared algorithms under the Square attack."""
    for base in block(scale, store, datas, COMPARED):
        attacks = tuple(
            AttackTask(
                name=f"{scale.square} on {run.name}",
                store=store,
                model=run,
                attack=scale.square,
                norm=base.norm,
                radii=scale.square_grid.radii(base.norm),
                n=scale.square_images,
            )
            for run in base.runs
        )
        yield replace(base, measurements=attacks)


def _under_transfer(scale: Scale, store: Store, datas: Iterable[str]) -> Iterator[Entry]:
    """Every seed of the compared algorithms under perturbations made on robust models of another seed."""
    for base in block(scale, store, datas, COMPARED):
        seeds = {run.spec.seed for run in base.runs}
        measurements = tuple(
            _from_robust(scale, store, base.data, base.norm, source, seed)
            for source in TRANSFERRED_FROM
            for seed in sorted(seeds)
        )
        yield replace(base, measurements=measurements)


def _from_robust(scale: Scale, store: Store, data: str, norm: str, source: str, seed: int) -> TransferTask:
    """A robust model's perturbations on all compared algorithms of ``seed``: made once for the three."""
    maker = run_of(scale, store, data, norm, source, another(scale, seed))
    return TransferTask(
        name=f"transfer from {maker.name} to seed {seed}",
        store=store,
        source=maker,
        targets=tuple(run_of(scale, store, data, norm, target, seed) for target in COMPARED),
        attack=TRANSFER_ATTACK,
        norm=norm,
        radii=scale.transfer_grid.radii(norm),
        n=scale.transfer_images,
    )


def another(scale: Scale, seed: int) -> int:
    """The next seed around: a model that shares neither initial weights nor batches."""
    return (seed + 1) % max(2, scale.seeds)


def _against_standard(scale: Scale, store: Store, networks: Mapping[str, tuple[str, ...]]) -> Iterator[Entry]:
    """Perturbations made on the compared algorithms, applied to standard models; a panel per target network."""
    for base in block(scale, store, networks, COMPARED):
        panels = networks[base.data]
        measurements = tuple(_to_standard(scale, store, base, run, panels) for run in base.runs)
        for place, panel in enumerate(panels):
            targets = tuple(dict.fromkeys(measurement.targets[place] for measurement in measurements))
            yield replace(base, panel=panel, measurements=measurements, targets=targets)


def _to_standard(
    scale: Scale, store: Store, base: Entry, source: TrainTask, panels: Iterable[str]
) -> TransferTask:
    """A robust model's perturbations on the standard models of all panels: made once for all of them."""
    return TransferTask(
        name=f"transfer from {source.name} to standard models",
        store=store,
        source=source,
        targets=tuple(_standard(scale, store, base.data, panel, source.spec.seed) for panel in panels),
        attack=TRANSFER_ATTACK,
        norm=base.norm,
        radii=scale.standard_grid.radii(base.norm),
        n=scale.transfer_images,
    )


def _standard(scale: Scale, store: Store, data: str, network: str, seed: int) -> TrainTask:
    """A standard model, trained without an adversary, that shares neither weights nor batches with the source.

    The same network takes another seed; of another network one model does for all sources.
    """
    own = scale.setups[data].network
    model = own if data != "cifar10" else scale.targets[network]
    return run_of(scale, store, data, "l2", ERM, another(scale, seed) if model == own else 0, model=model)


def _sizes(scale: Scale, store: Store, datas: Iterable[str]) -> Iterator[Entry]:
    """The n-study: nested subsets, and the same T for every n and algorithm."""
    for data in datas:
        for norm in NORMS:
            for algorithm in SIZED:
                for n in scale.sizes:
                    full = n == train_size(scale, data)
                    seeds = seeds_of(scale, algorithm) if full else range(scale.other_seeds)
                    runs = tuple(run_of(scale, store, data, norm, algorithm, s, train_size=n) for s in seeds)
                    yield Entry(data=data, norm=norm, label=algorithm, runs=runs, n=n)
