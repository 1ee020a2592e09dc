"""A Gaussian mixture whose robust risks are known: exact for linear classifiers, estimated for shallow nets.

x = s·μ + σz with s = ±1 equally likely and z ~ N(0, I_d); the label is y = 1 for s = 1 and 0 for s = −1. Inputs
have the shape of images, (1, 1, d), and no box. docs/population.md derives the formulas.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from scipy.stats import chi2
from torch import Tensor, nn

from freeat.attacks.pgd import last_iterate
from freeat.errors import InputError, unknown_name
from freeat.objectives import Model, cross_entropy, margin
from freeat.rng import ImageRng, generator, stream_key
from freeat.stability.instances import MOST_CURVED, STEEPEST
from freeat.theory import Problem
from freeat.threat import Ball, dual_norm

CPU = torch.device("cpu")
Kind = Literal["linear", "tanh"]
KINDS: tuple[str, ...] = get_args(Kind)
TRUNCATED_MASS = 1e-9
"""The probability of the noise that the truncated instance leaves out; no risk changes by more."""


class Linear(nn.Module):
    """f_w(x) = ⟨w, x⟩ without bias, as the logits (−f/2, f/2): cross-entropy is then log(1 + e^{−s f})."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(d, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return _logits(x.flatten(-3) @ self.w)


