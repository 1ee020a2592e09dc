"""How the paper's runs are made: labels, scales (networks, images, seeds and radii, as data), and their settings.

Every scale keeps the paper's 200 epochs (``smoke`` has eight): overfitting needs them more than it needs many
images. What shrinks is the network, the number of images, and how finely the figures are drawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from freeat.algorithms.registry import parse_algorithm
from freeat.data import data_folder
from freeat.data.batches import updates_for
from freeat.data.catalogue import SOURCES
from freeat.errors import unknown_name
from freeat.experiments.tasks import Store, TrainTask
from freeat.runs.spec import split_settings
from freeat.threat import DEFAULT_EPS, Start
from freeat.units import radius_text

ERM = "erm"
VANILLA = "vanilla-10"
FAST = "fast"
FAST_SHORT_STEP = "fast-7/255"
"""Fast as everywhere else, where it is drawn beside the longer step."""

FAST_LONG_STEP = "fast-10/255"
"""Fast with the attack step 10/255 in Linf, which overfits catastrophically (Figure 11, Table 6)."""

FREE = "free-4"
FREE_STEPS = (2, 4, 6, 8, 10)
TRADES = "trades-10"
FREE_TRADES = "free-trades-4"
FRIENDLY = "friendly-10"
FRIENDLY_TWICE = "friendly-10-2eps"
"""Friendly trained at 2ε and evaluated at ε (Table 2)."""

COMPARED = (VANILLA, FAST, FREE)
"""What "vanilla, fast, and free" means in the figures."""


def free(m: int) -> str:
    """The label of Free-m."""
    return f"free-{m}"


def half_radius(algorithm: str) -> str:
    """The label of an algorithm that is trained and evaluated at ε/2."""
    return f"{algorithm}-half-eps"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a data set is trained with: its network, the number of training images (None: all), batch and rate.

    ``warmup`` is the part of the training over which ε grows; the paper has none. ``augment`` is as in ``TrainSpec``.
    """

    network: str
    n: int | None = None
    b: int = 128
    lr: float = 0.1
    warmup: float = 0.0
    augment: str = "auto"


@dataclass(frozen=True, kw_only=True)
class RadiusGrid:
    """The radii of a figure in each norm, in 255ths."""

    l2: tuple[int, ...]
    linf: tuple[int, ...]

    def radii(self, norm: str) -> tuple[float, ...]:
        levels: tuple[int, ...] = {"l2": self.l2, "linf": self.linf}[norm]
        return tuple(level / 255 for level in levels)


@dataclass(frozen=True, kw_only=True)
class ListPart:
    """A part of the list of a data set: these tables and figures, with the rows and series of these labels."""

    experiments: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """One size of the whole reproduction.

    ``targets`` are the standard networks of Figure 9 by the paper's name. ``seeds`` is for the rows that decide
    the first claims, ``other_seeds`` for the rest, ``trades_seeds`` for Table 3. A curve has ``curve_points`` points
    (a multiple of four, so that Table 6's quarter is one of them) on ``curve_size`` images of each split. Square and
    transferred attacks are run on the algorithms that ``attacked`` names for a data set, else on those of the paper. Of
    a data set in ``lists`` only the list is made, one part after the other, instead of every row and series. With
    ``published_only`` a file that replaces a data set is refused; with ``synthetic`` all data are generated.
    """

    name: str
    setups: Mapping[str, Setup]
    targets: Mapping[str, str]
    epochs: int = 200
    seeds: int = 3
    other_seeds: int = 1
    trades_seeds: int = 3
    curve_points: int = 16
    curve_size: int
    final_size: int | None = None
    sizes: tuple[int, ...]
    square: str
    square_grid: RadiusGrid
    square_images: int
    transfer_grid: RadiusGrid
    standard_grid: RadiusGrid
    transfer_images: int
    attacked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    threads: int = 1
    precision: str = "auto"
    published_only: bool = False
    synthetic: bool = False
    lists: Mapping[str, tuple[ListPart, ...]] = field(default_factory=dict)


PAPER = Scale(
    name="paper",
    setups={
        "cifar10": Setup(network="resnet18"),
        "cifar100": Setup(network="resnet18"),
        "tiny-imagenet": Setup(network="resnet50"),
        "svhn": Setup(network="vgg19", augment="none"),
    },
    targets={"resnet18": "resnet18", "resnet50": "resnet50", "wrn34": "wrn34-10"},
    other_seeds=3,
    trades_seeds=5,
    curve_points=40,
    curve_size=10_000,
    sizes=(10_000, 20_000, 30_000, 40_000, 50_000),
    square="square-5000",
    square_grid=RadiusGrid(l2=tuple(range(64, 193, 16)), linf=tuple(range(1, 10))),
    square_images=10_000,
    transfer_grid=RadiusGrid(l2=tuple(range(64, 193, 16)), linf=tuple(range(1, 10))),
    standard_grid=RadiusGrid(l2=tuple(range(64, 193, 16)), linf=tuple(range(4, 13))),
    transfer_images=10_000,
    threads=4,
    precision="fp32",
    published_only=True,
)

