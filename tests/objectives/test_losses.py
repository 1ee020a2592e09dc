"""The losses of white-box attacks, against independent formulas."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from freeat.objectives import LOSSES, defined_loss, dlr, margin
from problems import random


@given(seed=st.integers(0, 10_000), classes=st.integers(4, 12))
@settings(max_examples=30, deadline=None)
def test_against_sorting(seed: int, classes: int) -> None:
    logits, y = random(seed, 9, classes), torch.arange(9) % classes
    for i in range(9):
        z = logits[i].tolist()
        others = max(v for k, v in enumerate(z) if k != y[i])
        ordered = sorted(z, reverse=True)
        assert margin(logits, y)[i] == pytest.approx(others - z[y[i]])
        assert dlr(logits, y)[i] == pytest.approx((others - z[y[i]]) / (ordered[0] - ordered[2]))


def test_dlr_does_not_see_the_scale_of_the_logits() -> None:
    logits, y = random(0, 6, 5), torch.arange(6) % 5
    torch.testing.assert_close(dlr(1e3 * logits + 7, y), dlr(logits, y))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("scale", [0.0, 1e4])
def test_finite_for_equal_and_for_extreme_logits(name: str, scale: float) -> None:
    logits = (scale * random(1, 4, 5)).requires_grad_()
    loss = LOSSES[name](logits, torch.arange(4))
    assert loss.isfinite().all()
    assert torch.autograd.grad(loss.sum(), logits)[0].isfinite().all()


@pytest.mark.parametrize("name", ["margin", "dlr"])
def test_positive_exactly_where_the_model_is_wrong(name: str) -> None:
    logits, y = random(2, 50, 6), torch.arange(50) % 6
    assert torch.equal(LOSSES[name](logits, y) > 0, logits.argmax(-1) != y)


def test_dlr_gives_way_to_the_margin_with_few_classes() -> None:
    for classes in (2, 3):
        name, notes = defined_loss("dlr", classes)
        assert name == "margin"
        assert f"{classes} classes" in notes[0]
    assert defined_loss("dlr", 4) == ("dlr", ())
    assert defined_loss("ce", 2) == ("ce", ())
