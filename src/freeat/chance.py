"""Whether a model learnt anything: a gap between two guesses says nothing."""

from collections.abc import Mapping
from typing import Any


def above_chance(split: Mapping[str, Any]) -> bool:
    """Whether the robust accuracy on a split is above chance by its 95 % interval."""
    return bool(split["robust_interval"][0] > 1 / len(split["per_class"]))


def chance_remark(algorithm: str) -> str:
    """What must be said of an algorithm that did not."""
    return f"{algorithm} did not get above chance: its gap says nothing."
