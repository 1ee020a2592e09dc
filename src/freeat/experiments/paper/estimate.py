"""Estimates over seeds and images, with both in their error: what tables show and claims are decided by.

The error of a mean over seeds has two sources. Between seeds, the sample variance over their number, with one
degree of freedom less than there are seeds. Within the images: every seed is evaluated on the same test images, so
more seeds do not average their choice away, and the mean keeps the whole binomial variance p(1 − p)/n. Both are
added, and the interval is Student's with Welch's and Satterthwaite's degrees of freedom. Seeds evaluated on the same
images are in part counted twice, and estimates that share their test images are subtracted as if they did not:
both make the intervals wider, never narrower.

Where the values of the single seeds are known, estimates are paired by seed: the error between seeds is that of the
differences, with Student's t of one degree of freedom less than there are pairs. Otherwise it is Welch's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist, fmean, variance

from scipy.special import stdtr, stdtrit

from freeat.evaluation.statistics import Limits, mean_std
from freeat.experiments.paper.documents import SeedMean

LEVEL = 0.95
PROPORTION, DIFFERENCE = (0.0, 1.0), (-1.0, 1.0)
"""Where accuracies lie, and where their differences do."""


@dataclass(frozen=True, kw_only=True)
class ErrorSource:
    """One independent source of error: a variance, and the degrees of freedom it is known with."""

    variance: float
    freedom: float = math.inf


@dataclass(frozen=True, kw_only=True)
class ErrorEstimate:
    """A value with the sources of its error; ``seeds`` is the smallest number of runs behind any part of it.

    ``by_seed`` has one value for each seed, where they are known: their spread is then a further source of error.
    """

    value: float
    seeds: int
    errors: tuple[ErrorSource, ...] = ()
    by_seed: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, *, mean: float, std: float | None, seeds: int, image_error: float) -> "ErrorEstimate":
        """From a mean and a standard deviation; one seed shows no spread, so its error is that of the images."""
        between = () if std is None else (ErrorSource(variance=std**2 / seeds, freedom=seeds - 1),)
        return cls(value=mean, seeds=seeds, errors=(*between, ErrorSource(variance=image_error**2)))

    @classmethod
    def of_mean(cls, mean: SeedMean) -> "ErrorEstimate":
        """From what a document keeps."""
        if not mean.of_seeds:
            return cls.of(mean=mean.mean, std=mean.std, seeds=mean.seeds, image_error=mean.image_error)
        by_seed = dict(zip(mean.of_seeds, mean.values, strict=True))
        images = ErrorSource(variance=mean.image_error**2)
        return cls(value=mean.mean, seeds=mean.seeds, errors=(images,), by_seed=by_seed)

    def __add__(self, other: "ErrorEstimate") -> "ErrorEstimate":
        """Paired by the seeds that both have; without any, as independent."""
        shared = _shared((self, other))
        if not shared:
            return ErrorEstimate(
                value=self.value + other.value,
                seeds=min(self.seeds, other.seeds),
                errors=(*self.sources, *other.sources),
            )
        return ErrorEstimate(
            value=self.over(shared) + other.over(shared),
            seeds=len(shared),
            errors=(*self.errors, *other.errors),
            by_seed={seed: self.by_seed[seed] + other.by_seed[seed] for seed in shared},
        )

    def __sub__(self, other: "ErrorEstimate") -> "ErrorEstimate":
        return self + other.times(-1)

    def plus(self, constant: float) -> "ErrorEstimate":
        by_seed = {seed: value + constant for seed, value in self.by_seed.items()}
        return replace(self, value=self.value + constant, by_seed=by_seed)

    def times(self, factor: float) -> "ErrorEstimate":
        errors = tuple(ErrorSource(variance=factor**2 * e.variance, freedom=e.freedom) for e in self.errors)
        by_seed = {seed: factor * value for seed, value in self.by_seed.items()}
        return replace(self, value=factor * self.value, errors=errors, by_seed=by_seed)

    def over(self, seeds: Sequence[int]) -> float:
        """The value over these of its seeds."""
        return self.value if len(seeds) == len(self.by_seed) else fmean(self.by_seed[seed] for seed in seeds)

    @property
    def sources(self) -> tuple[ErrorSource, ...]:
        """All sources of error, the spread over the seeds among them."""
        n = len(self.by_seed)
        if n < 2:
            return self.errors
        return ErrorSource(variance=variance(self.by_seed.values()) / n, freedom=n - 1), *self.errors

    @property
    def variance(self) -> float:
        return _variance(self.sources)

    @property
    def freedom(self) -> float:
        return _freedom(self.sources)

    def interval(self, level: float = LEVEL) -> Limits:
        half = _quantile(0.5 + level / 2, self.freedom) * math.sqrt(self.variance)
        return self.value - half, self.value + half

    def p_above(self, bound: float) -> float:
        """The p-value of the one-sided test that the truth is larger than ``bound``."""
        distance, error = self.value - bound, math.sqrt(self.variance)
        if not error:
            return 0.0 if distance > 0 else 1.0
        freedom = self.freedom
        if math.isinf(freedom):
            return NormalDist().cdf(-distance / error)
        return float(stdtr(freedom, -distance / error))


def _shared(estimates: "Sequence[ErrorEstimate]") -> list[int]:
    """The seeds that all of them have, in order."""
    return sorted(set.intersection(*(set(estimate.by_seed) for estimate in estimates)))


def _variance(sources: Sequence[ErrorSource]) -> float:
    return math.fsum(source.variance for source in sources)


def _freedom(sources: Sequence[ErrorSource]) -> float:
    """Satterthwaite's degrees of freedom of the sum of the variances."""
    below = math.fsum(source.variance**2 / source.freedom for source in sources)
    return _variance(sources) ** 2 / below if below else math.inf


