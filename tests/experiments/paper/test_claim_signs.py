"""Every claim is confirmed by numbers of which it is clearly true and refuted by those of which it is false."""

from typing import Any

import pytest

from freeat.experiments.paper.claims import CLAIMS, PaperClaim
from invented_claims import (
    by_id,
    curve,
    curve_by_seed,
    figure,
    panel,
    primaries,
    radius_series,
    row,
    size_series,
    tables,
    verdicts,
)


def gaps_of(name: str, **gaps: float) -> dict[str, Any]:
    """A table of gaps by label, with ``_`` for ``-``."""
    return tables(*(row(label.replace("_", "-"), [gap] * 3) for label, gap in gaps.items()), name=name)


def accuracies_of(name: str, **accuracies: float) -> dict[str, Any]:
    """A table of robust test accuracies by label, all with the same gap."""
    rows = (row(label.replace("_", "-"), [0.3] * 3, test=p, error=0.001) for label, p in accuracies.items())
    return tables(*rows, name=name)


def friendly(name: str, gap: float, than: str, where: str) -> dict[str, Any]:
    """Friendly in Table 2, and the algorithm it is compared with, whose gap is 50 points, in that or another table."""
    own, other = (row(label, [g] * 3, error=0.001) for label, g in ((name, gap), (than, 0.5)))
    rows = {"table-2": [own]}
    rows.setdefault(where, []).append(other)
    return {"tables": [{"name": table, "rows": found} for table, found in rows.items()], "figures": []}


def accuracies(name: str, panel_name: str = "", **series: list[float]) -> dict[str, Any]:
    """A figure of accuracies against the radius, by label; Free-4 has 30 % under PGD."""
    drawn = [radius_series(label.replace("_", "-"), values) for label, values in series.items()]
    made = tables(row("free-4", [0.2] * 3))
    return made | {"figures": [{"name": name, "panels": [panel(*drawn, name=panel_name)]}]}


def transferred(**series: list[float]) -> dict[str, Any]:
    """The same accuracies under the perturbations of either source."""
    both = [accuracies("figure-3", f"from {source}", **series) for source in ("vanilla-10", "free-4")]
    panels = [panel for made in both for panel in made["figures"][0]["panels"]]
    return both[0] | {"figures": [{"name": "figure-3", "panels": panels}]}


def curves(vanilla: list[float], free: list[float]) -> dict[str, Any]:
    updates = [100, 200]
    return figure("figure-1", panel(curve("vanilla-10", vanilla, updates), curve("free-4", free, updates)))


def fits(vanilla: list[float], free: list[float]) -> dict[str, Any]:
    """Curves of gaps on the way to robust training accuracies of 95 % (Vanilla-10) and 60 % (Free-4)."""
    ends = {"vanilla-10": (vanilla, 0.95), "free-4": (free, 0.6)}
    made = (curve_by_seed(label, [0.2, end], gaps) for label, (gaps, end) in ends.items())
    return figure("figure-1", panel(*made))


def overfits(vanilla: float, free: float) -> dict[str, Any]:
    """Curves with this best minus last robust test accuracy, the same in all three seeds but for a hair."""
    made = []
    for label, value in {"vanilla-10": vanilla, "free-4": free}.items():
        curve = curve_by_seed(label, [0.2, 0.6], [0.1, value])
        made.append(curve | {"overfitting": curve["points"][-1]})
    return figure("figure-1", panel(*made))


def sizes_of_gaps(label: str, l2: float, linf: float) -> dict[str, Any]:
    gaps = {"l2": l2, "linf": linf}
    return tables(*(row(label, [gap] * 3, norm=norm, error=0.001) for norm, gap in gaps.items()))


def sizes(vanilla: list[float], free: list[float]) -> dict[str, Any]:
    return figure("figure-4", panel(size_series("vanilla-10", vanilla), size_series("free-4", free)))


def collapse(long: float, short: float) -> dict[str, Any]:
    left = {"fast-10/255": long, "fast-7/255": short}
    series = (
        curve(x, [0.1], [100]) | {"collapse": [{"left": p, "seen": False}] * 3} for x, p in left.items()
    )
    return figure("figure-11", panel(*series, norm="linf"))


def stopped(early: float, late: float) -> dict[str, Any]:
    """Gaps after a quarter of the training, and at its end."""
    rows = {name: [row(x, [gap] * 3) for x in ("vanilla-10", "free-4")] for name, gap in
            (("table-6", early), ("table-1", late))}  # fmt: skip
    return {"tables": [{"name": name, "rows": found} for name, found in rows.items()], "figures": []}


def steps(short: float, long: float) -> dict[str, Any]:
    """Gaps of Fast at the end of the training, by its step."""
    made = (curve(x, [0.0, gap], [0, 100]) for x, gap in (("fast-7/255", short), ("fast-10/255", long)))
    return figure("figure-11", panel(*made, norm="linf"))


def smallest_norm(norm: float) -> dict[str, Any]:
    return figure("figure-12", panel({"label": "free-4", "smallest_of_seeds": [norm] * 3}))


SIGNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "free-gap-below-vanilla": (
        gaps_of("table-1", vanilla_10=0.7, free_4=0.2),
        gaps_of("table-1", vanilla_10=0.2, free_4=0.7),
    ),
    "fast-gap-below-vanilla": (
        gaps_of("table-4", vanilla_10=0.7, fast=0.2),
        gaps_of("table-4", vanilla_10=0.2, fast=0.7),
    ),
    "vanilla-gap-above-erm": (
        gaps_of("table-5", vanilla_10=0.4, erm=0.6),
        gaps_of("table-5", vanilla_10=0.4, erm=1.0),
    ),
    "free-gap-smaller-throughout": (curves([0.2, 0.6], [0.1, 0.2]), curves([0.2, 0.2], [0.1, 0.3])),
    "free-test-comparable": (
        accuracies_of("table-1", vanilla_10=0.4, free_4=0.39),
        accuracies_of("table-1", vanilla_10=0.4, free_4=0.37),
    ),
    "free-trades-gap-below-trades": (
        gaps_of("table-3", trades_10=0.7, free_trades_4=0.2),
        gaps_of("table-3", trades_10=0.2, free_trades_4=0.7),
    ),
    "free-trades-test-comparable": (
        accuracies_of("table-3", trades_10=0.4, free_trades_4=0.39),
        accuracies_of("table-3", trades_10=0.4, free_trades_4=0.37),
    ),
    "clean-gaps-below": (
        gaps_of("table-5", vanilla_10=0.7, free_4=0.2, trades_10=0.7, free_trades_4=0.2),
        gaps_of("table-5", vanilla_10=0.2, free_4=0.7, trades_10=0.2, free_trades_4=0.7),
    ),
    "friendly-like-vanilla": (
        friendly("friendly-10", 0.51, "vanilla-10", "table-2"),
        friendly("friendly-10", 0.4, "vanilla-10", "table-2"),
    ),
    "friendly-twice-like-fast": (
        friendly("friendly-10-2eps", 0.49, "fast", "table-1"),
        friendly("friendly-10-2eps", 0.6, "fast", "table-1"),
    ),
    "free-withstands-square": (
        accuracies("figure-2", free_4=[0.6, 0.5], vanilla_10=[0.4, 0.3]),
        accuracies("figure-2", free_4=[0.6, 0.3], vanilla_10=[0.4, 0.5]),
    ),
    "free-withstands-transfer": (
        transferred(free_4=[0.6, 0.5], vanilla_10=[0.4, 0.3]),
        transferred(free_4=[0.6, 0.3], vanilla_10=[0.4, 0.5]),
    ),
    "not-gradient-masking": (
        accuracies("figure-6", free_4=[0.6, 0.5], vanilla_10=[0.4, 0.3]),
        accuracies("figure-6", free_4=[0.6, 0.2], vanilla_10=[0.4, 0.1]),
    ),
    "free-transfers-better": (
        accuracies("figure-9", "resnet18", free_4=[0.3, 0.2], vanilla_10=[0.5, 0.4], fast=[0.5, 0.4]),
        accuracies("figure-9", "resnet18", free_4=[0.3, 0.4], vanilla_10=[0.5, 0.2], fast=[0.5, 0.2]),
    ),
    "gap-falls-faster-in-n": (sizes([0.8, 0.7], [0.4, 0.1]), sizes([0.8, 0.4], [0.4, 0.35])),
    "fast-collapses": (collapse(0.1, 0.9), collapse(0.9, 0.1)),
    "free-gap-below-vanilla-stopped-early": (
        gaps_of("table-6", vanilla_10=0.5, free_4=0.1),
        gaps_of("table-6", vanilla_10=0.1, free_4=0.5),
    ),
    "vanilla-gap-above-30-and-50": (
        sizes_of_gaps("vanilla-10", 0.4, 0.6),
        sizes_of_gaps("vanilla-10", 0.2, 0.4),
    ),
    "free-gap-about-20": (sizes_of_gaps("free-4", 0.205, 0.195), sizes_of_gaps("free-4", 0.3, 0.3)),
    "free-gap-below-vanilla-at-equal-fit": (fits([0.3, 0.9], [0.1, 0.3]), fits([0.1, 0.4], [0.3, 0.5])),
    "free-overfits-less": (overfits(0.1, 0.02), overfits(0.02, 0.1)),
    "gap-grows-with-updates": (stopped(0.1, 0.4), stopped(0.4, 0.1)),
    "gap-grows-with-radius": (
        gaps_of("radii", vanilla_10=0.5, vanilla_10_half_eps=0.3, free_4=0.2, free_4_half_eps=0.1),
        gaps_of("radii", vanilla_10=0.3, vanilla_10_half_eps=0.5, free_4=0.1, free_4_half_eps=0.2),
    ),
    "gap-grows-with-attack-step": (steps(0.2, 0.4), steps(0.4, 0.2)),
    "gap-falls-with-n": (sizes([0.8, 0.4], [0.4, 0.2]), sizes([0.4, 0.8], [0.2, 0.4])),
    "gradient-norm-bounded-below": (smallest_norm(1e-2), smallest_norm(1e-5)),
    "gap-falls-with-m": (
        gaps_of("table-1", free_2=0.6, free_4=0.4, free_8=0.2),
        gaps_of("table-1", free_2=0.6, free_4=0.2, free_8=0.4),
    ),
}
"""For each claim, numbers of which it is clearly true, and numbers of which it is clearly false."""


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_is_confirmed_where_it_is_true_and_refuted_where_it_is_false(claim: PaperClaim) -> None:
    seen = [set(verdicts(by_id(document)[claim.id]).values()) for document in SIGNS[claim.id]]
    assert seen == [{"confirmed"}, {"refuted"}]
    primary = [primaries(document)[claim.id]["verdict"] for document in SIGNS[claim.id]]
    assert primary == ["confirmed", "refuted"]
