"""Small nets and batches that the tests of the heart share; all are functions of a seed."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from freeat.data import load_data
from freeat.models import build
from freeat.threat import L2, Ball, Linf

SHAPE = (2, 5, 4)
CLASSES = 3
BALLS: dict[str, Ball] = {"l2": L2(0.7), "linf": Linf(0.12)}


def random(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers, drawn on the CPU."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def images(
    seed: int, b: int, *, stack: Sequence[int] = (), dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Images in [0, 1], some pixels at its ends, and labels that a net can learn: the brightest corner."""
    x = (0.5 + 0.4 * random(seed, *stack, b, *SHAPE, dtype=dtype)).clamp(0, 1)
    return x, x[..., 0, 0, :CLASSES].argmax(-1)


def seeded(net: nn.Module, seed: int) -> nn.Module:
    """The net with weights drawn from ``seed``, larger than usual so that its gradients are not tiny."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                scale = 2.5 / layer.weight[0].numel() ** 0.5
                layer.weight.copy_(scale * torch.randn(layer.weight.shape, generator=g, dtype=torch.float64))
                assert layer.bias is not None
                layer.bias.copy_(0.1 * torch.randn(layer.bias.shape, generator=g, dtype=torch.float64))
    return net


def smooth_net(seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    """A convolution, softplus, a linear layer: no batch norm, gradients everywhere."""
    c, h, w = SHAPE
    net = nn.Sequential(
        nn.Conv2d(c, 4, 3, padding=1), nn.Softplus(), nn.Flatten(), nn.Linear(4 * h * w, CLASSES)
    )
    return seeded(net, seed).to(dtype)


def batch_norm_net(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Two batch norms and a dropout that never drops: every kind of layer whose mode matters."""
    c, h, w = SHAPE
    net = nn.Sequential(
        nn.Conv2d(c, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.0),
        nn.Linear(4 * h * w, CLASSES),
    )
    return seeded(net, seed).to(dtype)


def weights(net: nn.Module) -> list[Tensor]:
    """A copy of everything that training changes."""
    return [t.detach().clone() for t in net.state_dict().values()]


def same_bits(one: list[Tensor], two: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def digits_classifier() -> nn.Module:
    """A linear classifier of the digits by one least-squares fit."""
    data = load_data("digits")
    net = build("linear", classes=10, shape=data.shape)
    x, y = data.train.batch(torch.arange(len(data.train)))
    flat = torch.cat([x.flatten(1), torch.ones(len(x), 1)], 1)
    solved = torch.linalg.lstsq(flat, 10 * nn.functional.one_hot(y).float(), driver="gelsd").solution
    head = next(module for module in net.modules() if isinstance(module, nn.Linear))
    with torch.no_grad():
        head.weight.copy_(solved[:-1].T)
        head.bias.copy_(solved[-1])
    return net.eval()
