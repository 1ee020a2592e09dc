"""The paper's empirical claims: the sentence, where it is shown, the statistic that decides it, and the verdicts.

Each claim has one primary test, on the mean over its panels; of a claim of equivalence, that every panel is within the
margin. The panels of a claim are a family of tests of their own, fixed by the claim and corrected after Holm. Both are
decided at 2.5 % on either side.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from freeat.evaluation.statistics import holm
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
    RadiusFigure,
    SizeFigure,
    StatedClaim,
    Sufficiency,
    TableRow,
    Verdict,
)
from freeat.experiments.paper.estimate import LEVEL
from freeat.experiments.paper.evidence import (
    PanelTest,
    Statistic,
    measured_evidence,
    over_panels,
    published_evidence,
)
from freeat.experiments.paper.settings import (
    ERM,
    FAST,
    FREE,
    FREE_TRADES,
    FRIENDLY,
    FRIENDLY_TWICE,
    TRADES,
    VANILLA,
    half_radius,
)
from freeat.experiments.paper.statistics import ALL_FREE

ENOUGH_SEEDS = 3
ONE_SIDE = (1 - LEVEL) / 2
"""The level of a test on one side: a 95 % interval has as much beyond each end."""

MODERATE = (
    "the free algorithm with moderate free steps generalizes better and achieves comparable robustness to the vanilla "
    "algorithm"
)
"""Beside claims that name no m."""

LEAST = {"l2": 0.8, "linf": 0.5}
"""The robust training accuracy that Vanilla-10 must reach: one that does not fit shows no overfitting."""


@dataclass(frozen=True, kw_only=True)
class PaperClaim(StatedClaim):
    """A claim with the function that tests it in each panel."""

    tests: Statistic


CLAIMS: tuple[PaperClaim, ...] = (
    PaperClaim(
        id="free-gap-below-vanilla",
        sentence="Our numerical results also suggest that the free AT method results in a considerably lower "
        "generalization gap than the vanilla AT.",
        beside=MODERATE,
        where=("table-1", "table-4"),
        statistic="robust gap of Vanilla-10 minus that of Free-m",
        tests=statistics.gap_below(*((label, VANILLA) for label in ALL_FREE)),
    ),
    PaperClaim(
        id="vanilla-gap-above-30-and-50",
        sentence="Based on the empirical results, we observe the significant overfitting in the robust accuracy of "
        "the vanilla adversarial training: the generalization gap is above 30% against L2 attack and 50% against Linf "
        "attack.",
        where=("table-1",),
        statistic="robust gap of Vanilla-10 on CIFAR-10 minus 30 points in L2, minus 50 points in Linf",
        tests=statistics.vanilla_gap_large,
    ),
    PaperClaim(
        id="free-gap-about-20",
        sentence="On the other hand, the free AT algorithm has less severe overfitting and reduced the generalization "
        "gap to 20%.",
        where=("table-1",),
        statistic="2 points minus the distance of the robust gap of Free-4 on CIFAR-10 from 20 points",
        tests=statistics.free_gap_reduced,
    ),
    PaperClaim(
        id="fast-gap-below-vanilla",
        sentence="We first demonstrate the overfitting issue in vanilla adversarial training and show that free or "
        "fast algorithms can considerably reduce the generalization gap.",
        where=("table-1", "table-4"),
        statistic="robust gap of Vanilla-10 minus that of Fast",
        tests=statistics.gap_below((FAST, VANILLA)),
    ),
    PaperClaim(
        id="vanilla-gap-above-erm",
        sentence="While AT algorithms offer significant robustness against standard norm-bounded attacks, the "
        "generalization gap between their performance on training and test data has been found to be considerably "
        "greater than that of DNNs trained by standard empirical risk minimization (ERM)",
        where=("introduction", "table-5"),
        statistic="robust gap of Vanilla-10 minus the clean gap of ERM",
        tests=statistics.robust_gap_above_clean_gap((ERM, VANILLA)),
    ),
    PaperClaim(
        id="free-gap-smaller-throughout",
        sentence="throughout the whole training process, the generalization performance of free AT is consistently "
        "better than vanilla AT",
        beside=MODERATE,
        where=("figure-1", "figure-5"),
        statistic="robust gap of Vanilla-10 minus that of Free-m after as many updates: the smallest on the curve, "
        "where one of the two gaps is above zero by its interval",
        tests=statistics.in_panels(CurveFigure, statistics.vanilla_gap_above, ALL_FREE),
    ),
    PaperClaim(
        id="free-test-comparable",
        sentence="Although the free AT algorithm applies a weaker adversary, it achieves comparable robustness on test "
        "samples to the vanilla AT algorithm against the PGD attacks by lowering the generalization gap.",
        beside=MODERATE,
        where=("table-1", "table-4"),
        statistic="2 points minus the distance of the robust test accuracies of Free-m and Vanilla-10 (equivalence: a "
        "Free-m that is better by more is not comparable either)",
        tests=statistics.rows_similar(*((label, VANILLA) for label in ALL_FREE), column="robust_test"),
    ),
    PaperClaim(
        id="free-trades-gap-below-trades",
        sentence="Free–TRADES could considerably improve the generalization gap",
        where=("table-3",),
        statistic="robust gap of TRADES minus that of Free-TRADES",
        tests=statistics.gap_below((FREE_TRADES, TRADES)),
    ),
    PaperClaim(
        id="free-trades-test-comparable",
        sentence="while attaining a comparable (sometimes better) test performance to TRADES",
        where=("table-3",),
        statistic="robust test accuracy of Free-TRADES minus that of TRADES, plus 2 points (one-sided: the sentence "
        "allows better)",
        tests=statistics.accuracy_not_below((FREE_TRADES, TRADES)),
    ),
    PaperClaim(
        id="clean-gaps-below",
        sentence="Free-AT and Free–TRADES also have a better generalization performance on the clean data than "
        "Vanilla-AT and TRADES.",
        where=("table-5",),
        statistic="clean gap of Vanilla-10 (TRADES) minus that of Free-4 (Free-TRADES)",
        tests=statistics.gap_below((FREE, VANILLA), (FREE_TRADES, TRADES), column="clean_gap"),
    ),
    PaperClaim(
        id="friendly-like-vanilla",
        sentence="a smaller ε_train results in PGD AT-like numerical results",
        where=("table-2",),
        statistic="2 points minus the distance of the robust gaps of Friendly (trained at ε) and Vanilla-10",
        tests=statistics.rows_similar((FRIENDLY, VANILLA), column="robust_gap"),
    ),
    PaperClaim(
        id="friendly-twice-like-fast",
        sentence="by choosing a sufficiently large ε_train its generalization improvement over vanilla AT is similar "
        "to that of Fast-AT.",
        where=("table-2", "table-1"),
        statistic="2 points minus the distance of the robust gaps of Friendly (trained at 2ε) and Fast",
        tests=statistics.rows_similar((FRIENDLY_TWICE, FAST), column="robust_gap"),
    ),
    PaperClaim(
        id="free-withstands-square",
        sentence="We extensively observe the improvements of the free algorithm compared to the vanilla algorithm "
        "against different black-box attacks",
        where=("figure-2", "figure-6"),
        statistic="accuracy of Free-4 minus that of Vanilla-10 under Square: the smallest over the radii",
        tests=statistics.in_each_panel(RadiusFigure, statistics.free_withstands_square),
    ),
    PaperClaim(
        id="free-withstands-transfer",
        sentence="We demonstrate that the smaller generalization gap could translate into greater robustness against "
        "score-based or transferred black-box attacks.",
        where=("figure-3", "figure-7"),
        statistic="accuracy of Free-4 minus that of Vanilla-10 under transferred attacks: the smallest over the radii",
        tests=statistics.free_withstands_transfer,
    ),
    PaperClaim(
        id="not-gradient-masking",
        sentence="which suggests that its robustness is not gained from gradient-masking but rather attributed to the "
        "smaller generalization gap.",
        where=("figure-2", "figure-6", "table-1"),
        statistic="accuracy of Free-4 under Square at the training radius minus that under PGD-10, and minus that of "
        "Vanilla-10 under Square: the smaller",
        tests=statistics.not_gradient_masking,
    ),
    PaperClaim(
        id="free-transfers-better",
        sentence="the adversarial perturbations designed for DNNs trained by free AT could transfer better to an "
        "unseen target neural net than those found for DNNs trained by vanilla and fast AT.",
        where=("figure-8", "figure-9"),
        statistic="accuracy of a standard model under perturbations made on Vanilla-10 (Fast) minus that under those "
        "made on Free-4: the smallest over the radii",
        tests=statistics.free_transfers_better,
    ),
    PaperClaim(
        id="gap-falls-faster-in-n",
        sentence="the generalization gap of free AT is notably decreasing faster than vanilla AT with respect to n",
        where=("figure-4", "figure-10"),
        statistic="what Free-m's robust gap would be at the largest n had it fallen from the smallest n by the factor "
        "of Vanilla-10's, minus what it is",
        tests=statistics.in_panels(SizeFigure, statistics.falls_beyond_vanilla, ALL_FREE),
    ),
    PaperClaim(
        id="fast-collapses",
        sentence="setting the fast attack learning rate as α_δ = 10/255 will lead to fast AT’s catastrophic "
        "overfitting over the course of 200 training epochs.",
        where=("figure-11",),
        statistic="one half minus the part of the best robust training accuracy that is left at the end at 10/255, and "
        "the part left at 7/255 minus one half: the smaller",
        tests=statistics.in_each_panel(CurveFigure, statistics.fast_collapses),
    ),
    PaperClaim(
        id="free-gap-below-vanilla-stopped-early",
        sentence="the generalization performance of free AT is consistently better than vanilla AT, which is "
        "consistent with our theoretical results. For instance, Table 6 reports the generalization gaps of the models "
        "trained by vanilla, fast (with α_δ = 10/255), and free AT algorithms if the training process is stopped at "
        "the 50th epoch.",
        where=("table-6",),
        statistic="robust gap of Vanilla-10 minus that of Free-4, both stopped after a quarter of the training",
        tests=statistics.gap_below((FREE, VANILLA)),
    ),
    PaperClaim(
        id="gradient-norm-bounded-below",
        sentence="the minimum gradient norm on training data is constantly lower-bounded by O(10⁻³) in those "
        "experiments",
        where=("figure-12",),
        statistic="log10 of the smallest gradient norm of a run, plus 3.5",
        unit="decades",
        tests=statistics.in_panels(NormFigure, statistics.smallest_norm),
    ),
    PaperClaim(
        id="gap-falls-with-m",
        sentence="The gap of Free-m falls as m grows.",
        where=("table-1", "table-4"),
        statistic="robust gap of Free-m minus that of the next m: the smallest",
        tests=statistics.gap_falls_with_m,
        ours=True,
    ),
    PaperClaim(
        id="free-gap-below-vanilla-at-equal-fit",
        sentence="The gap of Free-m is smaller than Vanilla's at equal robust training accuracy.",
        where=("table-6", "table-1", "figure-1", "figure-5"),
        statistic="robust gap of Vanilla-10 minus that of Free-m, both read where their robust training accuracy "
        "on plain images is the largest that both reach; in the tables, where Vanilla-10 was stopped early",
        tests=statistics.gap_at_equal_fit,
        ours=True,
    ),
    PaperClaim(
        id="free-overfits-less",
        sentence="Free-m loses less of its best robust test accuracy until the end of the training than Vanilla does.",
        where=("table-6", "table-1", "figure-1", "figure-5"),
        statistic="best minus last robust test accuracy of Vanilla-10 minus that of Free-m, the best checkpoint chosen "
        "on one half of the test images and evaluated on the other; in the tables, the better "
        "of early stop and end, chosen on the images that it is evaluated on",
        tests=statistics.free_overfits_less,
        ours=True,
    ),
    PaperClaim(
        id="gap-grows-with-updates",
        sentence="The gap grows with the number T of weight updates, as the bounds of Theorems 2 and 4 do.",
        where=("table-6", "table-1"),
        statistic="robust gap of Vanilla-10 (Free-4) at the end of the training minus that after a quarter of it",
        tests=statistics.gap_grows_with_updates,
        ours=True,
    ),
    PaperClaim(
        id="gap-grows-with-radius",
        sentence="The gap grows with the radius ε, as the bounds of Theorems 2 and 4 do.",
        where=("radii",),
        statistic="robust gap of Vanilla-10 (Free-4) trained and evaluated at ε minus that at ε/2",
        tests=statistics.gap_below(*((half_radius(label), label) for label in (VANILLA, FREE))),
        ours=True,
    ),
    PaperClaim(
        id="gap-grows-with-attack-step",
        sentence="The gap of Fast grows with the step α_δ of its attack, as the bound of Theorem 5 does.",
        where=("figure-11",),
        statistic="robust gap of Fast with the step 10/255 minus that with 7/255, at the end of the training",
        tests=statistics.in_each_panel(CurveFigure, statistics.gap_grows_with_attack_step),
        ours=True,
    ),
    PaperClaim(
        id="gap-falls-with-n",
        sentence="The gap falls as a power of the number n of training images, at a fixed number of updates.",
        where=("figure-4", "figure-10"),
        statistic="the exponent a of gap ∝ n⁻ᵃ",
        unit="number",
        tests=statistics.in_panels(SizeFigure, statistics.exponent_in_n),
        ours=True,
    ),
)


def decide_claims(tables: Sequence[PaperTable], figures: Sequence[Figure]) -> tuple[ClaimReport, ...]:
    """Every claim with its verdicts, over its panels and in each, on the published tables and on what was measured."""
    evidence = published_evidence(), measured_evidence(tables, figures)
    reports = []
    for claim in CLAIMS:
        published, measured = (list(claim.tests(each, claim.where)) for each in evidence)
        stated = {field.name: getattr(claim, field.name) for field in fields(StatedClaim)}
        reports.append(
            ClaimReport(
                **stated,
                published_primary=_primary(published, PUBLISHED),
                published=tuple(_on_panels(published, PUBLISHED)) or (NOT_PUBLISHED,),
                measured_primary=_primary(measured, MEASURED),
                measured=tuple(_on_panels(measured, MEASURED)),
            )
        )
    return tuple(reports)


@dataclass(frozen=True, kw_only=True)
class NumberOrigin:
    """How numbers of one origin are decided on: with how many seeds, and the verdict where there is no number.

    Most published tables print a single run: what other seeds would have given is not in their intervals.
    """

    enough: int
    absent: Verdict
    interval: str
    runs: bool


PUBLISHED = NumberOrigin(enough=1, absent="not published", interval="the test images' interval", runs=True)
MEASURED = NumberOrigin(enough=ENOUGH_SEEDS, absent="undecided", interval="the interval", runs=False)
NOT_PUBLISHED = Decision(panel="", detail="the paper shows no numbers for it", verdict="not published")


def _family(tests: Sequence[PanelTest], origin: NumberOrigin) -> list[PanelTest]:
    """The panels that can be decided: fixed by the number of their seeds, not by what they show."""
    return [test for test in tests if test.seeds >= origin.enough]


def _primary(tests: Sequence[PanelTest], origin: NumberOrigin) -> Decision | None:
    """The verdict over the panels; those with too few seeds are used only where there are no others."""
    numbers = [test for test in tests if test.differences]
    used = _family(tests, origin) or numbers
    if not used:
        return None
    left_out = len(tests) - len(used)
    reason = f"{left_out} of {len(tests)} left out: too few seeds or no number" if left_out else ""
    whole = over_panels(used)
    finding = replace(whole, detail="; ".join(filter(None, (whole.detail, reason))))
    return _decision(finding, _side(finding), origin)


def _on_panels(tests: Sequence[PanelTest], origin: NumberOrigin) -> list[Decision]:
    """The verdict on each panel, after Holm's correction over those that can be decided."""
    family = _family(tests, origin)
    confirmed = holm([test.p_true() for test in family], ONE_SIDE)
    refuted = holm([test.p_false() for test in family], ONE_SIDE)
    verdicts: dict[str, Verdict] = {}
    for test, is_true, is_false in zip(family, confirmed, refuted, strict=True):
        verdicts[test.panel] = "confirmed" if is_true else "refuted" if is_false else "undecided"
    return [
        _decision(test.finding(), verdicts.get(test.panel, "undecided"), origin, len(family))
        for test in tests
    ]


