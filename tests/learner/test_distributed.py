"""Data parallelism: a group of processes ends with the weights of one process."""

import gc
import os
import socket
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from freeat import Fast, Free, Friendly, Pgd, Vanilla, evaluate
from freeat.algorithms import Algorithm
from freeat.algorithms.nfgsm import NFgsm
from freeat.algorithms.step import with_smoothing
from freeat.data import load_data
from freeat.data.batches import Batches
from freeat.errors import InputError
from freeat.learner import Learner
from freeat.learner.distributed import SINGLE_PROCESS, ProcessGroup, check_in_step, join_process_group
from freeat.learner.modifiers import ProximalTerm, WeightAverage, WeightPerturbation
from freeat.objectives import CrossEntropy, Trades
from freeat.training.checks import memory_remedy
from freeat.training.loop import train
from problems import BALLS, CLASSES, images, same_bits, smooth_net, weights

UPDATES = 50
SIZES = [8, 7, 2, 5, 1]  # of the global batches: divisible by no number of processes, some smaller than it
L2_BALL, LINF_BALL = BALLS["l2"], BALLS["linf"]
ROWS: dict[str, Algorithm] = {
    "free": Free(ball=L2_BALL, m=4),
    "free-linf": Free(ball=LINF_BALL, m=3),
    "vanilla": Vanilla(ball=LINF_BALL, m=3),
    "trades": Vanilla(ball=L2_BALL, m=3, start="gaussian", objective=Trades()),
    "free-trades": Free(ball=L2_BALL, m=4, objective=Trades()),
    "fast": Fast(ball=LINF_BALL),
    "friendly": Friendly(ball=LINF_BALL, m=3, tau=1),
    "n-fgsm": NFgsm(ball=LINF_BALL),
    "free + parts": with_smoothing(Free(ball=L2_BALL, m=4), 0.1),
    "trades + parts": Vanilla(ball=L2_BALL, m=3, start="gaussian", objective=Trades()),
}


def parts_of(name: str, net: nn.Module) -> dict[str, Any]:
    """What is added to the learner of a row."""
    if not name.endswith("parts"):
        return {}
    slow = WeightAverage(net, 1.0, first=10, every=4)
    return {"awp": WeightPerturbation(gamma=0.02), "proximal": ProximalTerm(slow, 0.1), "clip_grad": 2.0}


def make_learner(
    name: str, net: nn.Module, processes: ProcessGroup, micro_batch: int | None = None
) -> Learner:
    return Learner(
        net,
        torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=2e-4),
        total_updates=UPDATES,
        processes=processes,
        micro_batch=micro_batch,
        **parts_of(name, net),
    )


def resumed(name: str, learner: Learner) -> Learner:
    """A learner as another process would make it from what was saved of this one, which has no parts."""
    net = smooth_net(seed=7)
    net.load_state_dict(learner.model.state_dict())
    other = make_learner(name, net, learner.processes)
    other.optimizer.load_state_dict(learner.optimizer.state_dict())
    other.updates, other.batches = learner.updates, learner.batches
    return other


