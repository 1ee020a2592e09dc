"""Measured algorithmic stability: twin runs on S and S′, and the constants of the theorems."""

from freeat.evaluation.matched import Interval
from freeat.stability.constants import Constants, estimate_constants
from freeat.stability.estimates import (
    UniformStability,
    mean_largest,
    uniform_stability,
)
from freeat.stability.probes import ProbeAttack, WorstCase
from freeat.stability.twins import (
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
    "Constants",
    "EngineChoice",
    "Interval",
    "ProbeAttack",
    "SeparateRuns",
    "Stack",
    "StackedRuns",
    "Twins",
    "UniformStability",
    "WorstCase",
    "choose_engine",
    "delta_distances",
    "estimate_constants",
    "make_runs",
    "mean_largest",
    "train_twins",
    "uniform_stability",
    "weight_distances",
]
