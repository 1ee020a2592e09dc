"""The paper's tables and figures by name."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from freeat.errors import unknown_name
from freeat.experiments.paper import figures, tables
from freeat.experiments.paper.experiment import Experiment
from freeat.experiments.paper.scales import Scale
from freeat.experiments.tasks import Site

EXPERIMENTS: dict[str, Callable[[Scale, Site], Experiment]] = {
    "table-1": tables.table_1,
    "table-2": tables.table_2,
    "table-3": tables.table_3,
    "table-4": tables.table_4,
    "table-5": tables.table_5,
    "table-6": tables.table_6,
    "figure-1": figures.figure_1,
    "figure-2": figures.figure_2,
    "figure-3": figures.figure_3,
    "figure-4": figures.figure_4,
    "figure-5": figures.figure_5,
    "figure-6": figures.figure_6,
    "figure-7": figures.figure_7,
    "figure-8": figures.figure_8,
    "figure-9": figures.figure_9,
    "figure-10": figures.figure_10,
    "figure-11": figures.figure_11,
    "figure-12": figures.figure_12,
}
ALL = "all"


def names_of(asked: Iterable[str]) -> tuple[str, ...]:
    """The experiments asked for, in the paper's order; ``all`` means every one."""
    wanted = set(asked)
    for name in wanted - {ALL}:
        if name not in EXPERIMENTS:
            raise unknown_name("experiment", name, [*EXPERIMENTS, ALL])
    return tuple(name for name in EXPERIMENTS if ALL in wanted or name in wanted)


def experiments(names: Iterable[str], scale: Scale, site: Site, data: Collection[str]) -> list[Experiment]:
    """The experiments at a scale, without the rows and panels of other data sets, and only where some are left."""
    made = []
    for name in names:
        whole = EXPERIMENTS[name](scale, site)
        kept = tuple(entry for entry in whole.entries if entry.data in data)
        if kept:
            made.append(replace(whole, entries=kept))
    return made