class Skipping(nn.Module):
    """A network with a last layer that it skips, in training only, when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.net = smooth_net(seed=4)
        self.last = nn.Parameter(torch.ones(CLASSES, dtype=torch.float64))
        self.skips = False

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits if self.training and self.skips else logits * self.last


SKIPS: dict[str, Callable[[int, int], bool]] = {  # in which batches, in which process
    "always": lambda batch, rank: True,
    "in every second batch": lambda batch, rank: batch % 2 == 0,
    "in every second batch, by turns": lambda batch, rank: (batch + rank) % 2 == 0,
}


def trained(
    name: str,
    processes: ProcessGroup,
    micro_batch: int | None = None,
    *,
    skips: str | None = None,
    resume_at: int | None = None,
    unfreeze_at: int = 0,
    overlapped: bool = True,
) -> list[Tensor]:
    net = smooth_net(seed=4) if skips is None else Skipping()
    learner = make_learner(name, net, processes, micro_batch)
    first = next(learner.model.parameters())
    while learner.updates_left:
        if skips is not None:
            learner.model.skips = SKIPS[skips](learner.batches, processes.rank)
        first.requires_grad_(learner.updates >= unfreeze_at)
        if resume_at is not None and learner.updates >= resume_at:
            learner, resume_at = resumed(name, learner), None
        total = SIZES[learner.batches % len(SIZES)]
        x, y = images(learner.batches, total)
        rows = processes.share(total)
        learner.expect(total, rows.start)
        record = ROWS[name].step(learner, x[rows], y[rows])
        assert record.losses.shape == y[rows].shape
        if record.g_norms is not None:
            assert record.g_norms.shape[1:] == y[rows].shape
    assert (learner._sums is not None) == (overlapped and processes.size > 1)
    return weights(learner.result)


def trained_without_overlap(name: str, processes: ProcessGroup) -> list[Tensor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "_overlapped_sums", lambda *given: None)
        return trained(name, processes, overlapped=False)


def gradient_of_two_passes(processes: ProcessGroup) -> list[Tensor]:
    """The gradients of two losses of one batch, which add up before one descent."""
    learner = make_learner("fast", smooth_net(seed=4), processes)
    x, y = images(0, 8)
    rows = processes.share(8)
    learner.expect(8, rows.start)
    learner.begin(x[rows])
    for objective in (CrossEntropy(), Trades()):

        def h(delta: Tensor, x: Tensor, y: Tensor, loss: Any = objective.loss) -> Tensor:
            values: Tensor = loss(learner.logits, x, y, x + delta)
            return values

        learner.weight_gradient(h, torch.full_like(x[rows], 0.01), x[rows], y[rows])
    return [p.grad for p in learner.model.parameters() if p.grad is not None]


def exchanges(processes: ProcessGroup) -> dict[str, object]:
    """Every exchange once; what each process should find is known."""
    rank = processes.rank
    net = nn.Sequential(nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last), nn.BatchNorm2d(3))
    net[0].weight.grad = torch.full_like(net[0].weight, float(rank + 1)) if rank else None
    net[1].running_mean.fill_(rank)
    frozen = net[1].bias.requires_grad_(False)
    processes.sum_gradients(net.parameters())
    processes.average_buffers(net)
    kept = torch.tensor([1.0])
    processes.wait()
    return {
        "gradient": net[0].weight.grad[0, 0, 0, 0].item(),
        "layout": net[0].weight.grad.is_contiguous(memory_format=torch.channels_last),
        "frozen": frozen.grad is None,
        "in no process": net[0].bias.grad is None,
        "mean": net[1].running_mean[0].item(),
        "counter": net[1].num_batches_tracked.item(),
        "sum": processes.sum(kept * (rank + 1)).item(),
        "rows": processes.concatenate(torch.arange(rank) + 10 * rank).tolist(),
        "any": [processes.any(rank == 1), processes.any(False)],
        "is_main": processes.is_main,
    }


COUNTED: dict[str, tuple[Algorithm, bool, bool]] = {  # the algorithm, batch norms, an average of the weights
    "vanilla": (Vanilla(ball=LINF_BALL, m=2), False, False),
    "vanilla, batch norms": (Vanilla(ball=LINF_BALL, m=2), True, False),
    "free": (Free(ball=LINF_BALL, m=4), False, False),
    "free, batch norms": (Free(ball=LINF_BALL, m=4), True, False),
    "free, batch norms, ema": (Free(ball=LINF_BALL, m=4), True, True),
}
COUNTED_BATCHES = 3


def counted_net(batch_norms: bool) -> nn.Module:
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10), nn.BatchNorm1d(10)]
    return nn.Sequential(*(one for one in layers if batch_norms or "BatchNorm" not in type(one).__name__))


@contextmanager
def collectives() -> Iterator[list[tuple[str, int]]]:
    """Every collective that is called inside, by name, with the bytes it takes."""
    seen: list[tuple[str, int]] = []

    def counting(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*given: Any, **options: Any) -> object:
            seen.append((name, sum(t.numel() * t.element_size() for t in given if isinstance(t, Tensor))))
            return call(*given, **options)

        return counted

    with pytest.MonkeyPatch.context() as patch:
        for name in ("all_reduce", "all_gather", "all_gather_object", "broadcast", "barrier", "reduce"):
            patch.setattr(dist, name, counting(name, getattr(dist, name)))
        yield seen


def exchanged(name: str, processes: ProcessGroup) -> list[tuple[str, int]]:
    """The collectives of some batches of a training."""
    algorithm, batch_norms, averaged = COUNTED[name]
    net = counted_net(batch_norms)
    learner = Learner(
        net,
        torch.optim.SGD(net.parameters(), lr=0.1),
        total_updates=COUNTED_BATCHES * algorithm.updates_per_batch,
        processes=processes,
        average=WeightAverage(net, 0.9) if averaged else None,
    )
    data = load_data("digits").train
    with collectives() as seen:
        assert (
            len(list(train(learner, algorithm, data, Batches(n=len(data), size=9, seed=0))))
            == COUNTED_BATCHES
        )
    return seen


def of_sync_batch_norm(processes: ProcessGroup) -> list[tuple[str, int]]:
    """The collectives that a network with shared batch norms takes for its buffers."""
    with collectives() as seen:
        processes.average_buffers(nn.SyncBatchNorm.convert_sync_batchnorm(counted_net(batch_norms=True)))
    return seen


class Viewed(nn.Linear):
    """A linear model that cannot tell the shape of no image."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.view(x.size(0), -1))


