"""Threat models: the L2 and Linf balls Δ with their start, extreme point π_Δ (1) and projection P_Δ (2).

Images have shape (..., C, H, W) and every norm is taken over the last three axes, so a ball serves one image,
a batch, and a stack of batches alike. Radii and steps are in input units, e.g. ``8/255``.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from freeat.errors import InputError, unknown_name, wrong_type
from freeat.rng import Rng, reading_is_free
from freeat.units import parse_radius

Start = Literal["uniform", "radius", "gaussian", "zero"]
STARTS: tuple[str, ...] = get_args(Start)
Projection = Callable[[Tensor], Tensor]
DEFAULT_EPS = {"l2": 128 / 255, "linf": 8 / 255}
"""The radius of each norm where none is given: the paper's for CIFAR."""
PIXELS = (-3, -2, -1)
GAUSSIAN_START = 0.001


def l2_norm(v: Tensor, *, keepdim: bool = False) -> Tensor:
    """‖v‖₂ of each image."""
    norms: Tensor = torch.linalg.vector_norm(v, dim=PIXELS, keepdim=keepdim)
    return norms


class _Clamp(torch.autograd.Function):
    """``clamp`` with the same values and gradients, whose backward pass is one operation instead of four."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(v)
        ctx.bounds = low, high
        return v.clamp(low, high)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (v,) = ctx.saved_tensors
        low, high = ctx.bounds
        if v.dtype not in (torch.float32, torch.float64):
            return torch.where((v >= low) & (v <= high), grads[0], 0), None, None
        g = grads[0]
        if g.stride() != v.stride():
            g = torch.empty_like(v).copy_(
                g
            )  # sums over pixels follow the layout: it stays that of the images
        # The operation cuts at its bounds too: the next numbers outside make it keep them, as clamp does.
        number = np.float32 if v.dtype == torch.float32 else np.float64
        low, high = (
            float(np.nextafter(number(low), number(-np.inf))),
            float(np.nextafter(number(high), number(np.inf))),
        )
        return torch.ops.aten.hardtanh_backward(g, v, low, high), None, None


@dataclass(frozen=True, kw_only=True)
class Feasible:
    """The perturbations of given images that are allowed: in Δ, with x + δ in the box. Its bounds are computed once.

    As a function it is P_Δ followed by `Ball.confine`. ``project`` is P_Δ; None where the bounds have it in them.
    """

    project: Projection | None
    low: Tensor | None = None
    high: Tensor | None = None

    def confine(self, delta: Tensor) -> Tensor:
        """A δ of Δ shortened, pixel by pixel, until x + δ is in the box."""
        return delta if self.low is None else delta.clamp(self.low, self.high)

    def __call__(self, v: Tensor) -> Tensor:
        return self.confine(v if self.project is None else self.project(v))


@dataclass(frozen=True)
class Ball(ABC):
    """The set Δ of perturbations: a ball of radius ``eps``; images x + δ stay in ``box`` (None: anywhere)."""

    eps: float
    box: tuple[float, float] | None = (0.0, 1.0)
    norm: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", parse_radius(self.eps))

    @abstractmethod
    def size(self, v: Tensor) -> Tensor:
        """‖v‖ of each image, shape (..., 1, 1, 1)."""

    @abstractmethod
    def project(self, v: Tensor) -> Tensor:
        """P_Δ(v), equation (2): the point of Δ nearest to v."""

    @abstractmethod
    def _direction(self, g: Tensor, rng: Rng) -> Tensor:
        """π_Δ(g)/ε."""

    @abstractmethod
    def _uniform(self, x: Tensor, rng: Rng) -> Tensor: ...

    @abstractmethod
    def check(self, shape: tuple[int, int, int]) -> None:
        """Refuse a radius that cannot be meant for images of this shape."""

    def extreme(self, g: Tensor, rng: Rng) -> Tensor:
        """π_Δ(g), equation (1): the extreme point of Δ nearest to g.

        A random one where g has no direction: for g = 0, to which all are equally near, and for a g that
        overflowed.
        """
        return self.eps * self._direction(g, rng)

    def ascend(
        self, delta: Tensor, g: Tensor, alpha: float, rng: Rng, project: Projection | None = None
    ) -> Tensor:
        """P_Δ(δ + (α/ε) π_Δ(g)): a step of length α up the gradient g, and back to Δ, or by another ``project``."""
        return (project or self.project)(delta + alpha * self._direction(g, rng))

    def start(self, x: Tensor, how: Start, rng: Rng) -> Tensor:
        """Where an attack on x begins: ``uniform`` in Δ; ``radius``, a random direction with a uniform norm;
        ``gaussian``, 0.001·N(0, 1); or ``zero``."""
        match how:
            case "uniform":
                return self._uniform(x, rng)
            case "radius":
                z = rng.normal("start", x)
                return z * (self.eps * rng.uniform("start-radius", x, (1, 1, 1)) / self.size(z))
            case "gaussian":
                return self.project(GAUSSIAN_START * rng.normal("start", x))
            case "zero":
                return torch.zeros_like(x)
        raise unknown_name("start", how, STARTS)

    def apply(self, x: Tensor, delta: Tensor) -> Tensor:
        """What the network sees: x + δ, cut to the box."""
        if self.box is None:
            return x + delta
        cut: Tensor = _Clamp.apply(x + delta, *self.box)  # type: ignore[no-untyped-call]
        return cut

    def confine(self, x: Tensor, delta: Tensor) -> Tensor:
        """δ shortened, pixel by pixel, until x + δ is in the box; a δ in Δ stays in Δ."""
        return delta if self.box is None else delta.clamp(self.box[0] - x, self.box[1] - x)

    def feasible(self, x: Tensor) -> "Feasible":
        """The perturbations of x that are allowed."""
        if self.box is None:
            return Feasible(project=self.project)
        return Feasible(project=self.project, low=self.box[0] - x, high=self.box[1] - x)

    def scaled(self, factor: float) -> Self:
        """The ball of radius factor·ε."""
        return replace(self, eps=self.eps * factor)

    def _or_random(self, v: Tensor, largest: Tensor, rng: Rng) -> Tensor:
        """v, with a random direction for the images whose ``largest`` entry is zero or not finite."""
        points = (largest > 0) & largest.isfinite()
        # On the CPU the check is free and nearly always saves the draw; elsewhere it would wait for the device.
        if reading_is_free(v) and points.all():
            return v
        return torch.where(points, v, rng.common("direction", v))


@dataclass(frozen=True)
class L2(Ball):
    """The L2 ball {δ : ‖δ‖₂ ≤ ε} of perturbations of an image.

    Args:
        eps: The radius ε in input units, a number or text such as ``"128/255"``.
        box: The range of pixels in which x + δ stays; None leaves x + δ unclamped, as the theorems assume.

    Raises:
        InputError: The radius is negative or not finite.

    Example:
        >>> import torch, freeat
        >>> ball = freeat.L2(0.5)
        >>> ball.project(torch.full((1, 2, 2), 3.0)).norm().item()
        0.5
    """

    norm: ClassVar[str] = "l2"

    def size(self, v: Tensor) -> Tensor:
        return l2_norm(v, keepdim=True)

    def project(self, v: Tensor) -> Tensor:
        size = self.size(v)
        return torch.where(size > self.eps, v * (self.eps / size), v)

    def _direction(self, g: Tensor, rng: Rng) -> Tensor:
        # Scaled first: squares of the tiny gradients of a confident net would underflow to "no gradient".
        largest = g.abs().amax(PIXELS, keepdim=True)
        v = self._or_random(g / largest, largest, rng)
        return v / self.size(v)

    def _uniform(self, x: Tensor, rng: Rng) -> Tensor:
        z = rng.normal("start", x)
        d = math.prod(x.shape[-3:])
        radius = self.eps * rng.uniform("start-radius", x, (1, 1, 1)) ** (1 / d)
        return self.project(z * (radius / self.size(z)))

    def check(self, shape: tuple[int, int, int]) -> None:
        diameter = math.sqrt(math.prod(shape))
        if self.eps > diameter:
            raise InputError(
                f"L2 radius {self.eps:g} exceeds {diameter:.4g}, the diagonal of the box of {shape} images: "
                f"radii are in input units with pixels in [0, 1], e.g. 128/255"
            )


@dataclass(frozen=True)
class Linf(Ball):
    """The L∞ ball {δ : −ε ≤ δ_i ≤ ε for every pixel i} of perturbations of an image.

    Args:
        eps: The radius ε in input units, a number or text such as ``"8/255"``, at most 1.
        box: The range of pixels in which x + δ stays; None leaves x + δ unclamped.

    Raises:
        InputError: The radius is negative, not finite or larger than 1.

    Example:
        >>> import torch, freeat
        >>> ball = freeat.Linf("1/4")
        >>> ball.project(torch.tensor([[[-2.0, 0.125]]]))
        tensor([[[-0.2500,  0.1250]]])
    """

    norm: ClassVar[str] = "linf"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.eps > 1:
            raise InputError(
                f"Linf radius {self.eps:g} is larger than 1, the range of a pixel: "
                f"radii are in input units, so write {self.eps:g}/255 if you mean grey levels"
            )

    def size(self, v: Tensor) -> Tensor:
        return v.abs().amax(PIXELS, keepdim=True)

    def project(self, v: Tensor) -> Tensor:
        return v.clamp(-self.eps, self.eps)

    def ascend(
        self, delta: Tensor, g: Tensor, alpha: float, rng: Rng, project: Projection | None = None
    ) -> Tensor:
        # α·(±1) is exact, so that one pass rounds as two would.
        moved = torch.add(delta, self._direction(g, rng), alpha=alpha)
        return (project or self.project)(moved)

    def feasible(self, x: Tensor) -> "Feasible":
        if self.box is None:
            return super().feasible(x)
        # Both intervals hold 0: one clamp to their intersection is the one after the other.
        low, high = (self.box[0] - x).clamp_(min=-self.eps), (self.box[1] - x).clamp_(max=self.eps)
        return Feasible(project=None, low=low, high=high)

    def _direction(self, g: Tensor, rng: Rng) -> Tensor:
        if reading_is_free(g):
            total = g.sum(
                PIXELS
            )  # half the work of the largest; neither zero nor not finite: the gradient points
            if ((total != 0) & total.isfinite()).all():
                return g.sign()
        return self._or_random(g, self.size(g), rng).sign()

    def _uniform(self, x: Tensor, rng: Rng) -> Tensor:
        return (2 * rng.uniform("start", x)).sub_(1).mul_(self.eps).clamp_(-self.eps, self.eps)

    def check(self, shape: tuple[int, int, int]) -> None:
        """Accept every shape: construction checked the radius, and a pixel's range does not depend on the shape."""


