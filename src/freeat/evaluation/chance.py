"""Whether a model learnt anything: a gap between two guesses says nothing."""

from collections.abc import Mapping
from typing import Any


def chance(record: Mapping[str, Any]) -> float:
    """The accuracy of guessing, where a record judges a training and a test split.

    Records of old versions do not say how many classes the data have: the images of either split show most of them.
    """
    splits = (record["train"], record["test"])
    classes: int = max(split.get("classes", len(split["per_class"])) for split in splits)
    return 1 / classes


def above_chance(record: Mapping[str, Any]) -> bool:
    """Whether the robust training accuracy is above chance by its 95 % interval."""
    return bool(record["train"]["robust_interval"][0] > chance(record))


def chance_remark(algorithm: str) -> str:
    """What must be said of an algorithm that did not."""
    return f"{algorithm} did not get above chance: its gap says nothing."
