"""Documents with just as many invented numbers as a claim needs, and the verdicts on them."""

from typing import Any

from freeat.experiments.paper.estimate import seed_cell
from freeat.experiments.paper.ledger import judge_claims

SERIES: dict[str, Any] = {"std": [0.01], "image_error": [0.01], "low": [0], "high": [1], "seeds_at": [3]}


def by_id(document: dict[str, Any], which: str = "measured") -> dict[str, dict[str, dict[str, Any]]]:
    """The verdicts of every claim by panel."""
    return {claim["id"]: {row["panel"]: row for row in claim[which]} for claim in judge_claims(document)}


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
    measured = {c: seed_cell(values, [error] * len(gaps)) for c, values in cells.items()} if gaps else None
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
