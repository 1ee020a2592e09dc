"""Documents with the invented numbers that a claim needs, and the verdicts on them."""

from typing import Any

from freeat.experiments.paper.claims import decide_claims
from freeat.experiments.paper.documents import ClaimReport, Figure, PaperTable
from freeat.experiments.paper.estimate import seed_mean
from freeat.files.documents import decoded, plain

KINDS = {
    **dict.fromkeys(("figure-1", "figure-5", "figure-11"), "curves"),
    **dict.fromkeys(("figure-4", "figure-10"), "size"),
    "figure-12": "norms",
}
"""Of the figures that are not of accuracy against the radius."""

TABLE: dict[str, Any] = {"title": "", "columns": [], "notes": []}
ROW: dict[str, Any] = {"at": 1.0, "measured": None, "plain": None, "published": None}
ROW |= {"above_chance": None, "collapsed": 0, "seeds": 3, "runs": []}
COLUMNS: dict[str, tuple[str, ...]] = {
    "curves": ("points", "epochs", "updates", "train", "test", "images", "collapse"),
    "radius": ("points", "eps"),
    "size": ("points", "n"),
    "norms": ("updates", "bins", "counts", "smallest", "smallest_of_seeds"),
}
OTHERS: dict[str, dict[str, Any]] = {"radius": {"n": 500, "attack": "square-300"}, "size": {"exponent": None}}


def typed_tables(made: list[dict[str, Any]]) -> tuple[PaperTable, ...]:
    """Tables from the fields that a test needs."""
    return decoded([whole_table(table) for table in made], tuple[PaperTable, ...], "the test")


def whole_table(made: dict[str, Any]) -> dict[str, Any]:
    return TABLE | made | {"rows": [ROW | row for row in made["rows"]]}


def typed_figures(made: list[dict[str, Any]]) -> tuple[Figure, ...]:
    """Figures from the fields that a test needs."""
    return decoded([whole_figure(figure) for figure in made], tuple[Figure, ...], "the test")


def whole_figure(made: dict[str, Any]) -> dict[str, Any]:
    kind = made.get("kind") or KINDS.get(made["name"], "radius")
    panels = [one | {"series": [_series(kind, given) for given in one["series"]]} for one in made["panels"]]
    return {"kind": kind, "title": "", **made, "panels": panels}


def _series(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    empty = {name: [] for name in COLUMNS[kind]}
    series = {"above_chance": True, **empty, **OTHERS.get(kind, {}), **given}
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


def primaries(document: dict[str, Any], which: str = "measured") -> dict[str, dict[str, Any]]:
    """The primary verdict of every claim that has one."""
    found = {claim.id: getattr(claim, f"{which}_primary") for claim in claims_of(document)}
    return {name: plain(one) for name, one in found.items() if one is not None}


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
    of_seeds: tuple[int, ...] = (),
    **more: Any,
) -> dict[str, Any]:
    """A row with one gap per seed, a clean gap half as wide, and a test accuracy that the seeds share."""
    cells = {"robust_test": [test] * len(gaps), "robust_gap": gaps, "clean_gap": [g / 2 for g in gaps]}
    cells["robust_train"] = [test + gap for gap in gaps]
    errors = [error] * len(gaps)
    measured = {c: plain(seed_mean(v, errors, of_seeds=of_seeds)) for c, v in cells.items()} if gaps else None
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


def points(means: list[float], std: float, image_error: float) -> list[dict[str, Any]]:
    """Points of three seeds; their intervals decide nothing."""
    errors = {"std": std, "low": 0, "high": 1, "seeds": 3, "image_error": image_error}
    return [{"mean": mean, **errors} for mean in means]


def radius_series(
    label: str, accuracies: list[float], eps: tuple[float, ...] = (0.25, 128 / 255)
) -> dict[str, Any]:
    shown = {"label": label, "eps": list(eps), "n": 500, "attack": "square-300"}
    return shown | {"points": points(accuracies, 0.01, 0.01)}


def curve(label: str, gaps: list[float], updates: list[int]) -> dict[str, Any]:
    train = [0.7 - gap for gap in gaps]
    made = {"label": label, "updates": updates, "points": points(gaps, 0.001, 0.001), "train": train}
    return made | {"collapse": [{"left": 1.0, "seen": False}] * 3}


def curve_by_seed(label: str, fits: list[float], gaps: list[float], spread: float = 0.001) -> dict[str, Any]:
    """A curve whose three seeds lie ``spread`` apart in their gap, with their robust training accuracies."""
    seeds = {"seeds": 3, "std": None, "low": 0, "high": 1, "of_seeds": [0, 1, 2]}
    by_seed = [
        [
            seeds | {"mean": value, "values": [value + apart * k for k in (-1, 0, 1)], "image_error": 0.001}
            for value in values
        ]
        for values, apart in ((fits, 0.0), (gaps, spread))
    ]
    updates = [100 * (k + 1) for k in range(len(gaps))]
    return {"label": label, "updates": updates, "fits": by_seed[0], "points": by_seed[1]} | {
        "train": [1 - fit for fit in fits]
    }


def size_series(label: str, gaps: list[float], sizes: tuple[int, ...] = (256, 1024)) -> dict[str, Any]:
    return {"label": label, "n": list(sizes), "points": points(gaps, 0.01, 0.005)}