NIGHT_ALGORITHMS = (VANILLA, FAST, FREE, free(8), TRADES, FREE_TRADES)
NIGHT_LIST = (
    ListPart(
        experiments=("table-1", "table-3", "table-5", "table-6", "figure-1", "figure-5", "figure-12"),
        labels=NIGHT_ALGORITHMS,
    ),
    ListPart(experiments=("figure-2", "figure-3", "figure-6", "figure-7"), labels=NIGHT_ALGORITHMS),
    ListPart(experiments=("figure-4", "figure-10"), labels=COMPARED),
)
"""What a night makes of CIFAR-10: what two cores can carry with more than a thousand images and three seeds."""

NIGHT = Scale(
    name="night",
    setups={
        "cifar10": Setup(network="resnet18-w16-s2", n=2048),
        "cifar100": Setup(network="resnet18-w16-s2", n=1024),
        "tiny-imagenet": Setup(network="resnet50-w8-s4", n=1024),
        "svhn": Setup(network="vgg11-w16", n=1024, lr=0.02, warmup=0.5, augment="none"),
    },
    targets={"resnet18": "resnet18-w16-s2", "resnet50": "resnet50-w8-s2", "wrn34": "wrn34-1-s2"},
    other_seeds=3,
    curve_size=512,
    final_size=2048,
    sizes=(512, 1024, 2048),
    square="square-1000",
    square_grid=RadiusGrid(l2=(64, 96, 128, 160, 192), linf=(1, 2, 4, 6, 8, 9)),
    square_images=500,
    transfer_grid=RadiusGrid(l2=(64, 96, 128, 160, 192), linf=tuple(range(1, 10))),
    standard_grid=RadiusGrid(l2=(64, 96, 128, 160, 192), linf=tuple(range(4, 13))),
    transfer_images=1000,
    attacked={"cifar10": NIGHT_ALGORITHMS},
    lists={"cifar10": NIGHT_LIST},
)

HOUR = Scale(
    name="hour",
    setups={
        "cifar10": Setup(network="resnet18-w8-s2", n=256),
        "cifar100": Setup(network="resnet18-w8-s2", n=256),
        "tiny-imagenet": Setup(network="resnet50-w8-s4", n=256),
        "svhn": Setup(network="vgg11-w16", n=256, lr=0.02, warmup=0.5, augment="none"),
    },
    targets={"resnet18": "resnet18-w8-s2", "resnet50": "resnet50-w8-s2", "wrn34": "wrn34-1-s2"},
    curve_size=256,
    final_size=1024,
    sizes=(256, 512, 1024),
    square="square-300",
    square_grid=RadiusGrid(l2=(64, 128, 192), linf=(1, 4, 8, 9)),
    square_images=200,
    transfer_grid=RadiusGrid(l2=(64, 96, 128, 160, 192), linf=(1, 3, 5, 7, 9)),
    standard_grid=RadiusGrid(l2=(64, 128, 192), linf=(4, 8, 12)),
    transfer_images=500,
)

SMOKE = Scale(
    name="smoke",
    setups={
        "cifar10": Setup(network="resnet18-w4-s2", n=16, b=8),
        "cifar100": Setup(network="resnet18-w4-s2", n=16, b=8),
        "tiny-imagenet": Setup(network="resnet50-w4-s2", n=8, b=4),
        "svhn": Setup(network="vgg19-w4", n=16, b=8, augment="none"),
    },
    targets={"resnet18": "resnet18-w4-s2", "resnet50": "resnet50-w4-s2", "wrn34": "wrn10-1-s2"},
    epochs=8,
    seeds=2,
    trades_seeds=2,
    curve_points=4,
    curve_size=8,
    final_size=16,
    sizes=(8, 16),
    square="square-20",
    square_grid=RadiusGrid(l2=(64, 128, 192), linf=(1, 4, 8, 9)),
    square_images=8,
    transfer_grid=RadiusGrid(l2=(64, 192), linf=(1, 9)),
    standard_grid=RadiusGrid(l2=(64, 192), linf=(4, 12)),
    transfer_images=8,
    synthetic=True,
)