@dataclass(frozen=True)
class Noting(Pgd):
    """PGD with a note on each batch."""

    def __call__(self, f: Any, x: Tensor, *given: Any, **options: Any) -> Any:
        return replace(
            super().__call__(f, x, *given, **options), notes=(f"brightness {x.square().sum():.6f}",)
        )


def evaluated(processes: ProcessGroup, n: int) -> dict[str, object]:
    """What an evaluation finds on n images, which may be fewer than the processes."""
    torch.manual_seed(0)
    found = evaluate(
        Viewed(64, 10),
        load_data("digits").test.sample(n),
        Noting(steps=2),
        L2_BALL,
        classes=10,
        batch_size=1,
        with_loss=True,
        keep_delta=True,
        processes=processes,
    )
    return {"notes": found.notes, "cost": found.cost, **found.tensors}


def process(rank: int, size: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": f"{rank}",
        "WORLD_SIZE": f"{size}",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": f"{port}",
    }
    with join_process_group(torch.device("cpu")) as processes:
        assert (processes.rank, processes.size) == (rank, size)
        found = {name: trained(name, processes) for name in ROWS}
        found["micro"] = trained("free-trades", processes, micro_batch=2)
        found["two passes"] = gradient_of_two_passes(processes)
        found |= {f"skips {skips}": trained("free", processes, skips=skips) for skips in SKIPS}
        found["skips, micro"] = trained("free", processes, micro_batch=2, skips="in every second batch")
        found["resumed"] = trained("free", processes, resume_at=20)
        found["unfrozen"] = trained("free", processes, unfreeze_at=20)
        found |= {f"{name}, flat": trained_without_overlap(name, processes) for name in ROWS}
        counted = {name: exchanged(name, processes) for name in COUNTED}
        counted["SyncBatchNorm"] = of_sync_batch_norm(processes)
        evaluations = {n: evaluated(processes, n) for n in (1, 5)}
        results = {
            "evaluations": evaluations,
            "found": found,
            "exchanges": exchanges(processes),
            "collectives": counted,
        }
        torch.save(results, Path(folder) / f"{rank}.pt")


@pytest.fixture(scope="module")
def single() -> dict[str, list[Tensor]]:
    return {name: trained(name, SINGLE_PROCESS) for name in ROWS}


@pytest.fixture(scope="module", params=[2, 3])
def distributed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, dict]]:
    folder, size = tmp_path_factory.mktemp("processes"), request.param
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(process, (size, port, str(folder)), nprocs=size)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]


def relative_error(found: list[Tensor], expected: list[Tensor]) -> float:
    a, b = (torch.cat([t.flatten() for t in tensors]) for tensors in (found, expected))
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("name", ROWS)
def test_many_processes_end_with_the_weights_of_one(
    name: str, distributed: list[dict[str, dict]], single: dict[str, list[Tensor]]
) -> None:
    first = distributed[0]["found"][name]
    assert relative_error(first, weights(smooth_net(seed=4))) > 1e-2, "training moved nothing"
    assert relative_error(first, single[name]) < 1e-9
    for other in distributed[1:]:
        assert same_bits(other["found"][name], first), "the processes' models differ"


def test_micro_batches_within_processes(
    distributed: list[dict[str, dict]], single: dict[str, list[Tensor]]
) -> None:
    assert relative_error(distributed[0]["found"]["micro"], single["free-trades"]) < 1e-9


def test_gradients_of_two_passes_add_up(distributed: list[dict[str, dict]]) -> None:
    expected = gradient_of_two_passes(SINGLE_PROCESS)
    assert len(expected) == len(weights(smooth_net(seed=4)))
    for result in distributed:
        assert relative_error(result["found"]["two passes"], expected) < 1e-12


def test_layers_that_all_processes_skip_are_left_as_by_one(distributed: list[dict[str, dict]]) -> None:
    """Weights that no process uses have no gradient: neither their decay nor their momentum moves them."""
    for skips in ("always", "in every second batch"):
        expected = trained("free", SINGLE_PROCESS, skips=skips)
        for result in distributed:
            assert relative_error(result["found"][f"skips {skips}"], expected) < 1e-9
    assert relative_error(distributed[0]["found"]["skips, micro"], expected) < 1e-9
    assert (distributed[0]["found"]["skips always"][0] == 1).all()


