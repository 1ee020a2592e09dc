"""The sanity checks pass on an honest model and fail on models that mask their gradients."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from freeat.attacks.pgd import NO_GRADIENT, Pgd
from freeat.data import Images
from freeat.evaluation.evaluate import evaluate
from freeat.evaluation.sanity import LEVEL, SanityCheck, compare, fools_fewer, sanity_checks
from freeat.threat import L2, Ball, Linf


class Masked(nn.Module):
    """Rounds its input: the same answers, but a gradient of zero everywhere."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net((x * 16).round() / 16)
        return logits


class Noisy(nn.Module):
    """Adds noise to its input on every call."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.g = torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x + 0.1 * torch.randn(x.shape, generator=self.g))
        return logits


class Infinite(nn.Module):
    """A square root at zero: the values are finite, the gradient is not."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x.clamp_min(0).sqrt())
        return logits


class ReturnsToTraining(nn.Module):
    """Puts a layer of its own back into training mode on every call."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.noise = net, nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        self.noise.train()
        logits: Tensor = self.net(self.noise(x))
        return logits


class Counting(nn.Module):
    """Counts its forward passes in a buffer."""

    queries: Tensor

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("queries", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.queries += 1
        logits: Tensor = self.net(x)
        return logits


def failed(checks: list[SanityCheck]) -> set[str]:
    return {check.name for check in checks if not check.passed}


@pytest.mark.parametrize("ball", [L2(2.0), Linf(0.1)], ids=["l2", "linf"])
def test_a_robust_model_passes_all_checks(ball: Ball, robust_net: nn.Module, eval_images: Images) -> None:
    checks = sanity_checks(robust_net, eval_images, ball, classes=10)
    assert failed(checks) == set()
    assert [check.name for check in checks] == [
        "evaluation mode",
        "deterministic",
        "independent of the batch",
        "different answers",
        "gradients",
        "more steps",
        "larger radius",
        "very large radius",
        "black box",
    ]


def test_two_attacks_are_compared_in_a_sentence(robust_net: nn.Module, eval_images: Images) -> None:
    sentences = {
        check.name: check.sentence for check in sanity_checks(robust_net, eval_images, Linf(0.1), classes=10)
    }
    ends = r", (as it should be|no more than noise apart)\."
    for name, start in {
        "more steps": r"20 steps fool \d+ of 64 images and 5 steps fool \d+",
        "larger radius": r"ε = 0\.2 fools \d+ of 64 images and ε = 0\.1 fools \d+",
        "black box": r"PGD-20 fools \d+ of 64 images and Square with 100 queries fools \d+",
    }.items():
        assert re.fullmatch(start + ends, sentences[name]), sentences[name]


def test_masked_gradients_fail_a_check(robust_net: nn.Module, eval_images: Images) -> None:
    checks = sanity_checks(Masked(robust_net), eval_images, Linf(0.2), classes=10)
    assert {"gradients", "black box"} <= failed(checks)
    assert all("may be masked" in check.sentence for check in checks if not check.passed)


class Constant(nn.Module):
    """Gives class 3 to every image; with ``slope`` the logits follow the image, too little to change the answer."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        logits = torch.zeros(len(x), 10)
        logits[:, 3] = 1.0
        return logits + self.slope * x.mean((1, 2, 3))[:, None] * torch.arange(10.0)


@pytest.mark.parametrize("slope", [0.0, 1e-3])
def test_a_constant_answer_is_named_and_not_called_gradient_masking(
    slope: float, eval_images: Images
) -> None:
    checks = sanity_checks(Constant(slope), eval_images, Linf(0.1), classes=10)
    assert failed(checks) == {"different answers"}
    assert checks[-1].sentence.startswith("The model gives the same answer, class 3, to all")
    *_, check = sanity_checks(Constant(slope), eval_images, Linf(0.1), classes=10, names=["cat"] * 10)
    assert check.sentence.startswith("The model gives the same answer, class 3 (cat), to all")
    assert not any("masked" in check.sentence for check in checks)


def test_one_answer_to_images_of_one_class_is_no_constant_answer(eval_images: Images) -> None:
    threes = eval_images.take((eval_images.y == 3).nonzero()[:, 0])
    checks = {check.name: check for check in sanity_checks(Constant(0.0), threes, Linf(0.1), classes=10)}
    assert checks["different answers"].passed
    assert not checks["gradients"].passed


def test_images_sorted_by_class_do_not_hide_different_answers(
    robust_net: nn.Module, eval_images: Images
) -> None:
    by_class = eval_images.take(eval_images.y.argsort())
    checks = {check.name: check for check in sanity_checks(robust_net, by_class, Linf(0.1), classes=10)}
    assert checks["different answers"].passed


def test_a_random_model_fails_a_check(robust_net: nn.Module, eval_images: Images) -> None:
    assert "deterministic" in failed(sanity_checks(Noisy(robust_net), eval_images, Linf(0.1), classes=10))


def test_gradients_that_are_not_finite_fail_a_check(robust_net: nn.Module, eval_images: Images) -> None:
    checks = {
        check.name: check for check in sanity_checks(Infinite(robust_net), eval_images, Linf(0.1), classes=10)
    }
    assert not checks["gradients"].passed
    assert "not finite" in checks["gradients"].sentence


def test_a_model_in_training_mode_is_checked_in_eval_mode_and_restored(eval_images: Images) -> None:
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(1024), nn.Dropout(0.5), nn.Linear(1024, 10)).train()
    before = [value.clone() for value in net.state_dict().values()]
    checks = {check.name: check for check in sanity_checks(net, eval_images, Linf(0.1), classes=10)}
    assert "was in training mode" in checks["evaluation mode"].sentence
    assert checks["deterministic"].passed
    assert all(module.training for module in net.modules())
    assert all(p.requires_grad for p in net.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, net.state_dict().values(), strict=True))


