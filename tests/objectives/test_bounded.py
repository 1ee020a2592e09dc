"""The bounded loss 1 − p_y."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from freeat.stability import BoundedLoss, error_probability


class _Fixed:
    def __init__(self, logits: torch.Tensor) -> None:
        self._logits = logits

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._logits + 0 * x.sum()


@settings(deadline=None)
@given(st.lists(st.floats(-60, 60), min_size=2, max_size=5), st.data())
def test_it_is_one_minus_the_probability_of_the_label(values: list[float], data: st.DataObject) -> None:
    y = data.draw(st.integers(0, len(values) - 1))
    logits = torch.tensor([values], dtype=torch.float64)
    others = [k for k in range(len(values)) if k != y]
    expected = logits.softmax(-1)[0, others].sum()
    found = error_probability(logits, torch.tensor([y]))
    torch.testing.assert_close(found[0], expected, rtol=1e-9, atol=1e-13)
    assert 0 <= found.item() <= 1


def test_both_faces_are_the_loss_at_the_perturbed_images() -> None:
    f = _Fixed(torch.tensor([[1.0, -1.0], [0.0, 3.0]]))
    x, y = torch.rand(2, 1, 2, 2), torch.tensor([0, 0])
    expected = error_probability(f(x), y)
    assert torch.equal(BoundedLoss().loss(f, x, y, x + 1), expected)
    assert torch.equal(BoundedLoss().attack(f, x, y)(x + 1), expected)
