"""The summary of a study: distances, stability, gaps, bounds, and how they fall with n."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce

import numpy as np

from freeat.algorithms import parse_algorithm
from freeat.compute.machine import Provenance
from freeat.data import Images
from freeat.evaluation.matched import Interval, mean_interval, paired_difference
from freeat.evaluation.statistics import chance
from freeat.runs.spec import split_parts
from freeat.stability.constants import Constants
from freeat.stability.estimates import (
    UniformStability,
    fitted_exponent,
    mean_largest,
    uniform_stability,
)
from freeat.stability.results import ProbeRecord, StudySettings, TwinResult, converged
from freeat.stability.twins import EngineChoice
from freeat.theory import (
    BoundRow,
    Problem,
    bound,
    rate,
    relative_step,
    sharpest_bound,
    solved_recursion,
)

TRAINED = 0.1
"""An algorithm has trained when its robust training accuracy is this much above chance."""


@dataclass(frozen=True, kw_only=True)
class MeasuredBound(BoundRow):
    """A theorem's bound with measured constants, and the least that its lemmas give."""

    sharpest: float


@dataclass(frozen=True, kw_only=True)
class EqualAccuracy:
    """The distance when the robust training accuracy first reached what every trained run reached.

    Slow weights that begin above it have none.
    """

    robust_train: float
    distance: Interval


@dataclass(frozen=True, kw_only=True)
class SummaryRow:
    """One algorithm at one sample size, over the seeds that converged; None where none did, or nothing is known."""

    algorithm: str
    n: int
    seeds: int = 0
    neighbours: int = 0
    trained: bool = False
    chance: float | None = None
    seconds: float = 0.0
    distance: Interval | None = None
    uniform_stability: UniformStability | None = None
    mean_largest: Interval | None = None
    robust_train: Interval | None = None
    robust_test: Interval | None = None
    gap: Interval | None = None
    risk_gap: Interval | None = None
    replaced_seen: float | None = None
    constants: Constants | None = None
    bound: MeasuredBound | None = None
    at_equal_accuracy: EqualAccuracy | None = None
    diverged: int = 0
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class StabilityDifference:
    """``algorithm`` minus ``reference`` at one sample size, paired by seed, over the seeds that converged in both.

    ``distance_at_equal_accuracy`` is that of the distances in ``at_equal_accuracy``; None where one did not train.
    """

    algorithm: str
    reference: str
    n: int
    seeds: int
    distance: Interval
    risk_gap: Interval
    distance_at_equal_accuracy: Interval | None = None


@dataclass(frozen=True, kw_only=True)
class ExponentFit:
    """a in value ∝ n^(−a), None where there is none, and the means it was fitted to."""

    fit: Interval | None
    means: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ExponentRow:
    """How one algorithm's distance, stability and gap fall with n; ``predicted`` is the exponent of its bound."""

    algorithm: str
    sizes: tuple[int, ...]
    seeds: int
    distance: ExponentFit
    mean_largest: ExponentFit
    risk_gap: ExponentFit
    predicted: float | None = None


@dataclass(frozen=True, kw_only=True)
class StudySummary(Provenance):
    """The stored summary of a study, with what made it."""

    settings: StudySettings
    engines: dict[str, EngineChoice]
    rows: tuple[SummaryRow, ...]
    exponents: tuple[ExponentRow, ...]
    figures: tuple[str, ...]
    notes: tuple[str, ...]
    failures: dict[str, str]
    differences: tuple[StabilityDifference, ...] = ()


