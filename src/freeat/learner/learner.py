"""The classifier f_w with its optimizer: forward pass, gradients, descent, as an algorithm uses them."""

import copy
import sys
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from freeat.compute import Cost
from freeat.compute.frozen import Mode, frozen, frozen_eval
from freeat.compute.precision import Precision
from freeat.errors import InputError, wrong_type
from freeat.learner.distributed import SINGLE_PROCESS, OverlappedSums, ProcessGroup
from freeat.learner.schedules import Clock, Schedule
from freeat.rng import StepRng, layer_rng, to_device

if TYPE_CHECKING:  # most trainings have none of them
    from freeat.learner.modifiers import ProximalTerm, WeightAverage, WeightPerturbation

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # h(δ, x, y): one value per image
Perturb = Callable[[Tensor, Tensor, StepRng], Tensor]  # an attack on (x, y) with its rng: δ


class Learner:
    """A model that an algorithm trains: forward, gradients, descent.

    A custom loop needs ``Learner(model, optimizer)`` only. Losses are averaged over the batch (the global one,
    across processes) and summed over a stack of models, which is a module with ``is_stack = True``.

    Args:
        model: a module from images (b, C, H, W) to logits (b, classes).
        optimizer: a torch optimizer of the model's parameters.
        seed: the seed of every draw of the algorithms.
        member_seeds: a seed for each member of a stack of models; by default the members share their draws.
        total_updates: the budget T of weight updates; None for no limit.
        schedule: the learning rate of each update; None leaves the optimizer's own.
        precision: the arithmetic of the forward and backward pass; fp32 by default.
        micro_batch: the most images in one pass, for small memories; one more where a batch norm has no statistics of
            a single image that is left.
        processes: the group of processes that train this model, each on its ``share`` of every batch.
        average: a weight average that follows every update.
        proximal: slow weights, to which the weights are drawn.
        awp: adversarial weight perturbation.
        clip_grad: the largest length of a gradient of the weights; longer ones are shortened to it.
        forward: the forward pass of a framework that wraps the model (Accelerate, Lightning).
        backward: the backward pass of such a framework. One that scales the loss for fp16 scales δ's gradient too,
            of which the algorithms use the direction only.

    Raises:
        InputError: ``model`` is no module or has no parameters, ``optimizer`` is no optimizer, ``micro_batch`` is
            below 1, or ``clip_grad`` is not positive.

    Example:
        >>> import freeat, torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
        >>> learner = freeat.Learner(model, torch.optim.SGD(model.parameters(), lr=0.1), total_updates=2)
        >>> x, y = torch.rand(5, 3, 2, 2), torch.tensor([0, 1, 2, 0, 1])
        >>> while learner.updates_left > 0:
        ...     record = freeat.Fast(ball=freeat.L2(0.5)).step(learner, x, y)
        >>> learner.updates, record.losses.shape
        (2, torch.Size([5]))
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        seed: int = 0,
        member_seeds: tuple[int, ...] | None = None,
        total_updates: int | None = None,
        schedule: Schedule | None = None,
        precision: Precision | None = None,
        micro_batch: int | None = None,
        processes: ProcessGroup = SINGLE_PROCESS,
        average: "WeightAverage | None" = None,
        proximal: "ProximalTerm | None" = None,
        awp: "WeightPerturbation | None" = None,
        clip_grad: float | None = None,
        forward: Callable[[Tensor], Tensor] | None = None,
        backward: Callable[[Tensor], object] | None = None,
    ) -> None:
        check_model(model)
        check_optimizer(optimizer)
        if micro_batch is not None and micro_batch < 1:
            raise InputError(f"micro-batch {micro_batch} must be at least 1 image")
        if clip_grad is not None and not clip_grad > 0:
            raise InputError(f"largest gradient {clip_grad:g} must be positive; 1 is usual")
        self.model = model
        self.optimizer = optimizer
        self.seed = seed
        self.member_seeds = member_seeds
        self.total_updates = total_updates
        self.schedule = schedule
        self.precision = precision or Precision("fp32", next(model.parameters()).device)
        self.micro_batch = micro_batch
        self.processes = processes
        self.average = average
        self.proximal = proximal
        self.awp = awp
        self.clip_grad = clip_grad
        self.updates = 0
        self.batches = 0
        self.cost = Cost()
        self.carried: Tensor | None = None
        self._forward = forward or model
        self._backpropagate = backward or Tensor.backward
        self._expected: tuple[int, int] | None = None
        self._global_batch: int | None = None
        self._joins: bool | None = None
        self._takes_one = False
        self._sums: OverlappedSums | None = None
        self._summed: list[nn.Parameter] = []

    @property
    def updates_left(self) -> int:
        """Weight updates until the budget T is spent."""
        return sys.maxsize if self.total_updates is None else self.total_updates - self.updates

    @property
    def averages(self) -> "dict[str, WeightAverage]":
        """The averages of the weights, by the names under which they are published."""
        own = {"ema": self.average, "slow": None if self.proximal is None else self.proximal.slow}
        return {name: average for name, average in own.items() if average is not None}

    @property
    def result(self) -> nn.Module:
        """The trained model: the slow weights once they have started, else the average, else the weights."""
        started = [average.model for average in self.averages.values() if average.has_started(self.updates)]
        return [self.model, *started][-1]

    @property
    def progress(self) -> float:
        """The part of the budget T that is spent, in [0, 1]."""
        return 0.0 if self.total_updates is None else self.updates / self.total_updates

    def copy(self, *, updates: int) -> "Learner":
        """A learner in the same state whose steps leave this one as it is, with a budget for ``updates`` more at least.

        It keeps the current learning rate, and has neither averages of the weights, nor a perturbation of them, nor the
        passes of a framework, nor other processes.
        """
        twin = copy.copy(self)
        twin.model, twin.optimizer = copy.deepcopy((self.model, self.optimizer))  # of the copied parameters
        twin.precision = Precision(self.precision.name, self.precision.device)
        twin.precision.load_state_dict(self.precision.state_dict())
        if self.total_updates is not None:
            twin.total_updates = max(self.total_updates, self.updates + updates)
        twin.schedule = twin.average = twin.proximal = twin.awp = twin._sums = None
        twin._summed = []
        twin.processes = SINGLE_PROCESS
        twin.cost = Cost()
        twin._forward, twin._backpropagate = twin.model, Tensor.backward
        return twin

    def expect(self, total: int, first: int) -> None:
        """Announce that the next batch is rows ``first, …`` of a global batch of ``total`` images."""
        self._expected = (total, first)

    def to_device(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """A batch on the model's device."""
        device = self.precision.device
        return to_device(x, device), to_device(y, device)

    def begin(self, x: Tensor, box: tuple[float, float] | None = None) -> StepRng:
        """Begin with the batch x, whose pixels lie in ``box``: count it, and return the rng of its step."""
        if self.updates_left <= 0:
            raise InputError(
                f"the budget of {self.total_updates} weight updates is spent: no step is left to take"
            )
        if self._expected is None:
            check_batch(x, box if self.batches == 0 else None)  # it waits for the device: once is enough
        b = x.shape[-4]
        total, first = self._expected or (b, 0)
        if not 0 <= first <= first + b <= total:
            raise InputError(
                f"a batch of {b} images cannot be the rows from {first} of the {total} images expected: "
                f"call expect(total, first) before each step, with the size of the whole batch"
            )
        share = self.processes.share(total)
        if self.processes.size > 1 and (first, first + b) != (share.start, share.stop):
            raise InputError(
                f"process {self.processes.rank} of {self.processes.size} has rows {first} to {first + b} of a batch of "
                f"{total} images: pass those of processes.share({total}), {share.start} to {share.stop}"
            )
        if 1 in (b, self.micro_batch) and b and not self._takes_one and self.model.training:
            self._check_one_image(x)
        self.batches += 1
        self._expected, self._global_batch = None, total
        self._forget_gradients()
        if self._joins is None and b > (self.micro_batch or b) and b % (self.micro_batch or b) == 1:
            self._joins = refuses_one_image(self.model, x[..., :1, :, :, :], self.processes) is not None
        return StepRng(self.member_seeds or self.seed, (self.batches,), total, first)

    def logits(self, x: Tensor) -> Tensor:
        """f_w(x), in fp32 or wider."""
        self.cost.add(x.shape[:-3].numel())
        return self.precision.run(self._forward, x)

    def perturb(self, attack: Perturb, x: Tensor, y: Tensor, rng: StepRng, mode: Mode) -> Tensor:
        """The δ that ``attack`` finds, one micro-batch at a time.

        Meanwhile w is frozen, so that gradients are computed for δ only, and the network is in ``mode``.
        """
        own = self._forward is self.model  # the layers of a compiled network must not change
        with frozen_eval(self.model) if own and mode == "eval" else frozen(self.model, mode):
            parts = [
                attack(x[..., rows, :, :, :], y[..., rows], rng.from_row(rows.start))
                for rows in self._micro_batches(x)
            ]
        return _joined(parts, -4, x)

    def weight_gradient(self, h: Loss, delta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """g_w = (1/b) Σ_j ∇_w h(w, δ_j; x_j, y_j), left on the parameters; returns the losses.

        With adversarial weight perturbation g_w is taken at w + v, and the losses at w.
        """
        return self._gradients(h, delta, x, y, wants_delta=False)[0]

    def both_gradients(self, h: Loss, delta: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """g_w as above and g_δ = [∇_δ h(w, δ_j; x_j, y_j)]_j from one backward pass; returns losses and g_δ.

        With adversarial weight perturbation g_w is taken at w + v by a second pass, losses and g_δ at w.
        """
        return self._gradients(h, delta, x, y, wants_delta=True)

    def descend(self) -> None:
        """w ← w − α_w g_w, by the optimizer; the gradients are then gone."""
        if self.schedule is not None:
            clock = Clock(update=self.updates, batch=self.batches, total=self.total_updates or 0)
            for group in self.optimizer.param_groups:
                group["lr"] = self.schedule(clock)
        if self.proximal is not None or self.clip_grad is not None:
            self.precision.unscale(self.optimizer)
        if self.proximal is not None:
            self.proximal.pull(self.model, self.updates)
        if self.clip_grad is not None:
            from freeat.learner.modifiers import clip_gradients

            held = (p for group in self.optimizer.param_groups for p in group["params"])
            clip_gradients(held, self.clip_grad, stacked=self._stacked)
        self.precision.apply(self.optimizer)
        self._forget_gradients()
        self.updates += 1
        for average in self.averages.values():
            average.follow(self.model, self.updates)

    @property
    def _stacked(self) -> bool:
        return getattr(self.model, "is_stack", False)

    def _gradients(
        self, h: Loss, delta: Tensor, x: Tensor, y: Tensor, *, wants_delta: bool
    ) -> tuple[Tensor, Tensor]:
        """The gradients of a pass at w, or with AWP that of the weights at w + v, whose statistics alone are kept."""
        if self.awp is None or not self.awp.active(self.updates):
            return self._backward(h, delta, x, y, wants_delta=wants_delta)
        with self.awp.statistics_kept(self.model):
            found = self._backward(h, delta, x, y, wants_delta=wants_delta)
        with self.awp.applied(self.model, stacked=self._stacked):
            self._forget_gradients()
            self._backward(h, delta, x, y, wants_delta=False)
        return found

    def _backward(
        self, h: Loss, delta: Tensor, x: Tensor, y: Tensor, *, wants_delta: bool
    ) -> tuple[Tensor, Tensor]:
        """Adds the gradients of all processes to those on the parameters; returns own losses and g_δ."""
        b = x.shape[-4] if self._global_batch is None else self._global_batch
        earlier = self._take_gradients() if self.processes.size > 1 else []
        sums = self._overlapped_sums(b) if self.processes.size > 1 else None
        losses: list[Tensor] = []
        grads: list[Tensor] = []
        for rows in self._micro_batches(x):
            part = delta[..., rows, :, :, :].detach().requires_grad_(wants_delta)
            own = x[..., rows, :, :, :], y[..., rows]
            if sums is None:
                values = h(part, *own)
                self._backpropagate(values.sum() / b)
            else:
                with sums.part(last=rows.stop == x.shape[-4]) as loss:
                    values = loss(h, part, *own)
                    self._backpropagate(values.sum() / b)
            losses.append(values.detach())
            if part.grad is not None:
                grads.append(part.grad.mul_(b))
        if sums is None:
            self.processes.sum_gradients(self.model.parameters())
        for p, gradient in earlier:
            p.grad = gradient if p.grad is None else p.grad.add_(gradient)
        return _joined(losses, -1, x[..., 0, 0, 0]), _joined(grads, -4, x)

    def _overlapped_sums(self, total: int) -> OverlappedSums | None:
        """What sums gradients during the backward pass; None where it must follow it, in every process alike.

        It must where a process has no image of the batch, and where the forward pass is another's (compiled, or a
        framework's). It is made for the weights that are trained now: weights may be frozen or unfrozen between two
        passes.
        """
        if total < self.processes.size or self._forward is not self.model:
            return None
        weights = [p for p in self.model.parameters() if p.requires_grad]
        if [*map(id, weights)] != [*map(id, self._summed)]:
            self._summed = weights
            self._sums = OverlappedSums(weights) if weights else None
        return self._sums

    def _take_gradients(self) -> list[tuple[nn.Parameter, Tensor]]:
        """The gradients of an earlier pass, which are sums already, taken off the parameters.

        They are copies: the next pass sums in the same memory.
        """
        held = [(p, p.grad.clone()) for p in self.model.parameters() if p.grad is not None]
        for p, _ in held:
            p.grad = None
        return held

    def _forget_gradients(self) -> None:
        held = (p for group in self.optimizer.param_groups for p in group["params"])
        for p in chain(self.model.parameters(), held):  # also of weights that the optimizer does not hold
            p.grad = None

    def _check_one_image(self, x: Tensor) -> None:
        """Refuse passes of one image where a batch norm has no statistics of it; looked at once."""
        error = refuses_one_image(self.model, x[..., :1, :, :, :], self.processes)
        if error is not None:
            given = (
                "a batch of 1 image"
                if x.shape[-4] == 1
                else f"a batch of {x.shape[-4]} images, one at a time"
            )
            raise InputError(
                f"{given}: the batch norms of the model need more in training mode ({error}); pass batches of 2 images "
                "or more (a DataLoader with drop_last=True leaves out a smaller last one), a micro_batch of 2 or more, "
                "or a model with group norm"
            )
        self._takes_one = True

    def _micro_batches(self, x: Tensor) -> list[slice]:
        return micro_batches(x.shape[-4], self.micro_batch, join=bool(self._joins))


def micro_batches(images: int, most: int | None, *, join: bool) -> list[slice]:
    """The rows of each pass of at most ``most`` images; with ``join`` a last one of one image joins the one before."""
    part = max(most or images, 1)
    stops = [*range(part, images, part), images] if images else []
    if join and len(stops) > 1 and images - stops[-2] == 1:
        del stops[-2]
    return [slice(first, stop) for first, stop in zip([0, *stops], stops, strict=False)]


def refuses_one_image(model: nn.Module, x: Tensor, processes: ProcessGroup) -> str | None:
    """Why the model, in the mode it is in, has no answer for x, a single image; None where it has.

    A batch norm has no statistics of one value per channel. One that shares them has values of the other processes,
    which are not waited for.
    """
    if not any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules()):
        return None
    model = copy.deepcopy(model)
    for layer in model.modules():
        if isinstance(layer, nn.SyncBatchNorm) and processes.size > 1:
            layer.eval()
    try:
        with torch.no_grad(), layer_rng(x.device, 0):
            model(x)
    except ValueError as error:
        return str(error)
    return None


def _joined(parts: list[Tensor], dim: int, like: Tensor) -> Tensor:
    """The parts as one tensor; zeros ``like`` another where a process has no images of a batch."""
    if not parts:
        return torch.zeros_like(like)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)


