"""The classifiers: named networks in their CIFAR form, or anyone's model by import path."""

from freeat.models.build import build, parameter_count, size
from freeat.models.head import check_logits, replace_head
from freeat.models.names import Architecture, Entry, catalogue, parse
from freeat.models.normalize import Normalization, Normalize

__all__ = [
    "Architecture",
    "Entry",
    "Normalization",
    "Normalize",
    "build",
    "catalogue",
    "check_logits",
    "parameter_count",
    "parse",
    "replace_head",
    "size",
]
