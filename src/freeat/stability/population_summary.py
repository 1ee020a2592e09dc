"""What a population study says: exact gaps, paired differences, exponents in n, levers, and the bounds beside them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from freeat.algorithms import parse_algorithm
from freeat.compute.machine import Provenance
from freeat.evaluation.matched import (
    Array,
    Interval,
    LearningCurves,
    MatchedGap,
    matched_gap,
    mean_interval,
    paired_difference,
)
from freeat.files.documents import read_document
from freeat.runs.build import proximal_start
from freeat.runs.spec import split_parts
from freeat.stability.estimates import fitted_exponent
from freeat.stability.population import (
    CONTROLS,
    EXACT,
    WEAK_REPLAY,
    WITH_STEP,
    PopulationResult,
    PopulationSettings,
)
from freeat.theory import bound, recursion_bound
from freeat.theory.problem import THEOREMS

POPULATION = "population.json"
"""The file of a study."""

Lever = Literal["eps", "alpha", "updates", "d", "m"]
"""What the bounds of Theorems 2, 4 and 5 grow with (ε/‖μ‖, α_δ and T), the dimension, and the m of Free."""
EARLY = 0.25
"""The gap at T is compared with that at the mark nearest to this part of T."""
FEWEST_SIZES = 3
"""The fewest sample sizes to which an exponent in n is fitted."""


@dataclass(frozen=True, kw_only=True)
class ArmSummary:
    """One arm on one instance: means over the seeds at the last update, and the gap with its 95 % interval.

    ``curve_risk`` and ``curve_gap`` are the mean surrogate training risk and gap at the updates ``curve_updates``.
    """

    instance: PopulationSettings
    arm: str
    updates: int
    strength: float | None
    train_zero_one: float
    train_surrogate: float
    population_zero_one: float
    population_surrogate: float
    gap_zero_one: Interval
    gap_surrogate: Interval
    standard_error: float
    curve_updates: list[int]
    curve_risk: list[float]
    curve_gap: list[float]


@dataclass(frozen=True, kw_only=True)
class PopulationDifference:
    """The gap of ``arm`` minus that of ``reference``: at equal updates, and at equal robust training risk."""

    instance: PopulationSettings
    arm: str
    reference: str
    zero_one: Interval
    surrogate: Interval
    matched: MatchedGap | None


@dataclass(frozen=True, kw_only=True)
class PopulationExponent:
    """a in gap ∝ n^(−a) at fixed T; ``instance`` has the largest n."""

    instance: PopulationSettings
    arm: str
    exponent: Interval


@dataclass(frozen=True, kw_only=True)
class PopulationExponentDifference:
    """The exponent of ``arm`` minus that of ``reference``, paired by seed; ``instance`` has the largest n."""

    instance: PopulationSettings
    arm: str
    reference: str
    difference: Interval


@dataclass(frozen=True, kw_only=True)
class PopulationLever:
    """By how much the gap of an arm changes as ``lever`` goes from ``low`` to ``high``; ``instance`` has the latter."""

    instance: PopulationSettings
    arm: str
    lever: Lever
    low: float
    high: float
    change: Interval


@dataclass(frozen=True, kw_only=True)
class PopulationBound:
    """A bound on the expected surrogate gap of an instance, beside what was measured."""

    instance: PopulationSettings
    arm: str
    bound_name: str
    bound: float
    measured: Interval


@dataclass(frozen=True, kw_only=True)
class PopulationSummary:
    """All that the results of a study say."""

    arms: list[ArmSummary]
    differences: list[PopulationDifference]
    exponents: list[PopulationExponent]
    bounds: list[PopulationBound]
    levers: list[PopulationLever] = field(default_factory=list)
    exponent_differences: list[PopulationExponentDifference] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class PopulationStudy:
    """A study as it is stored: the summary, the tasks that failed, and what made it."""

    summary: PopulationSummary
    failures: dict[str, str]
    provenance: Provenance


def read_population(path: Path) -> PopulationStudy:
    """The stored study."""
    return read_document(path, "population study", PopulationStudy)


def summarize_population(results: Sequence[PopulationResult]) -> PopulationSummary:
    """The study as numbers; results of one instance are compared with each other, seed by seed."""
    arms = [_arm(result) for result in results]
    lines = _lines_in_n(results)
    return PopulationSummary(
        arms=arms,
        differences=[row for group in _instances(results) for row in _differences(group)],
        exponents=[row for line in lines for row in _exponents(line)],
        bounds=[row for arm in arms if arm.instance.theorem for row in _bounds(arm)],
        levers=[
            *_along(results, "eps"),
            *_along(results, "alpha"),
            *_along(results, "d"),
            *_along_m(results),
            *map(_later, results),
        ],
        exponent_differences=[row for line in lines for row in _exponent_differences(line)],
    )


def gaps(result: PopulationResult, risk: str) -> Array:
    """The gap of every seed at every mark, less that at update 0: (seeds, marks).

    The initial weights do not depend on the sample, so the gap there has mean zero: subtracting it keeps the
    expectation and takes away much of the variance.
    """
    trajectory = result.trajectory
    gap = np.array(trajectory.population[risk]) - np.array(trajectory.train[risk])
    return np.asarray((gap - gap[:1]).T)


def learning_curves(result: PopulationResult) -> LearningCurves:
    """Fit (one minus the robust training risk) and gap of every seed, in the surrogate, where the curve begins."""
    train = np.array(result.trajectory.train["surrogate"]).T
    first = _beginning(result)
    return LearningCurves(fit=1 - train[:, first:], gap=gaps(result, "surrogate")[:, first:])


def _beginning(result: PopulationResult) -> int:
    """The first mark with the evaluated weights: slow ones begin late, and before it the marks are of the fast ones."""
    settings, updates = result.settings, result.trajectory.updates
    spec = settings.parts_of(result.arm)
    if spec.proximal is None:
        return 0
    start = proximal_start(spec, settings.updates, settings.batches_per_epoch)
    return next(mark for mark, update in enumerate(updates) if update >= start)


def _arm(result: PopulationResult) -> ArmSummary:
    trajectory, first = result.trajectory, _beginning(result)

    def last(side: dict[str, list[list[float]]], risk: str) -> float:
        return float(np.mean(side[risk][-1]))

    return ArmSummary(
        instance=result.settings,
        arm=result.arm,
        updates=trajectory.updates[-1],
        strength=trajectory.strength,
        train_zero_one=last(trajectory.train, "zero_one"),
        train_surrogate=last(trajectory.train, "surrogate"),
        population_zero_one=last(trajectory.population, "zero_one"),
        population_surrogate=last(trajectory.population, "surrogate"),
        gap_zero_one=mean_interval(gaps(result, "zero_one")[:, -1]),
        gap_surrogate=mean_interval(gaps(result, "surrogate")[:, -1]),
        standard_error=trajectory.error,
        curve_updates=trajectory.updates[first:],
        curve_risk=[float(np.mean(risks)) for risks in trajectory.train["surrogate"]][first:],
        curve_gap=gaps(result, "surrogate").mean(0).tolist()[first:],
    )


def _instances(results: Sequence[PopulationResult]) -> list[list[PopulationResult]]:
    grouped: dict[PopulationSettings, list[PopulationResult]] = {}
    for result in results:
        grouped.setdefault(result.settings, []).append(result)
    return list(grouped.values())


def _differences(group: Sequence[PopulationResult]) -> Iterator[PopulationDifference]:
    by_arm = {result.arm: result for result in group}
    for arm, other in _pairs(by_arm):
        first, second = by_arm[arm], by_arm[other]
        yield PopulationDifference(
            instance=first.settings,
            arm=arm,
            reference=other,
            zero_one=paired_difference(gaps(first, "zero_one")[:, -1], gaps(second, "zero_one")[:, -1]),
            surrogate=paired_difference(gaps(first, "surrogate")[:, -1], gaps(second, "surrogate")[:, -1]),
            matched=matched_gap(learning_curves(first), learning_curves(second)),
        )


def _pairs(by_arm: dict[str, PopulationResult]) -> list[tuple[str, str]]:
    """Every arm against Vanilla, an arm with parts against the same without, and Free-m against the control that shares
    its strength and its batches, not those of another m."""
    reference = next((arm for arm in by_arm if arm == EXACT), None)
    reference = reference or next((arm for arm in by_arm if _is_plain(arm, "vanilla")), None)
    pairs = [(arm, reference) for arm in by_arm if reference is not None and arm != reference]
    pairs += [
        (own.matched, arm) for arm, own in by_arm.items() if arm == WEAK_REPLAY and own.matched in by_arm
    ]
    pairs += [
        (arm, own) for arm in by_arm if (own := split_parts(arm)[0]) in by_arm and own not in (arm, reference)
    ]
    return pairs


def _is_plain(arm: str, family: str) -> bool:
    """Whether an arm is an algorithm of this family as it is: cross-entropy, no parts, no control."""
    if arm == EXACT or arm in CONTROLS:
        return False
    own, parts = split_parts(arm)
    if parts:
        return False
    name = parse_algorithm(own)
    return name.family == family and name.objective == "ce"


LineInN = dict[str, dict[int, PopulationResult]]
"""The results of every arm by n, on instances that differ in n only."""


def _lines_in_n(results: Sequence[PopulationResult]) -> list[LineInN]:
    lines: dict[PopulationSettings, LineInN] = {}
    for result in results:
        line = lines.setdefault(replace(result.settings, n=10**9), {})
        line.setdefault(result.arm, {})[result.settings.n] = result
    return list(lines.values())


def _exponents(line: LineInN) -> Iterator[PopulationExponent]:
    """One fit for each arm that has enough sizes."""
    for arm, by_n in line.items():
        sizes = sorted(by_n)
        if len(sizes) < FEWEST_SIZES:
            continue
        fit = fitted_exponent(np.array(sizes, dtype=np.float64), _last_gaps(by_n, sizes))
        if fit is not None:
            yield PopulationExponent(instance=by_n[sizes[-1]].settings, arm=arm, exponent=fit)


def _exponent_differences(line: LineInN) -> Iterator[PopulationExponentDifference]:
    """One difference for each pair of arms, over the sizes that both have."""
    for arm, other in _pairs({arm: next(iter(by_n.values())) for arm, by_n in line.items()}):
        first, second = line[arm], line[other]
        sizes = sorted(first.keys() & second.keys())
        if len(sizes) < FEWEST_SIZES:
            continue
        found = exponent_difference(
            np.array(sizes, dtype=np.float64), _last_gaps(first, sizes), _last_gaps(second, sizes)
        )
        if found is not None:
            yield PopulationExponentDifference(
                instance=first[sizes[-1]].settings, arm=arm, reference=other, difference=found
            )


def _last_gaps(by_n: Mapping[int, PopulationResult], sizes: Sequence[int]) -> Array:
    """The gap at the last update: (seeds, sizes)."""
    return np.stack([gaps(by_n[n], "surrogate")[:, -1] for n in sizes], 1)


def exponent_difference(sizes: Array, first: Array, second: Array) -> Interval | None:
    """The exponent of ``first`` minus that of ``second``, both (seeds, sizes) of the same seeds.

    A seed is resampled whole, with all its sizes and both arms.
    """
    # With log n centered, the difference D is the one slope of log first on ½ log n and log second on −½ log n.
    root = np.sqrt(sizes / np.exp(np.log(sizes).mean()))
    return fitted_exponent(np.concatenate([root, 1 / root]), np.concatenate([first, second], 1))


Lines = dict[tuple[object, ...], dict[float, PopulationResult]]
"""Results that differ in one number only, by that number."""


def _along(
    results: Sequence[PopulationResult], lever: Literal["eps", "alpha", "d"]
) -> Iterator[PopulationLever]:
    """From each value of a setting to the next, on instances that differ in nothing else."""
    lines: Lines = {}
    for result in results:
        value = getattr(result.settings, lever)
        if value is not None and (lever != "alpha" or _takes_step(result.arm)):
            others = tuple(kept for name, kept in vars(result.settings).items() if name != lever)
            lines.setdefault((result.arm, *others), {})[value] = result
    yield from _steps(lines, lever)


def _along_m(results: Sequence[PopulationResult]) -> Iterator[PopulationLever]:
    """From each m of Free to the next, on one instance."""
    lines: Lines = {}
    for result in results:
        if _is_plain(result.arm, "free"):
            lines.setdefault((result.settings,), {})[parse_algorithm(result.arm).m or 1] = result
    yield from _steps(lines, "m")


def _steps(lines: Lines, lever: Lever) -> Iterator[PopulationLever]:
    for by_value in lines.values():
        for low, high in pairwise(sorted(by_value)):
            after, before = (gaps(by_value[value], "surrogate")[:, -1] for value in (high, low))
            yield PopulationLever(
                instance=by_value[high].settings,
                arm="free" if lever == "m" else by_value[high].arm,
                lever=lever,
                low=low,
                high=high,
                change=paired_difference(after, before),
            )


def _takes_step(arm: str) -> bool:
    own = split_parts(arm)[0]
    return own not in (EXACT, *CONTROLS) and parse_algorithm(own).family in WITH_STEP


def _later(result: PopulationResult) -> PopulationLever:
    """From a part of the training to its end."""
    updates, gap = result.trajectory.updates, gaps(result, "surrogate")
    early = min(
        range(_beginning(result), len(updates)), key=lambda mark: abs(updates[mark] - EARLY * updates[-1])
    )
    return PopulationLever(
        instance=result.settings,
        arm=result.arm,
        lever="updates",
        low=updates[early],
        high=updates[-1],
        change=paired_difference(gap[:, -1], gap[:, early]),
    )


def _bounds(arm: ArmSummary) -> Iterator[PopulationBound]:
    """The theorem that covers the arm; for Vanilla with its exact maximizer the sharper bound too."""
    settings = arm.instance
    constants = settings.constants()
    problem, T = constants.problem(), settings.updates
    found: dict[str, float] = {}
    if arm.arm == EXACT:
        found[THEOREMS["vanilla"]] = bound("vanilla", problem, T=T).value
        nu, xi = constants.sharper_vanilla()
        found["sharper"] = recursion_bound(problem, nu=nu, xi=xi, T=T).value
    elif arm.arm not in CONTROLS and parse_algorithm(arm.arm).theorem in ("fast", "free"):
        name = parse_algorithm(arm.arm)
        alpha = settings.alpha if settings.alpha is not None else {"fast": 0.5, "free": 1.0}[name.family]
        found[THEOREMS[name.family]] = bound(name.family, problem, T=T, alpha=alpha, m=name.m).value
    for name_of, value in found.items():
        yield PopulationBound(
            instance=settings, arm=arm.arm, bound_name=name_of, bound=value, measured=arm.gap_surrogate
        )
