"""The group of processes that train one model, and what they exchange.

Gradients are summed during the backward pass, by torch's DistributedDataParallel (``OverlappedSums``), where every
process makes one. Elsewhere they are summed after it, by one flat exchange: a process without images of a small batch
makes no backward pass.

A network may leave out layers, always or at random. Their weights have a zero gradient in a process that did not use
them, and none where no process did, as in a single process: with weight decay or a momentum, an optimizer moves the
former and leaves the latter.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from freeat.compute import Cost
from freeat.data.batches import Batches
from freeat.errors import InputError
from freeat.rng import to_device

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ProcessGroup:
    """``size`` processes, of which this is number ``rank``; of one, every exchange is a no-op."""

    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def share(self, total: int) -> slice:
        """This process's rows of ``total``: contiguous, as even as can be, possibly none."""
        return slice(self.rank * total // self.size, (self.rank + 1) * total // self.size)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Every process's gradient becomes the sum over all; a process that has none adds zero.

        They are exchanged as they lie in memory, which is as the weights lie, and become parts of what was exchanged.
        """
        if self.size == 1:
            return
        parameters = [p for p in parameters if p.requires_grad]
        grads = [_laid_out_as(p, p.grad) for p in parameters]
        missing = _Missing(parameters)
        sums = _summed([g.as_strided((g.numel(),), (1,)) for g in grads])
        for p, g, total in zip(parameters, grads, sums, strict=True):
            p.grad = total.as_strided(g.shape, g.stride())
        missing.restore()

    def sum(self, value: Tensor) -> Tensor:
        """The sum of every process's value."""
        if self.size > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def total(self, cost: Cost, device: torch.device) -> Cost:
        """The cost of all processes."""
        own = torch.tensor([cost.gradient_evaluations, cost.forward_passes], device=device)
        return Cost(*self.sum(own).tolist())

    def gather(self, value: T) -> list[T]:
        """Every process's value in the order of their ranks, tensors on the CPU."""
        gathered = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(gathered, value)
        return gathered

    def concatenate(self, rows: Tensor) -> Tensor:
        """The rows of all processes in the order of their ranks; their numbers may differ."""
        return rows if self.size == 1 else torch.cat(self.gather(rows.cpu())).to(rows.device)

    def average_buffers(self, *models: nn.Module) -> None:
        """Running statistics, which each process gathered on its own rows, become their mean, of all models at once.

        Those of SyncBatchNorm are of the global batch already.
        """
        if self.size == 1:
            return
        own = (
            layer for model in models for layer in model.modules() if not isinstance(layer, nn.SyncBatchNorm)
        )
        buffers = [b for layer in own for b in layer.buffers(recurse=False) if b.is_floating_point()]
        for buffer, total in zip(buffers, _summed([b.flatten() for b in buffers]), strict=True):
            buffer.copy_(total.div_(self.size).view(buffer.shape))

    def any(self, flag: bool) -> bool:
        """Whether the flag is raised in any process."""
        return any(self.gather(flag))

    def check_same(self, facts: dict[str, object], remedy: str) -> None:
        """Refuse processes that differ in one of the named facts, in every process alike."""
        first, *others = self.gather(facts)
        for rank, other in enumerate(others, 1):
            for name in first:
                if other[name] != first[name]:
                    raise InputError(
                        f"{name}: {first[name]} in process 0 of {self.size}, {other[name]} in process {rank}; the "
                        f"processes of a training must have the same: {remedy}"
                    )

    @contextmanager
    def failing_together(self) -> Iterator[None]:
        """Inside, a process that fails ends all, once every process is here: the others say which failed, and why."""
        try:
            yield
        except Exception as error:
            self.gather(str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}")
            raise
        for rank, reason in enumerate(self.gather(None)):
            if reason is not None:
                raise InputError(f"process {rank} of {self.size} failed during set-up: {reason}")

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.size > 1:
            dist.barrier()


class _Missing:
    """The weights without a gradient, of which those that have one in no process lose the zero they were given.

    Args:
        weights: weights that have the gradients of this process now.
    """

    def __init__(self, weights: list[nn.Parameter]) -> None:
        self._weights = weights
        own = [p.grad is None for p in weights]
        self._here = any(own)
        if weights:
            self._processes = to_device(torch.tensor(own, dtype=torch.int32), weights[0].device)
            self._exchange = dist.all_reduce(self._processes, async_op=True)

    def restore(self) -> None:
        """Take the gradients off the weights that have one in no process.

        A process that has all gradients does not look at the others', for which it would wait for the device.
        """
        if self._weights:
            self._exchange.wait()
        if self._here:
            for p, processes in zip(self._weights, self._processes.tolist(), strict=True):
                if processes == dist.get_world_size():
                    p.grad = None


def _laid_out_as(p: nn.Parameter, g: Tensor | None) -> Tensor:
    """The gradient in the memory layout of its weight, which is the same in every process; zero where there is none."""
    if g is not None and g.stride() == p.stride():
        return g
    like = torch.zeros_like(p)
    return like if g is None else like.copy_(g)


def _summed(parts: list[Tensor]) -> list[Tensor]:
    """The sums of one-dimensional tensors over all processes, by one exchange for each of their types."""
    sums: dict[int, Tensor] = {}
    for dtype in dict.fromkeys(part.dtype for part in parts):
        same = [k for k, part in enumerate(parts) if part.dtype == dtype]
        flat = torch.cat([parts[k] for k in same])
        dist.all_reduce(flat)
        sums |= zip(same, flat.split_with_sizes([parts[k].numel() for k in same]), strict=True)
    return [sums[k] for k in range(len(parts))]


SINGLE_PROCESS = ProcessGroup()


EXCHANGED_AT_ONCE = 25
"""Megabytes of gradients: smaller networks exchange theirs at once, of larger ones the last layers' go first."""


class OverlappedSums:
    """Sums the gradients of weights over all processes while a backward pass computes them.

    Torch's DistributedDataParallel (DDP) wraps the weights alone, and its forward pass is the loss: one with two passes
    through the network is a single forward pass of DDP, and buffers stay as they are.

    DDP lays out what it exchanges in the order of its first backward pass. That order decides how three processes or
    more round their sums, so the first pass is made here: a resumed training then rounds as an uninterrupted one.

    Args:
        weights: the trained weights.
    """

    def __init__(self, weights: list[nn.Parameter]) -> None:
        self._ddp = nn.parallel.DistributedDataParallel(
            _Weights(weights), bucket_cap_mb=EXCHANGED_AT_ONCE, gradient_as_bucket_view=True
        )
        self._exchanges = _Exchanges(weights)
        self._ddp.register_comm_hook(self._exchanges, _sum_bucket)
        zero: Tensor = self._ddp(lambda: torch.stack([p.sum() for p in weights]).sum() * 0)
        zero.backward()  # type: ignore[no-untyped-call]
        for p in weights:
            p.grad = None
        self._exchanges.on = True

    @contextmanager
    def part(self, *, last: bool) -> Iterator[Callable[..., Tensor]]:
        """Calls the loss of a part of a batch, whose backward pass is made inside; the last part's one sums."""
        if not last:
            with self._ddp.no_sync():
                yield self._ddp
            return
        yield self._ddp
        assert self._exchanges.missing is not None
        self._exchanges.missing.restore()


class _Weights(nn.Module):
    """Weights without the layers that use them; a forward pass is any function."""

    def __init__(self, weights: list[nn.Parameter]) -> None:
        super().__init__()
        for k, p in enumerate(weights):
            self.register_parameter(str(k), p)

    def forward(self, function: Callable[..., Tensor], *given: Tensor) -> Tensor:
        values: Tensor = _Reaching.apply(function(*given), *self.parameters())  # type: ignore[no-untyped-call]
        return values


class _Reaching(torch.autograd.Function):
    """The values as they are; a backward pass from them reaches all weights, also those that they do not depend on.

    DDP waits until it has reached every weight. Those have no gradient from here.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, *weights: nn.Parameter) -> Tensor:
        ctx.weights = len(weights)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (*gradients, *[None] * ctx.weights)


class _Exchanges:
    """What backward passes exchange. DDP holds it, so it must not hold DDP."""

    def __init__(self, weights: list[nn.Parameter]) -> None:
        self.weights = weights
        self.missing: _Missing | None = None
        self.on = False


def _sum_bucket(
    exchanges: _Exchanges,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """The sum of a part of the gradients over all processes: losses are divided by the global batch already."""
    if not exchanges.on:
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done
    if bucket.is_last():  # the backward pass has reached all weights, and DDP has given them no zeros yet
        exchanges.missing = _Missing(exchanges.weights)
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    summed: torch.futures.Future[Tensor] = work.get_future().then(lambda future: future.value()[0])
    return summed


def check_in_step(batches: Batches, micro_batch: int | None, size: int) -> None:
    """Refuse batches of which the processes would make different numbers of passes.

    Batch norms that exchange their statistics wait for all of them in every pass, and would wait forever.
    """
    for total in batches.sizes:
        shares = [ProcessGroup(rank=rank, size=size).share(total) for rank in range(size)]
        images = [share.stop - share.start for share in shares]
        passes = {math.ceil(own / (micro_batch or max(own, 1))) for own in images}
        if len(passes) > 1 or 0 in passes:
            raise InputError(
                f"a batch of {total} images gives {size} processes {min(images)} to {max(images)} each, and so "
                "different numbers of passes, for which their shared batch norms would wait: choose a --batch-size, "
                "--train-size or --micro-batch that divides evenly, fewer processes, or a network without batch norm"
            )


LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""The variables in which ``torchrun`` gives a process its number and how many there are, everywhere and here."""


def is_main_process() -> bool:
    """Whether this is the first process that ``torchrun`` started, or the only one; also before they join a group."""
    return int(os.environ.get("RANK", "0")) == 0


def on_this_machine() -> ProcessGroup:
    """The processes that ``torchrun`` started on this machine, which share its cores and GPUs."""
    number, count = os.environ.get("LOCAL_RANK", "0"), os.environ.get("LOCAL_WORLD_SIZE", "1")
    return ProcessGroup(rank=int(number), size=int(count))


def leave_launcher() -> None:
    """Make this a process of its own: a worker of one that ``torchrun`` started runs its tasks alone."""
    for name in LAUNCHER:
        os.environ.pop(name, None)


@dataclass(frozen=True, kw_only=True)
class LaunchedProcesses(ProcessGroup):
    """The processes that ``torchrun`` started, before they join a group: what they exchange is values, not tensors.

    One may fail before it has a device, by which a group is joined, and the others do not wait for it there.
    """

    store: Store | None = None
    exchanges: Iterator[int] = field(default_factory=count)

    def gather(self, value: T) -> list[T]:
        """Every process's value, which JSON can hold, in the order of their ranks."""
        if self.store is None:
            return [value]
        number = next(self.exchanges)
        self.store.set(f"{number}/{self.rank}", json.dumps(value))
        gathered = [json.loads(self.store.get(f"{number}/{rank}")) for rank in range(self.size)]
        self.store.set(f"{number}/{self.rank}/done", "")
        if self.is_main:  # the store may be in this process, and end with it
            self.store.wait([f"{number}/{rank}/done" for rank in range(self.size)])
        return gathered


def launched_processes() -> LaunchedProcesses:
    """The processes that ``torchrun`` started, or this one."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return LaunchedProcesses()
    store, rank, size = next(rendezvous("env://"))
    return LaunchedProcesses(rank=rank, size=size, store=PrefixStore("freeat", store))


@contextmanager
def join_process_group(device: torch.device) -> Iterator[ProcessGroup]:
    """The group of processes that ``torchrun`` started, or the group of this process only."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield SINGLE_PROCESS
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)  # exchanges of objects use the current device
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield ProcessGroup(rank=dist.get_rank(), size=dist.get_world_size())
    finally:
        dist.destroy_process_group()