NORMS: dict[str, type[Ball]] = {"l2": L2, "linf": Linf}


def make_ball(norm: str, eps: str | float, box: tuple[float, float] | None = (0.0, 1.0)) -> Ball:
    """The ball of a norm given by name.

    Args:
        norm: ``l2`` or ``linf``, in any case.
        eps: The radius in input units, a number or text such as ``8/255``.
        box: The range of pixels in which x + δ stays; None leaves x + δ unclamped.

    Returns:
        An `L2` or `Linf` ball.

    Raises:
        InputError: The norm is unknown, or the radius is not one of this norm.

    Example:
        >>> import freeat
        >>> freeat.make_ball("L2", "1/2")
        L2(eps=0.5, box=(0.0, 1.0))
    """
    if norm.lower() not in NORMS:
        raise unknown_name("norm", norm, NORMS)
    return NORMS[norm.lower()](parse_radius(eps), box)


def dual_norm(w: Tensor, ball: Ball) -> Tensor:
    """‖w‖_q of vectors (..., d): how far a δ of length 1 can lower ⟨w, x⟩; q = 2 for L2 and 1 for Linf."""
    return w.norm(dim=-1) if isinstance(ball, L2) else w.abs().sum(-1)


def check_ball(ball: object) -> None:
    """Refuse what is not a ball, such as a bare radius."""
    if not isinstance(ball, Ball):
        remedy = "pass a ball with its radius, such as freeat.Linf(8/255) or freeat.L2(0.5)"
        raise wrong_type("ball", ball, remedy)
