"""The tilted instances of the tests: data on the side where descent expands, so that β is needed."""

import torch

from freeat.stability.instances import TiltedInstance

D = 4
NAMES = ("vanilla", "fast", "free")


def instance(*, n: int = 6, b: int = 2, T: int = 60, c: float = 0.12, m: int = 3) -> TiltedInstance:
    """Examples near 2·e₁ with w₀ along e₁: the sigmoid is concave there, so nearby weights move apart."""
    g = torch.Generator().manual_seed(0)
    x = torch.zeros(n, D, dtype=torch.float64)
    x[:, 0] = 2.0
    x += 0.05 * torch.randn(n, D, generator=g, dtype=torch.float64)
    x = x * (2.0 / x.norm(dim=1, keepdim=True)).clamp(max=1)
    w0 = torch.zeros(D, dtype=torch.float64)
    u = w0.clone()
    w0[0], u[1] = 0.66, 1.5
    return TiltedInstance(
        x=x.view(n, 1, 1, D),
        y=torch.zeros(n, dtype=torch.long),
        w0=w0,
        u=u,
        eps=0.1,
        c=c,
        T=T,
        b=b,
        alpha=0.1,
        m=m,
    )


def replacement() -> tuple[torch.Tensor, int]:
    """What takes the place of example 0 in S′: the same direction, the other label."""
    x = torch.zeros(1, 1, D, dtype=torch.float64)
    x[..., 0] = 2.0
    return x, 1


def both(case: TiltedInstance, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The batches ``rows`` (K, b) of S, then of S′: (2K, b, 1, 1, d) and (2K, b)."""
    x, y = case.x.clone(), case.y.clone()
    x[0], y[0] = replacement()
    return torch.cat([case.x[rows], x[rows]]), torch.cat([case.y[rows], y[rows]])
