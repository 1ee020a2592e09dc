"""The Square attack: scores only, the published schedule, queries counted, and pyautoattack's as a peer."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from freeat.attacks.square import Square, _bumps, moves
from freeat.errors import InputError
from freeat.rng import ImageRng
from freeat.threat import L2, Ball, Linf

BALLS = {"l2": L2(2.0), "linf": Linf(0.12)}


class Scores(nn.Module):
    """A model that answers with scores and has no gradient to give."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.queries = 0
        self.sizes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        assert not x.requires_grad
        self.queries += len(x)
        self.sizes.append(len(x))
        return torch.from_numpy(self.net(x).numpy())


@pytest.mark.parametrize("ball", BALLS.values(), ids=BALLS)
def test_queries_scores_only_and_counts_them(
    ball: Ball, robust_net: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    x, y = batch
    model = Scores(robust_net)
    attacked = Square(queries=50)(model, x, y, ball, ImageRng(0, range(len(x))))
    assert attacked.queries is not None
    assert attacked.cost.gradient_evaluations == 0
    assert attacked.cost.forward_passes == model.queries == int(attacked.queries.sum()) + len(x)
    wrong = robust_net(x).argmax(-1) != y
    assert (attacked.queries[wrong] == 0).all()
    assert (attacked.queries[~attacked.fooled] == 50).all()
    assert (attacked.queries[attacked.fooled] <= 50).all()
    assert model.sizes == sorted(model.sizes, reverse=True)
    assert model.sizes[-1] < model.sizes[0], "the active set shrinks"


def test_window_size_follows_the_published_schedule() -> None:
    """Changes of p at the iterations of the published code, counted from 0."""
    square = Square(queries=10_000)
    table = {0: 1, 10: 1, 11: 2, 50: 2, 51: 4, 200: 4, 201: 8, 500: 8, 501: 16, 1000: 16, 1001: 32, 2001: 64}
    table |= {4001: 128, 6001: 256, 8000: 256, 8001: 512, 9999: 512}
    assert {t: square.p / square.part(t) for t in table} == table
    stretched = Square(queries=1000, rescale=True)
    assert [stretched.p / stretched.part(t) for t in (1, 2, 6, 21, 101, 801)] == [1, 2, 4, 8, 32, 512]


def test_the_margin_never_falls(robust_net: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """With a loss every image takes all queries; more queries never give a smaller largest loss."""
    x, y = (part[:40] for part in batch)
    rng = ImageRng(0, range(40))
    short = Square(queries=20)(robust_net, x, y, Linf(0.1), rng, with_loss=True)
    long = Square(queries=120)(robust_net, x, y, Linf(0.1), rng, with_loss=True)
    assert short.loss is not None
    assert long.loss is not None
    assert (long.loss >= short.loss).all()
    assert (long.loss > short.loss).any()
    assert long.cost.forward_passes == 40 * 121
    assert torch.equal(Square(queries=20)(robust_net, x, y, Linf(0.1), rng).fooled, short.fooled), (
        "asking for the loss does not change the outcome"
    )


@pytest.mark.parametrize("s", range(1, 12))
def test_bumps_have_norm_one_and_two_signs(s: int) -> None:
    upright, lying = _bumps(s, torch.device("cpu"), torch.float64)
    assert upright.norm() == pytest.approx(1)
    assert torch.equal(upright.T, lying)
    assert (upright[: s // 2] > 0).all()
    assert (upright[s // 2 :] < 0).all()


class Copies(TorchDispatchMode):
    """Counts the copies from the host to another device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ == "_to_copy" and args[0].device != out.device:
            self.count += 1
        return out


def test_bumps_are_sent_to_a_device_once() -> None:
    move = moves(L2(0.5), (3, 12, 12))
    counts = []
    for _ in range(2):
        with Copies() as copies:
            first = move.first(torch.empty((4, *move.first_shape()), device="meta"))
            move.propose(first, 0.3, torch.empty((4, move.per_query), device="meta"))
        counts.append(copies.count)
    assert counts[1] == 0 < counts[0]


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 14, 14), (2, 5, 9), (3, 32, 32)])
@pytest.mark.parametrize("ball", BALLS.values(), ids=BALLS)
def test_moves_stay_on_the_sphere(ball: Ball, shape: tuple[int, int, int]) -> None:
    g = torch.Generator().manual_seed(0)
    move = moves(ball, shape)
    delta = move.first(torch.rand((50, *move.first_shape()), generator=g))
    for p in (0.8, 0.2, 0.01):
        torch.testing.assert_close(ball.size(delta), torch.full((50, 1, 1, 1), ball.eps))
        delta = move.propose(delta, p, torch.rand((50, move.per_query), generator=g))


@pytest.mark.parametrize("ball", BALLS.values(), ids=BALLS)
def test_every_pixel_can_be_reached(ball: Ball) -> None:
    g = torch.Generator().manual_seed(0)
    move = moves(ball, (1, 8, 8))
    delta = move.first(torch.rand((2000, *move.first_shape()), generator=g))
    moved = move.propose(delta, 0.05, torch.rand((2000, move.per_query), generator=g)) != delta
    assert moved.any(0).all()


def test_bad_settings_are_refused() -> None:
    for wrong in ({"queries": 0}, {"p": 0.0}, {"p": 1.5}, {"precision": "fp8"}):
        with pytest.raises(InputError):
            Square(**wrong)  # type: ignore[arg-type]


@pytest.mark.peer
@pytest.mark.parametrize("ball", [L2(3.0), Linf(0.12)], ids=["l2", "linf"])
def test_robust_accuracy_agrees_with_pyautoattack(
    ball: Ball, robust_net: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    """Mean accuracy of three seeds each, on 200 images: within noise; ours may reach the last row and column."""
    peer = pytest.importorskip("pyautoattack.square")
    x, y = batch
    ours, theirs = [], []
    for seed in range(3):
        attacked = Square(queries=150)(robust_net, x, y, ball, ImageRng(seed, range(len(x))))
        ours.append(1 - attacked.fooled.double().mean())
        attack = peer.SquareAttack(
            robust_net,
            norm="L2" if isinstance(ball, L2) else "Linf",
            eps=ball.eps,
            n_queries=149,  # it asks once more
            p_init=0.8,
            seed=seed,
            resc_schedule=False,
            device="cpu",
        )
        theirs.append((robust_net(attack.perturb(x.contiguous(), y)).argmax(-1) == y).double().mean())
    mean, peer_mean = torch.stack(ours).mean(), torch.stack(theirs).mean()
    assert 0.1 < mean < 0.9
    assert float(mean) == pytest.approx(float(peer_mean), abs=0.05)
