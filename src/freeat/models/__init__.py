"""Classifiers: named networks in their CIFAR form, or a user's model by import path."""

from freeat.models.head import check_logits, replace_head
from freeat.models.registry import Architecture, ModelInfo, build, catalogue, parameter_count, parse, size

__all__ = [
    "Architecture",
    "ModelInfo",
    "build",
    "catalogue",
    "check_logits",
    "parameter_count",
    "parse",
    "replace_head",
    "size",
]
