"""A measurement: every outcome confirmed on what is stored, costs counted, the model given back as it was."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from freeat.attacks.pgd import Pgd
from freeat.attacks.result import Attack, AttackResult
from freeat.attacks.square import Square
from freeat.compute.passes import Passes
from freeat.data import Images
from freeat.errors import InputError
from freeat.evaluation.evaluate import evaluate
from freeat.experiments.examples import save_examples
from freeat.objectives import Model
from freeat.rng import ImageRng
from freeat.threat import Ball, Linf


@dataclass(frozen=True)
class Boaster:
    """An attack that perturbs nothing and claims to fool every image."""

    name: str = "boaster"
    black_box: bool = False

    def __call__(
        self, f: Model, x: Tensor, y: Tensor, ball: Ball, rng: ImageRng, *, with_loss: bool = False
    ) -> AttackResult:
        fooled = torch.ones_like(y, dtype=torch.bool)
        return AttackResult(
            delta=torch.zeros_like(x), fooled=fooled, loss=None, passes=Passes(), notes=("trust me",)
        )


@dataclass(frozen=True)
class Modest(Pgd):
    """An attack that fools images and claims none of them."""

    def __call__(self, *args: Any, **kwargs: Any) -> AttackResult:
        attacked = super().__call__(*args, **kwargs)
        return replace(attacked, fooled=torch.zeros_like(attacked.fooled))


def test_what_an_attack_does_not_claim_is_seen_too(robust_net: nn.Module, judged: Images) -> None:
    modest, plain = (evaluate(robust_net, judged, a, Linf(0.12), classes=10) for a in (Modest(), Pgd()))
    assert torch.equal(modest.robust_correct, plain.robust_correct)
    assert not plain.robust_correct.all()


@pytest.mark.parametrize("attack", [Pgd(steps=50, restarts=3), Square()], ids=["pgd", "square"])
def test_in_a_ball_of_radius_0_the_clean_outcome_is_the_answer(
    attack: Attack, robust_net: nn.Module, judged: Images
) -> None:
    zero, usual = (
        evaluate(robust_net, judged, attack, Linf(eps), classes=10, keep_delta=True) for eps in (0.0, 0.5)
    )
    assert torch.equal(zero.robust_correct, zero.clean_correct)
    assert torch.equal(zero.clean_correct, usual.clean_correct)
    assert torch.equal(zero.predicted == zero.y, zero.clean_correct)
    assert zero.delta is not None
    assert not zero.delta.any()
    assert zero.passes == Passes(gradient=0, forward=len(judged))
    assert (zero.queries is None) == (usual.queries is None)


def test_a_false_claim_is_not_believed(robust_net: nn.Module, judged: Images) -> None:
    measured = evaluate(robust_net, judged, Boaster(), Linf(0.1), classes=10, batch_size=64)
    assert torch.equal(measured.robust_correct, measured.clean_correct)
    assert measured.clean_correct.any()
    assert measured.notes == ("trust me",), "said once, whatever the number of batches"


def test_summary(robust_net: nn.Module, judged: Images) -> None:
    measured = evaluate(robust_net, judged, Square(queries=30), Linf(0.12), classes=10, population=597)
    summary = measured.outcomes()
    hits = int(measured.robust_correct.sum())
    ci = binomtest(hits, 200).proportion_ci(0.95, method="wilson")
    assert summary.robust_interval == pytest.approx((ci.low, ci.high))
    assert summary.n == 200
    assert summary.population == 597
    per_class = summary.per_class
    assert sum(row.n * row.robust_accuracy for row in per_class) == pytest.approx(hits)
    assert summary.queries is not None
    assert summary.queries.most == 30
    assert summary.queries.total == sum(summary.queries.per_image)
    assert summary.passes.gradient == 0
    asked = summary.queries.total + 3 * 200
    assert summary.passes.forward == asked, "queries, twice the clean images, and every image at the end"
    assert set(summary.fooled) == set(judged.index[~measured.robust_correct].tolist())


def test_perturbations_are_kept_only_on_request(
    robust_net: nn.Module, judged: Images, tmp_path: object
) -> None:
    few = judged.take(torch.arange(5))
    measured = evaluate(robust_net, few, Pgd(steps=1), Linf(0.1), classes=10)
    assert measured.delta is None
    with pytest.raises(InputError, match="keep_delta"):
        save_examples(tmp_path / "e.npz", few, measured, tuple("0123456789"))  # type: ignore[operator]


def test_mode_gradients_and_buffers_are_given_back(judged: Images) -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 2, 5, stride=4), nn.BatchNorm2d(2), nn.Flatten(), nn.Dropout(0.5), nn.LazyLinear(10)
    )
    few = judged.take(torch.arange(9))
    net.eval()(few.batch(torch.arange(9))[0])
    net.train()
    net[1].eval()
    net[0].weight.requires_grad_(False)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    evaluate(net, few, Pgd(steps=2), Linf(0.1), classes=10)
    assert [module.training for module in net] == [True, False, True, True, True]
    assert not net[0].weight.requires_grad
    assert net[4].weight.requires_grad
    assert all(p.grad is None for p in net.parameters())
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())


def test_a_model_without_weights_is_measured_too(judged: Images) -> None:
    class Brightness(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            bright = x.mean((1, 2, 3))
            return torch.stack([bright, 0.3 - bright], -1)

    few = judged.take(torch.arange(20))
    two = Images(x=few.x, y=few.y % 2, index=few.index)
    measured = evaluate(Brightness(), two, Pgd(steps=20), Linf(0.5), classes=2)
    assert not measured.robust_correct.any()
