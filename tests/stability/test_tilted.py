"""The instance where everything is known: constants, inner maximum, and the one-step lemmas."""

import itertools

import pytest
import torch

from freeat.data.batches import Batches
from freeat.errors import InputError
from freeat.rng import StepRng
from freeat.stability import estimate_constants
from freeat.stability.instances import InnerProduct, TiltedInstance, affine_maximum
from freeat.theory import (
    Problem,
    fast_growth,
    fast_next,
    free_growth,
    free_growth_as_printed,
    free_next,
    loss_difference_bound,
    recursion_of,
    vanilla_growth,
    vanilla_next,
    weight_step,
)
from freeat.threat import l2_norm
from tilted_cases import NAMES, D, both, instance

SLACK = 1 + 1e-9


def test_closed_form_constants_bound_the_estimates_closely() -> None:
    case = instance()
    p = case.problem()
    g = torch.Generator().manual_seed(1)
    found = None
    for _ in range(25):
        w = torch.randn(D, generator=g, dtype=torch.float64)
        w = w * case.radius / w.norm()
        delta = case.ball.project(torch.randn(6, 1, 1, D, generator=g, dtype=torch.float64))
        y = torch.randint(0, 2, (6,), generator=g)
        here = estimate_constants(InnerProduct(w), case.objective, case.x, y, delta, iterations=15)
        found = here if found is None else found.merged(here)
    assert p.L_w / 2 < found.L_w <= p.L_w
    assert p.L / 2 < found.L <= p.L
    assert p.beta / 2.5 < found.beta <= p.beta
    assert p.psi / 4 < found.psi <= p.psi


def test_the_inner_maximum_is_exact() -> None:
    case = instance()
    g = torch.Generator().manual_seed(2)
    y = torch.tensor([0, 1] * 3)
    for _ in range(10):
        w = torch.randn(D, generator=g, dtype=torch.float64)
        net = InnerProduct(w)
        h = case.objective.attack(net, case.x, y)
        best = h(case.x + affine_maximum(h, case.x, y, case.ball, StepRng(0)))
        torch.testing.assert_close(best, case.h_max(w, case.x, y))
        for _ in range(50):
            other = case.ball.project(torch.randn(6, 1, 1, D, generator=g, dtype=torch.float64))
            assert bool((h(case.x + other) <= best + 1e-12).all())


def path(case: TiltedInstance, name: str, seed: int):  # type: ignore[no-untyped-def]
    """A twin run batch by batch: (t, weights before (2, d), images, labels, whether example 0 is met)."""
    batches = Batches(n=len(case.x), size=case.b, seed=seed, sampling="independent")
    w = case.w0.repeat(2, 1)
    count = case.T // case.m if name == "free" else case.T
    for t in range(1, count + 1):
        rows = batches(t)
        x, y = both(case, rows[None])
        yield t, w, x, y, bool((rows == 0).any())
        w, _ = case.advance(name, w, x, y, t=t, seed=seed)


def distances(w: torch.Tensor, delta: torch.Tensor) -> tuple[float, float]:
    return float((w[0] - w[1]).norm()), float(l2_norm(delta[0] - delta[1]).mean())


def pathwise_violations(case: TiltedInstance, name: str, p: Problem) -> int:
    """How often an update of the path grew more than the proofs of Lemmas 4, 5 and 7 allow."""
    count = 0
    for seed in range(4):
        for t, w, x, y, met in path(case, name, seed):
            step = weight_step(case.c, t, case.m if name == "free" else 1)
            d_w, d_delta = float((w[0] - w[1]).norm()), 0.0
            if name == "free":
                for i in range(1, case.m + 1):
                    allowed = free_next(p, step=step, alpha=case.alpha, d_w=d_w, d_delta=d_delta, met=met)
                    d_w, d_delta = distances(*case.advance(name, w, x, y, t=t, seed=seed, updates=i))
                    count += d_w > allowed[0] * SLACK or d_delta > allowed[1] * SLACK
                continue
            after, _ = distances(*case.advance(name, w, x, y, t=t, seed=seed))
            if name == "vanilla":
                limit = vanilla_next(p, step=step, d_w=d_w, met=met)
            else:
                limit = fast_next(p, step=step, alpha=case.alpha, d_w=d_w, met=met)
            count += after > limit * SLACK
    return count


