"""Per-sample losses h(w, δ; x, y): what the weights descend, and what an attack ascends.

An objective has two functions. ``loss`` is what w descends, given the clean images and the perturbed ones.
``attack`` returns the function of the perturbed images that an attack ascends; it may hold what does not
change between the steps of an attack. Free ascends ``loss`` itself. All return one value per image.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, Protocol, get_args

import torch
from torch import Tensor

from freeat.errors import InputError, wrong_type

LossName = Literal["ce", "margin", "dlr"]
LOSS_NAMES: tuple[str, ...] = get_args(LossName)
Model = Callable[[Tensor], Tensor]  # f_w: images (..., b, C, H, W) to logits (..., b, classes)
LogitLoss = Callable[[Tensor, Tensor], Tensor]  # logits (b, classes) and labels (b,) to one value each
TargetedLoss = Callable[[Tensor, Tensor, Tensor], Tensor]  # logits, labels and targets to one value each
DLR_CLASSES = 4


class Objective(Protocol):
    """A loss h(w, δ; x, y) with its two functions, and what they cost per image.

    ``loss_passes`` is the number of forward–backward passes of ``loss``, ``attack_forwards`` that of the
    forward-only passes of ``attack``. Each call of what ``attack`` returns takes one forward–backward pass.
    """

    loss_passes: ClassVar[int]
    attack_forwards: ClassVar[int]

    def loss(self, f: Model, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor: ...

    def attack(self, f: Model, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]: ...


def check_objective(objective: object) -> None:
    """Refuse what is not an objective, such as its name."""
    has_both = callable(getattr(objective, "loss", None)) and callable(getattr(objective, "attack", None))
    if isinstance(objective, type) or not has_both:
        remedy = "pass an objective such as freeat.Trades(), or an object with the methods loss and attack"
        raise wrong_type("objective", objective, remedy)


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """−log p_y of each image."""
    return -_picked(logits.log_softmax(-1), y)


def smoothed_cross_entropy(log_p: Tensor, y: Tensor, smoothing: float) -> Tensor:
    """−(1 − s) log p_y − s·mean_k log p_k of each image, from log-probabilities: labels smoothed by s."""
    own = -_picked(log_p, y)
    return own if smoothing == 0 else (1 - smoothing) * own - smoothing * log_p.mean(-1)


def check_smoothing(smoothing: float) -> None:
    """Refuse a smoothing of labels outside [0, 1)."""
    if not 0 <= smoothing < 1:
        raise InputError(f"label smoothing {smoothing:g} must lie in [0, 1); 0.1 is usual")


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p ‖ q) of each image from log-probabilities: no logarithm of a rounded zero, no clamp."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def error_probability(logits: Tensor, y: Tensor) -> Tensor:
    """1 − p_y of each image, in [0, 1]; from log p_y, so that no p_y rounds to 1."""
    return -(-cross_entropy(logits, y)).expm1()


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """max_{k≠y} z_k − z_y of each image: positive where the model is wrong (Carlini and Wagner's loss)."""
    label = y.unsqueeze(-1)
    others = logits.scatter(-1, label, -torch.inf).amax(-1)
    return others - logits.gather(-1, label).squeeze(-1)


def dlr(logits: Tensor, y: Tensor) -> Tensor:
    """(max_{k≠y} z_k − z_y) / (z_(1) − z_(3)), z sorted downwards: the margin, whatever the scale of the logits."""
    top = logits.topk(3, dim=-1).values
    spread = top[..., 0] - top[..., 2]
    return margin(logits, y) / spread.clamp_min(torch.finfo(logits.dtype).tiny)


def targeted_margin(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """z_t − z_y of each image: positive where the target beats the label."""
    return _picked(logits, target) - _picked(logits, y)


def targeted_dlr(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """(z_t − z_y) / (z_(1) − (z_(3) + z_(4))/2), z sorted downwards: the targeted margin, whatever the scale."""
    top = logits.topk(4, dim=-1).values
    spread = top[..., 0] - (top[..., 2] + top[..., 3]) / 2
    return targeted_margin(logits, y, target) / spread.clamp_min(torch.finfo(logits.dtype).tiny)


LOSSES: dict[str, LogitLoss] = {"ce": cross_entropy, "margin": margin, "dlr": dlr}


def defined_loss(name: LossName, classes: int) -> tuple[LossName, tuple[str, ...]]:
    """The loss that is defined for this number of classes, and a note where it is not the requested one."""
    if name == "dlr" and classes < DLR_CLASSES:
        return "margin", (f"DLR is undefined with {classes} classes; the margin loss was used instead",)
    return name, ()


def defined_targeted_loss(classes: int) -> tuple[TargetedLoss, tuple[str, ...]]:
    """The targeted DLR loss; with fewer than four classes, where it is undefined, the targeted margin and a note."""
    if classes < DLR_CLASSES:
        note = (
            f"the targeted DLR loss is undefined with {classes} classes; the targeted margin was used instead"
        )
        return targeted_margin, (note,)
    return targeted_dlr, ()


def _picked(values: Tensor, y: Tensor) -> Tensor:
    return values.gather(-1, y.unsqueeze(-1)).squeeze(-1)


def _attack_cross_entropy(f: Model, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x_adv: cross_entropy(f(x_adv), y)


@dataclass(frozen=True, kw_only=True)
class CrossEntropy:
    """Cross-entropy h = Loss(f_w(x + δ), y), the loss of Algorithms 1–3.

    Args:
        smoothing: the part s of every label that is spread evenly over all classes. An attack ascends the plain
            cross-entropy; Free ascends the loss itself.

    Raises:
        InputError: The smoothing lies outside [0, 1).

    Example:
        >>> import torch, freeat
        >>> def model(x):
        ...     return x.flatten(1) @ torch.eye(4, 2)
        >>> x, y = torch.zeros(1, 1, 2, 2), torch.tensor([0])
        >>> freeat.CrossEntropy().loss(model, x, y, x_adv=x)
        tensor([0.6931])
    """

    smoothing: float = 0.0
    loss_passes: ClassVar[int] = 1
    attack_forwards: ClassVar[int] = 0

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)

    def loss(self, f: Model, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor:
        return smoothed_cross_entropy(f(x_adv).log_softmax(-1), y, self.smoothing)

    def attack(self, f: Model, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        return _attack_cross_entropy(f, x, y)


@dataclass(frozen=True, kw_only=True)
class Trades:
    """The TRADES loss h̃_λ = Loss(f_w(x), y) + (1/λ) KL(f_w(x) ‖ f_w(x + δ)), equation (11).

    Its gradient flows through both f_w(x) and f_w(x + δ). An attack ascends the KL term.

    Args:
        lam: The coefficient λ > 0; 1/6 in the paper, written β = 1/λ = 6 elsewhere.
        smoothing: The part of every label in the cross-entropy that is spread evenly over all classes.

    Raises:
        InputError: λ is not positive, or the smoothing lies outside [0, 1).

    Example:
        >>> import freeat
        >>> free_trades = freeat.Free(ball=freeat.Linf("8/255"), m=4, objective=freeat.Trades())
        >>> free_trades.objective.lam == 1 / 6
        True
    """

    lam: float = 1 / 6
    smoothing: float = 0.0
    loss_passes: ClassVar[int] = 2
    attack_forwards: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)
        if not self.lam > 0:
            raise InputError(f"TRADES coefficient λ = {self.lam:g} must be positive; the paper uses 1/6")

    def loss(self, f: Model, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor:
        clean = f(x).log_softmax(-1)
        adversarial = f(x_adv).log_softmax(-1)
        own = smoothed_cross_entropy(clean, y, self.smoothing)
        return own + kl_divergence(clean, adversarial) / self.lam

    def attack(self, f: Model, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        with torch.no_grad():
            clean = f(x).log_softmax(-1)  # the same in every step of the attack
        return lambda x_adv: kl_divergence(clean, f(x_adv).log_softmax(-1))


@dataclass(frozen=True, kw_only=True)
class LogitPairing:
    """Adversarial logit pairing (ALP): Loss(f_w(x + δ), y) + weight · mean_k (f_w(x) − f_w(x + δ))²_k.

    Args:
        weight: The coefficient of the squared distance of the logits.
        smoothing: The part of every label in the cross-entropy that is spread evenly over all classes.

    Raises:
        InputError: The weight is negative, or the smoothing lies outside [0, 1).

    Example:
        >>> import freeat
        >>> freeat.Vanilla(ball=freeat.L2(0.5), m=10, objective=freeat.LogitPairing(weight=1.0)).objective
        LogitPairing(weight=1.0, smoothing=0.0)
    """

    weight: float = 0.5
    smoothing: float = 0.0
    loss_passes: ClassVar[int] = 2
    attack_forwards: ClassVar[int] = 0

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)
        if not self.weight >= 0:
            raise InputError(f"ALP weight {self.weight:g} must not be negative; 0.5 is usual")

    def loss(self, f: Model, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor:
        adversarial = f(x_adv)
        distance = (f(x) - adversarial).square().mean(-1)
        own = smoothed_cross_entropy(adversarial.log_softmax(-1), y, self.smoothing)
        return own + self.weight * distance

    def attack(self, f: Model, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        return _attack_cross_entropy(f, x, y)


@dataclass(frozen=True, kw_only=True)
class Mart:
    """MART: BCE(f_w(x + δ), y) + weight · KL(f_w(x) ‖ f_w(x + δ)) · (1 − p_y(x)).

    BCE = −log p_y − log(1 − max_{k≠y} p_k), both of x + δ; misclassified clean images weigh more.

    Args:
        weight: The coefficient of the weighted KL term.
        smoothing: The part of every label in the cross-entropy that is spread evenly over all classes.

    Raises:
        InputError: The weight is negative, or the smoothing lies outside [0, 1).

    Example:
        >>> import freeat
        >>> freeat.Vanilla(ball=freeat.L2(0.5), m=10, objective=freeat.Mart()).objective
        Mart(weight=5.0, smoothing=0.0)
    """

    weight: float = 5.0
    smoothing: float = 0.0
    loss_passes: ClassVar[int] = 2
    attack_forwards: ClassVar[int] = 0

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)
        if not self.weight >= 0:
            raise InputError(f"MART weight {self.weight:g} must not be negative; 5 is usual")

    def loss(self, f: Model, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor:
        clean = f(x).log_softmax(-1)
        adversarial = f(x_adv).log_softmax(-1)
        wrong = adversarial.scatter(-1, y.unsqueeze(-1), -torch.inf).argmax(-1, keepdim=True)
        # log(1 − p_k) as the log-sum of the other probabilities: finite however confident the net is
        others = adversarial.scatter(-1, wrong, -torch.inf).logsumexp(-1)
        boosted = smoothed_cross_entropy(adversarial, y, self.smoothing) - others
        return boosted + self.weight * kl_divergence(clean, adversarial) * (1 - _picked(clean, y).exp())

    def attack(self, f: Model, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        return _attack_cross_entropy(f, x, y)


@dataclass(frozen=True, kw_only=True)
class BoundedLoss:
    """h = 1 − p_y(x + δ); it grows with cross-entropy, so both have the same maximizing δ."""

    loss_passes: ClassVar[int] = 1
    attack_forwards: ClassVar[int] = 0

    def loss(self, f: Model, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor:
        return error_probability(f(x_adv), y)

    def attack(self, f: Model, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x_adv: error_probability(f(x_adv), y)


OBJECTIVES: dict[str, type[CrossEntropy | Trades | LogitPairing | Mart]] = {
    "ce": CrossEntropy,
    "trades": Trades,
    "alp": LogitPairing,
    "mart": Mart,
}


def coefficient_of(objective: type[Objective] | Objective) -> str | None:
    """The field of an objective that weighs its second term; None for one that has no second term."""
    names = [field.name for field in fields(objective)]  # type: ignore[arg-type]
    return next((name for name in names if name != "smoothing"), None)
