"""Documents with just as many invented numbers as a claim needs, and the verdicts on them."""

from typing import Any

from freeat.experiments.paper.claims import decide_claims
from freeat.experiments.paper.documents import ClaimReport, Figure, Table
from freeat.experiments.paper.estimate import seed_mean
from freeat.files.documents import decoded, plain

SERIES: dict[str, Any] = {"std": [0.01], "image_error": [0.01], "low": [0], "high": [1], "seeds_at": [3]}


KINDS = {
    **dict.fromkeys(("figure-1", "figure-5", "figure-11"), "curves"),
    **dict.fromkeys(("figure-4", "figure-10"), "size"),
    "figure-12": "norms",
}
"""Of the figures that are not of accuracy against the radius."""

TABLE: dict[str, Any] = {"title": "", "columns": [], "notes": []}
ROW: dict[str, Any] = {"at": 1.0, "measured": None, "plain": None, "published": None}
ROW |= {"above_chance": None, "collapsed": 0, "seeds": 3, "runs": []}
POINTS = ("low", "high", "std", "image_error", "seeds_at")
COLUMNS: dict[str, tuple[str, ...]] = {
    "curves": (*POINTS, "epochs", "updates", "train", "test", "gap", "images", "collapse"),
    "radius": (*POINTS, "eps", "accuracy"),
    "size": (*POINTS, "n", "gap"),
    "norms": ("updates", "bins", "counts", "smallest", "smallest_of_seeds"),
}
OTHERS: dict[str, dict[str, Any]] = {"radius": {"n": 500, "attack": "square-300"}, "size": {"exponent": None}}


def typed_tables(made: list[dict[str, Any]]) -> tuple[Table, ...]:
    """Tables of which only what a test needs is told."""
    return decoded([whole_table(table) for table in made], tuple[Table, ...], "the test")


def whole_table(made: dict[str, Any]) -> dict[str, Any]:
    return TABLE | made | {"rows": [ROW | row for row in made["rows"]]}


def typed_figures(made: list[dict[str, Any]]) -> tuple[Figure, ...]:
    """Figures of which only what a test needs is told."""
    return decoded([whole_figure(figure) for figure in made], tuple[Figure, ...], "the test")


def whole_figure(made: dict[str, Any]) -> dict[str, Any]:
    kind = made.get("kind") or KINDS.get(made["name"], "radius")
    panels = [one | {"series": [_series(kind, told) for told in one["series"]]} for one in made["panels"]]
    return {"kind": kind, "title": "", **made, "panels": panels}


def _series(kind: str, told: dict[str, Any]) -> dict[str, Any]:
    empty = {name: [] for name in COLUMNS[kind]}
    series = {"above_chance": True, "seeds": 3, **empty, **OTHERS.get(kind, {}), **told}
    if "collapse" in series:
        series["collapse"] = [{"learnt": True, **run} for run in series["collapse"]]
    return series


def claims_of(document: dict[str, Any]) -> tuple[ClaimReport, ...]:
    return decide_claims(typed_tables(document["tables"]), typed_figures(document["figures"]))


def by_id(document: dict[str, Any], which: str = "measured") -> dict[str, dict[str, dict[str, Any]]]:
    """The verdicts of every claim by panel."""
    return {
        claim.id: {one.panel: plain(one) for one in getattr(claim, which)} for claim in claims_of(document)
    }


def verdicts(rows: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {panel: row["verdict"] for panel, row in rows.items()}


def row(
    label: str,
    gaps: list[float],
    *,
    data: str = "cifar10",
    norm: str = "l2",
    test: float = 0.3,
    error: float = 0.01,
    **more: Any,
) -> dict[str, Any]:
    """A row with one gap per seed, a clean gap half as wide, and a test accuracy that the seeds share."""
    cells = {"robust_test": [test] * len(gaps), "robust_gap": gaps, "clean_gap": [g / 2 for g in gaps]}
    measured = {c: plain(seed_mean(v, [error] * len(gaps))) for c, v in cells.items()} if gaps else None
    return {
        "data": data,
        "norm": norm,
        "label": label,
        "measured": measured,
        "above_chance": True if gaps else None,
    } | more


def tables(*rows: dict[str, Any], name: str = "table-1") -> dict[str, Any]:
    return {"tables": [{"name": name, "rows": list(rows)}], "figures": []}


def figure(name: str, *panels: dict[str, Any]) -> dict[str, Any]:
    return {"tables": [], "figures": [{"name": name, "panels": list(panels)}]}


def panel(*series: dict[str, Any], name: str = "", norm: str = "l2") -> dict[str, Any]:
    return {"data": "cifar10", "norm": norm, "panel": name, "series": list(series)}


def radius_series(
    label: str, accuracies: list[float], eps: tuple[float, ...] = (0.25, 128 / 255)
) -> dict[str, Any]:
    errors = {key: values * len(accuracies) for key, values in SERIES.items()}
    shown = {"label": label, "eps": list(eps), "accuracy": accuracies, "n": 500, "attack": "square-300"}
    return shown | errors


def curve(label: str, gaps: list[float], updates: list[int]) -> dict[str, Any]:
    n = len(gaps)
    return {
        "label": label,
        "gap": gaps,
        "updates": updates,
        "std": [0.001] * n,
        "image_error": [0.001] * n,
        "seeds_at": [3] * n,
    }


def size_series(label: str, gaps: list[float], sizes: tuple[int, ...] = (256, 1024)) -> dict[str, Any]:
    n = len(gaps)
    errors = {"std": [0.01] * n, "image_error": [0.005] * n, "seeds_at": [3] * n}
    return {"label": label, "n": list(sizes), "gap": gaps} | errors
