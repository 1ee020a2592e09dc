"""Whether a model is smooth: Assumption 2 asks for a gradient that is Lipschitz, which kinks do not have."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

KINKED = (
    "relu",
    "leaky_relu",
    "prelu",
    "rrelu",
    "hardtanh",
    "hardsigmoid",
    "hardswish",
    "hardshrink",
    "softshrink",
    "threshold",
    "max_pool",
    "fractional_max_pool",
    "adaptive_max_pool",
    "abs",
    "amax",
    "amin",
    "maximum",
    "minimum",
    "clamp",
    "sign",
    "round",
)
"""Operations with a kink or a jump, by the beginning of their names; what a smooth net computes is none of them."""


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the kinked operations that are executed inside it, also those called as plain functions."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__.rstrip("_")
        if any(name == kink or name.startswith((f"{kink}_", f"{kink}2d")) for kink in KINKED):
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def kinks(model: nn.Module, x: Tensor) -> list[str]:
    """The operations without a Lipschitz gradient that the model's forward pass on x executes, each once."""
    with _Watch() as watch:
        model(x)
    return sorted(set(watch.seen))


def why_no_beta(model: nn.Module, x: Tensor) -> str | None:
    """Why the model has no β, where it has none: near a kink the curvature is not bounded."""
    found = kinks(model, x)
    if not found:
        return None
    return (
        f"β is not defined: the model executes {', '.join(found)}, whose gradient jumps; "
        "use a smooth variant (suffix -softplus or -silu), or give β yourself"
    )
