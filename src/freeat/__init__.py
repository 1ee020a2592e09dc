"""freeat: adversarial training, with the robust generalization gap measured.

The public names are imported when they are first used, so that ``import freeat`` and the command line are quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

from freeat.errors import __version__ as __version__

_MODULES = {
    "freeat.algorithms": "Algorithm WarmUp make_algorithm",
    "freeat.algorithms.erm": "Erm",
    "freeat.algorithms.fast": "Fast",
    "freeat.algorithms.free": "Free",
    "freeat.algorithms.friendly": "Friendly",
    "freeat.algorithms.vanilla": "Vanilla",
    "freeat.api": "Trained load_result train",
    "freeat.attacks.pgd": "Pgd",
    "freeat.data": "DataSet Images load_data",
    "freeat.errors": "InputError",
    "freeat.evaluation.evaluate": "evaluate",
    "freeat.evaluation.generalization": "RobustGap robust_gap",
    "freeat.interop.export": "export",
    "freeat.learner": "Learner",
    "freeat.objectives": "CrossEntropy LogitPairing Mart Trades",
    "freeat.runs.open": "load",
    "freeat.threat": "L2 Linf make_ball",
}
"""The public names, by the module that defines them."""

_DEFINED_IN = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_DEFINED_IN)

if TYPE_CHECKING:  # the same table for type checkers and editors
    from freeat.algorithms import Algorithm as Algorithm
    from freeat.algorithms import WarmUp as WarmUp
    from freeat.algorithms import make_algorithm as make_algorithm
    from freeat.algorithms.erm import Erm as Erm
    from freeat.algorithms.fast import Fast as Fast
    from freeat.algorithms.free import Free as Free
    from freeat.algorithms.friendly import Friendly as Friendly
    from freeat.algorithms.vanilla import Vanilla as Vanilla
    from freeat.api import Trained as Trained
    from freeat.api import load_result as load_result
    from freeat.api import train as train
    from freeat.attacks.pgd import Pgd as Pgd
    from freeat.data import DataSet as DataSet
    from freeat.data import Images as Images
    from freeat.data import load_data as load_data
    from freeat.errors import InputError as InputError
    from freeat.evaluation.evaluate import evaluate as evaluate
    from freeat.evaluation.generalization import RobustGap as RobustGap
    from freeat.evaluation.generalization import robust_gap as robust_gap
    from freeat.interop.export import export as export
    from freeat.learner import Learner as Learner
    from freeat.objectives import CrossEntropy as CrossEntropy
    from freeat.objectives import LogitPairing as LogitPairing
    from freeat.objectives import Mart as Mart
    from freeat.objectives import Trades as Trades
    from freeat.runs.open import load as load
    from freeat.threat import L2 as L2
    from freeat.threat import Linf as Linf
    from freeat.threat import make_ball as make_ball


def __getattr__(name: str) -> Any:
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'freeat' has no attribute {name!r}")
    return getattr(importlib.import_module(_DEFINED_IN[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
