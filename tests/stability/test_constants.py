"""Estimates of L, L_w, β and ψ, against closed forms and against a full Hessian."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from freeat.files.documents import decoded, plain
from freeat.objectives import BoundedLoss, CrossEntropy, Trades
from freeat.stability import Constants, estimate_constants
from freeat.stability.constants import kinks, why_no_beta
from samples import SHAPE, some_images, some_model


def points(n: int = 6, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x, y = some_images(n).batch(torch.arange(n))
    delta = 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.double(), y, delta


@pytest.mark.parametrize(
    "objective", [CrossEntropy(), BoundedLoss(), Trades()], ids=["ce", "bounded", "trades"]
)
def test_constants_match_the_full_gradient_and_hessian(objective) -> None:  # type: ignore[no-untyped-def]
    model = some_model("mlp-w4-silu")
    x, y, delta = points(4)
    found = estimate_constants(model, objective, x, y, delta, iterations=60)
    names = [name for name, _ in model.named_parameters()]
    shapes = [p.shape for p in model.parameters()]
    sizes = [s.numel() for s in shapes]

    class _Flat:
        def __init__(self, w: torch.Tensor) -> None:
            self.w = dict(
                zip(names, (v.view(s) for v, s in zip(w.split(sizes), shapes, strict=True)), strict=True)
            )

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(model, self.w, (x,))

    w = torch.cat([p.detach().flatten() for p in model.parameters()])
    joint, of_w, of_delta, curvature = [], [], [], []
    for k in range(4):

        def h(z: torch.Tensor, k: int = k) -> torch.Tensor:
            d = z[len(w) :].view(SHAPE)
            return objective.loss(_Flat(z[: len(w)]), x[k : k + 1], y[k : k + 1], x[k : k + 1] + d)[0]

        z = torch.cat([w, delta[k].flatten()]).requires_grad_()
        g = torch.autograd.grad(h(z), z)[0]
        joint.append(g.norm())
        of_w.append(g[: len(w)].norm())
        of_delta.append(g[len(w) :].norm())
        curvature.append(torch.linalg.eigvalsh(torch.autograd.functional.hessian(h, z)).abs().max())
    assert pytest.approx(float(max(joint)), rel=1e-10) == found.L
    assert found.L_w == pytest.approx(float(max(of_w)), rel=1e-10)
    assert found.smallest_gradient == pytest.approx(float(min(of_delta)), rel=1e-10)
    assert found.psi == pytest.approx(1 / float(min(of_delta)), rel=1e-10)
    assert found.beta == pytest.approx(float(max(curvature)), rel=1e-4)
    assert found.beta <= float(max(curvature)) * (1 + 1e-9)
    assert found.points == 4


def test_relu_model_has_no_beta_and_gives_the_reason() -> None:
    x, y, delta = points()
    found = estimate_constants(some_model("mlp-w8"), CrossEntropy(), x, y, delta)
    assert found.beta is None
    assert "relu" in str(found.no_beta)
    assert "-softplus" in str(found.no_beta)
    assert found.L >= found.L_w > 0


class _Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(self.linear(x.flatten(1))) + F.max_pool1d(x.flatten(1)[:, None], 16)[:, 0]


def test_kinks_are_found_in_layers_and_in_functional_calls() -> None:
    x = torch.rand(2, *SHAPE)
    assert {name.split("_")[0] for name in kinks(_Functional(), x)} == {"leaky", "max"}
    for name in ("mlp-softplus", "mlp-silu", "cnn-w4-gn-softplus", "linear"):
        assert kinks(some_model(name, dtype=torch.float32), x) == []
        assert why_no_beta(some_model(name, dtype=torch.float32), x) is None
    assert "-silu" in str(why_no_beta(some_model("cnn-w4-gn", dtype=torch.float32), x))


def test_constants_of_two_point_sets_are_merged() -> None:
    one = Constants(L=3.0, L_w=1.0, beta=2.0, smallest_gradient=0.5, points=4, gradients=4)
    two = Constants(L=2.0, L_w=1.5, beta=None, smallest_gradient=0.1, points=3, gradients=3, no_beta="kink")
    both = one.merged(two)
    assert (both.L, both.L_w, both.beta, both.psi, both.points) == (3.0, 1.5, 2.0, 10.0, 7)
    assert both.no_beta == "kink"
    seen = one.with_gradients(0.2, 2)
    assert (seen.psi, seen.gradients, seen.points) == (pytest.approx(5.0), 6, 4)
    assert decoded(plain(both), Constants, "here") == both
    assert Constants(L=1, L_w=1, beta=1, smallest_gradient=0.0, points=1, gradients=1).psi is None
    assert "lower estimate" in both.caveat


def test_batches_of_points_do_not_change_the_constants() -> None:
    x, y, delta = points(70)
    model = some_model("mlp-w4-softplus")
    whole = estimate_constants(model, CrossEntropy(), x, y, delta, iterations=3)
    rows = [slice(k, k + 1) for k in range(70)]
    each = [estimate_constants(model, CrossEntropy(), x[r], y[r], delta[r], iterations=0) for r in rows]
    assert pytest.approx(max(e.L for e in each), rel=1e-12) == whole.L
    assert whole.points == 70


def test_gradient_of_a_linear_model_matches_the_closed_form() -> None:
    model = some_model("linear")
    x, y, delta = points(5)
    found = estimate_constants(model, CrossEntropy(), x, y, delta, iterations=0)
    seen = x + delta
    p = model(seen).softmax(-1).detach()
    residual = p - F.one_hot(y, 3)
    size_w = residual.norm(dim=1) * (seen.flatten(1).square().sum(1) + 1).sqrt()
    assert found.L_w == pytest.approx(float(size_w.max()), rel=1e-10)
