"""Figures 1 to 12 of the paper: for each series, the runs and measurements behind it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from freeat.experiments.paper.experiment import Entry, Experiment
from freeat.experiments.paper.labels import ERM, FAST, FAST_SHORT_STEP, FREE, VANILLA, free
from freeat.experiments.paper.scales import Scale
from freeat.experiments.paper.settings import NORMS, run_of, train_size
from freeat.experiments.paper.tables import TABLE_1, block, collapsing_fast, row, seeds_of
from freeat.experiments.tasks import Attacking, Site, Training, Transferring

COMPARED = (VANILLA, FAST, FREE)
"""What "vanilla, fast, and free" stands for in the figures."""

SOURCES = (VANILLA, FREE)
"""The independently trained robust models whose perturbations are transferred in Figures 3 and 7."""

SIZED = (VANILLA, FAST, FREE, free(6))
CIFAR = ("cifar10", "cifar100")
ATTACKED = ("cifar10", "cifar100", "tiny-imagenet")
TRANSFER_ATTACK = "pgd-10"


def figure_1(scale: Scale, site: Site) -> Experiment:
    return Experiment(
        name="figure-1",
        title="Learning curves on CIFAR-10",
        kind="curves",
        entries=block(scale, site, ("cifar10",), COMPARED),
    )


def figure_2(scale: Scale, site: Site) -> Experiment:
    return Experiment(
        name="figure-2",
        title="Robust accuracy against the Square attack on CIFAR-10",
        kind="radius",
        entries=tuple(_under_square(scale, site, ("cifar10",))),
    )


def figure_3(scale: Scale, site: Site) -> Experiment:
    return Experiment(
        name="figure-3",
        title="Robust accuracy against transferred attacks on CIFAR-10",
        kind="radius",
        entries=tuple(_under_transfer(scale, site, ("cifar10",))),
    )


def figure_4(scale: Scale, site: Site) -> Experiment:
    return Experiment(
        name="figure-4",
        title="Generalization gap against the number of training images of CIFAR-10",
        kind="size",
        entries=tuple(_sizes(scale, site, ("cifar10",))),
    )


def figure_5(scale: Scale, site: Site) -> Experiment:
    return Experiment(
        name="figure-5",
        title="Learning curves on CIFAR-10 and CIFAR-100",
        kind="curves",
        entries=block(scale, site, CIFAR, TABLE_1),
    )


def figure_6(scale: Scale, site: Site) -> Experiment:
    return Experiment(
        name="figure-6",
        title="Robust accuracy against the Square attack on CIFAR-10, CIFAR-100 and Tiny-ImageNet",
        kind="radius",
        entries=tuple(_under_square(scale, site, ATTACKED)),
    )


def figure_7(scale: Scale, site: Site) -> Experiment:
    return Experiment(
        name="figure-7",
        title="Robust accuracy against transferred attacks on CIFAR-10, CIFAR-100 and Tiny-ImageNet",
        kind="radius",
        entries=tuple(_under_transfer(scale, site, ATTACKED)),
    )


def figure_8(scale: Scale, site: Site) -> Experiment:
    networks = {"cifar100": ("resnet18",), "tiny-imagenet": ("resnet50",)}
    return Experiment(
        name="figure-8",
        title="Standard models on CIFAR-100 and Tiny-ImageNet against attacks made on robust ones",
        kind="radius",
        entries=tuple(_against_standard(scale, site, networks)),
    )


def figure_9(scale: Scale, site: Site) -> Experiment:
    return Experiment(
        name="figure-9",
        title="Standard models on CIFAR-10 against attacks made on robust ones",
        kind="radius",
        entries=tuple(_against_standard(scale, site, {"cifar10": tuple(scale.targets)})),
    )


def figure_10(scale: Scale, site: Site) -> Experiment:
    return Experiment(
        name="figure-10",
        title="Generalization gap against the number of training images of CIFAR-10 and CIFAR-100",
        kind="size",
        entries=tuple(_sizes(scale, site, CIFAR)),
    )


def figure_11(scale: Scale, site: Site) -> Experiment:
    return Experiment(
        name="figure-11",
        title="Learning curves of Fast with steps 7/255 and 10/255, Linf, CIFAR-10",
        kind="curves",
        entries=(
            row(scale, site, "cifar10", "linf", FAST, label=FAST_SHORT_STEP),
            collapsing_fast(scale, site),
        ),
    )


def figure_12(scale: Scale, site: Site) -> Experiment:
    return Experiment(
        name="figure-12",
        title="Norms of the perturbation's gradient over the training, L2",
        kind="norms",
        entries=tuple(
            row(scale, site, data, "l2", algorithm) for data in CIFAR for algorithm in (FREE, free(6))
        ),
    )


def _under_square(scale: Scale, site: Site, datas: Iterable[str]) -> Iterator[Entry]:
    """Every seed of the compared algorithms under the Square attack."""
    for base in block(scale, site, datas, COMPARED):
        attacks = tuple(
            Attacking(
                name=f"{scale.square} on {run.name}",
                target=run,
                attack=scale.square,
                norm=base.norm,
                radii=scale.square_grid.radii(base.norm),
                n=scale.square_images,
            )
            for run in base.runs
        )
        yield replace(base, measurements=attacks)


def _under_transfer(scale: Scale, site: Site, datas: Iterable[str]) -> Iterator[Entry]:
    """Every seed of the compared algorithms under perturbations made on robust models of another seed."""
    for base in block(scale, site, datas, COMPARED):
        seeds = {run.spec.seed for run in base.runs}
        measurements = tuple(
            _from_robust(scale, site, base.data, base.norm, source, seed)
            for source in SOURCES
            for seed in sorted(seeds)
        )
        yield replace(base, measurements=measurements)


def _from_robust(scale: Scale, site: Site, data: str, norm: str, source: str, seed: int) -> Transferring:
    """A robust model's perturbations on all compared algorithms of ``seed``: made once for the three."""
    maker = run_of(scale, site, data, norm, source, another(scale, seed))
    return Transferring(
        name=f"transfer from {maker.name} to seed {seed}",
        source=maker,
        targets=tuple(run_of(scale, site, data, norm, target, seed) for target in COMPARED),
        attack=TRANSFER_ATTACK,
        norm=norm,
        radii=scale.transfer_grid.radii(norm),
        n=scale.transfer_images,
    )


