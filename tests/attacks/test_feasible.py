"""The perturbation of every attack is in the ball and the box, whatever the images; and the outcome is true."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from freeat.attacks.apgd import APGD_LOSSES, Apgd, ApgdLoss
from freeat.attacks.autoattack import PARTS
from freeat.attacks.pgd import ITERATES, Iterate, Pgd
from freeat.attacks.registry import parse_attack
from freeat.attacks.result import Attack
from freeat.attacks.square import Square
from freeat.objectives import LOSS_NAMES, LossName
from freeat.rng import ImageRng
from freeat.threat import L2, STARTS, Ball, Linf, Start
from problems import random

OWN = ("fgsm", "pgd-3", "pgd-margin-2-2", "pgd-dlr-3", "square-15", "apgd-ce-5", "apgd-t-5", "apgd-dlr-5-2")
PEERS = ("fab", "fab-t", "autoattack", "pyautoattack-apgd-ce", "pyautoattack-square")
SHAPES = ((1, 8, 8), (3, 8, 8), (2, 5, 4), (1, 1, 1), (3, 2, 7))
KINDS = ("grey", "black", "white", "both", "random")
RADII = (0.0, 1e-4, 8 / 255, 0.5, 1.0)


@dataclass(frozen=True, kw_only=True)
class Case:
    """``n`` images of one kind, labelled as a net labels them or not, and a ball around each."""

    ball: Ball
    shape: tuple[int, int, int] = (3, 8, 8)
    classes: int = 4
    n: int = 1
    kind: str = "both"
    right: bool = True
    seed: int = 0

    def net(self) -> nn.Module:
        linear = nn.Linear(torch.Size(self.shape).numel(), self.classes).requires_grad_(False)
        linear.weight.copy_(random(self.seed, *linear.weight.shape))
        linear.bias.copy_(-linear.weight.sum(-1) / 2)
        return nn.Sequential(nn.Flatten(), linear).eval()

    def images(self) -> Tensor:
        size = (self.n, *self.shape)
        match self.kind:
            case "grey":
                return torch.full(size, 0.5)
            case "black":
                return torch.zeros(size)
            case "white":
                return torch.ones(size)
            case "both":
                return (random(self.seed, *size) > 0).float()
        return torch.rand(size, generator=torch.Generator().manual_seed(self.seed))


def check(attack: Attack, case: Case) -> None:
    net, x, ball = case.net(), case.images(), case.ball
    y = net(x).argmax(-1) if case.right else torch.arange(case.n) % case.classes
    attacked = attack(net, x, y, ball, ImageRng(0, range(len(x))))
    assert attacked.delta.shape == x.shape
    assert attacked.delta.isfinite().all()
    assert (ball.size(attacked.delta) <= ball.eps * (1 + 1e-6) + 1e-7).all()
    assert (x + attacked.delta).amin() >= -1e-6
    assert (x + attacked.delta).amax() <= 1 + 1e-6
    shown = net(ball.apply(x, attacked.delta))
    certain = (shown.topk(2).values[:, 0] - shown.topk(2).values[:, 1]) > 1e-4
    assert torch.equal((shown.argmax(-1) != y)[certain], attacked.fooled[certain])


def cases(
    *,
    shapes: Sequence[tuple[int, int, int]] = SHAPES,
    classes: Sequence[int] = (2, 3, 4, 10),
    radii: Sequence[float] = RADII,
    right: Sequence[bool] = (True, False),
) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        ball=st.builds(lambda norm, eps: norm(eps), st.sampled_from((L2, Linf)), st.sampled_from(radii)),
        shape=st.sampled_from(shapes),
        classes=st.sampled_from(classes),
        n=st.integers(1, 4),
        kind=st.sampled_from(KINDS),
        right=st.sampled_from(right),
        seed=st.integers(0, 1000),
    )


OURS = cases()
# The package's Square needs 3×3 pixels, and an image that is wrong already or a radius of 0 leaves it no work.
THEIRS = cases(shapes=SHAPES[:2], classes=(2, 3, 4), radii=RADII[2:], right=(True,))

CORNERS = {
    "one image at 0 and 1, L2": Case(ball=L2(0.5)),
    "one image at 0 and 1, Linf": Case(ball=Linf(8 / 255)),
    "black images": Case(ball=L2(1.0), kind="black", n=3, classes=3),
    "white images": Case(ball=Linf(0.05), kind="white", n=3, classes=2, shape=(1, 8, 8)),
    "ε = 0, L2": Case(ball=L2(0.0), n=2),
    "ε = 0, Linf": Case(ball=Linf(0.0), n=2),
    "64×64, L2": Case(ball=L2(1.0), shape=(3, 64, 64), kind="random"),
    "64×64, Linf": Case(ball=Linf(8 / 255), shape=(3, 64, 64), kind="random", n=3),
}


@pytest.mark.parametrize("loss", LOSS_NAMES)
@pytest.mark.parametrize("iterate", ITERATES)
@given(case=OURS, start=st.sampled_from(STARTS), steps=st.integers(1, 3), restarts=st.integers(1, 2))
@settings(max_examples=30)
def test_pgd_stays_in_ball_and_box(
    iterate: Iterate, loss: LossName, case: Case, start: Start, steps: int, restarts: int
) -> None:
    check(Pgd(steps=steps, restarts=restarts, start=start, iterate=iterate, loss=loss), case)


@pytest.mark.parametrize("loss", APGD_LOSSES)
@given(case=OURS, steps=st.integers(1, 12))
@settings(max_examples=20)
def test_apgd_stays_in_ball_and_box(loss: ApgdLoss, case: Case, steps: int) -> None:
    check(Apgd(loss=loss, steps=steps), case)


@given(case=OURS, queries=st.integers(1, 20), rescale=st.booleans())
@settings(max_examples=60)
def test_square_stays_in_ball_and_box(case: Case, queries: int, rescale: bool) -> None:
    check(Square(queries=queries, rescale=rescale), case)


@pytest.mark.parametrize("case", CORNERS.values(), ids=CORNERS)
@pytest.mark.parametrize("name", OWN)
def test_attacks_stay_feasible_in_extreme_cases(name: str, case: Case) -> None:
    check(parse_attack(name), case)


@pytest.fixture(scope="module")
def short_square() -> Iterator[None]:
    """Square attacks of 30 queries and APGD of 20 steps in the place of 5000 and 100: the balls are the same."""
    package = pytest.importorskip("pyautoattack")

    class Hasty(package.AutoAttack):  # type: ignore[misc, name-defined]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.square.n_queries = 30

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package, "AutoAttack", Hasty)
        patch.setitem(PARTS, "square", lambda precision: Square(queries=30))
        patch.setitem(PARTS, "apgd-t", lambda precision: Apgd(loss="t", steps=20))
        yield


@pytest.mark.peer
@pytest.mark.usefixtures("short_square")
@pytest.mark.parametrize("name", PEERS)
@given(case=THEIRS)
@settings(max_examples=6, phases=(Phase.explicit, Phase.generate))  # shrinking would take minutes
def test_autoattack_stays_in_ball_and_box(name: str, case: Case) -> None:
    check(parse_attack(name), case)


@pytest.mark.peer
@pytest.mark.usefixtures("short_square")
@pytest.mark.parametrize("case", CORNERS.values(), ids=CORNERS)
@pytest.mark.parametrize("name", PEERS)
def test_autoattack_stays_feasible_in_extreme_cases(name: str, case: Case) -> None:
    check(parse_attack(name), case)
