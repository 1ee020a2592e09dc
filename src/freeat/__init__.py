"""freeat: adversarial training whose robustness generalizes.

The public names are imported when they are first used, so that ``import freeat`` and the command line are quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

from freeat.errors import __version__ as __version__

_HOMES = {
    "Algorithm": "freeat.algorithms",
    "CrossEntropy": "freeat.objectives",
    "DataSet": "freeat.data",
    "Erm": "freeat.algorithms",
    "Fast": "freeat.algorithms",
    "Free": "freeat.algorithms",
    "Friendly": "freeat.algorithms",
    "Images": "freeat.data",
    "InputError": "freeat.errors",
    "L2": "freeat.threat",
    "Learner": "freeat.learner",
    "Linf": "freeat.threat",
    "LogitPairing": "freeat.objectives",
    "Mart": "freeat.objectives",
    "Pgd": "freeat.attacks.pgd",
    "RobustGap": "freeat.evaluation.generalization",
    "Trades": "freeat.objectives",
    "Trained": "freeat.api",
    "Vanilla": "freeat.algorithms",
    "WarmUp": "freeat.algorithms",
    "evaluate": "freeat.evaluation.evaluate",
    "export": "freeat.interop.export",
    "load": "freeat.runs.open",
    "load_data": "freeat.api",
    "load_result": "freeat.api",
    "make_algorithm": "freeat.algorithms",
    "make_ball": "freeat.threat",
    "robust_gap": "freeat.evaluation.generalization",
    "train": "freeat.api",
}

__all__ = [
    "L2",
    "Algorithm",
    "CrossEntropy",
    "DataSet",
    "Erm",
    "Fast",
    "Free",
    "Friendly",
    "Images",
    "InputError",
    "Learner",
    "Linf",
    "LogitPairing",
    "Mart",
    "Pgd",
    "RobustGap",
    "Trades",
    "Trained",
    "Vanilla",
    "WarmUp",
    "evaluate",
    "export",
    "load",
    "load_data",
    "load_result",
    "make_algorithm",
    "make_ball",
    "robust_gap",
    "train",
]

if TYPE_CHECKING:
    from freeat.algorithms import Algorithm, Erm, Fast, Free, Friendly, Vanilla, WarmUp, make_algorithm
    from freeat.api import Trained, load_data, load_result, train
    from freeat.attacks.pgd import Pgd
    from freeat.data import DataSet, Images
    from freeat.errors import InputError
    from freeat.evaluation.evaluate import evaluate
    from freeat.evaluation.generalization import RobustGap, robust_gap
    from freeat.interop.export import export
    from freeat.learner import Learner
    from freeat.objectives import CrossEntropy, LogitPairing, Mart, Trades
    from freeat.runs.open import load
    from freeat.threat import L2, Linf, make_ball


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'freeat' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
