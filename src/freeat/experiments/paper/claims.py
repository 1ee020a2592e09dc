"""The paper's empirical claims: the sentence, where it is shown, the statistic that decides it, and the verdicts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from freeat.experiments.paper import statistics
from freeat.experiments.paper.documents import (
    AtChance,
    ClaimReport,
    CurveFigure,
    Decision,
    Figure,
    Finding,
    Fit,
    NormFigure,
    PaperTable,
    SizeFigure,
    StatedClaim,
    Sufficiency,
    TableRow,
    Verdict,
)
from freeat.experiments.paper.evidence import Evidence, measured_evidence, published_evidence
from freeat.experiments.paper.settings import (
    ERM,
    FAST,
    FAST_LONG_STEP,
    FAST_SHORT_STEP,
    FREE,
    FREE_TRADES,
    FRIENDLY,
    FRIENDLY_TWICE,
    TRADES,
    VANILLA,
)
from freeat.experiments.paper.statistics import MANY_STEPS, Statistic

ENOUGH_SEEDS = 3
LEAST = {"l2": 0.8, "linf": 0.5}
"""The robust training accuracy that Vanilla-10 must reach: one that does not fit shows no overfitting."""


@dataclass(frozen=True, kw_only=True)
class PaperClaim(StatedClaim):
    """A claim with the function that computes its statistic."""

    findings: Statistic


CLAIMS: tuple[PaperClaim, ...] = (
    PaperClaim(
        id="free-gap-below-vanilla",
        sentence="Our numerical results also suggest that the free AT method results in a considerably lower "
        "generalization gap than the vanilla AT.",
        where=("table-1", "table-4"),
        statistic="robust gap of Vanilla-10 minus that of Free-m, m ≥ 4",
        findings=statistics.gap_below(*((label, VANILLA) for label in MANY_STEPS)),
    ),
    PaperClaim(
        id="fast-gap-below-vanilla",
        sentence="We first demonstrate the overfitting issue in vanilla adversarial training and show that free or "
        "fast algorithms can considerably reduce the generalization gap.",
        where=("table-1", "table-4"),
        statistic="robust gap of Vanilla-10 minus that of Fast",
        findings=statistics.gap_below((FAST, VANILLA)),
    ),
    PaperClaim(
        id="vanilla-gap-above-erm",
        sentence="While AT algorithms offer significant robustness against standard norm-bounded attacks, the "
        "generalization gap between their performance on training and test data has been found to be considerably "
        "greater than that of DNNs trained by standard empirical risk minimization (ERM)",
        where=("introduction", "table-5"),
        statistic="robust gap of Vanilla-10 minus the clean gap of ERM",
        findings=statistics.robust_gap_above_clean_gap((ERM, VANILLA)),
    ),
    PaperClaim(
        id="free-gap-smaller-throughout",
        sentence="throughout the whole training process, the generalization performance of free AT is consistently "
        "better than vanilla AT",
        where=("figure-1", "figure-5"),
        statistic="robust gap of Vanilla-10 minus that of Free-m after as many updates: the smallest on the curve",
        findings=statistics.in_panels(CurveFigure, statistics.vanilla_gap_above, MANY_STEPS),
    ),
    PaperClaim(
        id="free-test-comparable",
        sentence="Although the free AT algorithm applies a weaker adversary, it achieves comparable robustness on test "
        "samples to the vanilla AT algorithm against the PGD attacks by lowering the generalization gap.",
        where=("table-1", "table-4"),
        statistic="robust test accuracy of Free-m, m ≥ 4, minus that of Vanilla-10, plus 2 points",
        findings=statistics.accuracy_comparable(*((label, VANILLA) for label in MANY_STEPS)),
    ),
    PaperClaim(
        id="free-trades-gap-below-trades",
        sentence="Free–TRADES could considerably improve the generalization gap",
        where=("table-3",),
        statistic="robust gap of TRADES minus that of Free-TRADES",
        findings=statistics.gap_below((FREE_TRADES, TRADES)),
    ),
    PaperClaim(
        id="free-trades-test-comparable",
        sentence="while attaining a comparable (sometimes better) test performance to TRADES",
        where=("table-3",),
        statistic="robust test accuracy of Free-TRADES minus that of TRADES, plus 2 points",
        findings=statistics.accuracy_comparable((FREE_TRADES, TRADES)),
    ),
    PaperClaim(
        id="clean-gaps-below",
        sentence="Free-AT and Free–TRADES also have a better generalization performance on the clean data than "
        "Vanilla-AT and TRADES.",
        where=("table-5",),
        statistic="clean gap of Vanilla-10 (TRADES) minus that of Free-4 (Free-TRADES)",
        findings=statistics.gap_below((FREE, VANILLA), (FREE_TRADES, TRADES), column="clean_gap"),
    ),
    PaperClaim(
        id="friendly-like-vanilla",
        sentence="a smaller ε_train results in PGD AT-like numerical results",
        where=("table-2",),
        statistic="2 points minus the distance of the robust gaps of Friendly (trained at ε) and Vanilla-10",
        findings=statistics.gap_similar((FRIENDLY, VANILLA)),
    ),
    PaperClaim(
        id="friendly-twice-like-fast",
        sentence="by choosing a sufficiently large ε_train its generalization improvement over vanilla AT is similar "
        "to that of Fast-AT.",
        where=("table-2", "table-1"),
        statistic="2 points minus the distance of the robust gaps of Friendly (trained at 2ε) and Fast",
        findings=statistics.gap_similar((FRIENDLY_TWICE, FAST)),
    ),
    PaperClaim(
        id="free-withstands-square",
        sentence="We extensively observe the improvements of the free algorithm compared to the vanilla algorithm "
        "against different black-box attacks",
        where=("figure-2", "figure-6"),
        statistic="accuracy of Free-4 minus that of Vanilla-10 under Square: the smallest over the radii",
        findings=statistics.free_withstands_square,
    ),
    PaperClaim(
        id="free-withstands-transfer",
        sentence="We demonstrate that the smaller generalization gap could translate into greater robustness against "
        "score-based or transferred black-box attacks.",
        where=("figure-3", "figure-7"),
        statistic="accuracy of Free-4 minus that of Vanilla-10 under transferred attacks: the smallest over the radii",
        findings=statistics.free_withstands_transfer,
    ),
    PaperClaim(
        id="not-gradient-masking",
        sentence="which suggests that its robustness is not gained from gradient-masking but rather attributed to the "
        "smaller generalization gap.",
        where=("figure-2", "figure-6", "table-1"),
        statistic="accuracy of Free-4 under Square at the training radius minus that under PGD-10, and minus that of "
        "Vanilla-10 under Square: the smaller",
        findings=statistics.not_gradient_masking,
    ),
    PaperClaim(
        id="free-transfers-better",
        sentence="the adversarial perturbations designed for DNNs trained by free AT could transfer better to an "
        "unseen target neural net than those found for DNNs trained by vanilla and fast AT.",
        where=("figure-8", "figure-9"),
        statistic="accuracy of a standard model under perturbations made on Vanilla-10 (Fast) minus that under those "
        "made on Free-4: the smallest over the radii",
        findings=statistics.free_transfers_better,
    ),
    PaperClaim(
        id="gap-falls-faster-in-n",
        sentence="the generalization gap of free AT is notably decreasing faster than vanilla AT with respect to n",
        where=("figure-4", "figure-10"),
        statistic="what Free-m's robust gap would be at the largest n had it fallen from the smallest n by the factor "
        "of Vanilla-10's, minus what it is",
        findings=statistics.in_panels(SizeFigure, statistics.falls_beyond_vanilla, MANY_STEPS),
    ),
    PaperClaim(
        id="fast-collapses",
        sentence="setting the fast attack learning rate as α_δ = 10/255 will lead to fast AT’s catastrophic "
        "overfitting over the course of 200 training epochs.",
        where=("figure-11",),
        statistic="one half minus (at 7/255: the other way round) the part of the best robust training accuracy that "
        "is left at the end",
        findings=statistics.in_panels(
            CurveFigure, statistics.collapse, (FAST_LONG_STEP, FAST_SHORT_STEP), absent=True
        ),
    ),
    PaperClaim(
        id="early-stopping-order",
        sentence="Table 6 reports the generalization gaps of the models trained by vanilla, fast (with α_δ = 10/255), "
        "and free AT algorithms if the training process is stopped at the 50th epoch.",
        where=("table-6",),
        statistic="robust gap of Vanilla-10 minus Fast's, and Fast's minus Free-4's: the smaller",
        findings=statistics.early_stopping_order,
    ),
    PaperClaim(
        id="gradient-norm-bounded-below",
        sentence="the minimum gradient norm on training data is constantly lower-bounded by O(10⁻³) in those "
        "experiments",
        where=("figure-12",),
        statistic="log10 of the smallest gradient norm of a run, plus 3.5",
        unit="decades",
        findings=statistics.in_panels(NormFigure, statistics.smallest_norm),
    ),
    PaperClaim(
        id="gap-falls-with-m",
        sentence="The gap of Free-m falls as m grows.",
        where=("table-1", "table-4"),
        statistic="robust gap of Free-m minus that of the next m: the smallest",
        findings=statistics.gap_falls_with_m,
        ours=True,
    ),
)


def decide_claims(tables: Sequence[PaperTable], figures: Sequence[Figure]) -> tuple[ClaimReport, ...]:
    """Every claim with its verdict in each panel, on the published tables and on what was measured."""
    published, measured = published_evidence(), measured_evidence(tables, figures)
    return tuple(
        ClaimReport(
            **{field.name: getattr(claim, field.name) for field in fields(StatedClaim)},
            published=tuple(_on_published(claim, published)),
            measured=tuple(_on_measured(finding) for finding in claim.findings(measured, claim.where)),
        )
        for claim in CLAIMS
    )


def side(finding: Finding) -> Verdict:
    """On which side of zero the 95 % interval lies."""
    if finding.low is not None and finding.low > 0:
        return "confirmed"
    if finding.high is not None and finding.high < 0:
        return "refuted"
    return "undecided"


def _on_measured(finding: Finding) -> Decision:
    """Decided only by an interval on one side of zero with at least three seeds."""
    verdict, reason = side(finding), finding.detail
    if finding.statistic is not None:
        if finding.seeds < ENOUGH_SEEDS:
            verdict = "undecided"
            few = "one seed" if finding.seeds == 1 else f"{finding.seeds} seeds, {ENOUGH_SEEDS} are needed"
            reason = f"{few}; {reason}"
        elif verdict == "undecided":
            reason = f"the interval contains 0; {reason}"
    return _decision(finding, verdict, reason)


def _on_published(claim: PaperClaim, evidence: Evidence) -> list[Decision]:
    """Whether the printed numbers bear the sentence out, beyond what the choice of test images can do.

    Most tables print a single run: what other seeds would have given is not in the interval.
    """
    decisions = []
    for finding in claim.findings(evidence, claim.where):
        if finding.statistic is None:
            decisions.append(_decision(finding, "not published", finding.detail))
            continue
        verdict, reason = side(finding), finding.detail
        if verdict == "undecided":
            reason = f"the test images' interval contains 0; {reason}"
        runs = "one run" if finding.seeds == 1 else f"{finding.seeds} runs"
        decisions.append(_decision(finding, verdict, f"{reason} ({runs})"))
    none = Decision(panel="", detail="the paper shows no numbers for it", verdict="not published")
    return decisions or [none]


def _decision(finding: Finding, verdict: Verdict, detail: str) -> Decision:
    return Decision(**{**vars(finding), "detail": detail}, verdict=verdict)


def sufficiency_of(tables: Sequence[PaperTable]) -> tuple[Sufficiency, ...]:
    """For each data set: how well Vanilla-10 fits, which rows are not above chance, and whether it counts.

    Rows that are read before the end of the training are left out.
    """
    rows = [row for table in tables for row in table.rows if row.at >= 1]
    datas = dict.fromkeys(row.data for row in rows)
    return tuple(_sufficiency(data, [row for row in rows if row.data == data]) for data in datas)


def _sufficiency(data: str, rows: Sequence[TableRow]) -> Sufficiency:
    fits = tuple(_fit(norm, least, rows) for norm, least in LEAST.items())
    at_chance = dict.fromkeys((row.norm, row.label) for row in rows if row.above_chance is False)
    return Sufficiency(
        data=data,
        counts=False if at_chance else _all(one.fits for one in fits),
        vanilla=fits,
        at_chance=tuple(AtChance(norm=norm, label=label) for norm, label in at_chance),
    )


def _fit(norm: str, least: float, rows: Sequence[TableRow]) -> Fit:
    """Vanilla-10 in one norm, on the augmented images as everywhere in the comparison."""
    found = (row.measured for row in rows if (row.norm, row.label) == (norm, VANILLA) and row.measured)
    measured = next(found, None)
    reached = measured["robust_train"].mean if measured else None
    return Fit(
        norm=norm, robust_train=reached, least=least, fits=None if reached is None else reached >= least
    )


def _all(known: Iterable[bool | None]) -> bool | None:
    """Whether all hold: false as soon as one does not, else unknown as soon as one is."""
    found = list(known)
    if False in found:
        return False
    return None if None in found else True
