"""The loss 1 − p_y: bounded in [0, 1], as Theorems 2, 4 and 5 ask."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from freeat.objectives import Classifier, cross_entropy


def error_probability(logits: Tensor, y: Tensor) -> Tensor:
    """1 − p_y of each image, in [0, 1]; from log p_y, so that no p_y rounds to 1."""
    return -(-cross_entropy(logits, y)).expm1()


@dataclass(frozen=True, kw_only=True)
class BoundedLoss:
    """h = 1 − p_y(x + δ); it grows with cross-entropy, so both have the same maximizing δ."""

    def loss(self, f: Classifier, x: Tensor, y: Tensor, x_adv: Tensor) -> Tensor:
        return error_probability(f.logits(x_adv), y)

    def attack(self, f: Classifier, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x_adv: error_probability(f.logits(x_adv), y)
