"""The learner: gradients, reductions, budget, modes, micro-batches, rows of a global batch, stacks."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from freeat import Fast, Free, Friendly, Vanilla
from freeat.errors import InputError
from freeat.learner import Learner, Loss
from freeat.learner.distributed import ProcessGroup
from freeat.learner.learner import micro_batches, refuses_one_image
from freeat.objectives import CrossEntropy, Mart, Objective, Trades, cross_entropy
from freeat.rng import StepRng
from problems import BALLS, CLASSES, SHAPE, batch_norm_net, images, random, same_bits, smooth_net, weights


def learner_of(net: nn.Module, **parts: object) -> Learner:
    return Learner(net, torch.optim.SGD(net.parameters(), lr=0.1), **parts)  # type: ignore[arg-type]


def loss_of(learner: Learner, objective: Objective | None = None) -> Loss:
    objective = objective or CrossEntropy()
    return lambda delta, x, y: objective.loss(learner.logits, x, y, x + delta)


def grads(net: nn.Module) -> list[Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in net.parameters()]


@pytest.mark.parametrize("b", [1, 6, 8])
def test_gradients_are_the_mean_for_w_and_each_images_own_for_delta(b: int) -> None:
    x, y = images(0, b)
    delta = 0.05 * random(1, *x.shape)
    net = smooth_net()
    learner = learner_of(net)
    losses, g_delta = learner.both_gradients(loss_of(learner), delta, x, y)
    probe = delta.clone().requires_grad_()
    own = [
        torch.autograd.grad(F.cross_entropy(net(x[[j]] + probe[[j]]), y[[j]]), probe)[0][j] for j in range(b)
    ]
    torch.testing.assert_close(g_delta, torch.stack(own), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(losses, F.cross_entropy(net(x + delta), y, reduction="none"))
    assert not losses.requires_grad
    assert not g_delta.requires_grad
    ours = grads(net)
    net.zero_grad()
    F.cross_entropy(net(x + delta), y).backward()
    torch.testing.assert_close(ours, grads(net), rtol=1e-12, atol=1e-14)
    net.zero_grad()
    only = learner.weight_gradient(loss_of(learner), delta, x, y)
    torch.testing.assert_close(only, losses)
    torch.testing.assert_close(grads(net), ours, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("micro", [1, 3, 4, 7, 100])
@pytest.mark.parametrize("objective", [CrossEntropy(), Trades(), Mart()], ids=["ce", "trades", "mart"])
def test_micro_batches_equal_the_whole_batch(micro: int, objective: Objective) -> None:
    x, y = images(0, 7)
    delta = 0.05 * random(1, *x.shape)
    found = []
    for size in (None, micro):
        net = smooth_net()
        learner = learner_of(net, micro_batch=size)
        losses, g_delta = learner.both_gradients(loss_of(learner, objective), delta, x, y)
        found.append([losses, g_delta, *grads(net)])
    torch.testing.assert_close(found[0], found[1], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("most", [None, 1, 2, 3, 4, 9])
@pytest.mark.parametrize("images", [0, 1, 2, 4, 5, 9])
def test_the_parts_of_a_batch_hold_every_image_once(images: int, most: int | None) -> None:
    for join in (False, True):
        sizes = [len(range(images)[rows]) for rows in micro_batches(images, most, join=join)]
        rows = [row for part in micro_batches(images, most, join=join) for row in range(images)[part]]
        assert rows == list(range(images))
        assert max(sizes, default=0) <= (most or images) + join
        assert not join or most == 1 or images == 1 or 1 not in sizes


@pytest.mark.parametrize(("network", "parts"), [("one value per channel", [4, 5]), ("several", [4, 4, 1])])
def test_a_part_of_one_image_joins_the_one_before_where_a_batch_norm_needs_more(
    network: str, parts: list[int]
) -> None:
    """Elsewhere it stays alone: a sum of other parts rounds otherwise."""
    last = [nn.BatchNorm1d(3)] if network == "one value per channel" else []
    net = nn.Sequential(batch_norm_net(dtype=torch.float64), *(layer.double() for layer in last)).train()
    learner, x = learner_of(net, micro_batch=4), images(0, 9)[0]
    before, sizes = weights(net), []

    def attack(x: Tensor, y: Tensor, rng: StepRng) -> Tensor:
        sizes.append(len(x))
        return torch.zeros_like(x)

    delta = learner.perturb(attack, x, images(0, 9)[1], learner.begin(x), "eval")
    assert same_bits(weights(net), before)
    assert sizes == parts
    losses = learner.weight_gradient(loss_of(learner), delta, x, images(0, 9)[1])
    assert losses.shape == (9,)


def test_attacks_on_micro_batches_make_the_draws_of_the_whole_batch() -> None:
    x, y = images(0, 7)
    learner = learner_of(smooth_net(), micro_batch=3)
    sizes = []

    def draws(x: Tensor, y: Tensor, rng: StepRng) -> Tensor:
        sizes.append((len(x), len(y)))
        return rng.uniform("start", x)

    rng = learner.begin(x)
    assert torch.equal(learner.perturb(draws, x, y, rng, "eval"), rng.uniform("start", x))
    assert sizes == [(3, 3), (3, 3), (1, 1)]


def test_gradients_of_shares_add_up_to_the_global_batch() -> None:
    x, y = images(0, 7)
    delta = 0.05 * random(1, *x.shape)
    net = smooth_net()
    learner = learner_of(net)
    learner.begin(x)
    _, whole = learner.both_gradients(loss_of(learner), delta, x, y)
    expected, found = grads(net), [torch.zeros_like(p) for p in net.parameters()]
    for rows in (slice(0, 2), slice(2, 2), slice(2, 7)):
        learner.expect(7, rows.start)
        rng = learner.begin(x[rows])
        assert (rng.total, rng.first) == (7, rows.start)
        losses, g_delta = learner.both_gradients(loss_of(learner), delta[rows], x[rows], y[rows])
        assert losses.shape == y[rows].shape
        torch.testing.assert_close(g_delta, whole[rows], rtol=1e-12, atol=1e-14)
        found = [a + b for a, b in zip(found, grads(net), strict=True)]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_expect_holds_for_one_batch_and_must_fit() -> None:
    learner = learner_of(smooth_net())
    x, _ = images(0, 4)
    learner.expect(9, 5)
    assert learner.begin(x).total == 9
    assert learner.begin(x).total == 4
    learner.expect(7, 5)
    with pytest.raises(InputError, match=r"batch of 4 images .* rows from 5 of the 7"):
        learner.begin(x)


def test_a_budget_is_spent_exactly() -> None:
    net = smooth_net()
    learner = learner_of(net, total_updates=2)
    x, y = images(0, 4)
    for done in range(2):
        assert (learner.updates_left, learner.progress) == (2 - done, done / 2)
        learner.begin(x)
        learner.weight_gradient(loss_of(learner), torch.zeros_like(x), x, y)
        learner.descend()
    assert (learner.updates_left, learner.progress, learner.batches) == (0, 1.0, 2)
    with pytest.raises(InputError, match="budget of 2 weight updates is spent"):
        learner.begin(x)


def test_cost_counts_gradient_evaluations_forward_passes_and_stacks() -> None:
    learner = learner_of(smooth_net(), forward=lambda x: x.flatten(-3)[..., :CLASSES])
    learner.logits(images(0, 4, stack=(3,))[0])
    with torch.no_grad():
        learner.logits(images(0, 5)[0])
    assert (learner.cost.gradient_evaluations, learner.cost.forward_passes) == (12, 5)


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_an_attack_sees_w_frozen_and_every_mode_is_restored(mode: str) -> None:
    net = batch_norm_net()
    net[1].eval()
    net[3].weight.requires_grad_(False)
    modes = [m.training for m in net.modules()]
    needs = [p.requires_grad for p in net.parameters()]
    learner = learner_of(net)
    x, y = images(0, 4)
    for fails in (False, True):

        def attack(x: Tensor, y: Tensor, rng: StepRng, fails: bool = fails) -> Tensor:
            assert [m.training for m in net.modules()] == [own and mode == "train" for own in modes]
            assert not any(p.requires_grad for p in net.parameters())
            if fails:
                raise RuntimeError("an attack failed")
            return torch.zeros_like(x)

        try:
            learner.perturb(attack, x, y, learner.begin(x), mode)  # type: ignore[arg-type]
        except RuntimeError:
            assert fails
        assert [m.training for m in net.modules()] == modes
        assert [p.requires_grad for p in net.parameters()] == needs


def test_no_gradient_is_left_even_on_weights_the_optimizer_does_not_hold() -> None:
    net = smooth_net()
    learner = Learner(net, torch.optim.SGD(net[3].parameters(), lr=0.1))
    x, y = images(0, 4)
    before = weights(net)
    learner.begin(x)
    learner.weight_gradient(loss_of(learner), torch.zeros_like(x), x, y)
    learner.descend()
    assert all(p.grad is None for p in net.parameters())
    assert same_bits(before[:2], weights(net)[:2])
    assert not same_bits(before[2:], weights(net)[2:])


def test_a_callers_stale_gradient_does_not_enter_the_step() -> None:
    found = []
    for stale in (False, True):
        net = smooth_net()
        if stale:
            net(images(5, 2)[0]).sum().backward()
        learner = learner_of(net)
        x, y = images(0, 4)
        learner.begin(x)
        learner.weight_gradient(loss_of(learner), torch.zeros_like(x), x, y)
        found.append(grads(net))
    assert same_bits(*found)


class Stack(nn.Module):
    """K nets as one module whose parameters have a leading axis K."""

    def __init__(self, nets: list[nn.Module]) -> None:
        super().__init__()
        self.skeleton = [nets[0]]  # hidden from parameters()
        params, _ = stack_module_state(nets)
        self.names = list(params)
        self.stacked = nn.ParameterList([p.detach().clone() for p in params.values()])

    def forward(self, x: Tensor) -> Tensor:
        def one(params: list[Tensor], x: Tensor) -> Tensor:
            return functional_call(self.skeleton[0], dict(zip(self.names, params, strict=True)), (x,))

        return vmap(one)(list(self.stacked), x)


@pytest.mark.parametrize("micro", [None, 2])
@pytest.mark.parametrize("objective", [CrossEntropy(), Trades()], ids=["ce", "trades"])
def test_a_stack_trains_its_members_as_separate_models(objective: Objective, micro: int | None) -> None:
    x, y = images(0, 5, stack=(3,))
    ball = BALLS["l2"]
    rows = [
        Free(ball=ball, m=2, objective=objective),
        Vanilla(ball=ball, m=2, objective=objective),
        Fast(ball=ball, objective=objective),
        Friendly(ball=ball, m=3, tau=1, objective=objective),
    ]
    for algorithm in rows:
        nets = [smooth_net(seed) for seed in range(3)]
        stack = Stack(nets)
        stacked = learner_of(stack, micro_batch=micro)
        for _ in range(2):
            record = algorithm.step(stacked, x, y)
        assert record.losses.shape == (3, 5)
        assert record.delta.shape == x.shape
        for k, net in enumerate(nets):
            separate = learner_of(net, micro_batch=micro)
            for _ in range(2):
                single = algorithm.step(separate, x[k], y[k])
            torch.testing.assert_close(record.losses[k], single.losses, rtol=1e-10, atol=1e-12)
            for joint, own in zip(stack.stacked, net.parameters(), strict=True):
                torch.testing.assert_close(joint[k], own, rtol=1e-10, atol=1e-12)
            if record.g_norms is not None:
                torch.testing.assert_close(record.g_norms[:, k], single.g_norms, rtol=1e-9, atol=1e-12)


def test_an_empty_share_of_a_batch_makes_no_pass_and_no_gradient() -> None:
    net = smooth_net()
    learner = learner_of(net)
    x, y = torch.zeros(0, *SHAPE, dtype=torch.float64), torch.zeros(0, dtype=torch.long)
    losses, g_delta = learner.both_gradients(lambda d, x, y: cross_entropy(net(x + d), y), x, x, y)
    assert losses.shape == (0,)
    assert g_delta.shape == x.shape
    assert learner.cost.gradient_evaluations == 0
    assert all(p.grad is None for p in net.parameters())


def test_an_impossible_micro_batch_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1 image"):
        learner_of(smooth_net(), micro_batch=0)


def flat_batch_norm_net() -> nn.Module:
    """A network whose batch norm has one value per channel of an image."""
    pixels = math.prod(SHAPE)
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(pixels), nn.Linear(pixels, CLASSES)).double()


@pytest.mark.parametrize(
    ("b", "micro_batch", "given"),
    [
        (1, None, "a batch of 1 image"),
        (1, 4, "a batch of 1 image"),
        (4, 1, "a batch of 4 images, one at a time"),
    ],
)
@pytest.mark.parametrize("algorithm", [Fast(ball=BALLS["l2"]), Free(ball=BALLS["l2"], m=2)])
def test_a_pass_of_one_image_that_a_batch_norm_has_no_statistics_of_is_refused(
    algorithm: Fast | Free, b: int, micro_batch: int | None, given: str
) -> None:
    net = flat_batch_norm_net()
    learner = learner_of(net, micro_batch=micro_batch)
    before = weights(net)
    with pytest.raises(
        InputError, match=f"^{given}: the batch norms .* training mode .* batches of 2 images or more"
    ):
        algorithm.step(learner, *images(0, b))
    assert same_bits(before, weights(net))
    assert learner.batches == 0


def test_one_image_is_taken_where_batch_norms_have_its_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[nn.Module] = []

    def looks(model: nn.Module, x: Tensor, processes: ProcessGroup) -> str | None:
        looked.append(model)
        return refuses_one_image(model, x, processes)

    monkeypatch.setattr("freeat.learner.learner.refuses_one_image", looks)
    frozen_norms = flat_batch_norm_net().eval()
    many_pixels = batch_norm_net(dtype=torch.float64)
    for net in (many_pixels, smooth_net(), frozen_norms):
        learner = learner_of(net)
        for seed in range(3):
            Fast(ball=BALLS["l2"]).step(learner, *images(seed, 4))
        assert net not in looked, "no cost for other batches"
        for seed in range(3):
            Fast(ball=BALLS["l2"]).step(learner, *images(seed, 1))
        assert looked.count(net) == (net is not frozen_norms)


@pytest.mark.parametrize("algorithm", [Free(ball=BALLS["l2"], m=2), Vanilla(ball=BALLS["linf"], m=2)])
def test_a_frameworks_backward_pass_replaces_the_default(algorithm: Free | Vanilla) -> None:
    """It sees one scalar for each weight update; one that scales it changes g_δ in length only, not δ."""
    x, y = images(0, 6)
    seen: list[Tensor] = []

    def scaled(loss: Tensor) -> None:
        seen.append(loss.detach())
        (loss * 8).backward()
        for p in net.parameters():
            p.grad /= 8

    plain, net = smooth_net(), smooth_net()
    expected = algorithm.step(learner_of(plain), x, y)
    learner = learner_of(net, backward=scaled)
    record = algorithm.step(learner, x, y)
    assert len(seen) == learner.updates
    torch.testing.assert_close(seen[-1], expected.losses.mean())
    torch.testing.assert_close(record.delta, expected.delta)
    torch.testing.assert_close(weights(net), weights(plain))