SCALES: dict[str, Scale] = {scale.name: scale for scale in (PAPER, NIGHT, HOUR, SMOKE)}


def find_scale(name: str) -> Scale:
    """The scale of that name."""
    if name not in SCALES:
        raise unknown_name("scale", name, SCALES)
    return SCALES[name]


NORMS = ("l2", "linf")
FAST_TO_COLLAPSE = 10 / 255
"""The step with which Fast collapses (Figure 11), and which Table 6 stops early."""

FAST_STEPS = {"l2": 64 / 255, "linf": 7 / 255}
"""The printed steps of Fast, for every data set, also where ε is smaller."""

EVALUATION_STARTS: dict[str, Start] = {"l2": "radius", "linf": "uniform"}
"""Where PGD starts in evaluations and transferred attacks, as the code that made the published numbers had it."""

NEAR = 0.02
"""Evaluations this part of the training apart count as made at one point: they fall on the ends of batches."""


def radius(data: str, norm: str) -> float:
    """The paper's ε: 128/255 in L2; 8/255 in Linf, 4/255 for Tiny-ImageNet."""
    return 4 / 255 if (data, norm) == ("tiny-imagenet", "linf") else DEFAULT_EPS[norm]


def train_size(scale: Scale, data: str) -> int:
    """The images a data set is trained on at a scale."""
    if data not in scale.setups:
        raise unknown_name("data set of the paper", data, scale.setups)
    return scale.setups[data].n or SOURCES[data].n_train


def updates(scale: Scale, data: str) -> int:
    """T of 200 epochs of the whole set, the same for every algorithm and, in the n-study, for every n."""
    return updates_for(scale.epochs, train_size(scale, data), scale.setups[data].b)


def start_of(norm: str, algorithm: str) -> str | None:
    """Where the training attack starts, as the code that made the published numbers had it."""
    name = parse_algorithm(algorithm)
    if not name.adversarial:
        return None
    if name.objective == "trades":
        return "gaussian"
    return EVALUATION_STARTS[norm]


def run_of(
    scale: Scale, store: Store, data: str, norm: str, algorithm: str, seed: int = 0, **changes: Any
) -> TrainTask:
    """The run of an algorithm at a scale; ``changes`` are settings in which it departs from the common ones.

    Runs with other images or another network are no part of a figure of curves, and are evaluated at the end only.
    """
    common = _common(scale, data, norm, algorithm) | {"data": source(scale, store, data), "seed": seed}
    if changes.get("train_size") == train_size(scale, data):
        del changes["train_size"]
    changes = {name: value for name, value in changes.items() if value != common.get(name)}
    if changes.keys() & {"train_size", "model"}:
        common["eval_every"] = common["updates"]
    spec, evaluation = split_settings(common | changes)
    name = " ".join([data, norm, algorithm, *_changes_text(changes), f"seed {seed}"])
    return store.task(name, spec, evaluation)


def _common(scale: Scale, data: str, norm: str, algorithm: str) -> dict[str, Any]:
    """The settings of an algorithm on a data set."""
    setup, total = scale.setups[data], updates(scale, data)
    return {
        "model": setup.network,
        "train_size": setup.n,
        "batch_size": setup.b,
        "lr": setup.lr,
        "warmup": setup.warmup if algorithm != ERM else 0.0,
        "norm": norm,
        "eps": radius(data, norm),
        "augment": setup.augment,
        "algorithm": algorithm,
        "alpha": FAST_STEPS[norm] if algorithm == FAST else None,
        "start": start_of(norm, algorithm),
        "updates": total,
        "threads": scale.threads,
        "precision": scale.precision,
        "iterate": "last",
        "eval_start": EVALUATION_STARTS[norm],
        "eval_every": max(1, total // scale.curve_points),
        "eval_size": scale.curve_size,
        "final_size": scale.final_size,
    }


def source(scale: Scale, store: Store, data: str) -> str:
    """The data set by its name; at a synthetic scale the path of the files that were made in its form."""
    if not scale.synthetic:
        return data
    return str(data_folder(store.data_dir) / SOURCES[data].layouts[0].path)


def _changes_text(changes: dict[str, Any]) -> list[str]:
    """What distinguishes a run from the common one, for people."""
    texts = []
    for name, value in changes.items():
        match name, value:
            case ("train_size", int(n)):
                texts.append(f"n={n}")
            case ("eps" | "alpha", float(number)):
                texts.append(f"{name}={radius_text(number)}")
            case ("model", str(network)):
                texts.append(network)
    return texts
