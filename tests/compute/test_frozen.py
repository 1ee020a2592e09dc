"""Fusion changes what an attack costs, not the function it attacks."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from freeat import models
from freeat.compute.frozen import frozen, frozen_eval, fused

NETWORKS = ["resnet18-w8", "resnet50-w4", "preact-resnet18-w8", "wrn10-1", "vgg19-w8", "cnn-w8"]


def network(name: str, device: torch.device) -> nn.Module:
    """A network in float64 whose batch norms have something to fuse: statistics and weights of their own."""
    return with_statistics(models.build(name, classes=4, shape=(3, 16, 16), seed=1).double()).to(device)


def with_statistics(net: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(2)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.running_mean, module.running_var, module.weight, module.bias):
                assert tensor is not None
                tensor.data.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return net


def images(device: torch.device) -> Tensor:
    x = torch.rand(3, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return x.to(device).requires_grad_()


def answer(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    logits = net(x)
    return logits.detach(), torch.autograd.grad(logits.square().sum(), x)[0]


def count_batch_norms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    original = functional.batch_norm
    monkeypatch.setattr(functional, "batch_norm", lambda *a, **k: calls.append(1) or original(*a, **k))
    return calls


@pytest.mark.parametrize("name", NETWORKS)
def test_fusion_keeps_the_function_and_its_gradient(name: str, device: torch.device) -> None:
    net, x = network(name, device), images(device)
    with frozen(net, "eval"):
        plain = answer(net, x)
    with frozen_eval(net):
        quick = answer(net, x)
    for before, now in zip(plain, quick, strict=True):
        torch.testing.assert_close(now, before, rtol=1e-9, atol=1e-9 * float(before.abs().max()))


def test_batch_norms_that_share_statistics_in_training_are_fused(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = nn.SyncBatchNorm.convert_sync_batchnorm(network("resnet18-w8", device)).eval()
    x = images(device)
    with frozen(net, "eval"):
        plain = answer(net, x)
    with frozen_eval(net):
        calls = count_batch_norms(monkeypatch)
        quick = answer(net, x)
    assert not calls
    for before, now in zip(plain, quick, strict=True):
        torch.testing.assert_close(now, before, rtol=1e-9, atol=1e-9 * float(before.abs().max()))


@pytest.mark.parametrize(
    ("name", "left"), [("resnet18-w8", 0), ("resnet50-w4", 0), ("vgg19-w8", 0), ("cnn-w8", 0), ("wrn10-1", 4)]
)
def test_fused_batch_norms_are_not_computed(
    name: str, left: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but those before a convolution, as pre-activation networks have them."""
    net, x = network(name, device), images(device)
    calls = count_batch_norms(monkeypatch)
    with frozen_eval(net):
        net(x)
    assert len(calls) == left


