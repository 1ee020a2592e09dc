"""What is added to training whatever the algorithm: averages, proximal term, weight perturbation, clipping."""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from freeat.errors import InputError


class WeightAverage:
    """An average of the weights along the training: exponential with decay β < 1, the plain mean with β = 1.

    It takes in the weights after the updates first + every, first + 2·every, …, and of the t taken in it is
    Σ_s β^{t−s} w_s / Σ_s β^{t−s}: the weights before have no part in it. Until then it is w after update ``first``.
    Running statistics are averaged with the same weights; counters are copied.

    Args:
        model: the model whose weights are averaged.
        decay: β in [0, 1].
        first: the weight updates before the average begins.
        every: the weight updates between two that are taken in.

    Raises:
        InputError: a value is out of range.
    """

    def __init__(self, model: nn.Module, decay: float, *, first: int = 0, every: int = 1) -> None:
        if not 0 <= decay <= 1:
            raise InputError(f"the decay {decay:g} of the weight average must lie in [0, 1]; 0.999 is usual")
        if first < 0 or every < 1:
            raise InputError(f"a weight average from update {first}, every {every}: use at least 0 and 1")
        self.decay, self.first, self.every = decay, first, every
        self.count = 0
        self.model = copy.deepcopy(model).requires_grad_(False).eval()

    def has_started(self, updates: int) -> bool:
        """Whether it follows the weights, after this many updates."""
        return updates >= self.first

    def follow(self, model: nn.Module, updates: int) -> None:
        """Note the weights after this many updates: take them into the average where they are due."""
        late = updates - self.first
        if late == 0:
            self._take(model, 1.0)
        elif late > 0 and late % self.every == 0:
            self.count += 1
            beta, t = self.decay, self.count
            self._take(model, 1 / t if beta == 1 else (1 - beta) / (1 - beta**t))

    @torch.no_grad()
    def _take(self, model: nn.Module, share: float) -> None:
        """w̄ ← w̄ + share·(w − w̄)."""
        own: list[Tensor] = [*self.model.parameters()]
        current: list[Tensor] = [*model.parameters()]
        for kept, buffer in zip(self.model.buffers(), model.buffers(), strict=True):
            if buffer.is_floating_point():
                own.append(kept)
                current.append(buffer)
            else:
                kept.copy_(buffer)
        torch._foreach_lerp_(own, current, share)


@dataclass(frozen=True, eq=False)
class ProximalTerm:
    """Moreau-envelope training: w descends h(w) + (ρ/2)‖w − u‖², and the slow weights u are an average of w.

    With ρ = 0 it is stochastic weight averaging (SWA).

    Args:
        slow: the slow weights u; the term begins when they do.
        rho: ρ, at least 0.
    """

    slow: WeightAverage
    rho: float

    def __post_init__(self) -> None:
        if not self.rho >= 0:
            raise InputError(f"proximal coefficient ρ = {self.rho:g} must not be negative; 5e-4 is usual")

    @torch.no_grad()
    def pull(self, model: nn.Module, updates: int) -> None:
        """Add ρ(w − u) to the gradients of w."""
        if self.rho == 0 or not self.slow.has_started(updates):
            return
        for w, u in zip(model.parameters(), self.slow.model.parameters(), strict=True):
            if w.grad is not None:
                w.grad.add_(w - u, alpha=self.rho)


@dataclass(frozen=True, kw_only=True)
class WeightPerturbation:
    """Adversarial weight perturbation (AWP): w descends by the gradient at w + v instead of that at w.

    v = γ‖w‖·g/‖g‖ for every weight tensor of more than one dimension, with g the gradient of the training loss at w on
    the same perturbed batch. Biases and the parameters of normalization layers keep their values.

    Args:
        gamma: γ, at least 0; with 0 there is no perturbation and no pass for it.
        first: the weight updates before it begins.
        every_tensor: perturb all parameters, for models that have weights only, whatever they are called.

    Raises:
        InputError: γ is negative.
    """

    gamma: float
    first: int = 0
    every_tensor: bool = False

    def __post_init__(self) -> None:
        if not self.gamma >= 0:
            raise InputError(f"AWP γ = {self.gamma:g} must not be negative; 0.01 is usual, 0.005 for TRADES")

    def active(self, updates: int) -> bool:
        """Whether the next update is made with it."""
        return self.gamma > 0 and updates >= self.first

    @staticmethod
    @contextmanager
    def statistics_kept(model: nn.Module) -> Iterator[None]:
        """Inside, passes may change the running statistics; afterwards they are as before."""
        kept = [buffer.clone() for buffer in model.buffers()]
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in zip(model.buffers(), kept, strict=True):
                    buffer.copy_(before)

    @contextmanager
    def applied(self, model: nn.Module, *, stacked: bool) -> Iterator[None]:
        """Inside, the model has the weights w + v, with v from the gradients that are on w; then exactly w again."""
        weights = [
            p
            for name, p in model.named_parameters()
            if self.every_tensor or ("weight" in name and p.ndim - stacked > 1)
        ]
        if not weights:
            raise InputError(
                f"AWP γ = {self.gamma:g} perturbs tensors of more than one dimension whose name holds 'weight'; the "
                "model has none: name its weights so, or train without AWP"
            )
        chosen = [(p, p.grad) for p in weights if p.grad is not None]
        kept = [p.detach().clone() for p, _ in chosen]
        with torch.no_grad():
            for p, g in chosen:
                p.add_(self.direction(p, g, stacked=stacked))
        try:
            yield
        finally:
            with torch.no_grad():
                for (p, _), w in zip(chosen, kept, strict=True):
                    p.copy_(w)

    def direction(self, w: Tensor, g: Tensor, *, stacked: bool) -> Tensor:
        """v of one tensor, or of every member of a stack; zero where g is zero or not finite."""
        axes = tuple(range(1 if stacked else 0, w.ndim))
        size = torch.linalg.vector_norm(g, dim=axes, keepdim=True)
        scale = self.gamma * torch.linalg.vector_norm(w, dim=axes, keepdim=True) / size
        points = (size > 0) & size.isfinite()
        return torch.where(points, g * scale, torch.zeros_like(g))


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], largest: float, *, stacked: bool) -> None:
    """Shorten the gradient of all parameters together to length ``largest``; of every member of a stack, its own."""
    grads = [p.grad for p in parameters if p.grad is not None]
    squares = [g.square().sum(tuple(range(1 if stacked else 0, g.ndim))) for g in grads]
    size = torch.stack(squares).sum(0).sqrt()
    share = (largest / size).clamp(max=1.0)  # a zero gradient gives inf, and stays
    for g in grads:
        g.mul_(share.view(-1, *[1] * (g.ndim - 1)) if stacked else share)
