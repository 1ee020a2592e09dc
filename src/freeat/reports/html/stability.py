"""Stability: how far runs diverge when one training example is replaced, beside the bounds; the bound explorer."""

from collections.abc import Sequence
from dataclasses import asdict

from freeat.reports.html.blocks import Block, BoundExplorer, Section, Slider
from freeat.reports.html.gather import FoundStudy
from freeat.reports.population import gap_chart, population_tables
from freeat.reports.stability import (
    difference_chart,
    distance_bounds,
    distance_chart,
    paired_table,
    study_table,
)
from freeat.stability.population_summary import PopulationStudy
from freeat.stability.summary import applicable_bound
from freeat.theory.derived import source
from freeat.theory.problem import COUNTS, MEANINGS, USED


def stability_section(studies: Sequence[FoundStudy]) -> Section:
    """The table, the distances with their bounds, and the loss differences of every study."""
    blocks: list[Block] = []
    for study in studies:
        if study.summary and study.summary.rows:
            blocks.append(study_table(study.summary.rows).under_name(study.name))
            if study.summary.differences:
                blocks.append(paired_table(study.summary.differences).under_name(study.name))
        if study.results:
            by_name = study.by_algorithm
            at_n = f"n = {study.largest_n}"
            bounds = distance_bounds(study.settings, by_name) if study.settings else {}
            blocks += [
                distance_chart(f"{study.name}: distances, {at_n}", by_name, bounds),
                difference_chart(f"{study.name}: differences of the robust loss, {at_n}", by_name),
            ]
    return Section(
        key="stability",
        title="Algorithmic stability: twin runs",
        lead="Twin runs share initial weights, batches and random starts, and differ in one training example. "
        "Theorems 2, 4 and 5 bound how far their weights and losses diverge. Lines are means over the seeds, bands "
        "reach from the lowest seed to the highest. Distance: ‖w − w′‖ at the end. Uniform stability: "
        "Definition 1, the largest mean difference of the robust loss, with the limits that the seeds allow. Mean "
        "largest: the largest difference of each seed, averaged over the seeds; a description, no estimate of "
        "Definition 1.",
        blocks=blocks,
    )


def population_section(studies: Sequence[tuple[str, PopulationStudy]]) -> Section:
    """The learning curves, gaps and differences of every population study."""
    blocks: list[Block] = []
    for name, study in studies:
        blocks.append(gap_chart(name, study.summary))
        blocks += [table.under_name(name) for table in population_tables(study.summary)]
    return Section(
        key="population",
        title="The exact gap on a Gaussian mixture",
        lead="Population risk minus training risk, both robust, without a test set: a formula for linear "
        "classifiers, an average over fresh draws for nets. Strength: how far the perturbations that the weights "
        "descend on lower the margin, relative to the most they can. vanilla-weak trains at Free's strength; "
        "vanilla-weak-replay also uses each batch as often as Free does, so that Free minus it isolates the "
        "simultaneous update.",
        blocks=blocks,
    )


SYMBOLS = {"beta": "β", "psi": "ψ", "eps": "ε", "alpha": "α_δ", "step": "α_w", "decay": "γ", "rho": "ρ"}
RANGES: dict[str, tuple[float, float, float]] = {
    "eps": (0.5, 1e-3, 10),
    "m": (4, 1, 32),
    "alpha": (0.2, 1e-3, 10),
    "beta": (2, 1e-3, 1e3),
    "L": (1, 1e-3, 1e3),
    "L_w": (1, 1e-3, 1e3),
    "psi": (4, 1e-2, 1e6),
    "c": (0.1, 1e-4, 10),
    "b": (10, 1, 4096),
    "n": (1000, 10, 1e7),
    "T": (1000, 1, 1e7),
    "step": (0.01, 1e-4, 10),
    "decay": (0, 1e-6, 1),
    "rho": (10, 1e-2, 1e4),
}
"""The initial value and the range of each slider."""


def explorer_section(studies: Sequence[FoundStudy]) -> Section:
    """The bound explorer. It needs no results; measured constants of a study are offered as presets."""
    sliders = [
        Slider(
            name=name,
            symbol=SYMBOLS.get(name, name),
            meaning=MEANINGS[name],
            value=value,
            low=low,
            high=high,
            whole=name in COUNTS,
        )
        for name, (value, low, high) in RANGES.items()
    ]
    explorer = BoundExplorer(
        sliders=sliders,
        algorithms=[(name, source(name)) for name in USED],
        presets=[preset for study in studies for preset in _presets(study)],
    )
    return Section(
        key="explorer",
        title="Bound explorer",
        lead="The generalization bounds of Theorems 2 (Vanilla), 5 (Fast) and 4 (Free), recomputed as you move a"
        " slider. They hold for a loss in [0, 1], L2 balls and weight steps of at most c/t (for Free "
        "c/(mt)); above 1 a bound says nothing. α_δ is the paper's relative step: one attack step moves δ "
        "by α_δ·ε. The others are derived in the documentation, not in the paper. Approximate: Theorem 2 for any "
        "attack. Convex: constant step α_w and weight decay γ on a loss convex in w, bounded or not. Proximal: exact "
        "proximal steps of weight ρ. They take η = 2βε and ℓ = β.",
        blocks=[explorer],
    )


def _presets(study: FoundStudy) -> list[tuple[str, dict[str, float]]]:
    """The measured constants of a study made as the theorems assume, for every algorithm with a bound."""
    if study.summary is None:
        return []
    presets = []
    for row in study.summary.rows:
        covered = applicable_bound(study.summary.settings, row.algorithm, row.n, row.constants)
        if row.bound is None or covered is None or not covered.problem.eps:  # no logarithmic slider has 0
            continue
        every = {**asdict(covered.problem), "T": covered.T, "alpha": covered.alpha, "m": covered.m}
        values = {name: value for name, value in every.items() if value is not None}
        presets.append((f"{study.name}: {row.algorithm}, n = {row.n}", values))
    return presets
