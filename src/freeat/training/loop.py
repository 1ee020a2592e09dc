"""The training loop, and the meter of its losses and gradient norms."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from freeat.algorithms.step import Algorithm, StepRecord
from freeat.data import Augmentation, Images
from freeat.data.batches import Batches
from freeat.data.images import in_unit_box
from freeat.evaluation.evaluator import Scores
from freeat.learner import Learner
from freeat.learner.distributed import SINGLE_PROCESS, ProcessGroup
from freeat.rng import StepRng, layer_rng, stream_key
from freeat.training.records import GradientNorms, NormCounts


def train(
    learner: Learner,
    algorithm: Algorithm,
    images: Images,
    batches: Batches,
    augment: Augmentation | None = None,
) -> Iterator[StepRecord]:
    """Train until the budget of weight updates is spent, a batch at a time; resumes wherever the learner is."""
    learner.model.train()
    numbers = range(learner.batches + 1, learner.batches + 1 + max(0, learner.updates_left))
    make = partial(own_view, images, batches, augment, learner.seed, learner.processes)
    with closing(images.ahead(make, numbers)) as views:
        while learner.updates_left > 0:
            x, y, total, first = _ready(learner, next(views))
            learner.expect(total, first)
            with step_rng(learner, x.device):
                record = algorithm.step(learner, x, y)
            # Attacks, evaluations and checkpoints use the running statistics: they must be the same everywhere.
            averages = (average.model for average in learner.averages.values())
            learner.processes.average_buffers(learner.model, *averages)
            yield record


View = tuple[Tensor, Tensor, int, int]
"""Images and labels of this process's part of a batch, the size of the whole batch, and the first of its rows."""


def own_view(
    images: Images, batches: Batches, augment: Augmentation | None, seed: int, processes: ProcessGroup, t: int
) -> View:
    """This process's part of batch t as it is stored; a function of its arguments, in whatever process it is made."""
    rows = batches(t)
    own_rows = processes.share(len(rows))
    # Keyed by the batch of the data, so that a replayed batch has the same view.
    rng = StepRng(seed, (batches.drawn(t),), len(rows), own_rows.start)
    return *images.view(rows[own_rows], augment, rng), len(rows), own_rows.start


def next_batch(learner: Learner, images: Images, batches: Batches, augment: Augmentation | None) -> View:
    """This process's part of the next batch on the learner's device, float32 in [0, 1]."""
    t = learner.batches + 1
    return _ready(learner, own_view(images, batches, augment, learner.seed, learner.processes, t))


def _ready(learner: Learner, view: View) -> View:
    x, y, total, first = view
    x, y = learner.to_device(x, y)
    return in_unit_box(x), y, total, first


def step_rng(learner: Learner, device: torch.device) -> AbstractContextManager[None]:
    """Inside, layers such as dropout draw the numbers of the learner's next step."""
    return layer_rng(device, stream_key(learner.seed, "layers", learner.batches + 1, learner.processes.rank))


class Diverged(RuntimeError):
    """A loss or a weight of the training is no longer finite."""

    def __init__(self, what: str, kept: str = "") -> None:
        remedy = "lower --lr, warm ε up with --warmup, or use --precision fp32"
        super().__init__("; ".join([f"{what}: {remedy}", *([kept] if kept else [])]))
        self.what = what


def check_losses(scores: Scores) -> None:
    """Refuse an evaluation whose losses are not finite: nothing else checks the weights after the last update."""
    for name, split in scores.splits.items():
        if split.robust_loss is not None and not math.isfinite(split.robust_loss):
            raise Diverged(f"the robust loss on {name} became {split.robust_loss}")


def check_weights(model: nn.Module) -> None:
    """Refuse weights that overflowed: the loss of the next batch would be the first to show it."""
    for name, value in model.state_dict().items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise Diverged(f"the weights {name!r} are no longer finite")


@dataclass(frozen=True, kw_only=True)
class MeterState:
    """What a checkpoint keeps of a meter."""

    batches: int
    total: float
    norms: NormCounts | None


@dataclass
class Meter:
    """The mean training loss and the gradient norms since the last record.

    Numbers stay on the device until ``fetch``. Every process adds the losses of its own rows; what is reported is of
    the global batch.
    """

    processes: ProcessGroup = SINGLE_PROCESS
    batches: int = 0
    total: float = 0.0
    norms: GradientNorms = field(default_factory=GradientNorms)
    latest: float | None = None
    _losses: list[Tensor] = field(default_factory=list)
    _sums: list[Tensor] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=list)
    _norms: list[Tensor] = field(default_factory=list)

    def add(self, record: StepRecord, batch_size: int) -> None:
        """Note a step on a global batch of that size."""
        losses = record.losses.detach()
        self._losses.append(losses)
        self._sums.append(losses.sum())
        self._sizes.append(batch_size)
        if record.g_norms is not None:
            self._norms.append(record.g_norms.flatten())

    def fetch(self) -> None:
        """Fetch what is pending, and stop a run whose loss is no longer finite."""
        if not self._sums:
            return
        sums = self.processes.sum(torch.stack(self._sums)).tolist()
        for i, (loss, size) in enumerate(zip(sums, self._sizes, strict=True)):
            if not math.isfinite(loss):
                # Every process has this sum, so every one of them counts.
                count = int(self.processes.sum((~self._losses[i].isfinite()).sum()))
                raise Diverged(
                    f"the training loss became {loss} (NaN or infinite for {count} of {size} images)"
                )
            self.latest = loss / size
            self.total += self.latest
            self.batches += 1
        if self._norms:
            self.norms.add(self.processes.concatenate(torch.cat(self._norms).cpu()))
        self._losses, self._sums, self._sizes, self._norms = [], [], [], []

    def take(self) -> tuple[float | None, NormCounts | None]:
        """The mean loss and the gradient norms since the last call."""
        self.fetch()
        mean = self.total / self.batches if self.batches else None
        self.batches, self.total = 0, 0.0
        return mean, self.norms.take()

    def state(self) -> MeterState:
        self.fetch()
        return MeterState(batches=self.batches, total=self.total, norms=self.norms.state())

    def restore(self, state: MeterState) -> None:
        self.batches, self.total = state.batches, state.total
        self.norms = GradientNorms.from_state(state.norms)
