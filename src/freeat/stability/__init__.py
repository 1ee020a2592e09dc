"""Algorithmic stability measured: twin runs on S and S′, and the constants the theorems speak of."""

from freeat.objectives import BoundedLoss, error_probability
from freeat.stability.constants import Constants, estimate_constants
from freeat.stability.estimates import Estimate, mean_estimate, mean_largest, uniform_stability
from freeat.stability.probes import Hardest, Probing
from freeat.stability.twins import (
    CoupledRuns,
    EngineChoice,
    SeparateRuns,
    Stack,
    StackedRuns,
    Twins,
    choose_engine,
    delta_distances,
    make_runs,
    train_twins,
    weight_distances,
)

__all__ = [
    "BoundedLoss",
    "Constants",
    "CoupledRuns",
    "EngineChoice",
    "Estimate",
    "Hardest",
    "Probing",
    "SeparateRuns",
    "Stack",
    "StackedRuns",
    "Twins",
    "choose_engine",
    "delta_distances",
    "error_probability",
    "estimate_constants",
    "make_runs",
    "mean_estimate",
    "mean_largest",
    "train_twins",
    "uniform_stability",
    "weight_distances",
]
