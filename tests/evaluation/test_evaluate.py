"""Evaluation: right numbers, the same in any batch size, and nothing disturbed."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from freeat import rng
from freeat.attacks.pgd import Pgd
from freeat.attacks.result import Attack, AttackResult
from freeat.attacks.square import Square
from freeat.compute import Cost
from freeat.data import CropFlip, Images, load_data
from freeat.errors import InputError
from freeat.evaluation.evaluate import (
    ClassSummary,
    Evaluation,
    concatenated,
    device_and_dtype,
    evaluate,
    image_batches,
)
from freeat.evaluation.statistics import wilson
from freeat.experiments.examples import load_examples, save_examples
from freeat.objectives import Model
from freeat.rng import ImageRng
from freeat.threat import L2, Ball, Linf
from problems import same_bits, weights

BALL = L2(0.4)
ATTACK = Pgd(steps=3)


@pytest.fixture(scope="module")
def digits() -> Images:
    return load_data("digits").test.take(torch.arange(70))


@pytest.fixture(scope="module")
def net() -> nn.Module:
    """A net with batch norm that has seen some digits, in the mode of training."""
    data = load_data("digits").train
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
        )
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for t in range(30):
        x, y = data.batch(torch.arange(t * 40, t * 40 + 40))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()
    return net


def columns(outcome: Evaluation) -> list[torch.Tensor]:
    assert outcome.clean_loss is not None
    assert outcome.robust_loss is not None
    return [outcome.clean_correct, outcome.clean_loss, outcome.robust_correct, outcome.robust_loss]


def test_accuracies_and_losses_equal_a_plain_loop(net: nn.Module, digits: Images) -> None:
    outcome = evaluate(net, digits, ATTACK, BALL, classes=10, with_loss=True)
    x, y = digits.batch(torch.arange(len(digits)))
    net.eval()
    with torch.no_grad():
        logits = net(x)
    net.train()
    summary = outcome.summary()
    assert summary.clean_accuracy == pytest.approx(float((logits.argmax(1) == y).double().mean()))
    assert summary.clean_loss == pytest.approx(float(nn.functional.cross_entropy(logits, y)), rel=1e-5)
    assert summary.robust_accuracy < summary.clean_accuracy
    assert summary.robust_loss is not None
    assert summary.robust_loss > summary.clean_loss
    assert outcome.robust_loss is not None
    assert outcome.clean_loss is not None
    assert not (outcome.robust_correct & ~outcome.clean_correct).any()
    assert bool((outcome.robust_loss >= outcome.clean_loss - 1e-6).all())


@pytest.mark.parametrize("augment", [None, CropFlip(pad=1)], ids=["plain", "augmented"])
def test_draws_follow_the_image_not_the_batch(
    net: nn.Module, digits: Images, augment: CropFlip | None
) -> None:
    def evaluated(images: Images, batch_size: int) -> list[torch.Tensor]:
        return columns(
            evaluate(
                net,
                images,
                ATTACK,
                BALL,
                classes=10,
                augment=augment,
                batch_size=batch_size,
                with_loss=True,
            )
        )

    whole, parts = evaluated(digits, 256), evaluated(digits, 16)
    order = torch.arange(len(digits)).flip(0)
    reversed_ = evaluated(digits.take(order), 256)
    for one, two, three in zip(whole, parts, reversed_, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(one, three[order], rtol=1e-4, atol=1e-4)


def test_another_seed_gives_other_draws(net: nn.Module, digits: Images) -> None:
    one, two = (
        evaluate(net, digits, ATTACK, BALL, classes=10, seed=s, with_loss=True).robust_loss for s in (0, 1)
    )
    assert one is not None
    assert two is not None
    assert not torch.equal(one, two)


def test_model_and_global_random_state_are_unchanged(net: nn.Module, digits: Images) -> None:
    net.train()
    net[1].eval()
    before, state = weights(net), torch.get_rng_state()
    evaluate(net, digits, ATTACK, BALL, classes=10)
    assert same_bits(before, weights(net))
    assert torch.equal(state, torch.get_rng_state())
    assert [module.training for module in net] == [True, False, True, True, True]
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    net.train()


def test_cost_counts_the_images_the_network_saw(net: nn.Module, digits: Images) -> None:
    seen = 0

    def count(module: nn.Module, args: tuple[torch.Tensor], output: torch.Tensor) -> None:
        nonlocal seen
        seen += len(output)

    handle = net.register_forward_hook(count)
    attack = Pgd(steps=4, restarts=2)
    cost = evaluate(
        net, digits, attack, BALL, classes=10, batch_size=32, with_loss=True, check_consistency=False
    ).cost
    handle.remove()
    assert cost.gradient_evaluations == 4 * 2 * len(digits)
    assert cost.gradient_evaluations + cost.forward_passes == seen


def test_summary_by_class() -> None:
    flags = torch.tensor
    outcome = Evaluation(
        index=torch.arange(6),
        y=flags([0, 0, 0, 0, 2, 2]),
        clean_predicted=flags([0, 0, 0, 0, 2, 0]),
        clean_correct=flags([True, True, True, True, True, False]),
        clean_loss=torch.arange(6.0),
        robust_correct=flags([True, True, True, False, True, False]),
        robust_loss=torch.arange(6.0) + 1,
        classes=4,
        population=50,
        cost=Cost(gradient_evaluations=3, forward_passes=2),
        seconds=1.0,
    )
    summary = outcome.summary()
    assert summary.robust_accuracy == pytest.approx(4 / 6)
    assert summary.balanced_robust_accuracy == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert summary.worst_class_robust_accuracy == 0.5
    assert [row.label for row in summary.per_class] == [0, 2]
    assert summary.per_class[1] == ClassSummary(
        label=2,
        n=2,
        clean_accuracy=0.5,
        clean_interval=wilson(1, 2),
        robust_accuracy=0.5,
        robust_interval=wilson(1, 2),
    )
    assert (summary.n, summary.population) == (6, 50)
    assert summary.robust_loss == 3.5
    assert replace(outcome, population=6).summary().population == 6


@dataclass(frozen=True)
class ClaimsAll:
    """An attack that perturbs nothing and claims to fool every image."""

    name: str = "boaster"
    black_box: bool = False

    def __call__(
        self, f: Model, x: Tensor, y: Tensor, ball: Ball, rng: ImageRng, *, with_loss: bool = False
    ) -> AttackResult:
        fooled = torch.ones_like(y, dtype=torch.bool)
        return AttackResult(
            delta=torch.zeros_like(x), fooled=fooled, loss=None, cost=Cost(), notes=("trust me",)
        )


@dataclass(frozen=True)
class ClaimsNone(Pgd):
    """An attack that fools images and claims none of them."""

    def __call__(self, *args: Any, **kwargs: Any) -> AttackResult:
        attacked = super().__call__(*args, **kwargs)
        return replace(attacked, fooled=torch.zeros_like(attacked.fooled))


def test_recheck_counts_what_an_attack_does_not_claim(robust_net: nn.Module, eval_images: Images) -> None:
    modest, plain = (
        evaluate(robust_net, eval_images, a, Linf(0.12), classes=10) for a in (ClaimsNone(), Pgd())
    )
    assert torch.equal(modest.robust_correct, plain.robust_correct)
    assert not plain.robust_correct.all()


@pytest.mark.parametrize("attack", [Pgd(steps=50, restarts=3), Square()], ids=["pgd", "square"])
def test_in_a_ball_of_radius_0_the_clean_prediction_counts(
    attack: Attack, robust_net: nn.Module, eval_images: Images
) -> None:
    zero, usual = (
        evaluate(robust_net, eval_images, attack, Linf(eps), classes=10, keep_delta=True)
        for eps in (0.0, 0.5)
    )
    assert torch.equal(zero.robust_correct, zero.clean_correct)
    assert torch.equal(zero.clean_correct, usual.clean_correct)
    assert torch.equal(zero.predicted == zero.y, zero.clean_correct)
    assert zero.delta is not None
    assert not zero.delta.any()
    assert zero.cost == Cost(gradient_evaluations=0, forward_passes=len(eval_images))
    assert (zero.queries is None) == (usual.queries is None)


def test_recheck_ignores_a_false_claim(robust_net: nn.Module, eval_images: Images) -> None:
    measured = evaluate(robust_net, eval_images, ClaimsAll(), Linf(0.1), classes=10, batch_size=64)
    assert torch.equal(measured.robust_correct, measured.clean_correct)
    assert measured.clean_correct.any()
    assert measured.notes == ("trust me",), "noted once, whatever the number of batches"


def test_summary_of_a_black_box_attack(robust_net: nn.Module, eval_images: Images) -> None:
    measured = evaluate(robust_net, eval_images, Square(queries=30), Linf(0.12), classes=10, population=597)
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
    assert summary.cost.gradient_evaluations == 0
    expected = summary.queries.total + 3 * 200
    assert summary.cost.forward_passes == expected, (
        "queries, twice the clean images, and every image at the end"
    )
    assert set(summary.fooled) == set(eval_images.index[~measured.robust_correct].tolist())


def test_perturbations_are_kept_only_on_request(
    robust_net: nn.Module, eval_images: Images, tmp_path: object
) -> None:
    few = eval_images.take(torch.arange(5))
    measured = evaluate(robust_net, few, Pgd(steps=1), Linf(0.1), classes=10)
    assert measured.delta is None
    with pytest.raises(InputError, match="keep_delta"):
        save_examples(tmp_path / "e.npz", few, measured, tuple("0123456789"))  # type: ignore[operator]


def test_stored_examples_of_augmented_images_are_what_was_evaluated(
    robust_net: nn.Module, eval_images: Images, tmp_path: Path
) -> None:
    few, augment = eval_images.take(torch.arange(40)), CropFlip()
    measured = evaluate(
        robust_net,
        few,
        Pgd(steps=2),
        Linf(0.1),
        classes=10,
        seed=3,
        augment=augment,
        keep_delta=True,
        recheck=True,
    )
    save_examples(tmp_path / "e.npz", few, measured, tuple("0123456789"), seed=3, augment=augment)
    found = load_examples(tmp_path / "e.npz")
    perturbed = torch.from_numpy(found.x + found.delta).clamp(0, 1)
    with torch.no_grad():
        assert robust_net.eval()(perturbed).argmax(-1).tolist() == found.predicted.tolist()
    assert not np.array_equal(found.x, few.batch(torch.arange(40))[0].numpy())


def test_mode_gradients_and_buffers_are_restored(eval_images: Images) -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 2, 5, stride=4), nn.BatchNorm2d(2), nn.Flatten(), nn.Dropout(0.5), nn.LazyLinear(10)
    )
    few = eval_images.take(torch.arange(9))
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


def test_a_model_without_weights_is_evaluated(eval_images: Images) -> None:
    class Brightness(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            bright = x.mean((1, 2, 3))
            return torch.stack([bright, 0.3 - bright], -1)

    few = eval_images.take(torch.arange(20))
    two = Images(x=few.x, y=few.y % 2, index=few.index)
    measured = evaluate(Brightness(), two, Pgd(steps=20), Linf(0.5), classes=2)
    assert not measured.robust_correct.any()


def few_images(n: int = 7) -> Images:
    pixels = torch.arange(n * 4, dtype=torch.uint8).view(n, 1, 2, 2)
    return Images(x=pixels, y=torch.arange(n) % 3, index=10 * torch.arange(n))


def test_batches_hold_every_image_once_in_the_model_s_precision() -> None:
    net = nn.Linear(4, 3).double()
    batches = list(image_batches(net, few_images(), 3))
    assert [len(batch.x) for batch in batches] == [3, 3, 1]
    assert {batch.x.dtype for batch in batches} == {torch.float64}
    assert torch.cat([batch.y for batch in batches]).tolist() == few_images().y.tolist()
    assert torch.cat([batch.rows for batch in batches]).tolist() == list(range(7))


def test_batches_are_sent_to_the_device_from_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As bytes, and by the function that pins them for a GPU."""
    sent: list[torch.dtype] = []

    def sending(tensor: Tensor, device: torch.device) -> Tensor:
        sent.append(tensor.dtype)
        return rng.to_device(tensor, device)

    monkeypatch.setattr("freeat.evaluation.evaluate.to_device", sending, raising=False)
    assert len(list(image_batches(nn.Linear(4, 3), few_images(), 4))) == 2
    assert sent == [torch.uint8, torch.int64] * 2


