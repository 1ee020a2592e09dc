"""The training algorithms of the paper, one short file each, a line per line of pseudocode."""

from freeat.algorithms.registry import make_algorithm, parse_algorithm
from freeat.algorithms.step import Algorithm, StepRecord, WarmUp

__all__ = [
    "Algorithm",
    "StepRecord",
    "WarmUp",
    "make_algorithm",
    "parse_algorithm",
]