@pytest.mark.parametrize("name", NAMES)
def test_every_update_of_every_trajectory_obeys_its_lemma(name: str) -> None:
    case = instance()
    assert pathwise_violations(case, name, case.problem()) == 0


def test_updates_break_their_lemma_with_a_quarter_of_beta() -> None:
    """A check that cannot fail proves nothing."""
    case = instance()
    broken = [name for name in NAMES if pathwise_violations(case, name, case.problem(beta_factor=0.25))]
    assert broken == ["fast", "free"]


def expected_next(case: TiltedInstance, name: str, w: torch.Tensor, t: int) -> float:
    """E[d_t] given the weights before, over all mini-batches of S."""
    rows = torch.tensor(list(itertools.combinations(range(len(case.x)), case.b)))
    x, y = both(case, rows)
    after, _ = case.advance(name, w.repeat_interleave(len(rows), 0), x, y, t=t)
    return float((after[: len(rows)] - after[len(rows) :]).norm(dim=1).mean())


def expectation_violations(case: TiltedInstance, name: str, p: Problem) -> int:
    count = 0
    g = torch.Generator().manual_seed(3)
    for t in (1, 2, 5, 20):
        step = weight_step(case.c, t, case.m if name == "free" else 1)
        grown = {
            "vanilla": [vanilla_growth(p, step=step)],
            "fast": [fast_growth(p, step=step, alpha=case.alpha)],
            "free": [
                free_growth(p, step=step, alpha=case.alpha, m=case.m),
                free_growth_as_printed(p, t=t, alpha=case.alpha, m=case.m),
            ],
        }[name]
        for size in (0.0, 1e-3, 0.05, 0.2):
            noise = torch.randn(D, generator=g, dtype=torch.float64)
            for direction in (noise / noise.norm(), case.w0 / case.w0.norm()):
                w = torch.stack([case.w0, case.w0 + size * direction])
                found = expected_next(case, name, w, t)
                count += sum(found > growth.after(size) * SLACK for growth in grown)
    return count


@pytest.mark.parametrize("name", NAMES)
def test_the_expected_distance_obeys_its_lemma_exactly(name: str) -> None:
    case = instance()
    assert expectation_violations(case, name, case.problem()) == 0


def test_expected_distance_breaks_its_lemma_with_a_quarter_of_beta() -> None:
    case = instance(n=800, b=1)  # the 1/n part of the lemmas would hide a small β of a small sample
    p = case.problem(beta_factor=0.25)
    assert any(expectation_violations(case, name, p) for name in ("fast", "free"))
    assert not any(expectation_violations(case, name, case.problem()) for name in ("fast", "free"))


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_stay_in_the_ball_the_constants_are_for(name: str) -> None:
    case = instance()
    for _, w, *_ in path(case, name, seed=0):
        assert float(w.norm(dim=1).max()) <= case.radius


@pytest.mark.parametrize("name", NAMES)
def test_lemma_1_holds_along_trajectories(name: str) -> None:
    case = instance()
    p = case.problem()
    probes = torch.tensor([0, 1, 0, 1, 0, 1])
    for _, w, *_ in path(case, name, seed=0):
        h = case.h_max(w, case.x, probes)
        apart = float((w[0] - w[1]).norm())
        assert float((h[0] - h[1]).abs().max()) <= loss_difference_bound(p, apart) * SLACK


def test_growth_factors_of_the_recursion_are_at_most_two() -> None:
    case = instance()
    for name in NAMES:
        assert recursion_of(name, case.problem(), alpha=case.alpha, m=case.m).nu <= 2


def test_a_tilt_that_w_could_cancel_is_refused() -> None:
    with pytest.raises(InputError, match="must exceed R"):
        instance(c=20.0)
