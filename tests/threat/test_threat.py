"""Properties of the balls: start, extreme point (1), projection (2), box."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from freeat.errors import InputError
from freeat.rng import ImageRng, Rng, StepRng
from freeat.threat import L2, STARTS, Ball, Linf, make_ball
from problems import images, random

RNG = StepRng(3, (1,))
DTYPES = {torch.float32: 1e-5, torch.float64: 1e-12}
SHAPES = [(1, 1, 1), (2, 3, 4)]

balls = st.builds(
    lambda norm, eps: make_ball(norm, eps),
    st.sampled_from(["l2", "linf"]),
    st.sampled_from([0, 1e-3, 8 / 255, 1]),
)
scales = st.sampled_from([1e-30, 1e-4, 0.1, 1.0, 30.0])


@st.composite
def perturbations(draw: st.DrawFn, dtype: torch.dtype) -> Tensor:
    """A batch or a stack of batches of vectors of very different lengths, some of them zero."""
    lead = draw(st.sampled_from([(), (3,), (2, 3)]))
    shape = (*lead, *draw(st.sampled_from(SHAPES)))
    v = random(draw(st.integers(0, 2**31)), *shape, dtype=dtype) * draw(scales)
    if draw(st.booleans()):
        v[..., 0] = 0
    return v


def dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((-3, -2, -1))


def length(v: Tensor) -> Tensor:
    return dot(v, v).sqrt()


def competitors(ball: Ball, v: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Other points of Δ: random ones inside, on the boundary, and near the point in question."""
    inside = [ball.start(v, "radius", StepRng(seed)) for seed in range(6)]
    near = [ball.project(v + 0.1 * ball.eps * random(s, *v.shape, dtype=dtype)) for s in range(6)]
    return [*inside, *near, torch.zeros_like(v)]


def batched(v: Tensor) -> Tensor:
    return v if v.ndim > 3 else v[None]


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), ball=balls)
@settings(max_examples=60, deadline=None)
def test_projection_is_the_nearest_point_and_idempotent(
    dtype: torch.dtype, data: st.DataObject, ball: Ball
) -> None:
    v = batched(data.draw(perturbations(dtype)))
    tol = DTYPES[dtype]
    p = ball.project(v)
    assert (ball.size(p) <= ball.eps * (1 + tol)).all()
    for c in competitors(ball, v, dtype):
        assert (length(v - p) <= length(v - c) * (1 + tol) + tol * ball.eps).all()
    torch.testing.assert_close(ball.project(p), p, rtol=tol, atol=0)
    inside = ball.size(v) <= ball.eps
    assert torch.equal(torch.where(inside, p, 0.0), torch.where(inside, v, 0.0))


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), ball=balls)
@settings(max_examples=60, deadline=None)
def test_projection_in_closed_form(dtype: torch.dtype, data: st.DataObject, ball: Ball) -> None:
    v = data.draw(perturbations(dtype))
    exact = v.double().numpy()
    if isinstance(ball, Linf):
        expected = np.clip(exact, -ball.eps, ball.eps)
    else:
        norm = np.sqrt((exact**2).sum((-3, -2, -1), keepdims=True))
        expected = exact * np.minimum(1, ball.eps / np.maximum(norm, 1e-300))
    projected = ball.project(v).double()
    torch.testing.assert_close(projected, torch.from_numpy(expected), rtol=DTYPES[dtype], atol=1e-25)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), ball=balls)
