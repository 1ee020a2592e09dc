"""L, L_w, β and ψ of Assumptions 1 and 2 and Theorem 4, estimated at points (w, δ; x, y) that training visits.

A maximum over points is a *lower* estimate of a supremum, and a minimum over points an *upper* estimate of an
infimum: bounds computed with these numbers describe the points seen and certify nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from freeat.attacks.pgd import last_iterate
from freeat.compute.frozen import frozen
from freeat.data import Images
from freeat.objectives import Objective
from freeat.rng import ImageRng, generator, stream_key
from freeat.threat import Ball

Point = tuple[dict[str, Tensor], Tensor]  # (w, δ)
POINT_BATCH = 32
CAVEAT = "a maximum over samples is a lower estimate of the supremum, so these constants certify nothing"


@dataclass(frozen=True, kw_only=True)
class Constants:
    """What ``points`` points showed; ``beta`` is None, with the reason, where it is not defined.

    ``psi`` is 1 over the smallest ‖∇_δ h‖ seen, None where that is 0.
    """

    L: float
    L_w: float
    beta: float | None
    smallest_gradient: float
    points: int
    gradients: int
    no_beta: str | None = None
    psi: float | None = field(init=False, default=None)
    caveat: str = CAVEAT

    def __post_init__(self) -> None:
        if self.smallest_gradient > 0:
            object.__setattr__(self, "psi", 1 / self.smallest_gradient)

    @property
    def finite(self) -> bool:
        """Whether every number is; those of runs about to diverge may not be."""
        return all(math.isfinite(c) for c in (self.L, self.L_w, self.beta or 0.0, self.smallest_gradient))

    def merged(self, other: "Constants") -> "Constants":
        """The constants over the points of both."""
        betas = [c.beta for c in (self, other) if c.beta is not None]
        return Constants(
            L=max(self.L, other.L),
            L_w=max(self.L_w, other.L_w),
            beta=max(betas) if betas else None,
            smallest_gradient=min(self.smallest_gradient, other.smallest_gradient),
            points=self.points + other.points,
            gradients=self.gradients + other.gradients,
            no_beta=self.no_beta or other.no_beta,
        )

    def with_gradients(self, smallest: float, count: int) -> "Constants":
        """The same with the smallest ‖∇_δ h‖ of ``count`` more points, those that training itself visited."""
        least = min(self.smallest_gradient, smallest)
        return replace(self, smallest_gradient=least, gradients=self.gradients + count)


def estimate_constants(
    model: nn.Module, objective: Objective, x: Tensor, y: Tensor, delta: Tensor, *, iterations: int = 12
) -> Constants:
    """The constants at the points (w, δ_j; x_j, y_j) with the model's w: largest gradients and curvature.

    ``iterations`` of the power method on the Hessian of h in (w, δ) jointly, for each point.
    """
    found: Constants | None = None
    with frozen(model, "eval"):  # a batch norm in training mode is no function of one example
        why = why_no_beta(model, x[:1])
        for rows in torch.arange(len(x)).split(POINT_BATCH):  # type: ignore[no-untyped-call]
            part = _at_points(model, objective, x[rows], y[rows], delta[rows], 0 if why else iterations)
            part = replace(part, no_beta=why, beta=None if why else part.beta)
            found = part if found is None else found.merged(part)
    assert found is not None
    return found


def constants_under_attack(
    model: nn.Module,
    objective: Objective,
    images: Images,
    ball: Ball | None,
    seed: int,
    *,
    steps: int,
    starts: bool = False,
) -> Constants:
    """The constants where an attack ends, with ``starts`` also where it begins; without a ball, at the images."""
    x, y = images.batch(torch.arange(len(images)))
    if ball is None:
        return estimate_constants(model, objective, x, y, torch.zeros_like(x))
    rng = ImageRng(seed, images.index.tolist())
    with frozen(model, "eval"):
        attack = objective.attack(model, x, y)
        delta = last_iterate(attack, x, ball, rng, steps=steps, alpha=ball.eps / 4)
    if starts:
        x, y, delta = x.repeat(2, 1, 1, 1), y.repeat(2), torch.cat([ball.start(x, "uniform", rng), delta])
    return estimate_constants(model, objective, x, y, delta)


def _at_points(
    model: nn.Module, objective: Objective, x: Tensor, y: Tensor, delta: Tensor, iterations: int
) -> Constants:
    w = {name: p.detach() for name, p in model.named_parameters()}

    def h(w: dict[str, Tensor], delta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        values = objective.loss(
            lambda images: functional_call(model, w, (images,)), x[None], y[None], (x + delta)[None]
        )
        return values[0]

    gradient = grad(h, argnums=(0, 1))
    g_w, g_delta = vmap(gradient, in_dims=(None, 0, 0, 0))(w, delta.detach(), x, y)
    of_w, of_delta = _sizes(g_w), g_delta.flatten(1).norm(dim=1)
    curvature = _largest_curvature(gradient, w, delta.detach(), x, y, iterations)
    return Constants(
        L=float(torch.hypot(of_w, of_delta).max()),
        L_w=float(of_w.max()),
        beta=curvature,
        smallest_gradient=float(of_delta.min()),
        points=len(x),
        gradients=len(x),
    )


def _largest_curvature(
    gradient: Callable[..., Point],
    w: dict[str, Tensor],
    delta: Tensor,
    x: Tensor,
    y: Tensor,
    iterations: int,
) -> float:
    """The largest ‖H v‖/‖v‖ met in power iterations on each point's Hessian in (w, δ): at most ‖H‖."""

    def times(
        v_w: dict[str, Tensor], v_delta: Tensor, w: dict[str, Tensor], delta: Tensor, x: Tensor, y: Tensor
    ) -> Point:
        def along(w: dict[str, Tensor], delta: Tensor) -> Tensor:
            g_w, g_delta = gradient(w, delta, x, y)
            return (g_delta * v_delta).sum() + sum(
                ((g_w[k] * v_w[k]).sum() for k in g_w), delta.new_zeros(())
            )

        product: Point = grad(along, argnums=(0, 1))(w, delta)
        return product

    products = vmap(times, in_dims=(0, 0, None, 0, 0, 0))
    v = _directions(w, delta)
    largest = torch.zeros(len(x), device=x.device, dtype=x.dtype)
    for _ in range(iterations):
        v_w, v_delta = products(*v, w, delta, x, y)
        size = torch.hypot(_sizes(v_w), v_delta.flatten(1).norm(dim=1))
        largest = torch.maximum(largest, size)
        safe = torch.where(size > 0, size, torch.ones_like(size))
        v = ({k: _scaled(t, 1 / safe) for k, t in v_w.items()}, _scaled(v_delta, 1 / safe))
    return float(largest.max())