def test_layers_that_some_processes_skip_do_not_hold_up_the_others(
    distributed: list[dict[str, dict]],
) -> None:
    first, *others = (result["found"]["skips in every second batch, by turns"] for result in distributed)
    assert not (first[0] == 1).any()
    for other in others:
        assert same_bits(other, first)


def test_a_weight_that_is_unfrozen_during_the_training_is_trained_by_all_processes(
    distributed: list[dict[str, dict]],
) -> None:
    expected = trained("free", SINGLE_PROCESS, unfreeze_at=20)
    for result in distributed:
        assert relative_error(result["found"]["unfrozen"], expected) < 1e-9
        assert same_bits(result["found"]["unfrozen"], distributed[0]["found"]["unfrozen"])


@pytest.mark.parametrize("name", ROWS)
def test_sums_during_and_after_the_backward_pass_are_the_same(
    name: str, distributed: list[dict[str, dict]]
) -> None:
    """The same bits for two processes; three may add them in another order."""
    found = distributed[0]["found"]
    if len(distributed) == 2:
        assert same_bits(found[f"{name}, flat"], found[name])
    assert relative_error(found[f"{name}, flat"], found[name]) < 1e-12


def test_a_training_resumed_by_several_processes_is_bit_identical(distributed: list[dict[str, dict]]) -> None:
    found = distributed[0]["found"]
    assert same_bits(found["resumed"], found["free"])


def test_a_process_without_its_own_share_is_refused() -> None:
    learner = make_learner("fast", smooth_net(seed=4), ProcessGroup(rank=1, size=2))
    x, _ = images(0, 8)
    learner.expect(8, 0)
    with pytest.raises(InputError, match=r"process 1 of 2 has rows 0 to 4 .* processes\.share\(8\), 4 to 8"):
        learner.begin(x[:4])


def test_exchanges_give_every_process_the_same(distributed: list[dict[str, dict]]) -> None:
    size = len(distributed)
    rows = [10 * rank + i for rank in range(size) for i in range(rank)]
    for rank, result in enumerate(distributed):
        assert result["exchanges"] == {
            "gradient": sum(range(2, size + 1)),
            "layout": True,
            "frozen": True,
            "in no process": True,
            "mean": pytest.approx((size - 1) / 2),
            "counter": 0,
            "sum": sum(range(1, size + 1)),
            "rows": rows,
            "any": [True, False],
            "is_main": rank == 0,
        }


@pytest.mark.parametrize("name", COUNTED)
def test_a_batch_exchanges_the_gradients_of_each_update_and_its_statistics_once(
    name: str, distributed: list[dict[str, dict]]
) -> None:
    algorithm, batch_norms, averaged = COUNTED[name]
    net = counted_net(batch_norms)
    weights = 4 * sum(p.numel() for p in net.parameters())
    statistics = 4 * sum(b.numel() for b in net.buffers() if b.is_floating_point())
    which = 4 * len(list(net.parameters()))  # have a gradient
    batch = [("all_reduce", which), ("all_reduce", weights)] * algorithm.updates_per_batch
    batch += [("all_reduce", (1 + averaged) * statistics)] if batch_norms else []
    for result in distributed:
        assert result["collectives"][name] == COUNTED_BATCHES * batch


@pytest.mark.parametrize("n", [1, 5])
def test_processes_evaluate_as_one_also_without_images(n: int, distributed: list[dict[str, dict]]) -> None:
    """The notes on all images reach every process; one without images adds none of its own."""
    expected = evaluated(SINGLE_PROCESS, n)
    assert len(expected["notes"]) == n
    for result in distributed:
        found = result["evaluations"][n]
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            same = torch.equal(found[name], value) if isinstance(value, Tensor) else found[name] == value
            assert same, name


def test_shared_batch_norms_need_no_exchange_of_buffers(distributed: list[dict[str, dict]]) -> None:
    assert [result["collectives"]["SyncBatchNorm"] for result in distributed] == [[]] * len(distributed)