class TanhNet(nn.Module):
    """f(x) = ⟨v, tanh(Wx)⟩ without biases, as the logits (−f/2, f/2)."""

    def __init__(self, d: int, width: int) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.zeros(width, d, dtype=torch.float64))
        self.v = nn.Parameter(torch.zeros(width, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return _logits((x.flatten(-3) @ self.W.T).tanh() @ self.v)


def _logits(f: Tensor) -> Tensor:
    return torch.stack([-f / 2, f / 2], -1)


def initial_weights(kind: Kind, d: int, width: int, scale: float, seed: int) -> dict[str, Tensor]:
    """Random weights by name: ``scale`` is ‖w₀‖ of a linear model, and the gain of a net's layers."""
    g = generator(CPU, stream_key(seed, "initial weights"))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    if kind == "linear":
        w = normal(d)
        return {"w": scale * w / w.norm()}
    return {"W": scale * normal(width, d) / math.sqrt(d), "v": scale * normal(width) / math.sqrt(width)}


def make_model(kind: Kind, d: int, width: int) -> nn.Module:
    """The classifier of that kind, with weights still zero."""
    if kind not in KINDS:
        raise unknown_name("model", kind, KINDS)
    return Linear(d) if kind == "linear" else TanhNet(d, width)


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The population: ``distance`` is ‖μ‖₂, and all coordinates of μ are equal.

    ``truncated`` draws z anew where its norm exceeds the value that it exceeds with probability 10⁻⁹, so that
    inputs are bounded as the theorems assume.
    """

    d: int
    distance: float
    sigma: float = 1.0
    truncated: bool = False

    def __post_init__(self) -> None:
        if self.d < 1 or not self.distance >= 0 or not self.sigma > 0:
            raise InputError(
                f"a mixture with d = {self.d}, ‖μ‖ = {self.distance:g} and σ = {self.sigma:g}: must have d ≥ 1, "
                "‖μ‖ ≥ 0 and σ > 0"
            )

    @property
    def mu(self) -> Tensor:
        return torch.full((self.d,), self.distance / math.sqrt(self.d), dtype=torch.float64)

    @property
    def reach(self) -> float:
        """X ≥ ‖x‖₂ of every truncated input."""
        return self.distance + self.sigma * self.largest_noise

    @property
    def largest_noise(self) -> float:
        return math.sqrt(float(chi2.isf(TRUNCATED_MASS, self.d)))

    def draw(self, n: int, seed: int, purpose: str) -> tuple[Tensor, Tensor]:
        """n independent examples: inputs (n, 1, 1, d) and labels (n,)."""
        g = generator(CPU, stream_key(seed, "population", purpose))
        y = torch.randint(2, (n,), generator=g)
        z = torch.randn(n, self.d, generator=g, dtype=torch.float64)
        while self.truncated and (beyond := z.norm(dim=1) > self.largest_noise).any():
            z[beyond] = torch.randn(int(beyond.sum()), self.d, generator=g, dtype=torch.float64)
        x = signs(y).unsqueeze(-1) * self.mu + self.sigma * z
        return x.reshape(n, 1, 1, self.d), y


def signs(y: Tensor) -> Tensor:
    """s = ±1 of the labels."""
    return (2 * y - 1).to(torch.float64)


# Losses of the robust margin s⟨w, x⟩ − ε‖w‖_q, which fall as it grows: so their maximum over Δ is their value there.
def zero_one(margins: Tensor) -> Tensor:
    """1 where the worst perturbation is misclassified."""
    return (margins <= 0).to(torch.float64)


def probit(margins: Tensor) -> Tensor:
    """Φ(−margin), a bounded surrogate in [0, 1]."""
    values: Tensor = torch.special.ndtr(-margins)
    return values


def logistic(margins: Tensor) -> Tensor:
    """σ(−margin) = 1 − p_y, the bounded loss of the theorems' instance."""
    return torch.sigmoid(-margins)


Surrogate = Literal["probit", "logistic"]
SURROGATES: dict[Surrogate, Callable[[Tensor], Tensor]] = {"probit": probit, "logistic": logistic}


def robust_margins(w: Tensor, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
    """s⟨w, x⟩ − ε‖w‖_q of every example: weights (K, d) and inputs (K, n, 1, 1, d) to (K, n)."""
    clean = signs(y) * torch.einsum("kd,knd->kn", w, x.flatten(-3))
    return clean - ball.eps * dual_norm(w, ball).unsqueeze(-1)


@dataclass(frozen=True, kw_only=True)
class RobustRisk:
    """A 0–1 risk and a surrogate risk of every member; ``error`` is the largest standard error of the surrogate's."""

    zero_one: Tensor
    surrogate: Tensor
    error: float = 0.0


def linear_training_risk(w: Tensor, x: Tensor, y: Tensor, ball: Ball, surrogate: Surrogate) -> RobustRisk:
    """R_S of linear classifiers, with the inner maximum exact."""
    margins = robust_margins(w, x, y, ball)
    return RobustRisk(zero_one=zero_one(margins).mean(-1), surrogate=SURROGATES[surrogate](margins).mean(-1))


def linear_population_risk(w: Tensor, mixture: Mixture, ball: Ball, surrogate: Surrogate) -> RobustRisk:
    """R of linear classifiers w (K, d), without a test set: the robust margin is N(a, s²).

    a = ⟨w, μ⟩ − ε‖w‖_q and s = σ‖w‖₂. The 0–1 risk is Φ(−a/s), the probit risk Φ(−a/√(1 + s²)); the logistic risk
    is an integral over the margin. Truncated noise changes each by at most 10⁻⁹.
    """
    a = w @ mixture.mu - ball.eps * dual_norm(w, ball)
    s = mixture.sigma * w.norm(dim=-1)
    wrong = torch.where(s > 0, torch.special.ndtr(-a / s), (a <= 0).to(a.dtype))
    if surrogate == "probit":
        return RobustRisk(zero_one=wrong, surrogate=torch.special.ndtr(-a / (1 + s**2).sqrt()))
    return RobustRisk(zero_one=wrong, surrogate=gaussian_mean(logistic, a, s))


def gaussian_mean(loss: Callable[[Tensor], Tensor], mean: Tensor, deviation: Tensor) -> Tensor:
    """E[loss(Z)] for Z ~ N(mean, deviation²), by the trapezoidal rule over ±10 deviations.

    The rule converges geometrically for such integrands: with 8001 points and deviations up to 50 the error of the
    logistic loss is below 10⁻¹².
    """
    z = torch.linspace(-10, 10, 8001, dtype=torch.float64)
    weights = (-(z**2) / 2).exp()
    return loss(mean.unsqueeze(-1) + deviation.unsqueeze(-1) * z) @ (weights / weights.sum())


def attacked_risk(
    f: Model, x: Tensor, y: Tensor, ball: Ball, surrogate: Surrogate, *, steps: int, seed: int
) -> RobustRisk:
    """Risks of any stacked model under PGD, inputs (K, n, 1, 1, d): a lower bound of the robust risk."""

    def loss(x_adv: Tensor) -> Tensor:
        return cross_entropy(f(x_adv), y)

    rng = ImageRng(seed, range(x.shape[1]))
    delta = last_iterate(loss, x, ball, rng, steps=steps, alpha=ball.eps / 4)
    with torch.no_grad():
        margins = -margin(f(ball.apply(x, delta)), y)
        # an attack that found nothing worse than the clean input has found the clean input
        margins = torch.minimum(margins, -margin(f(x), y))
    values = SURROGATES[surrogate](margins)
    error = float((values.std(-1) / math.sqrt(x.shape[1])).max()) if x.shape[1] > 1 else math.nan
    return RobustRisk(zero_one=zero_one(margins).mean(-1), surrogate=values.mean(-1), error=error)


@dataclass(frozen=True, kw_only=True)
class LinearConstants:
    """The constants of Theorems 2, 4 and 5 for h = 1 − p_y, a linear model and truncated inputs in the L2 ball.

    The weights stay in the shell r ≤ ‖w‖ ≤ R that T updates with steps c/t (Free c/(mt)) can reach from ‖w₀‖.
    """

    reach: float
    initial: float
    eps: float
    c: float
    T: int
    b: int
    n: int

    def __post_init__(self) -> None:
        if not self.smallest > 0:
            raise InputError(
                f"‖w₀‖ = {self.initial:g} must exceed L_w·c·(1 + ln T) = {self.largest_move:g}, or the weights may "
                "reach 0, where ∇_δ h vanishes: take a larger initial scale, a smaller c or fewer updates"
            )

    @property
    def bounded(self) -> float:
        """X + ε ≥ ‖x + δ‖₂."""
        return self.reach + self.eps

    @property
    def largest_move(self) -> float:
        """How far the weights can move: L_w·c·Σ 1/t ≤ L_w·c·(1 + ln T)."""
        return STEEPEST * self.bounded * self.c * (1 + math.log(self.T))

    @property
    def largest(self) -> float:
        """R."""
        return self.initial + self.largest_move

    @property
    def smallest(self) -> float:
        """r."""
        return self.initial - self.largest_move

    def problem(self) -> Problem:
        """L_w = (X + ε)/4, L = √((X + ε)² + R²)/4, β = ((X + ε)² + R²)/(6√3) + 1/4, ψ = 1/(σ′(R(X + ε)) r)."""
        both = self.bounded**2 + self.largest**2
        slope = 1 / (2 + 2 * math.cosh(self.largest * self.bounded))
        return Problem(
            beta=MOST_CURVED * both + STEEPEST,
            c=self.c,
            L=STEEPEST * math.sqrt(both),
            L_w=STEEPEST * self.bounded,
            eps=self.eps,
            psi=1 / (slope * self.smallest),
            b=self.b,
            n=self.n,
        )

    def sharper_vanilla(self) -> tuple[float, float]:
        """ν and ξ of Vanilla with the exact maximizer, which is (ε/r)-Lipschitz in w here (docs/population.md).

        ν = βc(1 + ε/r) and ξ = 2L/(β(1 + ε/r)): Lemma 3 with a rate of 1/n, which Theorem 2 does not have.
        """
        p = self.problem()
        growth = 1 + self.eps / self.smallest
        return p.beta * p.c * growth, 2 * p.L / (p.beta * growth)
