"""Plain training loops in NCHW fp32, as tutorials write them: the reference of ``benchmarks/training.py``.

They make the same passes as the algorithms of the library, no more and no fewer. An attack calls
``loss.backward()`` and leaves the gradients of the weights unused, as most public code does.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

EPS = 8 / 255
Step = Callable[[nn.Module, Optimizer, Tensor, Tensor], None]


def seen(x: Tensor, delta: Tensor) -> Tensor:
    return (x + delta).clamp(0, 1)


def cropped(x: Tensor) -> Tensor:
    """A batch with a random crop of its zero-padded images, and half of them mirrored."""
    padded = F.pad(x, (4, 4, 4, 4))
    top, left = torch.randint(9, (2, len(x)))
    windows = padded.unfold(2, x.shape[2], 1).unfold(3, x.shape[3], 1)
    x = windows[torch.arange(len(x)), :, top, left]
    return torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)


def uniform_start(x: Tensor) -> Tensor:
    return torch.empty_like(x).uniform_(-EPS, EPS)


def ascended(delta: Tensor, step: float) -> Tensor:
    """A step up the gradient that lies on δ, and back to the ball."""
    assert delta.grad is not None
    return (delta.detach() + step * delta.grad.sign()).clamp(-EPS, EPS)


def moved(x: Tensor, delta: Tensor, step: float) -> Tensor:
    """The same, and back to the box."""
    return seen(x, ascended(delta, step)) - x


def attacked(
    model: nn.Module, x: Tensor, delta: Tensor, loss: Callable[[Tensor], Tensor], *, steps: int, step: float
) -> Tensor:
    """PGD in evaluation mode; ``loss`` maps logits to a number."""
    model.eval()
    for _ in range(steps):
        delta.requires_grad_()
        loss(model(seen(x, delta))).backward()
        delta = moved(x, delta, step)
    model.train()
    return delta


def descend(optimizer: Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def erm(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    descend(optimizer, F.cross_entropy(model(x), y))


def vanilla(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    delta = attacked(
        model, x, uniform_start(x), lambda logits: F.cross_entropy(logits, y), steps=10, step=EPS / 4
    )
    descend(optimizer, F.cross_entropy(model(x + delta), y))


def fast(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    delta = attacked(
        model, x, uniform_start(x), lambda logits: F.cross_entropy(logits, y), steps=1, step=7 / 255
    )
    descend(optimizer, F.cross_entropy(model(x + delta), y))


def free(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    delta = uniform_start(x)
    for _ in range(4):
        delta.requires_grad_()
        descend(optimizer, F.cross_entropy(model(seen(x, delta)), y))
        delta = ascended(delta, EPS)


def friendly(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    delta, tau = uniform_start(x), torch.full_like(y, 3)
    model.eval()
    for _ in range(10):
        delta.requires_grad_()
        logits = model(seen(x, delta))
        F.cross_entropy(logits, y).backward()
        wrong = logits.argmax(1) != y
        going = ~wrong | (tau > 0)
        tau = tau - wrong.long()
        delta = torch.where(going[:, None, None, None], moved(x, delta, EPS / 4), delta.detach())
    model.train()
    descend(optimizer, F.cross_entropy(model(x + delta), y))


def trades_loss(model: nn.Module, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor:
    clean = model(x)
    kl = F.kl_div(model(x_adv).log_softmax(1), clean.softmax(1), reduction="batchmean")
    return F.cross_entropy(clean, y) + 6 * kl


def trades(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    model.eval()
    with torch.no_grad():
        clean = model(x).softmax(1)

    def kl(logits: Tensor) -> Tensor:
        return F.kl_div(logits.log_softmax(1), clean, reduction="sum")

    delta = attacked(model, x, 0.001 * torch.randn_like(x), kl, steps=10, step=EPS / 4)
    descend(optimizer, trades_loss(model, x, y, x + delta))


def free_trades(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    delta = uniform_start(x)
    for _ in range(4):
        delta.requires_grad_()
        descend(optimizer, trades_loss(model, x, y, seen(x, delta)))
        delta = ascended(delta, EPS)


PLAIN: dict[str, Step] = {
    "free-4": free,
    "vanilla-10": vanilla,
    "fast": fast,
    "trades-10": trades,
    "free-trades-4": free_trades,
    "friendly": friendly,
    "erm": erm,
}
"""The loops by the names of the algorithms."""
