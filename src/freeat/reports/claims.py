"""The ledger of claims as Markdown: the sentence, the verdicts on the paper's numbers and on ours, and why."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from freeat.reports.paper_names import data_name, label_name, norm_name

VERDICTS = ("confirmed", "refuted", "undecided", "not published")
DECIMALS = {"points": (100, 1), "exponent": (1, 2), "decades": (1, 2)}
"""By what a statistic is multiplied to be shown, and its digits; exponents are in older documents only."""

COUNTS = """\
What is measured on a data set counts only if Vanilla-10 really fits its training images, without which there is no
overfitting to compare, and if every algorithm's clean test and robust training accuracy (for ERM, clean training
accuracy) are above chance by their intervals:"""

RULES = """\
Each claim is turned into a statistic that the claim says is positive. *Measured*: confirmed or refuted where the 95 %
interval lies wholly on one side of zero with at least three seeds behind it, otherwise undecided, with the reason. The
interval holds the spread over the seeds and the choice of the test images, not that of the training images: where a
scale trains on a part of a data set, all seeds train on the same part. *Published*: the same statistic of the
printed numbers; most tables print one trial, so its interval holds the choice of the test images only. Training
accuracy is on augmented images, as in the paper. "Comparable" and "similar" mean within 2 points: the paper names no
margin."""


def claims_markdown(document: Mapping[str, Any]) -> str:
    """All of the ledger: a summary, then each claim panel by panel."""
    scale = document.get("scale")
    title = "# The paper's claims" + (f", at scale `{scale}`" if scale else "")
    head = "| claim | published | measured |\n|---|---|---|\n"
    summary = head + "\n".join(
        f"| [{claim['id']}](#{claim['id']}) | {counted(claim['published'])} | {counted(claim['measured'])} |"
        for claim in document["claims"]
    )
    parts = [title, _counts(document["sufficiency"]), RULES, _listed(document["notes"]), summary]
    parts += [*map(_claim, document["claims"]), _missing(document)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _counts(found: Sequence[Mapping[str, Any]]) -> str:
    return f"{COUNTS}\n\n{_listed(map(_sufficient, found))}" if found else ""


def _sufficient(one: Mapping[str, Any]) -> str:
    """Whether what was measured on a data set counts, and why."""
    verdict = {True: "counts", False: "does not count", None: "cannot be judged yet"}[one["counts"]]
    fits = "; ".join(map(_fits, one["vanilla"]))
    at_chance = "; ".join(f"{norm_name(row['norm'])} {label_name(row['label'])}" for row in one["at_chance"])
    chance = f"not above chance: {at_chance}" if at_chance else "every measured algorithm is above chance"
    return f"{data_name(one['data'])} {verdict}. Robust training accuracy of Vanilla-10: {fits}; {chance}."


def _fits(fit: Mapping[str, Any]) -> str:
    asked = f"{norm_name(fit['norm'])} (at least {100 * fit['least']:.0f} % are asked for)"
    reached = "not measured" if fit["robust_train"] is None else f"{100 * fit['robust_train']:.1f} %"
    return f"{reached} in {asked}"


def _missing(document: Mapping[str, Any]) -> str:
    lines = missing_lines(document)
    return f"## What is missing\n\n{_listed(lines)}" if lines else ""


def missing_lines(document: Mapping[str, Any]) -> list[str]:
    """What was left out and what failed, for people; the failures last, where they are seen."""
    left_out = [f"left out: {one['what']} ({one['reason']})" for one in document["left_out"]]
    return left_out + [f"FAILED: {one['task']}: {one['reason']}" for one in document["failures"]]


def counted(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "not measured"
    counts = Counter(row["verdict"] for row in rows)
    return ", ".join(
        verdict if verdict == "not published" and len(counts) == 1 else f"{counts[verdict]} {verdict}"
        for verdict in VERDICTS
        if counts[verdict]
    )


def _claim(claim: Mapping[str, Any]) -> str:
    source = (
        "Our observation, not the paper's." if claim["ours"] else f"Shown in {', '.join(claim['where'])}."
    )
    quoted = claim["sentence"] if claim["ours"] else f"“{claim['sentence']}”"
    unit = "" if claim["unit"] == "exponent" else f", in {claim['unit']}"
    lines = [f"## {claim['id']}", f"> {quoted}", f"{source} Statistic: {claim['statistic']}{unit}."]
    rows = [("published", row) for row in claim["published"]] + [
        ("measured", row) for row in claim["measured"]
    ]
    table = ["| numbers | panel | verdict | statistic | seeds | |", "|---|---|---|---:|---:|---|"]
    for source, row in rows:
        value, seeds = statistic_text(row, claim["unit"]), row["seeds"] or "–"
        table.append(
            f"| {source} | {row['panel'] or '–'} | {row['verdict']} | {value} | {seeds} | {row['detail']} |"
        )
    return "\n\n".join([*lines, "\n".join(table)])


def statistic_text(row: Mapping[str, Any], unit: str) -> str:
    """The statistic with its interval."""
    if row["statistic"] is None:
        return "–"
    factor, digits = DECIMALS[unit]
    value, low, high = (f"{factor * row[name]:.{digits}f}" for name in ("statistic", "low", "high"))
    return f"{value} [{low}, {high}]"