def _side(finding: Finding) -> Verdict:
    """On which side of zero the 95 % interval lies."""
    if finding.low is not None and finding.low > 0:
        return "confirmed"
    if finding.high is not None and finding.high < 0:
        return "refuted"
    return "undecided"


def _decision(finding: Finding, verdict: Verdict, origin: NumberOrigin, family: int = 1) -> Decision:
    """A verdict with the reason where it is undecided; a finding with too few seeds decides nothing."""
    reasons = []
    if finding.statistic is None:
        verdict = origin.absent
    elif finding.seeds < origin.enough:
        verdict = "undecided"
        few = "one seed" if finding.seeds == 1 else f"{finding.seeds} seeds, {origin.enough} are needed"
        reasons.append(few)
    elif verdict == "undecided":
        uncorrected = _side(finding)
        corrected = (
            f"{origin.interval} does not contain 0, but does after Holm's correction over {family} panels"
        )
        reasons.append(corrected if uncorrected != "undecided" else f"{origin.interval} contains 0")
    detail = "; ".join(filter(None, (*reasons, finding.detail)))
    if origin.runs and finding.statistic is not None:
        runs = "one run" if finding.seeds == 1 else f"{finding.seeds} runs"
        detail = f"{detail} ({runs})".strip()
    return Decision(**{**vars(finding), "detail": detail}, verdict=verdict)


def sufficiency_of(tables: Sequence[PaperTable]) -> tuple[Sufficiency, ...]:
    """For each data set: how well Vanilla-10 fits, which rows are not above chance, and whether it counts.

    Rows that are read before the end of the training are left out.
    """
    rows = [row for table in tables for row in table.rows if row.at >= 1]
    data_sets = dict.fromkeys(row.data for row in rows)
    return tuple(_sufficiency(data, [row for row in rows if row.data == data]) for data in data_sets)


def _sufficiency(data: str, rows: Sequence[TableRow]) -> Sufficiency:
    fits = tuple(_fit(norm, least, rows) for norm, least in LEAST.items())
    at_chance: dict[tuple[str, str], bool] = {}
    for row in rows:
        if row.above_chance is False:
            key = row.norm, row.label
            at_chance[key] = at_chance.get(key, False) or row.constant_answers > 0
    return Sufficiency(
        data=data,
        counts=False if at_chance else _all(one.fits for one in fits),
        vanilla=fits,
        at_chance=tuple(
            AtChance(norm=norm, label=label, constant=constant)
            for (norm, label), constant in at_chance.items()
        ),
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
