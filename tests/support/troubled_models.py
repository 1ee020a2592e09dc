"""Models that do what models should not, named by import path in the tests of the command line."""

import torch
from torch import Tensor, nn


class _Digits(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 10))


def fine() -> nn.Module:
    return _Digits()


def fine_for(classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


class Tempered(_Digits):
    """Its argument shows neither in its layers nor in its weights."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = super().forward(x)
        return logits * self.temperature


class TupleNet(_Digits):
    """Returns its logits in company."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(x), x


class HungryNet(_Digits):
    """Has memory for the gradients of a few images only."""

    LIMIT = 9

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) > self.LIMIT:
            raise torch.OutOfMemoryError("out of memory, says the device")
        return super().forward(x)


class FailingNet(_Digits):
    """Returns NaN from the fifth training pass of a process on."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += self.training
        logits: Tensor = super().forward(x)
        return logits * torch.nan if self.passes > 4 else logits


class BrokenNet(_Digits):
    """Divides by the zero it takes from its own images."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = super().forward(x)
        return logits / (x - x).sum()