def another(scale: Scale, seed: int) -> int:
    """The next seed around: a model that shares neither initial weights nor batches."""
    return (seed + 1) % max(2, scale.seeds)


def _against_standard(scale: Scale, site: Site, networks: Mapping[str, tuple[str, ...]]) -> Iterator[Entry]:
    """Perturbations made on the compared algorithms, applied to standard models; a panel per target network."""
    for base in block(scale, site, networks, COMPARED):
        panels = networks[base.data]
        measurements = tuple(_to_standard(scale, site, base, run, panels) for run in base.runs)
        for place, panel in enumerate(panels):
            targets = tuple(dict.fromkeys(measurement.targets[place] for measurement in measurements))
            yield replace(base, panel=panel, measurements=measurements, targets=targets)


def _to_standard(
    scale: Scale, site: Site, base: Entry, source: Training, panels: Iterable[str]
) -> Transferring:
    """A robust model's perturbations on the standard models of all panels: made once for all of them."""
    return Transferring(
        name=f"transfer from {source.name} to standard models",
        source=source,
        targets=tuple(_standard(scale, site, base.data, panel, source.spec.seed) for panel in panels),
        attack=TRANSFER_ATTACK,
        norm=base.norm,
        radii=scale.standard_grid.radii(base.norm),
        n=scale.transfer_images,
    )


def _standard(scale: Scale, site: Site, data: str, network: str, seed: int) -> Training:
    """A standard model, trained without an adversary, that shares neither weights nor batches with the source.

    The same network takes another seed; of another network one model does for all sources.
    """
    own = scale.setups[data].network
    model = own if data != "cifar10" else scale.targets[network]
    return run_of(scale, site, data, "l2", ERM, another(scale, seed) if model == own else 0, model=model)


def _sizes(scale: Scale, site: Site, datas: Iterable[str]) -> Iterator[Entry]:
    """The n-study: nested subsets, and the same T for every n and algorithm."""
    for data in datas:
        for norm in NORMS:
            for algorithm in SIZED:
                for n in scale.sizes:
                    full = n == train_size(scale, data)
                    seeds = seeds_of(scale, algorithm) if full else range(scale.other_seeds)
                    runs = tuple(run_of(scale, site, data, norm, algorithm, s, train_size=n) for s in seeds)
                    yield Entry(data=data, norm=norm, label=algorithm, runs=runs, n=n)
