"""A stack is K plain models: same logits, same gradients, same training."""

import pytest
import torch
from torch import nn

from freeat.errors import InputError
from freeat.models import build
from freeat.stability import Stack


def plain_models(name: str, members: int, shape: tuple[int, int, int]) -> list[nn.Module]:
    return [build(name, classes=4, shape=shape, seed=k).double() for k in range(members)]


def stack_of(models: list[nn.Module]) -> Stack:
    stack = Stack(models[0], len(models))
    with torch.no_grad():
        for p, *members in zip(stack.parameters(), *(m.parameters() for m in models), strict=True):
            p.copy_(torch.stack(members))
    return stack


@pytest.mark.parametrize(
    "name", ["linear", "mlp-w16-softplus", "cnn-w4-gn", "cnn-w4-nonorm", "resnet18-w4-gn-s2"]
)
def test_logits_and_gradients_are_those_of_the_plain_models(name: str) -> None:
    shape = (2, 8, 8)
    models = plain_models(name, 3, shape)
    stack = stack_of(models)
    x = torch.rand(
        3, 5, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()
    logits = stack(x)
    logits.square().sum().backward()
    for k, model in enumerate(models):
        own = x[k].detach().requires_grad_()
        plain = model(own)
        plain.square().sum().backward()
        torch.testing.assert_close(logits[k], plain, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(x.grad[k], own.grad, rtol=1e-9, atol=1e-10)
        for p, q in zip(stack.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(p.grad[k], q.grad, rtol=1e-9, atol=1e-9)


def test_weights_are_a_row_per_member() -> None:
    models = plain_models("mlp-w8", 3, (1, 4, 4))
    rows = stack_of(models).flat()
    for row, model in zip(rows, models, strict=True):
        assert torch.equal(row, torch.cat([p.detach().flatten() for p in model.parameters()]))


def test_tied_and_frozen_parameters_stay_so() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Linear(4, 4))
    model[2].weight = model[1].weight
    model[2].bias.requires_grad_(False)
    stack = Stack(model, 2)
    assert len(list(stack.parameters())) == 3
    assert [p.requires_grad for p in stack.parameters()] == [True, True, False]
    x = torch.rand(2, 3, 1, 2, 2)
    torch.testing.assert_close(stack(x)[1], model(x[1]))


def test_batch_norm_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match=r"running statistics.*-gn or -nonorm"):
        Stack(build("cnn-w4", classes=3, shape=(1, 8, 8)), 2)


def test_an_empty_stack_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        Stack(nn.Linear(2, 2), 0)