def summarize(
    settings: StudySettings, results: Sequence[TwinResult], train: Images
) -> tuple[SummaryRow, ...]:
    """One row per sample size and algorithm, in the order they come; only seeds that converged count.

    ``train`` are the training images of the data, whose labels give chance.
    """
    keys = list(dict.fromkeys((result.n, result.algorithm) for result in results))
    every = {key: [r for r in results if (r.n, r.algorithm) == key] for key in keys}
    groups = {key: converged(group) for key, group in every.items()}
    rows = []
    for n, name in keys:
        own = groups[n, name]
        row = _row(settings, name, n, own, train) if own else SummaryRow(algorithm=name, n=n)
        diverged = [result.diverged for result in every[n, name] if result.diverged is not None]
        rows.append(replace(row, diverged=len(diverged), reason=_reason(diverged, len(every[n, name]))))
    return tuple(
        replace(row, at_equal_accuracy=_at_equal_accuracy(settings, row, rows, groups)) for row in rows
    )


def _reason(diverged: Sequence[int], seeds: int) -> str | None:
    """The note on seeds that diverged."""
    if not diverged:
        return None
    left_out = "nothing could be measured" if len(diverged) == seeds else "they are left out"
    return f"{len(diverged)} of {seeds} seeds diverged, first seen at update {min(diverged)}: {left_out}; lower --lr"


def _row(
    settings: StudySettings, name: str, n: int, results: Sequence[TwinResult], train: Images
) -> SummaryRow:
    finals = [result.probes[-1] for result in results]
    differences = np.array([result.differences for result in results])
    guessing = chance(settings.evaluated(settings.sample(train, n)).y.bincount().tolist())
    on_train, on_test = (
        np.array([f.robust_train for f in finals]),
        np.array([f.robust_test for f in finals]),
    )
    robust_train = mean_interval(on_train.mean(1))
    constants = constants_of(results)
    covered = applicable_bound(settings, name, n, constants)
    return SummaryRow(
        algorithm=name,
        n=n,
        seeds=len(results),
        neighbours=differences.shape[1],
        trained=robust_train.value >= guessing + TRAINED,
        chance=guessing,
        seconds=sum(result.seconds for result in results),
        distance=mean_interval(np.array([distance_of(result) for result in results])),
        uniform_stability=uniform_stability(differences) if len(results) > 1 else None,
        mean_largest=mean_largest(differences),
        robust_train=robust_train,
        robust_test=mean_interval(on_test.mean(1)),
        gap=mean_interval((on_train - on_test).mean(1)),
        risk_gap=mean_interval(np.array([risk_gap_of(result) for result in results])),
        replaced_seen=float(np.mean([t is not None for result in results for t in result.t0])),
        constants=constants,
        bound=None if covered is None else covered.measured_bound(),
    )


def distance_of(result: TwinResult) -> float:
    """The mean distance of the weights at the end."""
    return float(np.mean(result.distances[-1].d_w))


def largest_of(result: TwinResult) -> float:
    """The largest absolute difference of max_δ h at the end."""
    return float(np.abs(result.differences).max())


def risk_gap_of(result: TwinResult) -> float:
    """The robust risk on unseen images minus that on training images, at the end."""
    last = result.probes[-1]
    return float(np.mean(last.risk_test) - np.mean(last.risk_train))


def constants_of(results: Sequence[TwinResult]) -> Constants | None:
    """The constants over the points of all results."""
    found = [result.constants for result in results if result.constants is not None]
    return reduce(Constants.merged, found) if found else None


@dataclass(frozen=True, kw_only=True)
class ApplicableBound:
    """The theorem that covers an algorithm in a study, with its problem and the parameters of the run."""

    theorem: str
    problem: Problem
    T: int
    alpha: float | None
    m: int

    def measured_bound(self) -> MeasuredBound:
        at = bound(self.theorem, self.problem, T=self.T, alpha=self.alpha, m=self.m)
        sharpest = sharpest_bound(self.theorem, self.problem, T=self.T, alpha=self.alpha, m=self.m)
        return MeasuredBound(**asdict(at.row()), sharpest=sharpest.value)

    def curve(self) -> tuple[list[int], list[float]]:
        """Updates, and the solved recursion's bound on E[d_t] after them."""
        values = solved_recursion(self.theorem, self.problem, T=self.T, alpha=self.alpha, m=self.m)
        m = self.m if self.theorem == "free" else 1
        return [min(k * m, self.T) for k in range(len(values))], values


