"""The group of processes that train one model, and what they exchange."""

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from freeat.compute.cost import Cost
from freeat.data.batches import Batches
from freeat.errors import InputError


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
        """Every process's gradient becomes the sum over all; a process that saw no image adds zero."""
        if self.size == 1:
            return
        parameters = [p for p in parameters if p.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat)
        for p, total in zip(parameters, flat.split_with_sizes([p.numel() for p in parameters]), strict=True):
            p.grad = torch.empty_like(p).copy_(total.view(p.shape))  # laid out as the weight is

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

    def concatenate(self, rows: Tensor) -> Tensor:
        """The rows of all processes in the order of their ranks; their numbers may differ."""
        if self.size == 1:
            return rows
        gathered: list[Tensor | None] = [None] * self.size
        dist.all_gather_object(gathered, rows.cpu())
        return torch.cat([part for part in gathered if part is not None]).to(rows.device)

    def average_buffers(self, model: nn.Module) -> None:
        """Running statistics, which each process gathered on its own rows, become their mean."""
        if self.size > 1:
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    dist.all_reduce(buffer)
                    buffer /= self.size

    def any(self, flag: bool) -> bool:
        """Whether the flag is raised in any process."""
        if self.size == 1:
            return flag
        flags: list[bool | None] = [None] * self.size
        dist.all_gather_object(flags, flag)
        return any(flags)

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.size > 1:
            dist.barrier()


SINGLE_PROCESS = ProcessGroup()


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


def is_main_process() -> bool:
    """Whether this is the first process that ``torchrun`` started, or the only one; also before they join a group."""
    return int(os.environ.get("RANK", "0")) == 0


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
