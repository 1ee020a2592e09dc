"""Auto-PGD: the published schedule, pyautoattack's iterates from the same start, draws per image, outcomes, costs."""

from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from freeat import Erm
from freeat.attacks.apgd import APGD_LOSSES, Apgd, ApgdLoss, adaptive_ascent, checkpoints
from freeat.attacks.pgd import NO_GRADIENT, Pgd
from freeat.attacks.result import AttackResult
from freeat.errors import InputError
from freeat.learner import Learner
from freeat.objectives import LOSSES, cross_entropy, targeted_dlr, targeted_margin
from freeat.rng import ImageRng
from freeat.threat import L2, Ball, Linf
from problems import BALLS, SHAPE, images, random, seeded, smooth_net

B = 40
SMALLER = [ball.scaled(0.35) for ball in BALLS.values()]
BOTH_NORMS = pytest.mark.parametrize("ball", SMALLER, ids=BALLS)


@pytest.fixture(scope="module")
def net() -> nn.Module:
    """Half trained: some images are wrong, some fall at some step, some stand."""
    net = smooth_net(seed=2)
    learner = Learner(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for t in range(60):
        Erm().step(learner, *images(t, B))
    return net.eval().requires_grad_(False)


def attack(net: nn.Module, ball: Ball, rows: list[int] | None = None, **how: Any) -> AttackResult:
    x, y = images(100, B)
    rows = list(range(B)) if rows is None else rows
    with_loss = how.pop("with_loss", False)
    return Apgd(**({"steps": 30} | how))(net, x[rows], y[rows], ball, ImageRng(3, rows), with_loss=with_loss)


def test_checkpoints_of_100_steps_are_the_published_ones() -> None:
    assert checkpoints(100) == (22, 41, 57, 70, 80, 87, 93, 99)


@given(st.integers(1, 3000))
def test_checkpoints_follow_the_recursion(steps: int) -> None:
    p = [Fraction(0), Fraction(22, 100)]
    while p[-1] < 1:
        p.append(p[-1] + max(p[-1] - p[-2] - Fraction(3, 100), Fraction(6, 100)))
    assert checkpoints(steps) == tuple(sorted({ceil(share * steps) for share in p[1:]} & set(range(steps))))


class Recorder:
    """A loss of images by itself, which notes the iterates that it is asked for."""

    def __init__(self, loss: Any) -> None:
        self.loss = loss
        self.iterates: list[Tensor] = []

    def __call__(self, x_adv: Tensor, delta: Tensor, rows: Tensor) -> tuple[Tensor, None]:
        self.iterates.append(delta.clone())
        return self.loss(x_adv), None


def test_a_step_is_halved_exactly_where_the_loss_does_not_rise() -> None:
    """Losses that rise at every step, at none, and at four of every five: η stays, halves at each check, stays."""
    x = torch.full((3, 1, 2, 2), 0.5, dtype=torch.float64)
    heights = iter(range(1000))

    def loss(z: Tensor) -> Tensor:
        k = next(heights)
        return torch.tensor([k, 0, k - 6 * (k % 5 == 0)], dtype=x.dtype) + 0 * z.flatten(1).sum(1)

    rng = ImageRng(0, range(3))
    found = adaptive_ascent(Recorder(loss), x, torch.zeros_like(x), Linf(0.1), rng, steps=100)
    assert found.eta.flatten().tolist() == [2, 2 / 2 ** len(checkpoints(100)), 2]


@BOTH_NORMS
def test_a_halved_step_restarts_from_the_highest_point(ball: Ball) -> None:
    """A steep bowl: every step of 2ε overshoots, and the step after a checkpoint begins at the best iterate."""
    x = torch.full((1, *SHAPE), 0.5, dtype=torch.float64)
    centre = 0.3 * ball.extreme(random(5, 1, *SHAPE), ImageRng(0, [0]))
    recorder = Recorder(lambda z: -(z - x - centre).square().flatten(1).sum(1))
    start = ball.confine(x, ball.start(x, "uniform", ImageRng(0, [0])))
    found = adaptive_ascent(recorder, x, start, ball, ImageRng(0, [0]), steps=100)
    heights = [float(recorder.loss(x + delta)) for delta in recorder.iterates]
    assert float(found.highest) == max(heights)
    assert float(found.eta) < 2
    distance = float(ball.size(found.best - centre))
    assert distance < 0.1 * ball.eps, "smaller steps come closer than the first"
    best_until = max(range(23), key=lambda k: heights[k])
    z = recorder.iterates[best_until] + ball.extreme(
        centre - recorder.iterates[best_until], ImageRng(0, [0]).at(22)
    )  # η = ε after the first checkpoint
    z = ball.confine(x, ball.project(z))
    restarted = recorder.iterates[best_until]
    expected = restarted + 0.75 * (z - restarted) + 0.25 * (restarted - recorder.iterates[21])
    torch.testing.assert_close(recorder.iterates[23], ball.confine(x, ball.project(expected)))


@pytest.fixture
def double_by_default() -> Iterator[None]:
    """pyautoattack keeps losses in torch's default type."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.peer
@BOTH_NORMS
@pytest.mark.parametrize("loss", ["ce", "t"])
def test_iterates_are_those_of_pyautoattack_from_the_same_start(
    loss: str, ball: Ball, double_by_default: None
) -> None:
    """Losses are made positive: pyautoattack compares that of its first iterate with 0, not with that of the start."""
    peer = pytest.importorskip("pyautoattack.autopgd_base")
    c, h, w = SHAPE
    layers = [nn.Conv2d(c, 4, 3, padding=1), nn.Softplus(), nn.Flatten(), nn.Linear(4 * h * w, 5)]
    net = seeded(nn.Sequential(*layers), 3).eval().requires_grad_(False)
    x, _ = images(100, B)
    order = net(x).argsort(-1, descending=True)
    y, target = order[:, 0], order[:, 1]

    def ascended(logits: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(logits, y) if loss == "ce" else 9 + targeted_dlr(logits, y, target)

    rng = ImageRng(0, range(B))
    start = ball.confine(x, ball.start(x, "uniform", rng))
    found = adaptive_ascent(Recorder(lambda z: ascended(net(z), y)), x, start, ball, rng, steps=100)
    kind = peer.APGDAttack if loss == "ce" else peer.APGDAttack_targeted
    norm = "L2" if isinstance(ball, L2) else "Linf"
    theirs = kind(net, n_iter=100, norm=norm, eps=ball.eps, device=x.device)
    if loss == "t":
        theirs.y_target = target
        torch.testing.assert_close(9 + theirs.dlr_loss_targeted(net(x), y), ascended(net(x), y))
        theirs.dlr_loss_targeted = ascended
    theirs.init_hyperparam(x)
    x_best, _, highest, _ = theirs.attack_single_run(x, y, x_init=x + start)
    torch.testing.assert_close(found.highest, highest, rtol=1e-9, atol=0)
    torch.testing.assert_close(x + found.best, x_best, rtol=0, atol=1e-5)


@pytest.mark.peer
@pytest.mark.parametrize("ball", [L2(2.0), Linf(0.12)], ids=["l2", "linf"])
def test_robust_accuracy_is_that_of_pyautoattack(
    ball: Ball, robust_net: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    peer = pytest.importorskip("pyautoattack.autopgd_base")
    x, y = batch
    found = Apgd()(robust_net, x, y, ball, ImageRng(0, range(len(x))))
    norm = "L2" if isinstance(ball, L2) else "Linf"
    with torch.random.fork_rng():
        perturbed = peer.APGDAttack(robust_net, norm=norm, eps=ball.eps, device="cpu").perturb(
            x.contiguous(), y
        )
    theirs = robust_net(perturbed).argmax(-1) != y
    assert 0.1 < float(theirs.double().mean()) < 0.9
    assert abs(int(found.fooled.sum()) - int(theirs.sum())) <= 1, "one image in 200"


@BOTH_NORMS
@pytest.mark.parametrize("loss", APGD_LOSSES)
def test_the_perturbation_is_feasible_and_reproduces_the_outcome(
    net: nn.Module, ball: Ball, loss: ApgdLoss
) -> None:
    x, y = images(100, B)
    found = attack(net, ball, loss=loss)
    assert (ball.size(found.delta) <= ball.eps * (1 + 1e-12)).all()
    assert torch.equal(net(ball.apply(x, found.delta)).argmax(-1) != y, found.fooled)
    assert 0.1 < found.fooled.double().mean() < 0.9, "the example must hold both kinds"
    assert found.loss is None
    assert not found.delta.requires_grad
    clean = net(x).argmax(-1) != y
    assert (found.delta[clean] == 0).all(), "an image that is wrong by itself needs no perturbation"
    weaker = Pgd(steps=10)(net, x, y, ball, ImageRng(3, range(B)))
    assert found.fooled.sum() >= weaker.fooled.sum()


@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(st.integers(0, B - 1), min_size=1, max_size=12, unique=True),
    ball=st.sampled_from(SMALLER),
    loss=st.sampled_from(("ce", "t")),
)
def test_an_image_fares_the_same_in_any_batch(rows: list[int], ball: Ball, loss: ApgdLoss) -> None:
    net = smooth_net(seed=2).requires_grad_(False)
    whole = attack(net, ball, loss=loss, steps=8)
    part = attack(net, ball, rows, loss=loss, steps=8)
    assert torch.equal(part.fooled, whole.fooled[rows])
    torch.testing.assert_close(part.delta, whole.delta[rows], rtol=1e-6, atol=1e-9)


@BOTH_NORMS
@pytest.mark.parametrize("loss", ["ce", "t"])
def test_with_loss_every_image_takes_every_step_and_the_outcome_is_the_same(
    net: nn.Module, ball: Ball, loss: ApgdLoss
) -> None:
    plain, with_loss = attack(net, ball, loss=loss), attack(net, ball, loss=loss, with_loss=True)
    assert torch.equal(plain.fooled, with_loss.fooled)
    torch.testing.assert_close(plain.delta, with_loss.delta, rtol=1e-9, atol=1e-12)
    targets = 2 if loss == "t" else 1  # of three classes
    assert with_loss.cost.gradient_evaluations == 30 * B * targets
    assert with_loss.cost.forward_passes == B + B * targets, "the clean images and the last iterates"
    assert plain.cost.gradient_evaluations < with_loss.cost.gradient_evaluations, "fooled images leave"
    x, y = images(100, B)
    assert with_loss.loss is not None
    assert (with_loss.loss >= cross_entropy(net(x), y)).all()


@BOTH_NORMS
def test_more_restarts_fool_no_fewer(net: nn.Module, ball: Ball) -> None:
    once, thrice = attack(net, ball, steps=3), attack(net, ball, steps=3, restarts=3)
    assert (thrice.fooled | ~once.fooled).all()
    assert not torch.equal(thrice.delta, once.delta), "the starts are others"


def test_bf16_claims_only_what_fp32_confirms(robust_net: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    x, y = (part[:60] for part in batch)
    ball, rng = Linf(0.12), ImageRng(0, range(60))
    exact = Apgd(steps=20)(robust_net, x, y, ball, rng)
    rough = Apgd(steps=20, precision="bf16")(robust_net, x, y, ball, rng)
    assert torch.equal(rough.fooled, robust_net(ball.apply(x, rough.delta)).argmax(-1) != y)
    assert abs(int(rough.fooled.sum()) - int(exact.fooled.sum())) <= 1


def test_with_few_classes_the_margin_replaces_dlr_and_is_noted(net: nn.Module) -> None:
    ball = SMALLER[0]
    note = "{} is undefined with 3 classes; the {} was used instead"
    assert attack(net, ball, loss="dlr").notes == (note.format("DLR", "margin loss"),)
    assert attack(net, ball, loss="t").notes == (note.format("the targeted DLR loss", "targeted margin"),)
    assert attack(net, ball, loss="ce").notes == ()


def test_a_model_without_gradient_is_noted(net: nn.Module) -> None:
    x, y = images(100, B)

    def blind(z: Tensor) -> Tensor:
        return net(z.detach())

    assert NO_GRADIENT in Apgd(steps=3)(blind, x, y, SMALLER[0], ImageRng(0, range(B))).notes


def test_no_images_are_no_error(net: nn.Module) -> None:
    found = attack(net, SMALLER[0], [])
    assert found.delta.shape == (0, *SHAPE)


def test_targeted_losses_by_hand() -> None:
    z = torch.tensor([[5.0, 3.0, 2.0, 0.0, -1.0]])
    y, target = torch.tensor([0]), torch.tensor([3])
    assert targeted_margin(z, y, target).item() == -5
    assert targeted_dlr(z, y, target).item() == -5 / (5 - (2 + 0) / 2)
    assert targeted_dlr(7 * z + 1, y, target).item() == pytest.approx(-1.25), "whatever the scale"
    assert LOSSES["margin"](z, y).item() == targeted_margin(z, y, torch.tensor([1])).item()


def test_bad_settings_are_refused() -> None:
    wrong: list[dict[str, Any]] = [{"steps": 0}, {"restarts": 0}, {"loss": "cee"}, {"precision": "fp8"}]
    for settings_ in wrong:
        with pytest.raises(InputError):
            Apgd(**settings_)
