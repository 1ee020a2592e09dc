"""The training algorithms of the paper, one short file each, a line per line of pseudocode."""

from freeat.algorithms.erm import Erm
from freeat.algorithms.fast import Fast
from freeat.algorithms.free import Free
from freeat.algorithms.friendly import Friendly
from freeat.algorithms.registry import make_algorithm, parse_algorithm
from freeat.algorithms.step import Algorithm, StepRecord, WarmUp
from freeat.algorithms.vanilla import Vanilla

__all__ = [
    "Algorithm",
    "Erm",
    "Fast",
    "Free",
    "Friendly",
    "StepRecord",
    "Vanilla",
    "WarmUp",
    "make_algorithm",
    "parse_algorithm",
]
