"""Seconds of a data-parallel step: gradients summed during the backward pass, or after it by one flat exchange.

    torchrun --nproc-per-node 2 benchmarks/processes.py

A step is Free's inner step: one pass with the gradients of w and δ, the sum of w's gradients over the processes, SGD,
and the mean of the batch norms' statistics, on CIFAR-sized images. Contenders:

- *ddp*: what a training does wherever every process has images (``OverlappedSums``): torch's DistributedDataParallel
  with a communication hook that sums. It exchanges buckets during the backward pass.
- *flat*: what it does elsewhere: one exchange after the backward pass.
- *each*: one exchange for every tensor, as a loop over the parameters and buffers would.

They take turns within a round, each from the same weights; the median over the rounds is kept. The gradients of all are
compared, bit by bit. What making a DDP takes is timed once, in processor seconds.
"""

import copy
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import click
import torch
import torch.distributed as dist
from torch import Tensor, nn

from freeat import models
from freeat.compute.machine import uncompiled
from freeat.learner.distributed import OverlappedSums, ProcessGroup, join_process_group
from freeat.objectives import cross_entropy

SHAPE = (3, 32, 32)


def exchange_each(processes: ProcessGroup, net: nn.Module) -> None:
    for p in net.parameters():
        dist.all_reduce(p.grad)


def average_each(processes: ProcessGroup, net: nn.Module) -> None:
    for buffer in net.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= processes.size


def _call(function: Callable[..., Tensor], *given: Tensor) -> Tensor:
    return function(*given)


class Contender:
    """A copy of a network, and how its gradients are exchanged."""

    def __init__(self, kind: str, net: nn.Module, processes: ProcessGroup, total: int) -> None:
        self.net, self.processes, self.total = copy.deepcopy(net), processes, total
        self.optimizer = uncompiled(torch.optim.SGD)(self.net.parameters(), lr=1e-3, momentum=0.9)
        self.overlapped: OverlappedSums | None = None
        self.exchange: Callable[[], None] = lambda: None
        self.average = lambda: processes.average_buffers(self.net)
        began = time.process_time()
        if kind == "ddp":
            self.overlapped = OverlappedSums(list(self.net.parameters()))
        elif kind == "flat":
            self.exchange = lambda: processes.sum_gradients(self.net.parameters())
        else:
            self.exchange = lambda: exchange_each(processes, self.net)
            self.average = lambda: average_each(processes, self.net)
        self.construction = time.process_time() - began

    def losses(self, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(self.net(x), y)

    def gradients(self, x: Tensor, y: Tensor) -> list[Tensor]:
        """The summed gradients of the weights, and that of δ."""
        delta = torch.zeros_like(x).requires_grad_()
        with nullcontext(_call) if self.overlapped is None else self.overlapped.part(last=True) as call:
            (call(self.losses, x + delta, y).sum() / self.total).backward()
        self.exchange()
        return [p.grad for p in self.net.parameters() if p.grad is not None] + [delta.grad]

    def step(self, x: Tensor, y: Tensor) -> None:
        self.gradients(x, y)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.average()


def compare(network: str, batch: int, rounds: int, processes: ProcessGroup) -> dict[str, Any]:
    net = models.build(network, classes=10, shape=SHAPE, seed=0)
    net = net.to(memory_format=torch.channels_last).train()
    g = torch.Generator().manual_seed(processes.rank)
    own = processes.share(batch)
    x = torch.rand(own.stop - own.start, *SHAPE, generator=g).to(memory_format=torch.channels_last)
    y = torch.randint(10, (len(x),), generator=g)
    contenders = {kind: Contender(kind, net, processes, batch) for kind in ("flat", "ddp", "each")}
    found = {kind: [t.clone() for t in one.gradients(x, y)] for kind, one in contenders.items()}
    same = {
        kind: all(torch.equal(a, b) for a, b in zip(grads, found["flat"], strict=True))
        for kind, grads in found.items()
    }
    seconds: dict[str, list[float]] = {kind: [] for kind in contenders}
    for k in range(rounds + 1):
        for kind, one in contenders.items():
            dist.barrier()
            began = time.perf_counter()
            one.step(x, y)
            dist.barrier()
            if k:  # the first is not timed
                seconds[kind].append(time.perf_counter() - began)
    medians = {kind: statistics.median(values) for kind, values in seconds.items()}
    return {"medians": medians, "same": same, "construction": contenders["ddp"].construction}


@click.command()
@click.option("--networks", default="cnn-w8,resnet18-w16,resnet18", show_default=True)
@click.option("--batch", default=32, show_default=True, help="images of all processes")
@click.option("--rounds", default=15, show_default=True)
def main(networks: str, batch: int, rounds: int) -> None:
    torch.set_num_threads(1)
    with join_process_group(torch.device("cpu")) as processes:
        for network in networks.split(","):
            found = compare(network, batch, rounds, processes)
            medians = found["medians"]
            if processes.is_main:
                times = ", ".join(
                    f"{kind} {1e3 * value:.1f} ms ({value / medians['flat']:.2f}×"
                    f"{'' if found['same'][kind] else ', other bits'})"
                    for kind, value in medians.items()
                )
                click.echo(f"{network}: {times}; DDP made in {found['construction']:.2f} s")


if __name__ == "__main__":
    main()
