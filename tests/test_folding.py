"""Folding changes what an attack costs, not the function it attacks."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from freeat import models
from freeat.folding import folded
from freeat.freezing import frozen, lent

NETWORKS = ["resnet18-w8", "resnet50-w4", "preact-resnet18-w8", "wrn10-1", "vgg19-w8", "cnn-w8"]


def network(name: str, device: torch.device) -> nn.Module:
    """A network in float64 whose batch norms have something to fold: statistics and weights of their own."""
    net = models.build(name, classes=4, shape=(3, 16, 16), seed=1).double()
    generator = torch.Generator().manual_seed(2)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.running_mean, module.running_var, module.weight, module.bias):
                assert tensor is not None
                tensor.data.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return net.to(device)


def images(device: torch.device) -> Tensor:
    x = torch.rand(3, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return x.to(device).requires_grad_()


def answer(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    logits = net(x)
    return logits.detach(), torch.autograd.grad(logits.square().sum(), x)[0]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_function_and_its_gradient_stay(name: str, device: torch.device) -> None:
    net, x = network(name, device), images(device)
    with frozen(net, "eval"):
        plain = answer(net, x)
    with lent(net):
        quick = answer(net, x)
    for before, now in zip(plain, quick, strict=True):
        torch.testing.assert_close(now, before, rtol=1e-9, atol=1e-9 * float(before.abs().max()))


@pytest.mark.parametrize(
    ("name", "left"), [("resnet18-w8", 0), ("resnet50-w4", 0), ("vgg19-w8", 0), ("cnn-w8", 0), ("wrn10-1", 4)]
)
def test_the_batch_norms_are_gone(
    name: str, left: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but those before a convolution, as pre-activation networks have them."""
    net, x = network(name, device), images(device)
    calls = []
    original = functional.batch_norm
    monkeypatch.setattr(functional, "batch_norm", lambda *a, **k: calls.append(1) or original(*a, **k))
    with lent(net):
        net(x)
    assert len(calls) == left


def test_the_model_is_given_back_as_it_was(device: torch.device) -> None:
    net, x = network("resnet18-w8", device), images(device)
    parameters = list(net.named_parameters())
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with pytest.raises(RuntimeError, match="channels"), lent(net):
        net(x[:, :1])
    assert all(a is b for (_, a), (_, b) in zip(parameters, net.named_parameters(), strict=True))
    assert all(torch.equal(state[name], tensor) for name, tensor in net.state_dict().items())
    assert all(module.training for module in net.modules())
    assert all(p.requires_grad for p in net.parameters())
    assert not any("forward" in module.__dict__ for module in net.modules())


def test_lending_twice_is_lending_once(device: torch.device) -> None:
    net, x = network("cnn-w8", device), images(device)
    with lent(net):
        once = net(x)
        with lent(net):
            twice = net(x)
        assert torch.equal(net(x), once)
    assert torch.equal(once, twice)


def test_nothing_is_folded_that_trains_or_is_watched(device: torch.device) -> None:
    net, x = network("cnn-w8", device), images(device)
    seen: list[Tensor] = []
    with frozen(net, "train"), folded(net):
        assert not any("forward" in module.__dict__ for module in net.modules())
    handle = net.get_submodule("norm1").register_forward_hook(lambda m, i, out: seen.append(out))
    with frozen(net, "eval"):
        net(x)
    with lent(net):
        net(x)
    handle.remove()
    plain, lent_out = seen
    assert torch.equal(plain, lent_out)


def test_a_batch_norm_without_statistics_stays(device: torch.device) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)).double().to(device)
    x = images(device)
    with frozen(net, "eval"):
        plain = net(x)
    with lent(net):
        assert torch.equal(net(x), plain)