@pytest.fixture
def group_of_one() -> Iterator[None]:
    """A process group of this process only, with which DDP can be tried here."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group_of_one")
def test_a_training_that_ended_frees_its_weights_and_what_it_exchanged() -> None:
    learner = make_learner("free", smooth_net(seed=4), ProcessGroup(rank=0, size=2))
    x, y = images(0, 4)
    learner.expect(8, 0)
    ROWS["free"].step(learner, x, y)
    assert learner._sums is not None
    held = [weakref.ref(one) for one in (learner._sums, *learner.model.parameters())]
    del learner
    gc.collect()
    assert [one() for one in held] == [None] * len(held)


class HungryBackward(torch.autograd.Function):
    """Has memory for the backward pass of a few images only."""

    LIMIT = 5

    @staticmethod
    def forward(ctx: Any, v: Tensor) -> Tensor:
        return v.view_as(v)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        if len(grads[0]) > HungryBackward.LIMIT:
            raise torch.OutOfMemoryError("out of memory, says the device")
        return grads[0]


class Hungry(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = HungryBackward.apply(x)
        return found


@pytest.mark.usefixtures("group_of_one")
@pytest.mark.parametrize("good", [0, 1])
@pytest.mark.parametrize("algorithm", [Fast(ball=LINF_BALL), Free(ball=LINF_BALL, m=1)])
def test_a_process_whose_memory_a_backward_pass_exhausts_names_a_micro_batch_that_fits(
    algorithm: Algorithm, good: int
) -> None:
    """Whether an attack needs the memory or the pass that sums gradients, at once or after batches that fitted."""
    net = counted_net(batch_norms=False).insert(2, Hungry())  # the last layer has its gradients by then
    learner = make_learner("fast", net, ProcessGroup(rank=0, size=2))
    data = load_data("digits").train
    for share in [4] * good:
        x, y = data.batch(torch.arange(share))
        learner.expect(2 * share, 0)
        algorithm.step(learner, x, y)
    x, y = data.batch(torch.arange(16))
    learner.expect(32, 0)
    with pytest.raises(torch.OutOfMemoryError) as error:
        algorithm.step(learner, x, y)
    assert memory_remedy(learner, data, 16).endswith("--micro-batch 4 fits"), error


def test_a_micro_batch_of_one_image_is_not_named_where_a_batch_norm_needs_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HungryBackward, "LIMIT", 1)
    learner = make_learner("fast", counted_net(batch_norms=True).insert(4, Hungry()), SINGLE_PROCESS)
    assert "not even one image fits" in memory_remedy(learner, load_data("digits").train, 16)


@pytest.mark.usefixtures("group_of_one")
def test_the_search_for_a_micro_batch_does_not_wait_for_the_statistics_of_other_processes() -> None:
    """Layers that share statistics refuse to on a CPU."""
    shared = nn.SyncBatchNorm.convert_sync_batchnorm(counted_net(batch_norms=True))
    learner = make_learner("free", shared.insert(4, Hungry()), ProcessGroup(rank=0, size=2))
    x, y = load_data("digits").train.batch(torch.arange(4))
    learner.expect(8, 0)
    with pytest.raises(ValueError, match="SyncBatchNorm expected input tensor to be on GPU"):
        Free(ball=LINF_BALL, m=1).step(learner, x, y)
    assert memory_remedy(learner, load_data("digits").train, 16).endswith("--micro-batch 4 fits")


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("total", [0, 1, 2, 5, 6, 128, 129])
def test_shares_are_contiguous_complete_and_even(size: int, total: int) -> None:
    shares = [range(total)[ProcessGroup(rank=rank, size=size).share(total)] for rank in range(size)]
    assert [row for share in shares for row in share] == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_exchanges_of_one_process_are_no_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join_process_group(torch.device("cpu")) as processes:
        assert processes == SINGLE_PROCESS
    value = torch.ones(2)
    no_ops: list[Callable[[], object]] = [
        lambda: SINGLE_PROCESS.sum(value),
        lambda: SINGLE_PROCESS.concatenate(value),
    ]
    assert all(act() is value for act in no_ops)
    assert SINGLE_PROCESS.any(True)
    assert not SINGLE_PROCESS.any(False)


@pytest.mark.parametrize(
    ("n", "size", "micro", "processes", "fits"),
    [
        (1024, 128, None, 8, True),
        (1026, 128, None, 8, False),  # the last batch has two images
        (1032, 128, None, 8, True),
        (1000, 128, 16, 8, True),  # the last batch has 104, 13 each
        (209, 128, 40, 2, False),  # 40 and 41 of the last 81: one pass and two
        (209, 128, 41, 2, True),
        (129, 128, None, 8, True),  # the last image joins the batch before it
        (5, 128, None, 8, False),
    ],
)
def test_processes_with_different_numbers_of_passes_are_refused(
    n: int, size: int, micro: int | None, processes: int, fits: bool
) -> None:
    batches = Batches(n=n, size=size, seed=0)
    assert set(batches.sizes) == {len(batches(t)) for t in range(1, batches.per_epoch + 1)}
    if fits:
        check_in_step(batches, micro, processes)
        return
    with pytest.raises(InputError, match="different numbers of passes"):
        check_in_step(batches, micro, processes)
