"""How many operations a training step needs, and how fast the machine multiplies matrices."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from training_contenders import SHAPE, Problem, ours

MATRICES = (512, 1024, 2048)


def matrix_peak(dtype: torch.dtype, clock: Callable[[], float]) -> float:
    """Floating-point operations per second of the fastest product of two square matrices."""
    rates = []
    for size in MATRICES:
        a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
        for _ in range(4):
            began = clock()
            a @ b
            rates.append(2 * size**3 / (clock() - began))
    return float(max(rates))


class Operations(TorchDispatchMode):
    """Counts the operations of products and convolutions by torch's formulas.

    Torch's own ``FlopCounterMode`` also follows modules, by hooks that a gradient of the input alone does not allow.
    """

    total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if (formula := flop_registry.get(func._overloadpacket)) is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out


def step_flops(problem: Problem) -> int:
    """Operations of the products and convolutions in one of our steps."""
    small = replace(problem, batch=8)
    step = ours(small, "fp32")
    with Operations() as counted:
        step()
    return counted.total * problem.batch // small.batch


def padding_share(problem: Problem) -> float:
    """The part of the convolutions' counted operations whose factor is a zero of the padding."""
    counted = useful = 0.0

    def count(conv: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        nonlocal counted, useful
        assert isinstance(conv, nn.Conv2d)
        taps = F.conv2d(
            torch.ones(1, 1, *inputs[0].shape[2:]),
            torch.ones(1, 1, *conv.kernel_size),
            stride=conv.stride,
            padding=conv.padding,
        )
        work = conv.in_channels * conv.out_channels
        counted += work * taps.numel() * conv.weight[0, 0].numel()
        useful += work * float(taps.sum())

    model, _ = problem.network()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(count)
    with torch.no_grad():
        model.eval()(torch.zeros(1, *SHAPE))
    return 1 - useful / counted if counted else 0.0