def check_model(model: object) -> None:
    """A module that has something to train."""
    if not isinstance(model, nn.Module):
        raise wrong_type("model", model, "pass a torch.nn.Module, built and not its class or name")
    if next(model.parameters(), None) is None:
        raise InputError(f"model is a {type(model).__name__} without parameters: there is nothing to train")


def check_optimizer(optimizer: object) -> None:
    """A torch optimizer, or one that a framework has wrapped."""
    if not hasattr(optimizer, "param_groups"):
        remedy = "pass a torch optimizer, such as torch.optim.SGD(model.parameters(), lr=0.1)"
        raise wrong_type("optimizer", optimizer, remedy)


def check_batch(x: Tensor, box: tuple[float, float] | None) -> None:
    """A batch of images as floats, with their pixels in the box; None looks at no pixel."""
    if x.ndim < 4 or not x.is_floating_point():
        raise InputError(
            f"a batch of shape {tuple(x.shape)} and type {x.dtype}: give images (b, C, H, W) as floats, bytes as x/255"
        )
    if box is None or x.is_meta or not x.numel():
        return
    low, high = (float(v) for v in torch.aminmax(x.detach()))
    if not (low >= box[0] and high <= box[1]):  # NaN fails both comparisons
        raise InputError(
            f"pixels between {low:g} and {high:g}, but the ball's box is [{box[0]:g}, {box[1]:g}]: scale the images "
            "into it and put a normalization inside the model, or give the ball box=None"
        )
