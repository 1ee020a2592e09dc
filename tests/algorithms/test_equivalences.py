"""The algorithms against the paper's pseudocode, written out with plain autograd; equal to the last bit.

Batches have 8 images, so that dividing by b and multiplying by it again are exact.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from freeat import Erm, Fast, Free, Friendly, Vanilla
from freeat.algorithms import Algorithm, WarmUp
from freeat.attacks.pgd import ImageLoss, last_iterate
from freeat.learner import Learner
from freeat.objectives import CrossEntropy, Mart, Objective, Trades
from freeat.rng import Rng, StepRng
from freeat.threat import PIXELS, Ball, Linf
from problems import BALLS, batch_norm_net, images, same_bits, smooth_net, weights

B, SEED, LR = 8, 5, 0.05
BOTH_NORMS = pytest.mark.parametrize("ball", BALLS.values(), ids=BALLS)


def sgd(net: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9, weight_decay=2e-4)


def run(
    algorithm: Algorithm, batches: int = 3, net: nn.Module | None = None, **parts: object
) -> list[Tensor]:
    """The weights after some batches."""
    net = net or smooth_net()
    learner = Learner(net, sgd(net), seed=SEED, **parts)  # type: ignore[arg-type]
    for t in range(batches):
        algorithm.step(learner, *images(t, B, dtype=next(net.parameters()).dtype))
    return weights(net)


def h(net: nn.Module, delta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return -net((x + delta).clamp(0, 1)).log_softmax(-1).gather(-1, y[:, None])[:, 0]


def h_trades(net: nn.Module, delta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """h̃_λ of equation (11), λ = 1/6."""
    log_p, log_q = net(x).log_softmax(-1), net((x + delta).clamp(0, 1)).log_softmax(-1)
    return -log_p.gather(-1, y[:, None])[:, 0] + (log_p.exp() * (log_p - log_q)).sum(-1) / (1 / 6)


def up(ball: Ball, delta: Tensor, g: Tensor, alpha: float) -> Tensor:
    """P_Δ(δ + (α/ε) π_Δ(g)), norm by norm."""
    if isinstance(ball, Linf):
        return (delta + alpha * g.sign()).clamp(-ball.eps, ball.eps)
    unit = g / g.abs().amax(PIXELS, keepdim=True)
    v = delta + alpha * (unit / torch.linalg.vector_norm(unit, dim=PIXELS, keepdim=True))
    size = torch.linalg.vector_norm(v, dim=PIXELS, keepdim=True)
    return torch.where(size > ball.eps, v * (ball.eps / size), v)


def algorithm_2(loss: Callable[..., Tensor], ball: Ball, m: int, total: int) -> tuple[list[Tensor], Tensor]:
    """Algorithms 2 and 4, line by line; the last loop is cut at T."""
    net, done, t = smooth_net(), 0, 0
    optimizer = sgd(net)
    while done < total:
        x, y = images(t, B)  # line 3
        t += 1
        delta = ball.start(x, "uniform", StepRng(SEED, (t,)))  # line 4
        for _ in range(min(m, total - done)):  # line 5
            delta = delta.detach().requires_grad_()
            optimizer.zero_grad()
            (loss(net, delta, x, y).sum() / B).backward()  # lines 6-7: g_w, and g_δ/b beside it
            g_delta = delta.grad * B
            optimizer.step()  # line 8
            delta = up(ball, delta.detach(), g_delta, ball.eps)  # line 9, α_δ = 1
            done += 1
    return weights(net), delta


@BOTH_NORMS
@pytest.mark.parametrize("m", [1, 4])
@pytest.mark.parametrize("total", [12, 10, 3])
@pytest.mark.parametrize(
    ("objective", "loss"), [(CrossEntropy(), h), (Trades(), h_trades)], ids=["algorithm-2", "algorithm-4"]
)
def test_free_is_m_simultaneous_projected_steps(
    ball: Ball, m: int, total: int, objective: Objective, loss: Callable[..., Tensor]
) -> None:
    expected, delta = algorithm_2(loss, ball, m, total)
    net = smooth_net()
    learner = Learner(net, sgd(net), seed=SEED, total_updates=total)
    while learner.updates_left:
        record = Free(ball=ball, m=m, objective=objective).step(learner, *images(learner.batches, B))
    assert learner.updates == total
    assert same_bits(weights(net), expected)
    assert torch.equal(record.delta, delta)


@BOTH_NORMS
@pytest.mark.parametrize("objective", [CrossEntropy(), Trades(), Mart()], ids=["ce", "trades", "mart"])
@pytest.mark.parametrize("make", [smooth_net, batch_norm_net])
def test_vanilla_with_one_step_is_fast(
    ball: Ball, objective: Objective, make: Callable[[], nn.Module]
) -> None:
    alpha = 0.9 * ball.eps
    vanilla = run(Vanilla(ball=ball, m=1, alpha=alpha, objective=objective), net=make())
    assert same_bits(vanilla, run(Fast(ball=ball, alpha=alpha, objective=objective), net=make()))
    assert not same_bits(vanilla, run(Fast(ball=ball, alpha=0.8 * ball.eps, objective=objective), net=make()))


@BOTH_NORMS
def test_vanilla_with_one_step_is_fast_also_where_the_gradient_is_zero(ball: Ball) -> None:
    """At δ = 0 the divergence of TRADES is flat: both leave it in the direction of the same draw."""
    vanilla = Vanilla(ball=ball, m=1, alpha=ball.eps, start="zero", objective=Trades())
    assert same_bits(run(vanilla), run(Fast(ball=ball, alpha=ball.eps, start="zero", objective=Trades())))


@BOTH_NORMS
def test_trades_is_pgd_on_the_divergence_and_descent_on_both_branches(ball: Ball) -> None:
    net = smooth_net()
    optimizer = sgd(net)
    for t in range(3):
        x, y = images(t, B)
        delta = ball.project(0.001 * StepRng(SEED, (t + 1,)).normal("start", x))
        delta = delta.clamp(0 - x, 1 - x)
        with torch.no_grad():
            log_p = net(x).log_softmax(-1)
        for _ in range(3):
            delta = delta.detach().requires_grad_()
            log_q = net((x + delta).clamp(0, 1)).log_softmax(-1)
            divergence = (log_p.exp() * (log_p - log_q)).sum()
            g = torch.autograd.grad(divergence, delta)[0]
            delta = up(ball, delta.detach(), g, ball.eps / 4).clamp(0 - x, 1 - x)
        optimizer.zero_grad()
        (h_trades(net, delta, x, y).sum() / B).backward()
        optimizer.step()
    assert same_bits(run(Vanilla(ball=ball, m=3, start="gaussian", objective=Trades())), weights(net))


def test_trades_gradient_equals_the_public_formula() -> None:
    """cross_entropy(f(x)) + 6 · kl_div(log_softmax f(x'), softmax f(x)), batch means, through both branches."""
    x, y = images(0, B)
    x_adv = images(1, B)[0]
    net = smooth_net()
    learner = Learner(net, sgd(net))
    losses = learner.weight_gradient(
        lambda d, x, y: Trades().loss(learner.logits, x, y, x_adv), torch.zeros_like(x), x, y
    )
    ours = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    robust = F.kl_div(F.log_softmax(net(x_adv), 1), F.softmax(net(x), 1), reduction="batchmean")
    loss = F.cross_entropy(net(x), y) + 6.0 * robust
    loss.backward()
    torch.testing.assert_close(losses.mean(), loss.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(ours, [p.grad for p in net.parameters()], rtol=1e-11, atol=1e-13)


@BOTH_NORMS
@pytest.mark.parametrize("start", ["uniform", "radius"])
def test_friendly_with_tau_m_is_pgd(ball: Ball, start: str) -> None:
    vanilla = run(Vanilla(ball=ball, m=4, start=start))  # type: ignore[arg-type]
    assert same_bits(run(Friendly(ball=ball, m=4, tau=4, start=start)), vanilla)  # type: ignore[arg-type]
    assert not same_bits(run(Friendly(ball=ball, m=4, tau=0, start=start)), vanilla)  # type: ignore[arg-type]


@BOTH_NORMS
@pytest.mark.parametrize("tau", [0, 1, 2])
def test_friendly_counts_its_steps_image_by_image(ball: Ball, tau: int) -> None:
    """Image by image: PGD that takes τ more steps once the image is misclassified."""
    x, y = images(0, B)
    net, steps, ball = smooth_net(seed=3), 5, ball.scaled(0.4)
    for _ in range(30):  # so that some images are right to begin with
        Erm().step(Learner(net, torch.optim.SGD(net.parameters(), lr=0.1)), x, y)
    learner = Learner(net, torch.optim.SGD(net.parameters(), lr=0.0), seed=SEED)
    friendly = Friendly(ball=ball, m=steps, tau=tau, alpha=ball.eps / 2).step(learner, x, y)
    begin = ball.confine(x, ball.start(x, "uniform", StepRng(SEED, (1,))))
    stopped = 0
    for j in range(B):
        delta, left = begin[[j]], tau
        for _ in range(steps):
            delta = delta.detach().requires_grad_()
            logits = net(x[[j]] + delta)
            if logits.argmax() != y[j]:
                if left == 0:
                    stopped += 1
                    break
                left -= 1
            g = torch.autograd.grad(F.cross_entropy(logits, y[[j]]), delta)[0]
            delta = up(ball, delta.detach(), g, ball.eps / 2).clamp(0 - x[[j]], 1 - x[[j]])
        torch.testing.assert_close(friendly.delta[[j]], delta.detach(), rtol=1e-9, atol=1e-12)
    assert 0 < stopped < B, "the example must hold images that stop and images that do not"


def test_friendly_noise_and_growing_tau() -> None:
    ball = BALLS["linf"]
    plain = run(Friendly(ball=ball, m=3))
    assert not same_bits(run(Friendly(ball=ball, m=3, omega=0.05)), plain)
    grown = [Friendly(ball=ball, m=4, tau=tau) for tau in (0, 1, 2)]
    dynamic = Friendly(ball=ball, m=4, tau=2, dynamic=True)
    net, other = smooth_net(), smooth_net()
    one, two = (Learner(n, sgd(n), seed=SEED, total_updates=3) for n in (net, other))
    for t in range(3):  # a third of the budget for each τ
        dynamic.step(one, *images(t, B))
        grown[t].step(two, *images(t, B))
    assert same_bits(weights(net), weights(other))


PLAIN: dict[str, Callable[[Ball], Vanilla | Fast | Free | Friendly]] = {
    "vanilla": lambda ball: Vanilla(ball=ball, m=3),
    "fast": lambda ball: Fast(ball=ball, alpha=ball.eps / 3),
    "free": lambda ball: Free(ball=ball, m=2),
    "friendly": lambda ball: Friendly(ball=ball, m=3, tau=1),
}


@BOTH_NORMS
@pytest.mark.parametrize("name", PLAIN)
def test_warm_up_grows_the_ball_to_its_radius(name: str, ball: Ball) -> None:
    plain = PLAIN[name](ball)
    warm = WarmUp(algorithm=plain, updates=6)
    net = smooth_net()
    learner = Learner(net, sgd(net), seed=SEED)
    assert warm.updates_per_batch == plain.updates_per_batch
    while learner.updates < 8:
        share = min(1.0, (learner.updates + 1) / 6)
        twin_net = smooth_net()
        twin_net.load_state_dict(net.state_dict())
        twin = Learner(twin_net, sgd(twin_net), seed=SEED)
        twin.optimizer.load_state_dict(deepcopy(learner.optimizer.state_dict()))
        twin.batches = learner.batches
        small = PLAIN[name](ball.scaled(share))
        x, y = images(learner.batches, B)
        record, expected = warm.step(learner, x, y), small.step(twin, x, y)
        assert (ball.size(record.delta) <= share * ball.eps * (1 + 1e-12)).all()
        torch.testing.assert_close(record.delta, expected.delta, rtol=1e-9, atol=1e-12)
        if share == 1:
            assert torch.equal(record.delta, expected.delta)
            assert same_bits(weights(net), weights(twin_net))


def test_warm_up_of_a_ball_of_radius_zero_trains() -> None:
    ball = BALLS["linf"].scaled(0)
    for plain in (Vanilla(ball=ball, m=2), Free(ball=ball, m=2)):
        assert same_bits(run(WarmUp(algorithm=plain, updates=4)), run(plain))


@BOTH_NORMS
def test_carry_starts_from_the_delta_of_the_batch_before(ball: Ball) -> None:
    """As the first Free AT: a short batch uses the first slots and leaves the others as they were."""
    net = smooth_net()
    learner = Learner(net, sgd(net), seed=SEED)
    algorithm = Free(ball=ball, m=1, carry=True)
    drawn = Free(ball=ball, m=1)
    slots = images(0, 0)[0]
    for t, b in enumerate([4, 8, 2, 8]):
        x, y = images(t, b)
        fresh = ball.start(x, "uniform", StepRng(SEED, (t + 1,)))
        begin = fresh.clone()
        begin[: len(slots)] = slots[:b]
        probe = begin.clone().requires_grad_()
        (h(net, probe, x, y).sum() / b).backward()
        end = up(ball, begin, probe.grad * b, ball.eps)
        assert torch.equal(algorithm.step(learner, x, y).delta, end)
        slots = torch.cat([end, slots[b:]])
    assert learner.carried is not None
    assert torch.equal(learner.carried, slots)
    assert not same_bits(run(algorithm), run(drawn))


@BOTH_NORMS
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("objective", [CrossEntropy(), Trades()], ids=["ce", "trades"])
def test_micro_batches_train_as_the_whole_batch(name: str, ball: Ball, objective: Objective) -> None:
    algorithm = replace(PLAIN[name](ball), objective=objective)
    whole, parts = run(algorithm), run(algorithm, micro_batch=3)
    torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-11)


@BOTH_NORMS
def test_any_maximizer_can_be_plugged_into_vanilla(ball: Ball) -> None:
    def maximizer(loss: ImageLoss, x: Tensor, y: Tensor, ball: Ball, rng: Rng) -> Tensor:
        return last_iterate(loss, x, ball, rng, steps=3, alpha=ball.eps / 4)

    plugged = Vanilla(ball=ball, m=99, maximizer=maximizer)
    assert same_bits(run(plugged), run(Vanilla(ball=ball, m=3)))


def test_default_steps_follow_from_norm_and_radius() -> None:
    l2, linf = BALLS["l2"], BALLS["linf"]
    for ball in (l2, linf):
        assert Vanilla(ball=ball).step_size == ball.eps / 4
        assert Vanilla(ball=ball, m=1).step_size == ball.eps
        assert Free(ball=ball).step_size == ball.eps
        assert Friendly(ball=ball).step_size == ball.eps / 4
    assert Fast(ball=linf).step_size == pytest.approx(7 / 8 * linf.eps)
    assert Fast(ball=l2).step_size == l2.eps / 2