def _directions(w: dict[str, Tensor], delta: Tensor) -> Point:
    """A random unit vector for each point, the same in every call."""
    g = generator(delta.device, stream_key(0, "power iteration"))

    def normal(shape: torch.Size) -> Tensor:
        return torch.randn((len(delta), *shape), generator=g, device=delta.device, dtype=delta.dtype)

    v_w, v_delta = {k: normal(p.shape) for k, p in w.items()}, normal(delta.shape[1:])
    size = torch.hypot(_sizes(v_w), v_delta.flatten(1).norm(dim=1))
    return {k: _scaled(t, 1 / size) for k, t in v_w.items()}, _scaled(v_delta, 1 / size)


def _sizes(v: dict[str, Tensor]) -> Tensor:
    """‖v_j‖ over all parameters, for each point j."""
    sizes: Tensor = torch.stack([t.flatten(1).norm(dim=1) for t in v.values()]).norm(dim=0)
    return sizes


def _scaled(t: Tensor, factors: Tensor) -> Tensor:
    return t * factors.view(-1, *(1 for _ in t.shape[1:]))


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


class _Kinks(TorchDispatchMode):  # type: ignore[no-untyped-call]
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
    with _Kinks() as noted:
        model(x)
    return sorted(set(noted.seen))


def why_no_beta(model: nn.Module, x: Tensor) -> str | None:
    """Why the model has no β, where it has none: near a kink the curvature is not bounded."""
    found = kinks(model, x)
    if not found:
        return None
    return (
        f"β is not defined: the model executes {', '.join(found)}, whose gradient jumps; "
        "use a smooth variant (suffix -softplus or -silu), or give β yourself"
    )
