"""What is added to training whatever the algorithm: averages, proximal term, weight perturbation, clipping."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from freeat import Erm, Free, Vanilla
from freeat.errors import InputError
from freeat.learner import Learner
from freeat.learner.modifiers import ProximalTerm, WeightAverage, WeightPerturbation, clip_gradients
from freeat.objectives import CrossEntropy, Trades
from freeat.rng import StepRng
from freeat.stability.twins import Stack
from problems import BALLS, batch_norm_net, images, random, same_bits, smooth_net, weights


def learner_of(net: nn.Module, **parts: object) -> Learner:
    return Learner(net, torch.optim.SGD(net.parameters(), lr=0.1), **parts)  # type: ignore[arg-type]


def states(net: nn.Module, learner: Learner, batches: int) -> list[list[Tensor]]:
    """Everything that training changes, after each update of a net."""
    seen = []
    for _ in range(batches):
        Free(ball=BALLS["l2"], m=1).step(learner, *images(0, 6))
        seen.append(weights(net))
    return seen


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.999])
def test_the_average_is_of_what_was_seen_weights_and_statistics_alike(decay: float) -> None:
    net = batch_norm_net(dtype=torch.float64).train()
    average = WeightAverage(net, decay)
    seen = states(net, learner_of(net, average=average), 5)
    shares = [decay ** (len(seen) - 1 - s) for s in range(len(seen))]
    for values, found in zip(zip(*seen, strict=True), average.model.state_dict().values(), strict=True):
        if found.is_floating_point():
            mean = sum(share * value for share, value in zip(shares, values, strict=True)) / sum(shares)
            torch.testing.assert_close(found, mean, rtol=1e-12, atol=1e-14)
        else:
            assert torch.equal(found, values[-1])
    assert average.count == 5
    assert not average.model.training


def test_the_average_is_the_debiased_recursion() -> None:
    """(w̄_t − β^t w₀)/(1 − β^t), with w̄ ← β w̄ + (1 − β) w from w̄₀ = w₀."""
    net, beta = smooth_net(), 0.8
    first = weights(net)
    recursion = first
    average = WeightAverage(net, beta)
    for state in states(net, learner_of(net, average=average), 4):
        recursion = [beta * r + (1 - beta) * w for r, w in zip(recursion, state, strict=True)]
    debiased = [(r - beta**4 * w) / (1 - beta**4) for r, w in zip(recursion, first, strict=True)]
    torch.testing.assert_close(weights(average.model), debiased, rtol=1e-12, atol=1e-14)


def test_after_one_update_the_average_is_the_weights() -> None:
    net = batch_norm_net(dtype=torch.float64).train()
    average = WeightAverage(net, 0.999)
    states(net, learner_of(net, average=average), 1)
    assert same_bits(weights(average.model), weights(net))


def test_a_decay_above_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"0\.999 is usual"):
        WeightAverage(smooth_net(), 1.1)


def test_a_mean_begins_after_its_first_update_and_looks_every_few() -> None:
    net = smooth_net()
    average = WeightAverage(net, 1.0, first=2, every=3)
    seen = states(net, learner_of(net, proximal=ProximalTerm(average, 0.0)), 9)
    mean = [(a + b) / 2 for a, b in zip(seen[4], seen[7], strict=True)]
    torch.testing.assert_close(weights(average.model), mean, rtol=1e-12, atol=1e-14)
    assert average.count == 2


def test_slow_weights_are_the_weights_where_they_begin() -> None:
    net = smooth_net()
    average = WeightAverage(net, 1.0, first=2, every=5)
    seen = states(net, learner_of(net, proximal=ProximalTerm(average, 0.1)), 4)
    assert same_bits(weights(average.model), seen[1])


def test_proximal_training_is_its_transcription() -> None:
    """w descends h + (ρ/2)‖w − u‖² from update ``first`` on; u is the mean of every second w after it."""
    rho, lr, first, every, updates = 0.3, 0.1, 2, 2, 9
    net, literal = smooth_net(), smooth_net()
    learner = learner_of(net, proximal=ProximalTerm(WeightAverage(net, 1.0, first=first, every=every), rho))
    optimizer = torch.optim.SGD(literal.parameters(), lr=lr, momentum=0.9, weight_decay=2e-4)
    learner.optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9, weight_decay=2e-4)
    x, y = images(0, 6)
    u = [p.detach().clone() for p in literal.parameters()]
    taken = 0
    for t in range(updates):
        Erm().step(learner, x, y)
        if t == first:
            u = [p.detach().clone() for p in literal.parameters()]
        optimizer.zero_grad()
        loss = F.cross_entropy(literal(x), y)
        if t >= first:
            distance = sum((p - q).square().sum() for p, q in zip(literal.parameters(), u, strict=True))
            loss = loss + rho / 2 * distance
        loss.backward()
        optimizer.step()
        if t + 1 > first and (t + 1 - first) % every == 0:
            u = [q + (p.detach() - q) / (taken + 1) for p, q in zip(literal.parameters(), u, strict=True)]
            taken += 1
    torch.testing.assert_close(weights(net), weights(literal), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close([p.detach() for p in learner.result.parameters()], u, rtol=1e-10, atol=1e-12)


def test_without_a_proximal_term_the_weights_have_the_same_bits() -> None:
    plain, averaged = smooth_net(), smooth_net()
    states(plain, learner_of(plain), 5)
    states(averaged, learner_of(averaged, proximal=ProximalTerm(WeightAverage(averaged, 1.0), 0.0)), 5)
    assert same_bits(weights(plain), weights(averaged))


def perturbed(net: nn.Module, loss: Callable[[], Tensor], gamma: float) -> list[Tensor]:
    """The gradient at w + v by its definition; the net keeps its weights and has the statistics of that pass."""
    before = [b.clone() for b in net.buffers()]
    g = dict(
        zip(dict(net.named_parameters()), torch.autograd.grad(loss(), list(net.parameters())), strict=True)
    )
    kept = {name: p.detach().clone() for name, p in net.named_parameters()}
    with torch.no_grad():
        for name, p in net.named_parameters():
            if p.ndim > 1 and "weight" in name:
                p += gamma * p.norm() * g[name] / g[name].norm()
        for buffer, old in zip(net.buffers(), before, strict=True):
            buffer.copy_(old)
    found = torch.autograd.grad(loss(), list(net.parameters()))
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.copy_(kept[name])
    return list(found)


@pytest.mark.parametrize("objective", [CrossEntropy(), Trades()], ids=["ce", "trades"])
def test_free_with_weight_perturbation_is_its_transcription(objective: CrossEntropy | Trades) -> None:
    """Pass 1 at w gives g_δ and v, pass 2 at w + v the descent; δ ascends by pass 1."""
    ball, gamma, lr, x, y = BALLS["l2"], 0.05, 0.1, *images(0, 6)
    net, literal = (batch_norm_net(dtype=torch.float64).train() for _ in range(2))
    learner = learner_of(net, awp=WeightPerturbation(gamma=gamma))
    record = Free(ball=ball, m=3, objective=objective).step(learner, x, y)
    delta = ball.start(x, "uniform", StepRng(0, (1,), 6, 0))

    def losses(delta: Tensor) -> Tensor:
        return objective.loss(literal, x, y, ball.apply(x, delta))

    for _ in range(3):
        probe = delta.clone().requires_grad_()
        kept = [b.clone() for b in literal.buffers()]
        g_delta = torch.autograd.grad(losses(probe).sum(), probe)[0]
        for buffer, old in zip(literal.buffers(), kept, strict=True):
            buffer.copy_(old)
        descent = perturbed(literal, lambda at=delta: losses(at).mean(), gamma)
        with torch.no_grad():
            for p, g in zip(literal.parameters(), descent, strict=True):
                p -= lr * g
        length = g_delta.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        delta = ball.project(delta + ball.eps * g_delta / length)
    torch.testing.assert_close(weights(net), weights(literal), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(record.delta, delta, rtol=1e-9, atol=1e-11)
    assert learner.cost.gradient_evaluations == 6 * 3 * 2 * objective.loss_passes


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_vanilla_with_weight_perturbation_is_its_transcription(norm: str) -> None:
    """AWP as it was published: the attack at w in evaluation mode, then v, then the descent at w + v."""
    ball, gamma, lr, steps, (x, y) = BALLS[norm], 0.05, 0.1, 2, images(0, 6)
    net, literal = (batch_norm_net(dtype=torch.float64).train() for _ in range(2))
    learner = learner_of(net, awp=WeightPerturbation(gamma=gamma))
    for batch in (1, 2):
        record = Vanilla(ball=ball, m=steps).step(learner, x, y)
        delta = ball.confine(x, ball.start(x, "uniform", StepRng(0, (batch,), 6, 0)))
        literal.eval()
        for _ in range(steps):
            probe = delta.clone().requires_grad_()
            (g,) = torch.autograd.grad(F.cross_entropy(literal(x + probe), y, reduction="sum"), probe)
            length = g.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
            move = ball.eps / 4 * (g / length if norm == "l2" else g.sign())
            delta = ball.confine(x, ball.project(delta + move))
        literal.train()
        descent = perturbed(literal, lambda at=delta: F.cross_entropy(literal(x + at), y), gamma)
        with torch.no_grad():
            for p, g in zip(literal.parameters(), descent, strict=True):
                p -= lr * g
        torch.testing.assert_close(record.delta, delta, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(weights(net), weights(literal), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("objective", [CrossEntropy(), Trades()], ids=["ce", "trades"])
def test_a_perturbation_of_size_zero_costs_nothing_and_keeps_the_bits(
    objective: CrossEntropy | Trades,
) -> None:
    found = []
    for parts in (
        {},
        {"awp": WeightPerturbation(gamma=0.0)},
        {"awp": WeightPerturbation(gamma=0.1, first=4)},
    ):
        net = batch_norm_net(dtype=torch.float64).train()
        learner = learner_of(net, **parts)
        for _ in range(2):
            Free(ball=BALLS["linf"], m=2, objective=objective).step(learner, *images(0, 6))
        found.append((weights(net), learner.cost))
    for state, cost in found[1:]:
        assert same_bits(state, found[0][0])
        assert cost == found[0][1]


def test_weight_perturbation_begins_at_its_update() -> None:
    costs = []
    net = smooth_net()
    learner = learner_of(net, awp=WeightPerturbation(gamma=0.1, first=2))
    for _ in range(3):
        Erm().step(learner, *images(0, 6))
        costs.append(learner.cost.gradient_evaluations)
    assert costs == [6, 12, 24]


def test_micro_batches_share_one_weight_perturbation() -> None:
    nets = []
    for micro in (None, 4):
        net = smooth_net()
        learner = learner_of(net, awp=WeightPerturbation(gamma=0.05), micro_batch=micro)
        for _ in range(2):
            Vanilla(ball=BALLS["l2"], m=2).step(learner, *images(0, 7))
        nets.append(weights(net))
    torch.testing.assert_close(nets[0], nets[1], rtol=1e-10, atol=1e-12)


PARTS: dict[str, Callable[[nn.Module], dict[str, object]]] = {
    "awp": lambda net: {"awp": WeightPerturbation(gamma=0.05)},
    "clip": lambda net: {"clip_grad": 0.3},
    "proximal": lambda net: {"proximal": ProximalTerm(WeightAverage(net, 1.0, first=1), 0.2)},
    "ema": lambda net: {"average": WeightAverage(net, 0.7)},
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("micro", [None, 2])
def test_a_stack_trains_its_members_as_separate_models_with_parts(part: str, micro: int | None) -> None:
    x, y = images(0, 5, stack=(3,))
    nets = [smooth_net(seed) for seed in range(3)]
    stack = Stack(nets[0], 3)
    with torch.no_grad():
        for joint, *own in zip(stack.parameters(), *(net.parameters() for net in nets), strict=True):
            joint.copy_(torch.stack(own))
    stacked = learner_of(stack, micro_batch=micro, **PARTS[part](stack))
    for _ in range(3):
        Free(ball=BALLS["l2"], m=2).step(stacked, x, y)
    for k, net in enumerate(nets):
        single = learner_of(net, micro_batch=micro, **PARTS[part](net))
        for _ in range(3):
            Free(ball=BALLS["l2"], m=2).step(single, x[k], y[k])
        for joint, own in zip(stacked.result.parameters(), single.result.parameters(), strict=True):
            torch.testing.assert_close(joint[k], own, rtol=1e-9, atol=1e-11)


tensors = st.integers(0, 2**31).map(lambda seed: random(seed, 3, 4, 2))


@given(tensors, tensors, st.floats(1e-3, 0.5), st.floats(1e-6, 1e6))
def test_a_weight_perturbation_has_a_relative_length_and_the_direction_of_the_gradient(
    w: Tensor, g: Tensor, gamma: float, scale: float
) -> None:
    awp = WeightPerturbation(gamma=gamma)
    v = awp.direction(w, g, stacked=False)
    torch.testing.assert_close(v.norm(), gamma * w.norm(), rtol=1e-9, atol=0.0)
    torch.testing.assert_close(v, awp.direction(w, scale * g, stacked=False), rtol=1e-9, atol=1e-12)
    assert torch.cosine_similarity(v.flatten(), g.flatten(), dim=0) > 1 - 1e-9
    members = awp.direction(w, g, stacked=True)
    torch.testing.assert_close(members[1], awp.direction(w[1], g[1], stacked=False), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("value", [0.0, math.inf, math.nan])
def test_no_weight_perturbation_follows_from_a_gradient_without_direction(value: float) -> None:
    v = WeightPerturbation(gamma=0.1).direction(
        random(0, 3, 4), torch.full((3, 4), value).double(), stacked=False
    )
    assert (v == 0).all()


@given(st.integers(0, 2**31), st.floats(0.01, 10))
def test_clipped_gradients_are_shortened_together_and_short_ones_kept(seed: int, largest: float) -> None:
    parameters = [nn.Parameter(random(k, 3, 2)) for k in range(2)]
    for k, p in enumerate(parameters):
        p.grad = random(seed + k, 3, 2)
    before = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
    clip_gradients(parameters, largest, stacked=False)
    after = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
    torch.testing.assert_close(
        after, before * min(1.0, largest / float(before.norm())), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WeightPerturbation(gamma=-0.1), "0.01 is usual"),
        (lambda: ProximalTerm(WeightAverage(smooth_net(), 1.0), -1.0), "must not be negative"),
        (lambda: WeightAverage(smooth_net(), 0.5, every=0), "at least 0 and 1"),
        (lambda: learner_of(smooth_net(), clip_grad=0.0), "must be positive"),
    ],
    ids=["awp", "proximal", "every", "clip"],
)
def test_parts_out_of_range_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_model_without_named_weights_is_refused_or_perturbed_whole() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(random(0, 40, 3))

        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1) @ self.w

    with pytest.raises(InputError, match="name its weights so"):
        Erm().step(learner_of(Bare(), awp=WeightPerturbation(gamma=0.1)), *images(0, 4))
    plain, perturbed_net = Bare(), Bare()
    Erm().step(learner_of(plain), *images(0, 4))
    awp = WeightPerturbation(gamma=0.1, every_tensor=True)
    Erm().step(learner_of(perturbed_net, awp=awp), *images(0, 4))
    assert not same_bits(weights(plain), weights(perturbed_net))