def test_a_model_that_does_not_stay_in_eval_mode_fails_a_check(
    robust_net: nn.Module, eval_images: Images
) -> None:
    few = eval_images.take(torch.arange(8))
    for net, expected in (
        (ReturnsToTraining(robust_net), "returns to training mode while it classifies ('noise' first)"),
        (Counting(robust_net), "changes while it classifies ('queries' first)"),
    ):
        mode, *rest = sanity_checks(net.eval(), few, Linf(0.1), classes=10)
        assert (mode.name, mode.passed) == ("evaluation mode", False)
        assert expected in mode.sentence
        assert failed(rest) == set()


def test_a_ball_that_cannot_be_doubled_is_not_compared_with_itself(
    robust_net: nn.Module, eval_images: Images
) -> None:
    few = eval_images.take(torch.arange(8))
    names = {
        eps: [c.name for c in sanity_checks(robust_net, few, Linf(eps), classes=10)] for eps in (0.5, 0.51)
    }
    assert "larger radius" in names[0.5]
    assert names[0.51] == [name for name in names[0.5] if name != "larger radius"]


def test_fools_fewer_needs_a_significant_difference() -> None:
    assert not fools_fewer(strong=[], weak=[])
    assert not fools_fewer(strong=range(4), weak=range(4, 8))
    assert not fools_fewer(strong=[], weak=range(4))  # probability 1/16
    assert fools_fewer(strong=[], weak=range(5))  # 1/32
    assert not fools_fewer(strong=range(100), weak=range(100))
    assert fools_fewer(strong=range(100, 110), weak=range(30))
    assert not fools_fewer(strong=range(30), weak=range(100, 110))


@dataclass(frozen=True)
class Under:
    """An evaluation under an attack, as far as a comparison asks."""

    attack: str
    eps: float
    fooled: Sequence[int]
    black_box: bool = False
    model: str = "net"
    norm: str = "linf"
    split: str = "test"
    constant_answer: int | None = None

    @property
    def robust_accuracy(self) -> float:
        return 1 - len(self.fooled) / 100


def test_evaluations_are_compared_over_radii_and_boxes() -> None:
    good = [
        Under("pgd-10", 0.1, range(20)),
        Under("pgd-10", 0.2, range(60)),
        Under("square", 0.1, range(9), black_box=True),
    ]
    assert [(check.name, check.passed) for check in compare(good)] == [
        ("larger radius", True),
        ("black box", True),
    ]
    assert [check.sentence for check in compare(good)] == [
        "net, pgd-10 (Linf, test): robust accuracy does not rise as ε grows from 0.1 to 0.2.",
        "net (Linf, test): at no radius does a black-box attack beat the white-box ones.",
    ]
    rising = compare([Under("pgd-10", 0.2, range(20)), Under("pgd-10", 0.1, range(60))])
    assert failed(rising) == {"larger radius"}
    assert "from ε = 0.1 to 0.2" in rising[0].sentence
    slowly = [Under("pgd-10", eps, range(60 - 4 * k)) for k, eps in enumerate((0.1, 0.2, 0.3, 0.4))]
    assert all(not fools_fewer(b.fooled, a.fooled) for a, b in pairwise(slowly))
    (crept,) = compare([Under("pgd-10", 0.05, range(30)), *slowly])
    assert not crept.passed
    assert "rises from ε = 0.1 to 0.3" in crept.sentence
    masked = compare([Under("pgd-10", 0.1, range(20)), Under("square", 0.1, range(60), black_box=True)])
    assert failed(masked) == {"black box"}
    assert "gradients may be masked" in masked[0].sentence
    constant = [
        Under("pgd-10", 0.1, range(20), constant_answer=3),
        Under("square", 0.1, range(60), black_box=True, constant_answer=3),
    ]
    assert compare(constant) == []
    assert compare(constant[1:], known=constant[:1]) == []


@pytest.mark.parametrize(
    ("only_weak", "only_strong"), [(5, 0), (4, 0), (9, 2), (8, 2), (30, 17), (29, 18), (3, 3)]
)
def test_the_tail_of_the_test_is_exact(only_weak: int, only_strong: int) -> None:
    n = only_weak + only_strong
    tail = sum(math.comb(n, k) for k in range(only_weak, n + 1)) / 2**n
    expected = only_weak > only_strong and tail < LEVEL
    assert fools_fewer(range(100, 100 + only_strong), range(only_weak)) == expected


def test_whole_data_sets_are_compared_at_once() -> None:
    assert not fools_fewer(range(50_000), range(0))
    assert fools_fewer(range(20_000), range(20_000, 41_000))


class Hidden(nn.Module):
    """Counts its input in grey levels: the gradient is not zero, there is none."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net((x * 255).round().byte().to(x.dtype) / 255)
        return logits


def test_a_model_without_a_gradient_fails_a_check(robust_net: nn.Module, eval_images: Images) -> None:
    hidden, ball = Hidden(robust_net), Linf(0.12)
    checks = sanity_checks(hidden, eval_images, ball, classes=10)
    assert "gradients" in failed(checks)
    (found,) = [check.sentence for check in checks if check.name == "gradients"]
    assert "64 have a zero gradient" in found
    measured = evaluate(hidden, eval_images.take(torch.arange(40)), Pgd(steps=5), ball, classes=10)
    assert measured.notes == (NO_GRADIENT,)
    honest = evaluate(robust_net, eval_images.take(torch.arange(40)), Pgd(steps=5), ball, classes=10)
    assert honest.notes == ()
    assert measured.robust_correct.sum() > honest.robust_correct.sum()
