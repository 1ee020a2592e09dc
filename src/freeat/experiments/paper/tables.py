"""Tables 1 to 6 of the paper: for each row, the runs behind it."""

from collections.abc import Iterable
from typing import Any

from freeat.experiments.paper.experiment import Entry, Experiment
from freeat.experiments.paper.labels import (
    ERM,
    FAST,
    FAST_LONG_STEP,
    FREE,
    FREE_STEPS,
    FREE_TRADES,
    FRIENDLY,
    FRIENDLY_TWICE,
    TRADES,
    VANILLA,
    free,
)
from freeat.experiments.paper.scales import Scale
from freeat.experiments.paper.settings import FAST_TO_COLLAPSE, NORMS, radius, run_of
from freeat.experiments.tasks import Site

TABLE_1 = ("vanilla-7", VANILLA, FAST, *map(free, FREE_STEPS))
TABLE_5 = (VANILLA, FREE, TRADES, FREE_TRADES)
EARLY = 0.25
"""The part of the training after which Table 6 is read: 50 of 200 epochs."""

HEADLINE = (VANILLA, FAST, FREE, free(8), TRADES, FREE_TRADES, ERM)
"""The algorithms whose runs decide the first claims: they have several seeds at every scale."""


def seeds_of(scale: Scale, algorithm: str) -> range:
    """The seeds an algorithm is trained with: Table 3 has trials of its own."""
    if algorithm in (TRADES, FREE_TRADES):
        return range(scale.trials)
    return range(scale.seeds if algorithm in HEADLINE else scale.other_seeds)


def row(
    scale: Scale,
    site: Site,
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
        run_of(scale, site, data, norm, algorithm, seed, **changes) for seed in seeds_of(scale, algorithm)
    )
    return Entry(data=data, norm=norm, label=label or algorithm, runs=runs, at=at)


def block(scale: Scale, site: Site, datas: Iterable[str], algorithms: Iterable[str]) -> tuple[Entry, ...]:
    """A row for every data set, norm and algorithm."""
    return tuple(
        row(scale, site, data, norm, algorithm)
        for data in datas
        for norm in NORMS
        for algorithm in algorithms
    )


def collapsing_fast(scale: Scale, site: Site, *, at: float = 1.0) -> Entry:
    """Fast with the longer step, in Table 6 and Figure 11."""
    return row(scale, site, "cifar10", "linf", FAST, label=FAST_LONG_STEP, at=at, alpha=FAST_TO_COLLAPSE)


def table_1(scale: Scale, site: Site) -> Experiment:
    return Experiment(
        name="table-1",
        title="Robust accuracy and generalization gap on CIFAR-10 and CIFAR-100",
        kind="table",
        entries=block(scale, site, ("cifar10", "cifar100"), TABLE_1),
    )


def table_2(scale: Scale, site: Site) -> Experiment:
    """Friendly AT trained at ε and at 2ε, both judged at ε, beside Vanilla."""
    entries: list[Entry] = []
    for norm in NORMS:
        eps = radius("cifar10", norm)
        wide = {"eps": 2 * eps, "eval_eps": eps}
        entries += [
            row(scale, site, "cifar10", norm, VANILLA),
            row(scale, site, "cifar10", norm, FRIENDLY),
            row(scale, site, "cifar10", norm, FRIENDLY, label=FRIENDLY_TWICE, **wide),
        ]
    return Experiment(
        name="table-2",
        title="Friendly and vanilla adversarial training on CIFAR-10",
        kind="table",
        entries=tuple(entries),
    )


def table_3(scale: Scale, site: Site) -> Experiment:
    return Experiment(
        name="table-3",
        title="TRADES and Free-TRADES on CIFAR-10 and CIFAR-100",
        kind="table",
        entries=block(scale, site, ("cifar10", "cifar100"), (TRADES, FREE_TRADES)),
    )


def table_4(scale: Scale, site: Site) -> Experiment:
    return Experiment(
        name="table-4",
        title="Robust accuracy and generalization gap on Tiny-ImageNet and SVHN",
        kind="table",
        entries=block(scale, site, ("tiny-imagenet", "svhn"), TABLE_1),
    )


def table_5(scale: Scale, site: Site) -> Experiment:
    """Clean beside robust accuracy; the row of ERM, with whose gap the paper compares in words, is ours."""
    return Experiment(
        name="table-5",
        title="Clean and robust accuracy and generalization gap on CIFAR-10",
        kind="table",
        entries=block(scale, site, ("cifar10",), (*TABLE_5, ERM)),
    )


def table_6(scale: Scale, site: Site) -> Experiment:
    """After a quarter of the training: the paper's 50th epoch."""
    return Experiment(
        name="table-6",
        title="Vanilla, Fast (step 10/255) and Free stopped at a quarter of the training, Linf, CIFAR-10",
        kind="table",
        entries=(
            row(scale, site, "cifar10", "linf", VANILLA, at=EARLY),
            collapsing_fast(scale, site, at=EARLY),
            row(scale, site, "cifar10", "linf", FREE, at=EARLY),
        ),
    )
