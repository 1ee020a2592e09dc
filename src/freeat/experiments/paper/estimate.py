"""Estimates over seeds and images, with both in their error: what tables show and claims are decided by.

The error of a mean over seeds has two sources. Between seeds, the sample variance over their number, with one
degree of freedom less than there are seeds. Within the images: every seed is evaluated on the same test images, so
more seeds do not average their choice away, and the mean keeps the whole binomial variance p(1 − p)/n. Both are
added, and the interval is Student's with Welch's and Satterthwaite's degrees of freedom. Seeds evaluated on the same
images are in part counted twice, and estimates that share their test images are subtracted as if they did not:
both make the intervals wider, never narrower.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from scipy.special import stdtrit

from freeat.evaluation.statistics import Interval, mean_std
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
    """A value with the sources of its error; ``seeds`` is the smallest number of runs behind any part of it."""

    value: float
    seeds: int
    errors: tuple[ErrorSource, ...] = ()

    @classmethod
    def of(cls, *, mean: float, std: float | None, seeds: int, image_error: float) -> "ErrorEstimate":
        """From what a document keeps; one seed shows no spread, so its error is that of the images."""
        between = () if std is None else (ErrorSource(variance=std**2 / seeds, freedom=seeds - 1),)
        return cls(value=mean, seeds=seeds, errors=(*between, ErrorSource(variance=image_error**2)))

    @classmethod
    def of_mean(cls, mean: SeedMean) -> "ErrorEstimate":
        return cls.of(mean=mean.mean, std=mean.std, seeds=mean.seeds, image_error=mean.image_error)

    def __add__(self, other: "ErrorEstimate") -> "ErrorEstimate":
        return ErrorEstimate(
            value=self.value + other.value,
            seeds=min(self.seeds, other.seeds),
            errors=(*self.errors, *other.errors),
        )

    def __sub__(self, other: "ErrorEstimate") -> "ErrorEstimate":
        return self + other.times(-1)

    def plus(self, constant: float) -> "ErrorEstimate":
        return ErrorEstimate(value=self.value + constant, seeds=self.seeds, errors=self.errors)

    def times(self, factor: float) -> "ErrorEstimate":
        errors = tuple(ErrorSource(variance=factor**2 * e.variance, freedom=e.freedom) for e in self.errors)
        return ErrorEstimate(value=factor * self.value, seeds=self.seeds, errors=errors)

    @property
    def variance(self) -> float:
        return math.fsum(error.variance for error in self.errors)

    @property
    def freedom(self) -> float:
        """Satterthwaite's degrees of freedom of the sum of the variances."""
        below = math.fsum(error.variance**2 / error.freedom for error in self.errors)
        return self.variance**2 / below if below else math.inf

    def interval(self, level: float = LEVEL) -> Interval:
        half = _quantile(0.5 + level / 2, self.freedom) * math.sqrt(self.variance)
        return self.value - half, self.value + half


def _quantile(p: float, freedom: float) -> float:
    return NormalDist().inv_cdf(p) if math.isinf(freedom) else float(stdtrit(freedom, p))


def seed_mean(
    values: Sequence[float], image_errors: Sequence[float], within: Interval = (-math.inf, math.inf)
) -> SeedMean:
    """The mean of one value per seed, with the error that the images leave in each.

    What is known to lie ``within`` two ends has an interval that does.
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
    """The mean of estimates that may depend on each other in any way: their standard errors are averaged."""
    error = math.fsum(math.sqrt(e.variance) for e in estimates) / len(estimates)
    return ErrorEstimate(
        value=math.fsum(e.value for e in estimates) / len(estimates),
        seeds=min(e.seeds for e in estimates),
        errors=(ErrorSource(variance=error**2, freedom=min(e.freedom for e in estimates)),),
    )


def smallest(estimates: Sequence[ErrorEstimate], level: float = LEVEL) -> tuple[float, float, float]:
    """The smallest of several values with its interval.

    Its lower end is the smallest lower end: whichever value is smallest keeps above its own. Its upper end is the
    smallest upper end, each taken at a level at which all of them hold at once (Bonferroni).
    """
    each = 1 - (1 - level) / len(estimates)
    low = min(e.interval(level)[0] for e in estimates)
    high = min(e.interval(each)[1] for e in estimates)
    return min(e.value for e in estimates), low, high


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
            value=math.log(gap.value), seeds=gap.seeds, errors=gap.times(1 / gap.value).errors
        ).times((centre - x) / spread)
        for x, gap in zip(logs, gaps, strict=True)
    ]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


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
    return ErrorEstimate(value=first.value * factor - last.value, seeds=terms.seeds, errors=terms.errors)
