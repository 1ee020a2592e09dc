"""What the algorithms have in common: the protocol of a step, its record and strength, and the warm-up of ε."""

from dataclasses import dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from freeat.compute import Cost
from freeat.errors import InputError
from freeat.learner import Learner, Loss
from freeat.objectives import Objective
from freeat.threat import Ball

if TYPE_CHECKING:
    from freeat.learner.modifiers import WeightPerturbation


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """The result of a step on one batch, detached from every graph.

    ``losses``: of each image, before the (last) update; ``delta``: the (last) perturbation; ``g_norms``:
    ‖∇_δ h‖₂ of each image and ascent, shape (ascents, ..., b), where the algorithm computes it anyway.
    """

    losses: Tensor
    delta: Tensor
    g_norms: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Strength:
    """The perturbations at which the weights descend in one step, as means over its images and passes.

    Args:
        size: ‖δ‖/ε in the ball's norm, of δ as the network sees it, with x + δ in the box.
        loss_increase: the cross-entropy at x + δ minus that at x.
        margin_share: how far δ lowers the margin, relative to the most that it can to first order, ε‖∇_x f‖_q. It is 1
            for the exact maximizer of a linear model without a box, and 0 for a random δ.
        cost: of the measurement.
    """

    size: float
    loss_increase: float
    margin_share: float
    cost: Cost


class Algorithm(Protocol):
    """A way to train: one step on one batch, which may update the weights several times.

    A class declares its settings by its fields. ``ball`` (which makes a warm-up possible), ``m``, ``alpha``,
    ``start`` and ``objective`` are set by a name and the settings of a run; all other fields are its own options
    (``--algorithm-args``). A setting that has no field is refused. Any class with these members is an algorithm; it
    need not inherit. ``one_step = True`` declares that it trains on perturbations of a single step or simultaneous
    ones, which may overfit catastrophically.

    Example:
        >>> import freeat
        >>> def cost_per_batch(algorithm: freeat.Algorithm) -> int:
        ...     return algorithm.updates_per_batch * algorithm.cost.gradient_evaluations
        >>> cost_per_batch(freeat.Free(ball=freeat.L2(0.5), m=4))
        4
    """

    @property
    def updates_per_batch(self) -> int:
        """Weight updates of a step."""
        ...

    @property
    def cost(self) -> Cost:
        """Gradient evaluations and forward-only passes of one weight update, per image."""
        ...

    def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord:
        """One step on a batch.

        Args:
            learner: the model with its optimizer, which the step updates.
            x: images (b, C, H, W).
            y: labels (b,).

        Returns:
            The losses and perturbations of the batch.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """Another algorithm, whose radius and step grow linearly from 0 over the first ``updates`` weight updates.

    With it Free trains above chance on data such as SVHN. A default step size follows the radius.

    Args:
        algorithm: any algorithm with a ball.
        updates: the weight updates until the radius is ε.

    Raises:
        InputError: ``updates`` < 1, or the algorithm has no ball.

    Example:
        >>> import freeat
        >>> freeat.WarmUp(algorithm=freeat.Free(ball=freeat.Linf(8 / 255), m=4), updates=100).updates_per_batch
        4
    """

    algorithm: Algorithm
    updates: int

    def __post_init__(self) -> None:
        check_loops("warm-up updates", self.updates)
        if threat_of(self.algorithm) is None or not is_dataclass(self.algorithm):
            raise InputError(
                f"{type(self.algorithm).__name__} has no ball whose radius could grow: train it without a warm-up"
            )

    @property
    def updates_per_batch(self) -> int:
        return self.algorithm.updates_per_batch

    @property
    def cost(self) -> Cost:
        return self.algorithm.cost

    def step(self, learner: Learner, x: Tensor, y: Tensor) -> StepRecord:
        share = min(1.0, (learner.updates + 1) / self.updates)
        inner: Any = self.algorithm
        grown = {"ball": inner.ball.scaled(share)}
        if getattr(inner, "alpha", None) is not None:
            grown["alpha"] = share * inner.alpha
        record: StepRecord = replace(inner, **grown).step(learner, x, y)
        return record


def perturbed_loss(objective: Objective, learner: Learner, ball: Ball) -> Loss:
    """h(w, δ; x, y) as a function of (δ, x, y), with x + δ cut to the box in the forward pass."""

    def h(delta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return objective.loss(learner.logits, x, y, ball.apply(x, delta))

    return h


def without_warm_up(algorithm: Algorithm) -> Algorithm:
    """The algorithm itself, without its warm-up."""
    return algorithm.algorithm if isinstance(algorithm, WarmUp) else algorithm


def training_cost(algorithm: Algorithm, updates: int, awp: "WeightPerturbation | None" = None) -> Cost:
    """What ``updates`` weight updates cost per image; with AWP, from its first update on, one loss more."""
    perturbed = 0 if awp is None else max(0, updates - awp.first)
    passes = getattr(getattr(without_warm_up(algorithm), "objective", None), "loss_passes", 1)
    own = algorithm.cost
    return Cost(
        gradient_evaluations=updates * own.gradient_evaluations + perturbed * passes,
        forward_passes=updates * own.forward_passes,
    )


def with_smoothing(algorithm: Algorithm, smoothing: float) -> Algorithm:
    """The algorithm with smoothed labels in the cross-entropy of its objective."""
    inner: Any = without_warm_up(algorithm)
    objective: Any = getattr(inner, "objective", None)
    if not hasattr(objective, "smoothing"):
        raise InputError(
            f"label smoothing {smoothing:g}: {type(inner).__name__} has a loss without labels to smooth; use the "
            "objectives ce, trades, alp or mart"
        )
    inner = replace(inner, objective=replace(objective, smoothing=smoothing))
    return replace(algorithm, algorithm=inner) if isinstance(algorithm, WarmUp) else inner


def threat_of(algorithm: Algorithm) -> Ball | None:
    """The ball an algorithm trains against; None for one without an adversary."""
    ball = getattr(without_warm_up(algorithm), "ball", None)
    return ball if isinstance(ball, Ball) else None


def check_members(name: str, found: object) -> None:
    """Refuse a class or object without the members of an algorithm."""
    # Looked up in the class first: the cost of an objective that has none cannot be read.
    if missing := [
        part
        for part in ("updates_per_batch", "cost", "step")
        if not hasattr(type(found), part) and not hasattr(found, part)
    ]:
        raise InputError(
            f"algorithm {name} lacks {', '.join(missing)}: an algorithm has a step, says how many weight updates it "
            "makes per batch (updates_per_batch = 1) and what one of them costs (cost, a freeat.compute.Cost), as "
            "CONTRIBUTING.md shows"
        )


def is_one_step(algorithm: Algorithm) -> bool:
    """Whether it trains on perturbations of one step, or simultaneous ones; assumed not where it does not say."""
    return bool(getattr(without_warm_up(algorithm), "one_step", False))


def has_strength(algorithm: Algorithm) -> bool:
    """Whether the strength of its attack can be measured: it has a ball and an objective."""
    return threat_of(algorithm) is not None and hasattr(without_warm_up(algorithm), "objective")


def check_loops(name: str, value: int) -> None:
    """Refuse a count of inner steps below 1."""
    if value < 1:
        raise InputError(f"{name} = {value} must be at least 1")


def check_step_size(alpha: float | None) -> None:
    """Refuse a step that does not move; None stands for the default that follows from (norm, ε)."""
    if alpha is not None and not alpha > 0:
        raise InputError(f"attack step α = {alpha:g} must be positive, in input units such as 2/255")