def applicable_bound(
    settings: StudySettings, name: str, n: int, constants: Constants | None
) -> ApplicableBound | None:
    """The theorem with measured constants; None where no theorem of the paper covers the settings.

    The theorems are for the bounded loss, L2 balls and vanishing steps, of Vanilla, Fast and Free without further
    options or parts (plain training is Vanilla with ε = 0), and need a β.
    """
    own, parts = split_parts(name)
    parsed = parse_algorithm(own)
    covers = settings.theorem and not parts and settings.norm == "l2" and parsed.objective == "ce"
    if not covers or parsed.theorem is None or constants is None or not constants.beta:
        return None
    if settings.args_of(name) or (constants.psi is None and parsed.theorem != "vanilla"):
        return None
    algorithm = settings.algorithm(settings.spec(name, n=n, seed=0))
    problem = Problem(
        beta=constants.beta,
        c=settings.lr,
        L=constants.L,
        L_w=constants.L_w,
        eps=settings.eps if parsed.adversarial else 0.0,
        b=settings.batch_size,
        n=n,
        psi=constants.psi,
    )
    step = getattr(algorithm, "step_size", None)
    return ApplicableBound(
        theorem=parsed.theorem,
        problem=problem,
        T=settings.updates,
        alpha=None if step is None else relative_step(step, settings.eps),
        m=algorithm.updates_per_batch,
    )


def _at_equal_accuracy(
    settings: StudySettings,
    row: SummaryRow,
    rows: Sequence[SummaryRow],
    groups: Mapping[tuple[int, str], Sequence[TwinResult]],
) -> EqualAccuracy | None:
    if not row.trained:
        return None
    trained = [
        r for other in rows if other.n == row.n and other.trained for r in groups[row.n, other.algorithm]
    ]
    level = min(max(probe.robust_train[0] for probe in _probes(settings, result)) for result in trained)
    distances = [_distance_at(settings, result, level) for result in groups[row.n, row.algorithm]]
    if not np.isfinite(distances).all():
        return None
    return EqualAccuracy(robust_train=level, distance=mean_interval(np.array(distances)))


def _probes(settings: StudySettings, result: TwinResult) -> list[ProbeRecord]:
    """The probes of the weights that are compared: those before slow weights begin are of the fast ones."""
    first = settings.beginning(result.algorithm, result.n)
    return [probe for probe in result.probes if probe.update >= first]


def differences(
    settings: StudySettings, results: Sequence[TwinResult], rows: Sequence[SummaryRow]
) -> tuple[StabilityDifference, ...]:
    """An algorithm with parts minus the same without, and Free minus Vanilla with the same objective."""
    found = []
    for n in dict.fromkeys(row.n for row in rows):
        at_n = {row.algorithm: row for row in rows if row.n == n}
        by_seed = {
            name: {r.seed: r for r in converged(results) if (r.algorithm, r.n) == (name, n)} for name in at_n
        }
        for name, reference in _pairs(at_n):
            seeds = sorted(by_seed[name].keys() & by_seed[reference].keys())
            if seeds:
                pair = [[by_seed[own][seed] for seed in seeds] for own in (name, reference)]
                equal = [at_n[own].at_equal_accuracy for own in (name, reference)]
                found.append(
                    StabilityDifference(
                        algorithm=name,
                        reference=reference,
                        n=n,
                        seeds=len(seeds),
                        distance=_paired(pair, distance_of),
                        risk_gap=_paired(pair, risk_gap_of),
                        distance_at_equal_accuracy=_paired_at(settings, pair, equal),
                    )
                )
    return tuple(found)


def _paired(pair: Sequence[Sequence[TwinResult]], measure: Callable[[TwinResult], float]) -> Interval:
    first, second = (np.array([measure(result) for result in own]) for own in pair)
    return paired_difference(first, second)


