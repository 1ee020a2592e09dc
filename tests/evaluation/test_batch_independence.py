"""An image's outcome depends neither on the batch size nor on the other images, and correctness is decided in fp32."""

import pytest
import torch
from torch import Tensor, nn

from freeat.attacks.registry import parse_attack
from freeat.attacks.square import Square
from freeat.data import Images
from freeat.evaluation.evaluate import evaluate
from freeat.objectives import margin
from freeat.rng import ImageRng
from freeat.threat import L2, Ball, Linf

BALLS = {"l2": L2(2.0), "linf": Linf(0.12)}
NAMES = ("fgsm", "pgd-5", "pgd-dlr-4-2", "square-60")
ATTACKS = [
    (name, iterate)
    for name in NAMES
    for iterate in ("last", "worst")
    if (name, iterate) != ("square-60", "last")
]


@pytest.fixture(scope="module")
def double_net(robust_net: nn.Module) -> nn.Module:
    import copy

    return copy.deepcopy(robust_net).double()


@pytest.mark.parametrize("ball", BALLS.values(), ids=BALLS)
@pytest.mark.parametrize(("name", "iterate"), ATTACKS)
def test_outcomes_do_not_depend_on_the_batch_in_float64(
    name: str, ball: Ball, iterate: str, double_net: nn.Module, eval_images: Images
) -> None:
    images = eval_images.take(torch.arange(64))
    attack = parse_attack(name, iterate=iterate)  # type: ignore[arg-type]
    whole = evaluate(double_net, images, attack, ball, classes=10, batch_size=64, keep_delta=True)
    assert 0 < whole.robust_correct.sum() < 64
    for size in (1, 7):
        other = evaluate(double_net, images, attack, ball, classes=10, batch_size=size, keep_delta=True)
        assert torch.equal(whole.robust_correct, other.robust_correct)
        torch.testing.assert_close(whole.delta, other.delta, rtol=0, atol=1e-9)
    shuffled = torch.randperm(64, generator=torch.Generator().manual_seed(0))[:40]
    other = evaluate(double_net, images.take(shuffled), attack, ball, classes=10, batch_size=11)
    assert torch.equal(whole.robust_correct[shuffled], other.robust_correct)


@pytest.mark.parametrize("ball", BALLS.values(), ids=BALLS)
@pytest.mark.parametrize("name", NAMES)
def test_in_fp32_an_outcome_differs_only_near_the_boundary(
    name: str, ball: Ball, robust_net: nn.Module, eval_images: Images, batch: tuple[Tensor, Tensor]
) -> None:
    results = [
        evaluate(
            robust_net, eval_images, parse_attack(name), ball, classes=10, batch_size=size, keep_delta=True
        )
        for size in (200, 7)
    ]
    differs = results[0].robust_correct != results[1].robust_correct
    x, y = batch
    for result in results:
        assert result.delta is not None
        distance = margin(robust_net(ball.apply(x, result.delta)), y).abs()
        assert (distance[differs] < 1e-4).all()


@pytest.mark.parametrize("ball", BALLS.values(), ids=BALLS)
@pytest.mark.parametrize(
    ("name", "iterate"), [("pgd-20", "last"), ("pgd-20", "worst"), ("square-100", "worst")]
)
def test_bf16_is_nearly_as_strong_and_claims_nothing_false(
    name: str, ball: Ball, iterate: str, robust_net: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    x, y = batch
    rng = ImageRng(0, range(len(x)))
    exact = parse_attack(name, iterate=iterate)(robust_net, x, y, ball, rng)  # type: ignore[arg-type]
    rough = parse_attack(name, iterate=iterate, precision="bf16")(robust_net, x, y, ball, rng)  # type: ignore[arg-type]
    assert (robust_net(ball.apply(x, rough.delta)).argmax(-1) != y)[rough.fooled].all()
    assert not torch.equal(exact.delta, rough.delta), "bf16 was not used"
    assert abs(int(exact.fooled.sum()) - int(rough.fooled.sum())) <= 6  # of 200 images


class Coarse(nn.Module):
    """Logits so far from zero that bf16 holds even numbers only, and many of them coincide."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.lift = nn.Linear(10, 10)
        with torch.no_grad():
            self.lift.weight.copy_(torch.eye(10))
            self.lift.bias.fill_(300)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.lift(self.net(x))
        return logits


def test_correctness_is_decided_in_fp32_where_bf16_misses_it(
    robust_net: nn.Module, eval_images: Images
) -> None:
    coarse, ball = Coarse(robust_net).eval(), Linf(0.4)
    attack = parse_attack("square-30", precision="bf16")
    measured = evaluate(coarse, eval_images, attack, ball, classes=10, keep_delta=True)
    x, y = eval_images.batch(torch.arange(len(eval_images)))
    assert measured.delta is not None
    with torch.no_grad():
        shown = coarse(ball.apply(x, measured.delta)).argmax(-1)
    assert torch.equal(measured.predicted, shown)
    attacked = attack(coarse, x, y, ball, ImageRng(0, eval_images.index.tolist()))
    missed = (shown != y) & ~attacked.fooled
    assert missed.any(), "nothing was passed by: the test shows nothing"
    assert not measured.robust_correct[missed].any()


def test_square_draws_do_not_depend_on_images_that_leave(
    robust_net: nn.Module, batch: tuple[Tensor, Tensor]
) -> None:
    """More queries go on where fewer stopped: the first queries of an image are always the same."""
    x, y = batch
    rng, ball = ImageRng(3, range(len(x))), Linf(0.12)
    short = Square(queries=40)(robust_net, x, y, ball, rng)
    long = Square(queries=400)(robust_net, x, y, ball, rng)
    assert short.queries is not None
    assert long.queries is not None
    assert (long.fooled | ~short.fooled).all()
    assert torch.equal(short.queries[short.fooled], long.queries[short.fooled])
    assert torch.equal(short.delta[short.fooled], long.delta[short.fooled])
