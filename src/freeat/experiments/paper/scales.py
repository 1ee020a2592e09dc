"""How large a reproduction is: networks, images, seeds and radii, as data.

Every scale keeps the paper's 200 passes over each image (``smoke`` has eight): overfitting needs them more than it
needs many images. What shrinks is the network, the number of images, and how finely the figures are drawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from freeat.errors import unknown_name


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a data set is trained with: its network, the number of training images (None: all), batch and rate.

    ``warmup`` is the part of the training over which ε grows; the paper has none.
    """

    network: str
    n: int | None = None
    b: int = 128
    lr: float = 0.1
    warmup: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The radii of a figure in each norm, in 255ths."""

    l2: tuple[int, ...]
    linf: tuple[int, ...]

    def radii(self, norm: str) -> tuple[float, ...]:
        levels: tuple[int, ...] = {"l2": self.l2, "linf": self.linf}[norm]
        return tuple(level / 255 for level in levels)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """One size of the whole reproduction.

    ``targets`` are the standard networks of Figure 9 by the paper's name. ``seeds`` is for the rows that decide
    the first claims, ``other_seeds`` for the rest, ``trials`` for Table 3. A curve has ``curve_points`` points
    (a multiple of four, so that Table 6's quarter is one of them) on ``curve_size`` images of each split,
    ``early_size`` for the runs that Table 6 reads. With ``published_only`` a file that stands in for a data set
    will not do; with ``miniature`` all data are made up.
    """

    name: str
    setups: Mapping[str, Setup]
    targets: Mapping[str, str]
    passes: int = 200
    seeds: int = 3
    other_seeds: int = 1
    trials: int = 3
    curve_points: int = 8
    curve_size: int
    early_size: int
    final_size: int | None = None
    sizes: tuple[int, ...]
    square: str
    square_grid: Grid
    square_images: int
    transfer_grid: Grid
    standard_grid: Grid
    transfer_images: int
    threads: int = 1
    precision: str = "auto"
    published_only: bool = False
    miniature: bool = False


PAPER = Scale(
    name="paper",
    setups={
        "cifar10": Setup(network="resnet18"),
        "cifar100": Setup(network="resnet18"),
        "tiny-imagenet": Setup(network="resnet50"),
        "svhn": Setup(network="vgg19"),
    },
    targets={"resnet18": "resnet18", "resnet50": "resnet50", "wrn34": "wrn34-10"},
    other_seeds=3,
    trials=5,
    curve_points=40,
    curve_size=10_000,
    early_size=10_000,
    sizes=(10_000, 20_000, 30_000, 40_000, 50_000),
    square="square-5000",
    square_grid=Grid(l2=tuple(range(64, 193, 16)), linf=tuple(range(1, 10))),
    square_images=10_000,
    transfer_grid=Grid(l2=tuple(range(64, 193, 16)), linf=tuple(range(1, 10))),
    standard_grid=Grid(l2=tuple(range(64, 193, 16)), linf=tuple(range(4, 13))),
    transfer_images=10_000,
    threads=4,
    precision="fp32",
    published_only=True,
)

NIGHT = Scale(
    name="night",
    setups={
        "cifar10": Setup(network="resnet18-w16-s2", n=1024),
        "cifar100": Setup(network="resnet18-w16-s2", n=1024),
        "tiny-imagenet": Setup(network="resnet50-w8-s4", n=1024),
        "svhn": Setup(network="vgg11-w16", n=1024, lr=0.02, warmup=0.5),
    },
    targets={"resnet18": "resnet18-w16-s2", "resnet50": "resnet50-w8-s2", "wrn34": "wrn34-1-s2"},
    other_seeds=3,
    curve_size=256,
    early_size=1024,
    final_size=2048,
    sizes=(1024, 2048, 4096),
    square="square-1000",
    square_grid=Grid(l2=(64, 96, 128, 160, 192), linf=(1, 2, 4, 6, 8, 9)),
    square_images=500,
    transfer_grid=Grid(l2=(64, 96, 128, 160, 192), linf=tuple(range(1, 10))),
    standard_grid=Grid(l2=(64, 96, 128, 160, 192), linf=tuple(range(4, 13))),
    transfer_images=1000,
)

HOUR = Scale(
    name="hour",
    setups={
        "cifar10": Setup(network="resnet18-w8-s2", n=256),
        "cifar100": Setup(network="resnet18-w8-s2", n=256),
        "tiny-imagenet": Setup(network="resnet50-w8-s4", n=256),
        "svhn": Setup(network="vgg11-w16", n=256, lr=0.02, warmup=0.5),
    },
    targets={"resnet18": "resnet18-w8-s2", "resnet50": "resnet50-w8-s2", "wrn34": "wrn34-1-s2"},
    curve_size=128,
    early_size=512,
    final_size=1024,
    sizes=(256, 512, 1024),
    square="square-300",
    square_grid=Grid(l2=(64, 128, 192), linf=(1, 4, 8, 9)),
    square_images=200,
    transfer_grid=Grid(l2=(64, 96, 128, 160, 192), linf=(1, 3, 5, 7, 9)),
    standard_grid=Grid(l2=(64, 128, 192), linf=(4, 8, 12)),
    transfer_images=500,
)

SMOKE = Scale(
    name="smoke",
    setups={
        "cifar10": Setup(network="resnet18-w4-s2", n=16, b=8),
        "cifar100": Setup(network="resnet18-w4-s2", n=16, b=8),
        "tiny-imagenet": Setup(network="resnet50-w4-s2", n=8, b=4),
        "svhn": Setup(network="vgg19-w4", n=16, b=8),
    },
    targets={"resnet18": "resnet18-w4-s2", "resnet50": "resnet50-w4-s2", "wrn34": "wrn10-1-s2"},
    passes=8,
    seeds=2,
    trials=2,
    curve_points=4,
    curve_size=8,
    early_size=8,
    final_size=16,
    sizes=(8, 16),
    square="square-20",
    square_grid=Grid(l2=(64, 128, 192), linf=(1, 4, 8, 9)),
    square_images=8,
    transfer_grid=Grid(l2=(64, 192), linf=(1, 9)),
    standard_grid=Grid(l2=(64, 192), linf=(4, 12)),
    transfer_images=8,
    miniature=True,
)

SCALES: dict[str, Scale] = {scale.name: scale for scale in (PAPER, NIGHT, HOUR, SMOKE)}


def find_scale(name: str) -> Scale:
    """The scale of that name."""
    if name not in SCALES:
        raise unknown_name("scale", name, SCALES)
    return SCALES[name]
