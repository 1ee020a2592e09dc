"""The claims judged: first on the published tables, then on what was measured."""

from collections.abc import Mapping
from typing import Any, Literal

from freeat.experiments.paper.claims import CLAIMS, Claim
from freeat.experiments.paper.evidence import Evidence, measured_evidence, published_evidence
from freeat.experiments.paper.findings import Finding

Verdict = Literal["confirmed", "refuted", "undecided", "not published"]
ENOUGH_SEEDS = 3


def judge_claims(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every claim with its verdict in each panel, for the ``claims`` of a reproduction's document."""
    published, measured = published_evidence(), measured_evidence(document)
    return [
        {
            "id": claim.id,
            "sentence": claim.sentence,
            "ours": claim.ours,
            "where": list(claim.where),
            "statistic": claim.statistic,
            "unit": claim.unit,
            "published": _on_published(claim, published),
            "measured": [_on_measured(finding) for finding in claim.findings(measured)],
        }
        for claim in CLAIMS
    ]


def side(finding: Finding) -> Verdict:
    """On which side of zero the 95 % interval lies."""
    if finding.low is not None and finding.low > 0:
        return "confirmed"
    if finding.high is not None and finding.high < 0:
        return "refuted"
    return "undecided"


def _on_measured(finding: Finding) -> dict[str, Any]:
    """Decided only by an interval on one side of zero with at least three seeds."""
    verdict, reason = side(finding), finding.detail
    if finding.statistic is not None:
        if finding.seeds < ENOUGH_SEEDS:
            verdict = "undecided"
            reason = f"{_seeds(finding.seeds)}; {reason}"
        elif verdict == "undecided":
            reason = f"the interval contains 0; {reason}"
    return _words(finding, verdict, reason)


def _on_published(claim: Claim, evidence: Evidence) -> list[dict[str, Any]]:
    """Whether the printed numbers bear the sentence out, beyond what the choice of test images can do.

    Most tables print a single trial: what other seeds would have given is not in the interval.
    """
    rows = []
    for finding in claim.findings(evidence):
        if finding.statistic is None:
            rows.append(_words(finding, "not published", finding.detail))
            continue
        verdict, reason = side(finding), finding.detail
        if verdict == "undecided":
            reason = f"the test images' interval contains 0; {reason}"
        trials = "one trial" if finding.seeds == 1 else f"{finding.seeds} trials"
        rows.append(_words(finding, verdict, f"{reason} ({trials})"))
    none = Finding(panel="", detail="the paper shows no numbers for it")
    return rows or [_words(none, "not published", none.detail)]


def _words(finding: Finding, verdict: Verdict, detail: str) -> dict[str, Any]:
    return {
        "panel": finding.panel,
        "verdict": verdict,
        "statistic": finding.statistic,
        "low": finding.low,
        "high": finding.high,
        "seeds": finding.seeds,
        "detail": detail,
    }


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"{count} seeds, {ENOUGH_SEEDS} are needed"