class Foreign(nn.Module):
    """A network as others write them, which also remembers what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.norm2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 4)
        self.seen: list[object] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        x = torch.relu(self.norm1(self.conv1(x)))
        return self.head(self.body(x).mean((-2, -1)))

    def body(self, x: Tensor) -> Tensor:
        return self.norm2(self.conv2(x))


class ReadsFeatures(Foreign):
    """The output of a convolution is used by two."""

    def body(self, x: Tensor) -> Tensor:
        inner = self.conv2(x)
        return self.norm2(inner) + inner


class Shared(Foreign):
    """One convolution, two batch norms: with the weights of one, it could not serve the other."""

    def body(self, x: Tensor) -> Tensor:
        return self.norm1(self.conv2(self.norm2(self.conv2(x))))


class Read(Foreign):
    """A weight is read by hand."""

    def body(self, x: Tensor) -> Tensor:
        return self.norm2(self.conv2(x)) * self.conv2.weight.sum()


class Branching(Foreign):
    """What happens depends on the values, so the forward cannot be followed."""

    def body(self, x: Tensor) -> Tensor:
        inner = self.conv2(x)
        return self.norm2(inner) if bool(inner.isfinite().all()) else inner


@pytest.mark.parametrize(
    ("kind", "left"),
    [(Foreign, 0), (ReadsFeatures, 1), (Shared, 3), (Read, 1), (Branching, 2)],
)
def test_any_model_is_fused_where_its_forward_allows(
    kind: type[Foreign], left: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    net, x = with_statistics(kind().double()).to(device), images(device)
    outputs: list[object] = []
    net.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    with frozen(net, "eval"):
        plain = answer(net, x)
    calls = count_batch_norms(monkeypatch)
    with frozen_eval(net):
        quick = answer(net, x)
    assert len(calls) == left
    for before, now in zip(plain, quick, strict=True):
        torch.testing.assert_close(now, before, rtol=1e-9, atol=1e-9 * float(before.abs().max()))
    assert all(type(one) is Tensor for one in [*net.seen, *outputs])
    assert len(net.seen) == len(outputs) == 2


def test_hooks_of_a_block_never_see_a_symbol(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    block = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    net, x = with_statistics(nn.Sequential(block, nn.ReLU()).double()).to(device), images(device)
    seen: list[object] = []
    block.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    block.register_forward_hook(lambda module, inputs, output: seen.append(output))
    calls = count_batch_norms(monkeypatch)
    with frozen_eval(net):
        net(x)
    assert calls == []
    assert [type(one) for one in seen] == [Tensor, Tensor]


class ModeDependent(Foreign):
    """In training the convolution's output is normalized, in evaluation it is used twice."""

    def body(self, x: Tensor) -> Tensor:
        inner = self.conv2(x)
        return self.norm2(inner) if self.norm2.training else self.norm2(inner) + inner


def test_another_mode_is_traced_again(device: torch.device) -> None:
    net, x = with_statistics(ModeDependent().double()).to(device), images(device)
    with frozen(net, "train"), fused(net):
        pass
    with frozen(net, "eval"):
        plain = net(x)
    with frozen_eval(net):
        torch.testing.assert_close(net(x), plain)


def test_a_changed_model_is_traced_again(device: torch.device) -> None:
    net = with_statistics(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).double()).to(device)
    x = images(device)
    with frozen_eval(net):
        net(x)
    net.insert(1, nn.Tanh())
    with frozen(net, "eval"):
        plain = net(x)
    with frozen_eval(net):
        torch.testing.assert_close(net(x), plain)


def test_the_model_is_restored_after_an_error(device: torch.device) -> None:
    net, x = network("resnet18-w8", device), images(device)
    parameters = list(net.named_parameters())
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with pytest.raises(RuntimeError, match="channels"), frozen_eval(net):
        net(x[:, :1])
    assert all(a is b for (_, a), (_, b) in zip(parameters, net.named_parameters(), strict=True))
    assert all(torch.equal(state[name], tensor) for name, tensor in net.state_dict().items())
    assert all(module.training for module in net.modules())
    assert all(p.requires_grad for p in net.parameters())
    assert not any("forward" in module.__dict__ for module in net.modules())


def test_nested_frozen_eval_changes_nothing(device: torch.device) -> None:
    net, x = network("cnn-w8", device), images(device)
    with frozen_eval(net):
        once = net(x)
        with frozen_eval(net):
            twice = net(x)
        assert torch.equal(net(x), once)
    assert torch.equal(once, twice)


def test_nothing_is_fused_that_trains_or_has_a_hook(device: torch.device) -> None:
    net, x = network("cnn-w8", device), images(device)
    seen: list[Tensor] = []
    with frozen(net, "train"), fused(net):
        assert not any("forward" in module.__dict__ for module in net.modules())
    handle = net.get_submodule("norm1").register_forward_hook(lambda m, i, out: seen.append(out))
    with frozen(net, "eval"):
        net(x)
    with frozen_eval(net):
        net(x)
    handle.remove()
    plain, frozen_out = seen
    assert torch.equal(plain, frozen_out)


def test_a_batch_norm_without_statistics_is_not_fused(device: torch.device) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)).double().to(device)
    x = images(device)
    with frozen(net, "eval"):
        plain = net(x)
    with frozen_eval(net):
        assert torch.equal(net(x), plain)
