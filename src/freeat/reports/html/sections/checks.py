"""Honesty checks in plain words: what must hold for the figures to be believed."""

import re
from collections.abc import Sequence

from freeat.evaluation.sanity import compare_cells
from freeat.reports.html.blocks import Section, Verdict, Verdicts
from freeat.reports.html.gather import Json, Probe
from freeat.reports.html.tasks import NORMS, Group, Task
from freeat.reports.robustness import attack_text
from freeat.reports.text import percent
from freeat.units import radius_text


def checks_section(tasks: Sequence[Task], cells: Sequence[Json], probes: Sequence[Probe]) -> Section | None:
    """The checks of the training runs, of attacks among each other, and of the models themselves."""
    blocks = [
        Verdicts(caption=caption, verdicts=_failed_first(verdicts))
        for caption, verdicts in (
            (
                "Training runs",
                [verdict for task in tasks for group in task.groups for verdict in _of_group(group)],
            ),
            ("Attacks among each other", _of_cells(cells)),
            *((f"{probe.model}, {ball_text(probe.ball)}", _of_checks(probe.checks)) for probe in probes),
        )
        if verdicts
    ]
    if not blocks:
        return None
    failed = sum(verdict.passed is False for block in blocks for verdict in block.verdicts)
    total = sum(len(block.verdicts) for block in blocks)
    lead = (
        f"{failed} of {total} checks failed: do not trust the figures they speak of before you know why."
        if failed
        else f"All {total} checks passed."
        if total > 1
        else "The one check made was passed."
    )
    return Section(key="checks", title="Honesty checks", lead=lead, blocks=blocks)


def ball_text(ball: str) -> str:
    """``L2(eps=0.2, box=(0.0, 1.0))`` as a reader knows it: L2 ε = 0.2; anything else as it is."""
    found = re.match(r"(\w+)\(eps=([^,()]+)", ball)
    if found is None:
        return ball
    norm, eps = found.groups()
    return f"{NORMS.get(norm.lower(), norm)} ε = {radius_text(float(eps))}"


def _failed_first(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return sorted(verdicts, key=lambda verdict: verdict.passed is not False)


def _of_group(group: Group) -> list[Verdict]:
    """Whether a one-step attack was fooled where PGD was not, which is what a collapse looks like."""
    judged = [result for result in group.finished if "one_step" in result]
    if not judged:
        return []
    collapsed = [result for result in judged if result.get("collapsed")]
    if collapsed:
        said = f"{group.label}: {collapsed[0]['collapse']}"
        return [Verdict(passed=False, sentence=f"{said} ({len(collapsed)} of {len(judged)} runs).")]
    widest = max(judged, key=lambda result: _one_step(result) - _pgd(result))
    return [
        Verdict(
            passed=True,
            sentence=f"{group.label}: no collapse; {percent(_one_step(widest))} % of the training images stay right "
            f"against one full step, {percent(_pgd(widest))} % against {widest['attack']}.",
        )
    ]


def _one_step(result: Json) -> float:
    return float(result["one_step"]["robust_accuracy"])


def _pgd(result: Json) -> float:
    return float(result["train"]["robust_accuracy"])


def _of_cells(cells: Sequence[Json]) -> list[Verdict]:
    """Attacks are compared where they were made on the same images, with the same settings and draws."""
    groups: dict[tuple[str, ...], list[Json]] = {}
    for cell in cells:
        identity = cell.get("identity", {})
        on = (str(identity.get(key)) for key in ("weights", "architecture", "images", "index", "seed"))
        groups.setdefault(tuple(on), []).append(cell | {"attack": attack_text(cell)})
    checks = [check for group in groups.values() for check in compare_cells(group)]
    return [Verdict(passed=check.passed, sentence=check.sentence) for check in checks]


def _of_checks(checks: Sequence[Json]) -> list[Verdict]:
    return [Verdict(passed=check["passed"], sentence=check["sentence"]) for check in checks]
