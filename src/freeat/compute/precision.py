"""Arithmetic of the forward and backward pass: fp32, bf16 or fp16, with losses always in fp32."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from freeat.errors import unknown_name

PRECISIONS = ("fp32", "bf16", "fp16", "auto")


def resolve_precision(name: str, device: torch.device) -> str:
    """``auto`` made definite: bf16 where the hardware computes in it, else fp32."""
    if name not in PRECISIONS:
        raise unknown_name("precision", name, PRECISIONS)
    if name != "auto":
        return name
    match device.type:
        case "cuda":
            return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
        case "cpu":
            native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
            return "bf16" if native else "fp32"
    return "fp32"


@contextmanager
def true_fp32() -> Iterator[None]:
    """True fp32: neither TF32, the default of cuDNN's convolutions, nor bf16 inside products."""
    backends: Any = torch.backends  # without type stubs
    kinds = [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn]
    kinds += [backends.mkldnn.matmul, backends.mkldnn.conv, backends.mkldnn.rnn]
    before = [kind.fp32_precision for kind in kinds]
    try:
        for kind in kinds:
            kind.fp32_precision = "ieee"
        yield
    finally:
        for kind, precision in zip(kinds, before, strict=True):
            kind.fp32_precision = precision


class _ScaleGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by a number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * ctx.scale, None


class Precision:
    """How a network is run and its gradients are applied in a given arithmetic.

    In fp16 the gradient is enlarged where it enters the network and shrunk where it leaves at the images, so
    that losses and δ's gradients are unscaled everywhere and only the weights' gradients carry the factor, which
    ``apply`` removes.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        self.name = resolve_precision(name, device)
        self.device = device
        self.dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[self.name]
        self.scaler: torch.amp.GradScaler | None = None
        if self.name == "fp16":
            self.scaler = torch.amp.GradScaler(device.type, init_scale=2.0**12)
            self._one = torch.ones((), device=device)
            self.scaler.scale(self._one)  # initializes its lazy state

    def run(self, model: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """The model's output in fp32 (or wider, if the model is), computed in this arithmetic."""
        if self.dtype is None:
            return self._widened(model(x))
        with torch.autocast(self.device.type, dtype=self.dtype):
            if self.scaler is None:
                return self._widened(model(x))
            scale = self.scaler.scale(self._one)  # a tensor: the number would have to be waited for
            x = _ScaleGradient.apply(x, 1 / scale)  # type: ignore[no-untyped-call]
            logits = self._widened(model(x))
            enlarged: Tensor = _ScaleGradient.apply(logits, scale)  # type: ignore[no-untyped-call]
            return enlarged

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Remove fp16's factor from the gradients of the weights, for what adds to them or bounds them."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)

    def apply(self, optimizer: torch.optim.Optimizer) -> None:
        """One optimizer step from the current gradients; fp16 skips a step whose gradients overflowed."""
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()

    def state_dict(self) -> dict[str, Any]:
        return {} if self.scaler is None else self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.scaler is not None:
            self.scaler.load_state_dict(state)

    @staticmethod
    def _widened(output: Tensor) -> Tensor:
        return (
            output.float()
            if torch.is_tensor(output) and output.dtype in (torch.bfloat16, torch.float16)
            else output
        )