def _quantile(p: float, freedom: float) -> float:
    return NormalDist().inv_cdf(p) if math.isinf(freedom) else float(stdtrit(freedom, p))


def seed_mean(
    values: Sequence[float],
    image_errors: Sequence[float],
    within: Limits = (-math.inf, math.inf),
    *,
    of_seeds: Sequence[int] = (),
) -> SeedMean:
    """The mean of one value per seed, with the error that the images leave in each.

    What is known to lie ``within`` two ends has an interval that does. With the numbers of the seeds, ``of_seeds``, it
    keeps the values, so that it can be paired with others.
    """
    mean, std = mean_std(list(values))
    image_error = math.fsum(image_errors) / len(image_errors)
    low, high = ErrorEstimate.of(mean=mean, std=std, seeds=len(values), image_error=image_error).interval()
    return SeedMean(
        mean=mean,
        std=std,
        low=max(low, within[0]),
        high=min(high, within[1]),
        seeds=len(values),
        image_error=image_error,
        values=tuple(values) if of_seeds else (),
        of_seeds=tuple(of_seeds),
    )


def proportion_error(p: float, n: int, population: int | None = None) -> float:
    """The standard error of a proportion seen in n images, after Agresti and Coull so that 0 and 1 have one too.

    With a ``population``, the error of n of its members: none where all were seen.
    """
    centre = (p * n + 2) / (n + 4)
    error = math.sqrt(centre * (1 - centre) / (n + 4))
    if population is None:
        return error
    return error * math.sqrt((population - n) / max(population - 1, 1))


def average(estimates: Sequence[ErrorEstimate]) -> ErrorEstimate:
    """The mean of estimates, paired by the seeds that all of them have.

    Other errors may depend on each other in any way: the standard errors are averaged. Without common seeds this is
    done with the error between seeds too.
    """
    shared = _shared(estimates)
    sources = [e.errors if shared else e.sources for e in estimates]
    error = fmean(math.sqrt(_variance(each)) for each in sources)
    return ErrorEstimate(
        value=fmean(e.over(shared) if shared else e.value for e in estimates),
        seeds=len(shared) or min(e.seeds for e in estimates),
        errors=(ErrorSource(variance=error**2, freedom=min(map(_freedom, sources))),),
        by_seed={seed: fmean(e.by_seed[seed] for e in estimates) for seed in shared},
    )


def smallest(estimates: Sequence[ErrorEstimate], margin: float | None = None) -> tuple[float, float, float]:
    """The smallest of several values with its interval; with a ``margin``, of what |values| leave of it.

    Its lower end is the smallest lower end: whichever value is smallest keeps above its own. Its upper end is the
    smallest upper end, each taken at a level at which all of them hold at once (Bonferroni).
    """
    each = 1 - (1 - LEVEL) / len(estimates)
    value = min(e.value if margin is None else margin - abs(e.value) for e in estimates)
    low = min(_limits(e, LEVEL, margin)[0] for e in estimates)
    high = min(_limits(e, each, margin)[1] for e in estimates)
    return value, low, high


def _limits(estimate: ErrorEstimate, level: float, margin: float | None) -> Limits:
    """The interval of a value; with a ``margin``, of what |value| leaves of it."""
    low, high = estimate.interval(level)
    if margin is None:
        return low, high
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return margin - max(abs(low), abs(high)), margin - nearest


def exponent(sizes: Sequence[int], gaps: Sequence[ErrorEstimate]) -> ErrorEstimate | None:
    """The a of gap ∝ n^(−a) by least squares in the logarithms; None with fewer than two sizes or no gap.

    Its error follows from those of the gaps to first order: that of log g is that of g over g.
    """
    if len(set(sizes)) < 2 or any(gap.value <= 0 for gap in gaps):
        return None
    logs = [math.log(n) for n in sizes]
    centre = math.fsum(logs) / len(logs)
    spread = math.fsum((x - centre) ** 2 for x in logs)
    terms = [
        ErrorEstimate(
            value=math.log(gap.value), seeds=gap.seeds, errors=gap.times(1 / gap.value).sources
        ).times((centre - x) / spread)
        for x, gap in zip(logs, gaps, strict=True)
    ]
    return sum(terms[1:], start=terms[0])


def beyond_proportion(
    own: tuple[ErrorEstimate, ErrorEstimate], other: tuple[ErrorEstimate, ErrorEstimate]
) -> ErrorEstimate:
    """How far ``own`` ended below where it would be, had it changed by the factor by which ``other`` did.

    From first to last: own₀·other₁/other₀ − own₁. Unlike a ratio or an exponent of ``own`` it is there, with an error
    of its size, also where ``own`` ends at zero or below; only other₀ must be far from zero. Its error follows from
    those of the four to first order.
    """
    (first, last), (start, end) = own, other
    factor, relative = end.value / start.value, first.value / start.value
    terms = first.times(factor) + end.times(relative) - start.times(factor * relative) - last
    return replace(terms, value=first.value * factor - last.value)
