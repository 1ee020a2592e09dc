"""A small robust net for 32×32 digits, trained once in a few seconds, for the tests of attacks and evaluation."""

import pytest
import torch
from torch import Tensor, nn

from freeat import Free
from freeat.data import Images, load_data
from freeat.learner import Learner
from freeat.threat import Linf

IMAGES = 200


def enlarged(images: Images) -> Images:
    """8×8 digits as 32×32: large enough for windows of many sizes."""
    x = images.x.float() / (255 if images.x.dtype == torch.uint8 else 1)
    return Images(x=nn.functional.interpolate(x, scale_factor=4).clamp(0, 1), y=images.y, index=images.index)


@pytest.fixture(scope="session")
def robust_net() -> nn.Module:
    torch.set_num_threads(1)
    data = enlarged(load_data("digits").train)
    net = nn.Sequential(
        nn.Conv2d(1, 12, 5, stride=4, padding=2),
        nn.ReLU(),
        nn.Conv2d(12, 24, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(24 * 16, 10),
    )
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            fan = parameter[0].numel()
            parameter.copy_((2 / max(fan, 1)) ** 0.5 * torch.randn(parameter.shape, generator=g) * (fan > 1))
    learner = Learner(net, torch.optim.Adam(net.parameters(), lr=3e-3))
    free = Free(ball=Linf(0.1), m=4)
    for _ in range(60):
        rows = torch.randperm(len(data), generator=g)[:128]
        free.step(learner, *data.batch(rows))
    return net.eval().requires_grad_(False)


@pytest.fixture(scope="session")
def eval_images() -> Images:
    return enlarged(load_data("digits").test).take(torch.arange(IMAGES))


@pytest.fixture(scope="session")
def batch(eval_images: Images) -> tuple[Tensor, Tensor]:
    return eval_images.batch(torch.arange(IMAGES))
