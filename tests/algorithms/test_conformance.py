"""What every algorithm owes, with every objective and norm, and with every part that can be added to it.

A newcomer joins with a row in ``ROWS`` or ``PARTS``.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from freeat import Erm, Fast, Free, Friendly, Vanilla
from freeat.algorithms import Algorithm, StepRecord, WarmUp
from freeat.algorithms.nfgsm import NFgsm
from freeat.algorithms.registry import FAMILIES, example_names, make_algorithm
from freeat.algorithms.step import training_cost, with_smoothing
from freeat.compute.precision import Precision
from freeat.learner import Learner
from freeat.learner.modifiers import ProximalTerm, WeightAverage, WeightPerturbation
from freeat.objectives import OBJECTIVES, Objective
from freeat.threat import STARTS, Ball, Start
from problems import BALLS, batch_norm_net, images, same_bits, smooth_net, weights

B = 6


Make = Callable[[Ball, Objective, Start], Algorithm]

ROWS: dict[str, Make] = {
    "erm": lambda ball, h, start: Erm(objective=h),
    "vanilla": lambda ball, h, start: Vanilla(ball=ball, m=2, objective=h, start=start),
    "fast": lambda ball, h, start: Fast(ball=ball, objective=h, start=start),
    "free": lambda ball, h, start: Free(ball=ball, m=3, objective=h, start=start),
    "free-carry": lambda ball, h, start: Free(ball=ball, m=2, objective=h, start=start, carry=True),
    "n-fgsm": lambda ball, h, start: NFgsm(ball=ball, objective=h),
    "n-fgsm-eval": lambda ball, h, start: NFgsm(ball=ball, noise=0.5, objective=h, attack_mode="eval"),
    "friendly": lambda ball, h, start: Friendly(ball=ball, m=3, tau=1, omega=0.01, objective=h, start=start),
    "warm-up": lambda ball, h, start: WarmUp(
        algorithm=Vanilla(ball=ball, m=2, objective=h, start=start), updates=4
    ),
}
"""How each is made; what it costs, and how often it updates the weights, its class declares."""


Parts = Callable[[nn.Module], dict[str, Any]]
PARTS: dict[str, Parts] = {
    "awp": lambda net: {"awp": WeightPerturbation(gamma=0.01)},
    "proximal": lambda net: {"proximal": ProximalTerm(WeightAverage(net, 1.0, first=1, every=2), 0.05)},
    "ema": lambda net: {"average": WeightAverage(net, 0.9)},
    "clip": lambda net: {"clip_grad": 1.0},
    "all": lambda net: {
        name: part for own in PARTS if own != "all" for name, part in PARTS[own](net).items()
    },
}
"""What can be added to the learner of a net, whatever the algorithm."""


@dataclass(frozen=True)
class Case:
    """One algorithm with one objective in one norm, and the parts that are added to it."""

    make: Make
    objective: str
    ball: Ball
    parts: Parts = field(default=lambda net: {})
    smoothing: float = 0.0

    def algorithm(self, start: Start = "uniform") -> Algorithm:
        algorithm = self.make(self.ball, OBJECTIVES[self.objective](), start)
        return with_smoothing(algorithm, self.smoothing) if self.smoothing else algorithm

    @property
    def reach(self) -> float:
        """How long a perturbation of the training can be, in radii."""
        algorithm = self.algorithm()
        return algorithm.noise_radii + 1 if isinstance(algorithm, NFgsm) else 1.0

    @property
    def updates(self) -> int:
        """Weight updates of a step, as declared."""
        return self.algorithm().updates_per_batch


CASES = {
    f"{name}-{objective}-{norm}": Case(make, objective, ball)
    for (name, make), objective, (norm, ball) in product(ROWS.items(), OBJECTIVES, BALLS.items())
}
CASES |= {
    f"{name}-trades-l2 + {part}": Case(ROWS[name], "trades", BALLS["l2"], parts)
    for name, (part, parts) in product(("vanilla", "free"), PARTS.items())
}
CASES |= {
    f"{name}-{objective}-linf + label smoothing": Case(ROWS[name], objective, BALLS["linf"], smoothing=0.1)
    for name, objective in product(("erm", "warm-up", "free"), OBJECTIVES)
}
CASES["n-fgsm-ce-linf + all"] = Case(ROWS["n-fgsm"], "ce", BALLS["linf"], PARTS["all"], smoothing=0.1)
SGD = torch.optim.SGD
OPTIMIZERS: dict[str, Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda params: SGD(params, lr=0.05, momentum=0.9, weight_decay=2e-4),
    "adam": lambda params: torch.optim.Adam(params, lr=0.01),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.01),
}


def train(
    case: Case,
    net: nn.Module,
    device: torch.device,
    *,
    batches: int = 2,
    precision: str = "fp32",
    optimizer: str = "sgd",
    start: Start = "uniform",
) -> tuple[Learner, list[StepRecord]]:
    """Some batches in a loop of the user's own; labels and images are of the net's device and type."""
    learner = Learner(
        net,
        OPTIMIZERS[optimizer](net.parameters()),
        precision=Precision(precision, device),
        **case.parts(net),
    )
    algorithm = case.algorithm(start)
    dtype = next(net.parameters()).dtype
    batch = [t.to(device) for t in images(0, B, dtype=dtype)]
    return learner, [algorithm.step(learner, *batch) for _ in range(batches)]


def net_on(device: torch.device) -> nn.Module:
    return batch_norm_net().to(device).train()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
class TestEveryAlgorithm:
    def test_two_runs_have_the_same_bits(self, case: Case, device: torch.device) -> None:
        one, two = net_on(device), net_on(device)
        records = [train(case, net, device)[1][-1] for net in (one, two)]
        assert same_bits(weights(one), weights(two))
        assert torch.equal(records[0].delta, records[1].delta)
        assert torch.equal(records[0].losses, records[1].losses)

    def test_weights_move_and_the_loss_falls(self, case: Case, device: torch.device) -> None:
        net = net_on(device)
        before = weights(net)
        _, records = train(case, net, device, batches=25)
        assert not same_bits(before, weights(net))
        assert records[-1].losses.mean() < 0.7 * records[0].losses.mean()

    @pytest.mark.parametrize("precision", ["bf16", "fp16"])
    def test_low_precision_moves_weights_like_fp32(
        self, case: Case, precision: str, device: torch.device
    ) -> None:
        exact, net = net_on(device), net_on(device)
        start = weights(net)
        train(case, exact, device, batches=1)
        _, records = train(case, net, device, batches=1, precision=precision)
        assert records[-1].losses.dtype == records[-1].delta.dtype == torch.float32
        assert all(t.isfinite().all() for t in weights(net))
        moved, expected = (
            torch.cat(
                [(a - b).flatten() for a, b in zip(weights(n), start, strict=True) if a.is_floating_point()]
            )
            for n in (net, exact)
        )
        assert torch.cosine_similarity(moved, expected, dim=0) > 0.9

    def test_no_gradients_modes_or_flags_are_left_behind(self, case: Case, device: torch.device) -> None:
        net = net_on(device)
        net[1].eval()
        net[3].weight.requires_grad_(False)
        frozen, statistics = net[3].weight.clone(), net[1].running_mean.clone()
        modes = [module.training for module in net.modules()]
        flags = [p.requires_grad for p in net.parameters()]
        _, records = train(case, net, device)
        assert all(p.grad is None for p in net.parameters())
        assert [module.training for module in net.modules()] == modes
        assert [p.requires_grad for p in net.parameters()] == flags
        assert torch.equal(net[3].weight, frozen)
        assert torch.equal(net[1].running_mean, statistics)
        for tensor in (records[0].losses, records[0].delta, records[0].g_norms):
            assert tensor is None or (tensor.grad_fn is None and not tensor.requires_grad)

    def test_attacks_do_not_update_batch_norm_statistics(self, case: Case, device: torch.device) -> None:
        """The network's statistics are gathered by the passes of the loss only, unless an attack runs in train mode.

        Of the two passes of a weight perturbation, those at w + v count.
        """
        net = net_on(device)
        train(case, net, device, batches=1)
        algorithm = case.algorithm()
        passes = OBJECTIVES[case.objective].loss_passes * case.updates
        if getattr(algorithm, "attack_mode", "eval") == "train":
            passes = algorithm.cost.gradient_evaluations + algorithm.cost.forward_passes
        assert net[1].num_batches_tracked == passes

    def test_a_step_runs_on_the_meta_device(self, case: Case) -> None:
        meta = torch.device("meta")
        learner, records = train(case, net_on(meta), meta)
        assert learner.updates == 2 * case.updates
        assert {records[-1].losses.device, records[-1].delta.device} == {meta}

    @pytest.mark.parametrize("optimizer", OPTIMIZERS)
    def test_every_optimizer_trains(self, case: Case, optimizer: str, device: torch.device) -> None:
        net = net_on(device)
        before = weights(net)
        learner, _ = train(case, net, device, optimizer=optimizer)
        assert learner.updates == 2 * case.updates
        assert not same_bits(before, weights(net))
        assert all(t.isfinite().all() for t in weights(net))

    def test_cost_and_updates_are_those_declared(self, case: Case, device: torch.device) -> None:
        net = net_on(device)
        seen = []
        net.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
        learner, records = train(case, net, device, batches=1)
        declared = training_cost(case.algorithm(), case.updates, learner.awp)
        assert learner.cost.gradient_evaluations == B * declared.gradient_evaluations
        assert learner.cost.forward_passes == B * declared.forward_passes
        assert sum(seen) == learner.cost.gradient_evaluations + learner.cost.forward_passes
        assert (learner.updates, learner.batches) == (case.updates, 1)
        assert records[0].losses.shape == (B,)
        if records[0].g_norms is not None:
            assert records[0].g_norms.shape[1:] == (B,)

    @pytest.mark.parametrize("start", STARTS)
    def test_delta_stays_in_the_ball_and_the_network_in_the_box(self, case: Case, start: Start) -> None:
        seen: list[Tensor] = []
        net = smooth_net()
        net.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach().clone()))
        _, records = train(case, net, torch.device("cpu"), batches=3, start=start)
        x, radius = images(0, B)[0], case.reach * case.ball.eps * (1 + 1e-12)
        assert seen
        for inputs in seen:
            assert inputs.min() >= 0
            assert inputs.max() <= 1
            assert case.ball.size(inputs - x).max() <= radius + 1e-15
        for record in records:
            assert case.ball.size(record.delta).max() <= radius


@pytest.mark.parametrize("name", example_names())
def test_every_named_algorithm_takes_a_step(name: str) -> None:
    net = smooth_net()
    before = weights(net)
    learner = Learner(net, SGD(net.parameters(), lr=0.1))
    record = make_algorithm(name, BALLS["linf"]).step(learner, *images(0, B))
    assert math.isfinite(record.losses.mean())
    assert not same_bits(before, weights(net))


def test_every_family_has_a_row() -> None:
    assert set(FAMILIES) <= set(ROWS)


@pytest.mark.parametrize("name", ["vanilla", "free", "friendly"])
def test_without_a_box_the_network_sees_x_plus_delta(name: str) -> None:
    ball = make_open(BALLS["l2"])
    seen: list[Tensor] = []
    net = smooth_net()
    net.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach().clone()))
    train(Case(ROWS[name], "ce", ball), net, torch.device("cpu"))
    assert min(inputs.min() for inputs in seen) < 0
    x = images(0, B)[0]
    assert all(ball.size(inputs - x).max() <= ball.eps * (1 + 1e-12) for inputs in seen)


def make_open(ball: Ball) -> Ball:
    return type(ball)(ball.eps, None)


def with_step(ball: Ball, objective: Objective, start: Start) -> Algorithm:
    return NFgsm(ball=ball, alpha=0.05, objective=objective)


@pytest.mark.parametrize(
    "case",
    [
        CASES["vanilla-ce-l2"],
        CASES["free-trades-linf"],
        CASES["fast-ce-linf"],
        CASES["n-fgsm-ce-linf"],
        Case(with_step, "ce", BALLS["linf"]),
        Case(with_step, "ce", BALLS["l2"]),
    ],
)
def test_radius_zero_is_training_without_an_adversary(case: Case) -> None:
    nothing = Case(case.make, case.objective, case.ball.scaled(0))
    net = smooth_net()
    _, records = train(nothing, net, torch.device("cpu"), batches=1)
    assert (records[0].delta == 0).all()
    if case.updates == 1:
        plain = smooth_net()
        train(Case(ROWS["erm"], case.objective, case.ball), plain, torch.device("cpu"), batches=1)
        assert same_bits(weights(net), weights(plain))