def test_the_draws_of_an_image_do_not_depend_on_its_batch() -> None:
    net = nn.Linear(4, 3)
    whole = torch.cat([b.rng.normal("start", b.x) for b in image_batches(net, few_images(), 7, seed=3)])
    parts = torch.cat([b.rng.normal("start", b.x) for b in image_batches(net, few_images(), 2, seed=3)])
    assert torch.equal(whole, parts)
    (some,) = image_batches(net, few_images(), 7, seed=3, rows=torch.tensor([5, 1]))
    assert torch.equal(some.rng.normal("start", some.x), whole[[5, 1]])


def test_no_rows_are_no_batch() -> None:
    assert not list(image_batches(nn.Linear(4, 3), few_images(), 3, rows=torch.arange(0)))


def test_columns_of_batches_are_concatenated_by_name() -> None:
    first = {"right": torch.tensor([True, False]), "queries": torch.tensor([5, 7])}
    found = concatenated([first, {"right": torch.tensor([True]), "queries": torch.tensor([6])}])
    assert found["right"].tolist() == [True, False, True]
    assert found["queries"].tolist() == [5, 7, 6]


def test_device_of_a_model_without_weights_is_the_cpu() -> None:
    assert device_and_dtype(nn.Flatten()) == (torch.device("cpu"), torch.float32)
    assert device_and_dtype(nn.BatchNorm2d(2, affine=False).double())[1] == torch.float64