def _paired_at(
    settings: StudySettings, pair: Sequence[Sequence[TwinResult]], equal: Sequence[EqualAccuracy | None]
) -> Interval | None:
    levels = [one.robust_train for one in equal if one is not None]
    return (
        _paired(pair, lambda result: _distance_at(settings, result, levels[0]))
        if len(levels) == len(pair)
        else None
    )


def _pairs(names: Iterable[str]) -> list[tuple[str, str]]:
    """The algorithms that are compared, with what each is compared with."""
    split = {name: split_parts(name) for name in names}
    plain = {own: parse_algorithm(own) for own, parts in split.values() if not parts}
    pairs = [
        (free, vanilla)
        for free, one in plain.items()
        for vanilla, other in plain.items()
        if (one.family, other.family) == ("free", "vanilla") and one.objective == other.objective
    ]
    return pairs + [(name, own) for name, (own, parts) in split.items() if parts and own in plain]


def _distance_at(settings: StudySettings, result: TwinResult, level: float) -> float:
    """The mean distance when the base's robust training accuracy first reached ``level``; linear between probes.

    NaN where slow weights begin above it.
    """
    probes = _probes(settings, result)
    if settings.beginning(result.algorithm, result.n) and probes[0].robust_train[0] >= level:
        return math.nan
    accuracy = [0.0, *(probe.robust_train[0] for probe in probes)]
    updates = [0, *(probe.update for probe in probes)]
    k = next(k for k, a in enumerate(accuracy) if a >= level)
    share = (level - accuracy[k - 1]) / (accuracy[k] - accuracy[k - 1]) if k else 0.0
    at = updates[k - 1] + share * (updates[k] - updates[k - 1]) if k else 0.0
    times = [0, *(row.update for row in result.distances)]
    means = [0.0, *(float(np.mean(row.d_w)) for row in result.distances)]
    return float(np.interp(at, times, means))


def exponents(results: Sequence[TwinResult], rows: Sequence[SummaryRow]) -> tuple[ExponentRow, ...]:
    """How gap, stability and distance fall with n, ∝ n^(−a): the fitted a with its interval, and the predicted one."""
    sizes = sorted({result.n for result in results})
    if len(sizes) < 2:
        return ()
    fits = [
        _exponents_of(name, sizes, converged(results), [row for row in rows if row.algorithm == name])
        for name in dict.fromkeys(result.algorithm for result in results)
    ]
    return tuple(fit for fit in fits if fit is not None)


def _exponents_of(
    name: str, sizes: Sequence[int], results: Sequence[TwinResult], rows: Sequence[SummaryRow]
) -> ExponentRow | None:
    """The fits of one algorithm; None where no seed has every size."""
    by = {(r.n, r.seed): r for r in results if r.algorithm == name}
    whole = [seed for seed in sorted({seed for _, seed in by}) if all((n, seed) in by for n in sizes)]
    if not whole:
        return None

    def fit(measure: Callable[[TwinResult], float]) -> ExponentFit:
        values = np.array([[measure(by[n, seed]) for n in sizes] for seed in whole])
        return ExponentFit(
            fit=fitted_exponent(np.array(sizes, float), values), means=tuple(values.mean(0).tolist())
        )

    lam = next((row.bound.lam for row in rows if row.bound is not None), None)
    return ExponentRow(
        algorithm=name,
        sizes=tuple(sizes),
        seeds=len(whole),
        distance=fit(distance_of),
        mean_largest=fit(largest_of),
        risk_gap=fit(risk_gap_of),
        predicted=None if lam is None else _predicted(name, lam),
    )


def _predicted(name: str, lam: float) -> float | None:
    """a of the bound; plain training is Vanilla at ε = 0, where Theorem 2 is a multiple of 1/n."""
    own, parts = split_parts(name)
    parsed = parse_algorithm(own)
    if parsed.theorem is None or parts:
        return None
    return -rate(parsed.theorem, lam).n if parsed.adversarial else 1.0
