"""The objectives and the losses of attacks against independent formulas, in float64, and at extreme logits."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from freeat.errors import InputError
from freeat.objectives import (
    LOSSES,
    OBJECTIVES,
    BoundedLoss,
    CrossEntropy,
    LogitPairing,
    Mart,
    Objective,
    Trades,
    defined_loss,
    dlr,
    error_probability,
    margin,
    smoothed_cross_entropy,
)
from problems import random

CLASSES = 5


class Readout:
    """A classifier whose logits are the first pixels of the image: any logits can be asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, bool]] = []

    def __call__(self, x: Tensor) -> Tensor:
        self.calls.append((len(x), torch.is_grad_enabled()))
        return x.flatten(-3)[..., :CLASSES]


def as_images(logits: Tensor) -> Tensor:
    return logits[..., None, None]


def by_hand_ce(clean: Tensor, adv: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(adv, y, reduction="none")


def by_hand_trades(clean: Tensor, adv: Tensor, y: Tensor) -> Tensor:
    kl = F.kl_div(adv.log_softmax(-1), clean.softmax(-1), reduction="none").sum(-1)
    return F.cross_entropy(clean, y, reduction="none") + 6 * kl


def by_hand_alp(clean: Tensor, adv: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(adv, y, reduction="none") + 0.5 * F.mse_loss(clean, adv, reduction="none").mean(-1)


def by_hand_mart(clean: Tensor, adv: Tensor, y: Tensor) -> Tensor:
    """The formula of the MART paper in probabilities, image by image."""
    values = []
    for c, a, label in zip(clean.softmax(-1), adv.softmax(-1), y.tolist(), strict=True):
        others = torch.cat([a[:label], a[label + 1 :]])
        bce = -a[label].log() - (1 - others.max()).log()
        values.append(bce + 5 * (c * (c / a).log()).sum() * (1 - c[label]))
    return torch.stack(values)


ROWS: dict[str, tuple[Objective, Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "ce": (CrossEntropy(), by_hand_ce),
    "trades": (Trades(), by_hand_trades),
    "alp": (LogitPairing(), by_hand_alp),
    "mart": (Mart(), by_hand_mart),
}


def test_every_objective_has_a_formula() -> None:
    assert set(ROWS) == set(OBJECTIVES)
    assert all(OBJECTIVES[name]() == objective for name, (objective, _) in ROWS.items())


@pytest.mark.parametrize("name", ROWS)
def test_loss_and_both_gradients_equal_the_formula(name: str) -> None:
    objective, formula = ROWS[name]
    y = torch.arange(20) % CLASSES
    inputs = [(2 * random(s, 20, CLASSES)).requires_grad_() for s in (0, 1)]
    copies = [t.detach().clone().requires_grad_() for t in inputs]
    loss = objective.loss(Readout(), as_images(inputs[0]), y, as_images(inputs[1]))
    expected = formula(*copies, y)
    assert loss.shape == y.shape
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    weights = random(2, 20)
    (loss * weights).sum().backward()
    (expected * weights).sum().backward()
    for mine, other in zip(inputs, copies, strict=True):
        expected_grad = torch.zeros_like(other) if other.grad is None else other.grad
        grad = torch.zeros_like(mine) if mine.grad is None else mine.grad
        torch.testing.assert_close(grad, expected_grad, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ROWS)
def test_a_stack_of_models_is_treated_member_by_member(name: str) -> None:
    objective, _ = ROWS[name]
    clean, adv = as_images(random(0, 3, 6, CLASSES)), as_images(random(1, 3, 6, CLASSES))
    y = torch.arange(18).view(3, 6) % CLASSES
    stacked = objective.loss(Readout(), clean, y, adv)
    attacked = objective.attack(Readout(), clean, y)(adv)
    for k in range(3):
        torch.testing.assert_close(stacked[k], objective.loss(Readout(), clean[k], y[k], adv[k]))
        torch.testing.assert_close(attacked[k], objective.attack(Readout(), clean[k], y[k])(adv[k]))


@pytest.mark.parametrize("name", ROWS)
def test_what_an_attack_ascends(name: str) -> None:
    objective, _ = ROWS[name]
    f, y = Readout(), torch.arange(6) % CLASSES
    clean, adv = random(0, 6, CLASSES), random(1, 6, CLASSES)
    ascended = objective.attack(f, as_images(clean), y)
    values = [ascended(as_images(adv)) for _ in range(3)]
    if name == "trades":
        expected = F.kl_div(adv.log_softmax(-1), clean.softmax(-1), reduction="none").sum(-1)
        assert f.calls == [(6, False), *[(6, True)] * 3], "the clean forward is done once, without a graph"
    else:
        expected = F.cross_entropy(adv, y, reduction="none")
        assert f.calls == [(6, True)] * 3
    torch.testing.assert_close(values[2], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ROWS)
def test_extreme_logits_give_finite_losses_and_gradients(name: str, dtype: torch.dtype) -> None:
    objective, _ = ROWS[name]
    big = 1e4
    patterns = torch.tensor(
        [
            [big, -big, 0, 0, 0],
            [-big, big, 0, 0, 0],
            [big] * 5,
            [-big] * 5,
            [0] * 5,
            [big, big, -big, -big, 0],
        ],
        dtype=dtype,
    )
    pairs = torch.cartesian_prod(torch.arange(6), torch.arange(6), torch.arange(CLASSES))
    clean, adv = patterns[pairs[:, 0]].requires_grad_(), patterns[pairs[:, 1]].requires_grad_()
    loss = objective.loss(Readout(), as_images(clean), pairs[:, 2], as_images(adv))
    assert loss.isfinite().all()
    assert (loss >= 0).all()
    loss.sum().backward()
    for logits in (clean, adv):
        assert logits.grad is None or logits.grad.isfinite().all()
    ascended = objective.attack(Readout(), as_images(clean.detach()), pairs[:, 2])
    x_adv = as_images(adv.detach()).requires_grad_()
    assert torch.autograd.grad(ascended(x_adv).sum(), x_adv)[0].isfinite().all()


def test_two_classes_are_enough_for_mart() -> None:
    class Two:
        def __call__(self, x: Tensor) -> Tensor:
            return x.flatten(-3)[..., :2]

    clean, adv = random(0, 4, 2), random(1, 4, 2)
    y = torch.tensor([0, 1, 1, 0])
    loss = Mart().loss(Two(), as_images(clean), y, as_images(adv))
    torch.testing.assert_close(loss, by_hand_mart(clean, adv, y))


@pytest.mark.parametrize(
    "make",
    [lambda: Trades(lam=0), lambda: Trades(lam=-1), lambda: LogitPairing(weight=-1), lambda: Mart(weight=-1)],
)
def test_invalid_coefficients_are_refused(make: Callable[[], Objective]) -> None:
    with pytest.raises(InputError, match="must"):
        make()


@given(seed=st.integers(0, 10_000), classes=st.integers(4, 12))
@settings(max_examples=30, deadline=None)
def test_margin_and_dlr_against_sorting(seed: int, classes: int) -> None:
    logits, y = random(seed, 9, classes), torch.arange(9) % classes
    for i in range(9):
        z = logits[i].tolist()
        others = max(v for k, v in enumerate(z) if k != y[i])
        ordered = sorted(z, reverse=True)
        assert margin(logits, y)[i] == pytest.approx(others - z[y[i]])
        assert dlr(logits, y)[i] == pytest.approx((others - z[y[i]]) / (ordered[0] - ordered[2]))


def test_dlr_is_invariant_to_the_scale_of_the_logits() -> None:
    logits, y = random(0, 6, 5), torch.arange(6) % 5
    torch.testing.assert_close(dlr(1e3 * logits + 7, y), dlr(logits, y))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("scale", [0.0, 1e4])
def test_attack_losses_are_finite_for_equal_and_for_extreme_logits(name: str, scale: float) -> None:
    logits = (scale * random(1, 4, 5)).requires_grad_()
    loss = LOSSES[name](logits, torch.arange(4))
    assert loss.isfinite().all()
    assert torch.autograd.grad(loss.sum(), logits)[0].isfinite().all()


@pytest.mark.parametrize("name", ["margin", "dlr"])
def test_margin_and_dlr_are_positive_exactly_where_the_model_is_wrong(name: str) -> None:
    logits, y = random(2, 50, 6), torch.arange(50) % 6
    assert torch.equal(LOSSES[name](logits, y) > 0, logits.argmax(-1) != y)


def test_margin_replaces_dlr_with_few_classes() -> None:
    for classes in (2, 3):
        name, notes = defined_loss("dlr", classes)
        assert name == "margin"
        assert f"{classes} classes" in notes[0]
    assert defined_loss("dlr", 4) == ("dlr", ())
    assert defined_loss("ce", 2) == ("ce", ())


@settings(deadline=None)
@given(st.lists(st.floats(-60, 60), min_size=2, max_size=5), st.data())
def test_the_error_probability_is_one_minus_the_probability_of_the_label(
    values: list[float], data: st.DataObject
) -> None:
    y = data.draw(st.integers(0, len(values) - 1))
    logits = torch.tensor([values], dtype=torch.float64)
    others = [k for k in range(len(values)) if k != y]
    expected = logits.softmax(-1)[0, others].sum()
    found = error_probability(logits, torch.tensor([y]))
    torch.testing.assert_close(found[0], expected, rtol=1e-9, atol=1e-13)
    assert 0 <= found.item() <= 1


def test_bounded_loss_and_its_attack_are_the_loss_at_the_perturbed_images() -> None:
    logits = torch.tensor([[1.0, -1.0], [0.0, 3.0]])

    def f(x: Tensor) -> Tensor:
        return logits + 0 * x.sum()

    x, y = torch.rand(2, 1, 2, 2), torch.tensor([0, 0])
    expected = error_probability(f(x), y)
    assert torch.equal(BoundedLoss().loss(f, x, y, x + 1), expected)
    assert torch.equal(BoundedLoss().attack(f, x, y)(x + 1), expected)


@pytest.mark.parametrize("s", [0.0, 0.1, 0.4])
def test_smoothed_cross_entropy_is_that_of_torch(s: float) -> None:
    logits, y = torch.randn(7, 5, dtype=torch.float64), torch.arange(7) % 5
    expected = torch.nn.functional.cross_entropy(logits, y, reduction="none", label_smoothing=s)
    torch.testing.assert_close(smoothed_cross_entropy(logits.log_softmax(-1), y, s), expected)


@pytest.mark.parametrize("objective", [CrossEntropy, Trades, LogitPairing, Mart])
def test_smoothing_adds_to_the_cross_entropy_term_and_leaves_the_attack(
    objective: type[CrossEntropy],
) -> None:
    g = torch.Generator().manual_seed(0)
    x, x_adv = torch.rand(2, 6, 1, 2, 2, generator=g, dtype=torch.float64)
    w, y = torch.randn(4, 3, generator=g, dtype=torch.float64), torch.arange(6) % 3

    def f(images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1) @ w

    plain, smooth = objective(), objective(smoothing=0.2)
    where = x if objective is Trades else x_adv
    log_p = f(where).log_softmax(-1)
    added = smoothed_cross_entropy(log_p, y, 0.2) - smoothed_cross_entropy(log_p, y, 0.0)
    torch.testing.assert_close(smooth.loss(f, x, y, x_adv), plain.loss(f, x, y, x_adv) + added)
    assert torch.equal(smooth.attack(f, x, y)(x_adv), plain.attack(f, x, y)(x_adv))
    with pytest.raises(InputError, match=r"0\.1 is usual"):
        objective(smoothing=1.0)
