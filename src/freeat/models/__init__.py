"""Classifiers: named networks in their CIFAR form, those of timm and torchvision, or a user's model by import path."""

from freeat.models.head import check_logits, head_of, head_tensors, replace_head
from freeat.models.registry import (
    AUTO,
    LARGEST,
    Architecture,
    ModelInfo,
    build,
    catalogue,
    network_for,
    parameter_count,
    parse,
    size,
)

__all__ = [
    "AUTO",
    "LARGEST",
    "Architecture",
    "ModelInfo",
    "build",
    "catalogue",
    "check_logits",
    "head_of",
    "head_tensors",
    "network_for",
    "parameter_count",
    "parse",
    "replace_head",
    "size",
]
