"""Evaluations block by block: stored as they finish, and divided among the processes that share a store.

Any number of processes may run the same sweep on the same store, those of ``torchrun`` too. They exchange nothing but
files: each takes the blocks that no other has taken, by leases, and reads those of the others.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from functools import cached_property, partial
from typing import TypeVar

import torch

from freeat.data import Augmentation, Images
from freeat.data.prefetch import prefetched
from freeat.errors import InputError
from freeat.evaluation.evaluate import Evaluation, Progress, device_and_dtype, evaluate, named, viewed
from freeat.experiments.sweep import Condition, Sweep
from freeat.files.locks import Busy
from freeat.runs.open import Opened
from freeat.runs.results import Blocks
from freeat.training.checks import out_of_memory

T = TypeVar("T")
StartProgress = Callable[[str, int], Progress]
"""Called with a title and a number of images; returns the callback that counts them."""
BLOCK = 256
"""Images per stored block of a running evaluation."""
AT_ONCE = 64
"""Images of a block that a worker process reads at a time."""
PAUSES = (0.05, 2.0)
"""Seconds until what another process is evaluating is looked for again: the first time, and at most."""


def no_progress(title: str, images: int) -> Progress:
    """No progress is shown."""
    return lambda done: None


def numbered(watch: StartProgress, k: int, total: int) -> StartProgress:
    """The same, with the number of the evaluation and how many there are."""
    return lambda title, images: watch(f"[{k}/{total}] {title}" if total > 1 else title, images)


def all_found(attempts: Iterable[Callable[[], T | None]]) -> list[T]:
    """What the attempts return, in their order.

    An attempt returns None, or raises ``Busy``, while another process has a part of its work. It is tried again after
    the others.
    """
    found: dict[int, T] = {}
    waiting = {k: attempt for k, attempt in enumerate(attempts) if not _succeeds(k, attempt, found)}
    pause, most = PAUSES
    while waiting:
        done = [k for k, attempt in waiting.items() if _succeeds(k, attempt, found)]
        for k in done:
            del waiting[k]
        if not done:
            time.sleep(pause)
        pause = PAUSES[0] if done else min(2 * pause, most)
    return [found[k] for k in range(len(found))]


def _succeeds(k: int, attempt: Callable[[], T | None], found: dict[int, T]) -> bool:
    try:
        one = attempt()
    except Busy:
        return False
    if one is None:
        return False
    found[k] = one
    return True


class BlockwiseEvaluation:
    """A model under one condition, in blocks of whole batches; the progress begins with the first that is wanted."""

    def __init__(
        self, model: Opened, sweep: Sweep, condition: Condition, watch: StartProgress, *, keep_delta: bool
    ) -> None:
        self.model = model
        self.sweep = sweep
        self.condition = condition
        self.keep_delta = keep_delta
        self.total = len(condition.images)
        size = sweep.batch_size * max(1, BLOCK // sweep.batch_size)
        self.firsts = range(0, self.total, size)
        self._watch = watch
        self._counted: set[int] = set()

    def share(self, kept: Blocks, published: Callable[[], bool]) -> bool:
        """Evaluate the blocks that no other process has; whether all are there.

        A block is taken when its images begin to be read: a few blocks ahead, where worker processes read them.
        Where there is one only, or nothing is kept, whoever publishes evaluates it.
        """
        if kept.folder is None or len(self.firsts) == 1:
            return True
        left_to_others = False
        with ExitStack() as leases:
            held: dict[int, ExitStack] = {}

            def taken() -> Iterator[int]:
                nonlocal left_to_others
                for number in range(len(self.firsts)):
                    if kept.has(number):
                        continue
                    held[number] = lease = ExitStack()
                    leases.callback(lease.close)
                    try:
                        lease.enter_context(kept.evaluating(number))
                    except Busy:
                        left_to_others = True
                        continue
                    if kept.has(number) or published():
                        lease.close()
                    else:
                        yield number

            with closing(self.images(taken())) as read:
                for number, images in read:
                    with held[number]:
                        self._count_found(kept)
                        kept.save(number, self._evaluated(number, images))
        return not left_to_others

    def blocks(self, kept: Blocks) -> Iterator[Evaluation]:
        """All blocks in the order of the images; those that are kept are reused."""
        missing = [number for number in range(len(self.firsts)) if not kept.has(number)]
        with closing(self.images(missing)) as read:
            for number in range(len(self.firsts)):
                block = None if number in missing else kept.find(number)
                if block is None:
                    ((_, images),) = [next(read)] if number in missing else self.images([number])
                    block = self._evaluated(number, images)
                self._count(number, len(block.y))
                yield block

    @property
    def augment(self) -> Augmentation | None:
        """What the blocks that `images` returns are still to be seen through."""
        return None if self.condition.images.streamed else self.condition.augment

    def images(self, numbers: Iterable[int]) -> Generator[tuple[int, Images], None, None]:
        """The images of these blocks in turn; where they are read or decoded, the next ones while a model computes.

        Those of a stream are in memory, and are the views of them that are evaluated.
        """
        images, condition = self.condition.images, self.condition
        if not images.workers and not images.streamed:
            for number in numbers:
                yield number, images.take(self._rows(number))
            return
        begun: deque[tuple[int, torch.Tensor]] = deque()

        def parts() -> Iterator[torch.Tensor]:
            for number in numbers:
                begun.append((number, self._rows(number)))
                yield from torch.split(begun[-1][1], AT_ONCE)

        view = partial(viewed, images, self.sweep.seed, condition.augment if images.streamed else None)
        workers = images.workers if self.total > AT_ONCE else 0
        read: list[torch.Tensor] = []
        with closing(prefetched(view, parts(), workers)) as views:
            for x, _ in views:
                read.append(x)
                number, rows = begun[0]
                if sum(map(len, read)) == len(rows):
                    begun.popleft()
                    yield number, Images(x=torch.cat(read), y=images.y[rows], index=images.index[rows])
                    read.clear()

    def _rows(self, number: int) -> torch.Tensor:
        first = self.firsts[number]
        return torch.arange(first, min(first + self.firsts.step, self.total))

    def _count_found(self, kept: Blocks) -> None:
        for number in range(len(self.firsts)):
            if kept.has(number):
                self._count(number, len(self._rows(number)))

    def _count(self, number: int, images: int) -> None:
        """Count the images of a block once."""
        if number not in self._counted:
            self._counted.add(number)
            self._advance(images)

    @cached_property
    def _advance(self) -> Progress:
        return self._watch(self.condition.title(self.model.name), self.total)

    def _evaluated(self, number: int, images: Images) -> Evaluation:
        sweep, condition, model = self.sweep, self.condition, self.model.model
        try:
            with named(self.model.name):
                block = evaluate(
                    model,
                    images.to(device_and_dtype(model)[0]),
                    condition.attack,
                    condition.ball,
                    classes=len(sweep.data.classes),
                    seed=sweep.seed,
                    augment=self.augment,
                    batch_size=sweep.batch_size,
                    with_loss=sweep.with_loss,
                    recheck=sweep.recheck,
                    keep_delta=self.keep_delta,
                    progress=self._advance,
                )
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            at_once = min(sweep.batch_size, len(images))
            raise InputError(
                f"out of memory with {at_once} images at a time: use a smaller --batch-size, e.g. "
                f"{max(1, at_once // 2)}; what is finished is kept"
            ) from error
        self._counted.add(number)
        return block