@settings(max_examples=60, deadline=None)
def test_extreme_point_has_norm_eps_and_is_the_best_of_the_ball(
    dtype: torch.dtype, data: st.DataObject, ball: Ball
) -> None:
    g = batched(data.draw(perturbations(dtype)))
    tol = DTYPES[dtype]
    pi = ball.extreme(g, RNG)
    torch.testing.assert_close(ball.size(pi), torch.full_like(ball.size(pi), ball.eps), rtol=tol, atol=0)
    for c in competitors(ball, g, dtype):
        assert (dot(g, pi) >= dot(g, c) - tol * ball.eps * length(g)).all()
    moved = (g != 0).any(-1).any(-1).any(-1)
    exact = g.double()
    expected = exact.sign() if isinstance(ball, Linf) else exact / length(exact)[..., None, None, None]
    torch.testing.assert_close(pi.double()[moved], ball.eps * expected[moved], rtol=tol, atol=tol * ball.eps)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [0.0, -0.0, 1e-30, 1e-38, 1e30, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("whole", [True, False], ids=["all-pixels", "one-pixel"])
def test_extreme_point_of_degenerate_gradients(
    norm: str, dtype: torch.dtype, bad: float, whole: bool
) -> None:
    ball = make_ball(norm, 0.5)
    g = random(0, 3, 2, 3, 4, dtype=dtype)
    healthy = ball.extreme(g, RNG)
    g[1] = bad if whole else g[1].index_fill(-1, torch.tensor([2]), bad)
    pi = ball.extreme(g, RNG)
    torch.testing.assert_close(ball.size(pi), torch.full((3, 1, 1, 1), 0.5, dtype=dtype))
    assert torch.equal(pi[[0, 2]], healthy[[0, 2]]), "another image's gradient changed this one's"


def test_linf_takes_the_sign_of_entries_far_below_the_largest() -> None:
    """A division by the largest entry would make zeros of them."""
    g = torch.tensor([1e36, -1e-10, 0.0, 1e-10]).view(1, 1, 2, 2)
    assert Linf(0.5).extreme(g, RNG).flatten().tolist() == [0.5, -0.5, 0.0, 0.5]


def test_linf_gradients_whose_entries_cancel_have_a_direction() -> None:
    g = torch.tensor([[3.0, -3.0], [3e38, 3e38], [1.0, 2.0]]).view(3, 1, 1, 2)
    assert torch.equal(Linf(0.5).extreme(g, RNG), 0.5 * g.sign())


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("box", [(0.0, 1.0), (-1.0, 2.0), None])
@given(seed=st.integers(0, 2**31), spread=st.sampled_from([0.01, 0.3, 3.0]))
@settings(max_examples=20, deadline=None)
def test_feasible_is_projection_and_then_the_box(
    norm: str, box: tuple[float, float] | None, seed: int, spread: float
) -> None:
    ball = make_ball(norm, 0.3, box)
    x, _ = images(seed, 4, dtype=torch.float32)
    v = spread * random(seed + 1, *x.shape, dtype=torch.float32)
    assert torch.equal(ball.feasible(x)(v), ball.confine(x, ball.project(v)))


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_zero_gradient_takes_a_random_direction(norm: str) -> None:
    ball = make_ball(norm, 0.5)
    g = torch.zeros(2, 2, 3, 4)
    one, again = ball.extreme(g, RNG), ball.extreme(g, RNG)
    assert torch.equal(one, again)
    assert not torch.equal(one, ball.extreme(g, RNG.at(1)))


@given(data=st.data(), ball=balls, alpha=st.sampled_from([1e-3, 0.1, 2.0]))
@settings(max_examples=60, deadline=None)
def test_ascent_stays_in_the_ball_and_moves_by_alpha(data: st.DataObject, ball: Ball, alpha: float) -> None:
    g = batched(data.draw(perturbations(torch.float64)))
    delta = ball.start(g, "uniform", StepRng(1))
    up = ball.ascend(delta, g, alpha, RNG)
    assert (ball.size(up) <= ball.eps * (1 + 1e-12)).all()
    unit = make_ball(ball.norm, 1.0).extreme(g, RNG)
    torch.testing.assert_close(up, ball.project(delta + alpha * unit), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("start", STARTS)
def test_radius_zero_gives_zero_perturbations(norm: str, start: str) -> None:
    ball = make_ball(norm, 0)
    x, _ = images(0, 4)
    delta = ball.start(x, start, RNG)  # type: ignore[arg-type]
    assert (delta == 0).all()
    for g in (random(1, *x.shape), torch.zeros_like(x)):
        assert (ball.ascend(delta, g, 0.3, RNG) == 0).all()
        assert (ball.extreme(g, RNG) == 0).all()


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("start", STARTS)
def test_a_stack_shares_its_draws_and_is_treated_member_by_member(norm: str, start: str) -> None:
    ball = make_ball(norm, 0.4)
    x, _ = images(0, 4, stack=(3,))
    begin = ball.start(x, start, RNG)  # type: ignore[arg-type]
    g = random(5, *x.shape)
    g[1, 2] = 0
    up = ball.ascend(begin, g, 0.3, RNG)
    for k in range(3):
        single = ball.start(x[k], start, RNG)  # type: ignore[arg-type]
        assert torch.equal(begin[k], single)
        assert torch.equal(up[k], ball.ascend(single, g[k], 0.3, RNG))


def radii(ball: Ball, start: str, rng: Rng, x: Tensor) -> np.ndarray:
    delta = ball.start(x, start, rng)  # type: ignore[arg-type]
    return (ball.size(delta) / ball.eps).flatten().numpy()


N = 4000
LARGE_RNGS = {"step": StepRng(11, (1,)), "image": ImageRng(11, range(N))}


@pytest.mark.parametrize("rng", LARGE_RNGS.values(), ids=LARGE_RNGS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 2, 2), (3, 6, 5)])
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_uniform_start_has_the_law_of_a_uniform_point(
    norm: str, shape: tuple[int, int, int], dtype: torch.dtype, rng: Rng
) -> None:
    """P(‖δ‖ ≤ rε) = r^d in every norm; and a coordinate has the marginal law of a uniform point."""
    ball, d = make_ball(norm, 0.5), math.prod(shape)
    x = torch.zeros(N, *shape, dtype=dtype)
    assert stats.kstest(radii(ball, "uniform", rng, x) ** d, "uniform").pvalue > 1e-3
    coordinates = (ball.start(x, "uniform", rng).flatten(1) / ball.eps).numpy()
    half = 1 if norm == "linf" else (d + 1) / 2
    law = stats.beta(half, half, loc=-1, scale=2)
    for i in (0, d // 2, d - 1):
        assert stats.kstest(coordinates[:, i], law.cdf).pvalue > 1e-3
    correlation = np.corrcoef(coordinates, rowvar=False) - np.eye(d)
    assert np.abs(correlation).max() < 5 / math.sqrt(N)


@pytest.mark.parametrize("rng", LARGE_RNGS.values(), ids=LARGE_RNGS)
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_radius_start_has_a_uniform_norm_in_a_symmetric_direction(norm: str, rng: Rng) -> None:
    ball, x = make_ball(norm, 0.5), torch.zeros(N, 1, 4, 4)
    r = radii(ball, "radius", rng, x)
    assert r.max() <= 1 + 1e-6
    assert stats.kstest(r, "uniform").pvalue > 1e-3
    mean = ball.start(x, "radius", rng).mean(0)
    assert mean.abs().max() < 5 * ball.eps / math.sqrt(3 * N)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_gaussian_start_is_small_and_in_the_ball(norm: str) -> None:
    x = torch.zeros(N, 1, 4, 4, dtype=torch.float64)
    wide = make_ball(norm, 1.0).start(x, "gaussian", RNG)
    assert stats.kstest(wide[:, 0, 1, 2].numpy() / 0.001, "norm").pvalue > 1e-3
    tight = make_ball(norm, 5e-4)
    assert (tight.size(tight.start(x, "gaussian", RNG)) <= 5e-4 * (1 + 1e-12)).all()


@pytest.mark.parametrize("norm", ["l2", "linf"])
@given(seed=st.integers(0, 2**31), spread=st.sampled_from([0.01, 0.3, 3.0]))
@settings(max_examples=40, deadline=None)
def test_apply_and_confine_keep_pixels_in_the_box(norm: str, seed: int, spread: float) -> None:
    ball = make_ball(norm, 0.6)
    x, _ = images(seed, 4, dtype=torch.float32)
    delta = ball.project(spread * random(seed + 1, *x.shape, dtype=torch.float32))
    seen = ball.apply(x, delta)
    assert seen.min() >= 0
    assert seen.max() <= 1
    confined = ball.confine(x, delta)
    assert (ball.size(confined) <= ball.size(delta)).all()
    torch.testing.assert_close(x + confined, seen, rtol=0, atol=2e-7)
    free = make_ball(norm, 0.6, box=None)
    assert torch.equal(free.apply(x, delta), x + delta)
    assert torch.equal(free.confine(x, delta), delta)


def test_a_pixel_cut_by_the_box_has_no_gradient() -> None:
    ball = Linf(0.5)
    x = torch.tensor([0.9, 0.5]).view(1, 1, 1, 2)
    delta = torch.full_like(x, 0.4).requires_grad_()
    ball.apply(x, delta).sum().backward()
    assert delta.grad is not None
    assert delta.grad.flatten().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("box", [(0.0, 1.0), (-1.0, 0.25)])
def test_the_gradient_through_the_box_is_that_of_clamp(dtype: torch.dtype, box: tuple[float, float]) -> None:
    """Also at the edges, next to them, for gradients that overflowed, and for another layout of the gradient."""
    edges = [
        e for low in box for e in (low, np.nextafter(np.float32(low), 9), np.nextafter(np.float32(low), -9))
    ]
    v = torch.tensor([*edges, *np.linspace(-2, 2, 42)], dtype=dtype).view(2, 3, 2, 4)
    g = random(0, 2, 3, 2, 4, dtype=dtype)
    g[0, 0, 0, 0], g[1, 2, 1, 3], g[1, 0, 1, 0] = math.inf, math.nan, -math.inf
    for layout in (torch.contiguous_format, torch.channels_last):
        ours, theirs = (v.clone(memory_format=layout).requires_grad_() for _ in range(2))
        Linf(0.5, box).apply(torch.zeros_like(ours), ours).backward(g)
        theirs.clamp(*box).backward(g)
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=0, equal_nan=True)
        assert ours.grad.stride() == theirs.grad.stride()


def test_radii_are_numbers_or_fractions() -> None:
    assert Linf("8/255").eps == 8 / 255  # type: ignore[arg-type]
    assert L2("0.5") == L2(0.5)  # type: ignore[arg-type]
    assert make_ball("LINF", "8/255") == Linf(8 / 255)
    assert L2(0.5).scaled(0.5) == L2(0.25)


@pytest.mark.parametrize(
    "text", ["", "eight", "8/0", "1/2/3", "nan", "inf", -0.1, math.nan, "-8/255", None, [1]]
)
def test_what_is_not_a_radius_is_refused(text: object) -> None:
    with pytest.raises(InputError, match=r"is not a (radius|number)"):
        L2(text)  # type: ignore[arg-type]


def test_radii_in_the_wrong_unit_are_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match="8/255"):
        Linf(8)
    L2(128 / 255).check((3, 32, 32))
    L2(256 / 255).check((3, 32, 32))
    with pytest.raises(InputError, match="128/255"):
        L2(128).check((3, 32, 32))


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'linf'"):
        make_ball("linff", 0.1)
    with pytest.raises(InputError, match="did you mean 'uniform'"):
        L2(0.1).start(torch.zeros(1, 1, 1, 1), "unifrom", RNG)  # type: ignore[arg-type]
