"""What the cells of a study say together: distances, stability, gaps, bounds, exponents in n."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freeat.algorithms import Erm, parse_algorithm
from freeat.stability.constants import Constants
from freeat.stability.estimates import mean_estimate, mean_largest, uniform_stability
from freeat.stability.setting import Setting
from freeat.theory import Problem, bound, rate, relative_step, sharpest_bound, solved_recursion

Cell = dict[str, Any]
Row = dict[str, Any]
TRAINED = 0.1
"""An algorithm has trained when its robust training accuracy is this much above chance."""


def summarize(setting: Setting, cells: Sequence[Cell], classes: int) -> list[Row]:
    """One row per sample size and algorithm, in the order they come; only finished seeds count."""
    keys = list(dict.fromkeys((cell["n"], cell["algorithm"]) for cell in cells))
    groups = {key: [c for c in cells if (c["n"], c["algorithm"]) == key] for key in keys}
    rows = [_row(setting.with_n(n), name, groups[n, name], classes) for n, name in keys]
    for n in dict.fromkeys(n for n, _ in keys):
        _compare_at_equal_accuracy([row for row in rows if row["n"] == n], groups)
    return rows


def _row(setting: Setting, name: str, cells: list[Cell], classes: int) -> Row:
    finals = [cell["probes"][-1] for cell in cells]
    differences = np.array([cell["differences"] for cell in cells])
    accuracy = {split: np.array([f[f"robust_{split}"] for f in finals]) for split in ("train", "test")}
    row: Row = {
        "algorithm": name,
        "n": setting.n,
        "seeds": len(cells),
        "neighbours": differences.shape[1],
        "distance": mean_estimate(np.array([_distance(cell) for cell in cells])).row(),
        "uniform_stability": uniform_stability(differences).row() if len(cells) > 1 else None,
        "mean_largest": mean_largest(differences).row(),
        "robust_train": mean_estimate(accuracy["train"].mean(1)).row(),
        "robust_test": mean_estimate(accuracy["test"].mean(1)).row(),
        "gap": mean_estimate((accuracy["train"] - accuracy["test"]).mean(1)).row(),
        "risk_gap": mean_estimate(np.array([_risk_gap(cell) for cell in cells])).row(),
        "meetings": float(np.mean([t is not None for c in cells for t in c["t0"]])),
        "seconds": sum(c["seconds"] for c in cells),
    }
    row["trained"] = row["robust_train"]["value"] >= 1 / classes + TRAINED
    constants = constants_of(cells)
    row["constants"] = None if constants is None else constants.row()
    row["bound"] = _bound(setting, name, constants)
    return row


def constants_of(cells: Sequence[Cell]) -> Constants | None:
    """The constants that all cells together showed."""
    found: Constants | None = None
    for cell in cells:
        if cell["constants"] is not None:
            here = Constants.of_row(cell["constants"])
            found = here if found is None else found.merged(here)
    return found


def problem_of(setting: Setting, name: str, constants: Constants | None) -> tuple[str, Problem, Row] | None:
    """The theorem's name, problem and run parameters; None where no theorem of the paper covers the setting.

    The theorems are for the bounded loss, L2 balls and vanishing steps, of Vanilla, Fast and Free (plain
    training is Vanilla with ε = 0), and need a β.
    """
    parsed = parse_algorithm(name)
    covered = (
        setting.theorem and setting.norm == "l2" and parsed.objective == "ce" and parsed.family != "friendly"
    )
    if not covered or constants is None or constants.beta is None or constants.beta == 0:
        return None
    algorithm = setting.algorithm(name)
    psi = constants.psi if constants.smallest_gradient > 0 else None
    if psi is None and parsed.family in ("fast", "free"):
        return None
    problem = Problem(
        beta=constants.beta,
        c=setting.lr,
        L=constants.L,
        L_w=constants.L_w,
        eps=0.0 if parsed.family == "erm" else setting.eps,
        b=setting.batch_size,
        n=setting.n,
        psi=psi,
    )
    alpha = None if isinstance(algorithm, Erm) else relative_step(algorithm.step_size, setting.eps)
    theorem = "vanilla" if parsed.family == "erm" else parsed.family
    return theorem, problem, {"T": setting.updates, "alpha": alpha, "m": algorithm.updates_per_batch}


def _bound(setting: Setting, name: str, constants: Constants | None) -> Row | None:
    covered = problem_of(setting, name, constants)
    if covered is None:
        return None
    theorem, problem, run = covered
    return {
        **bound(theorem, problem, **run).row(),
        "sharpest": sharpest_bound(theorem, problem, **run).value,
    }


def bound_curve(
    setting: Setting, name: str, constants: Constants | None
) -> tuple[list[int], list[float]] | None:
    """Updates, and the solved recursion's bound on E[d_t] after them."""
    covered = problem_of(setting, name, constants)
    if covered is None:
        return None
    theorem, problem, run = covered
    values = solved_recursion(theorem, problem, **run)
    m = run["m"] if theorem == "free" else 1
    return [min(k * m, setting.updates) for k in range(len(values))], values


def _compare_at_equal_accuracy(rows: list[Row], groups: dict[tuple[int, str], list[Cell]]) -> None:
    """Beside each row, the distance when the robust training accuracy first reached what every trained run reached."""
    trained = {row["algorithm"]: groups[row["n"], row["algorithm"]] for row in rows if row["trained"]}
    best = [max(p["robust_train"][0] for p in cell["probes"]) for cells in trained.values() for cell in cells]
    for row in rows:
        row["at_equal_accuracy"] = None
        if row["algorithm"] in trained:
            level = min(best)
            distances = np.array([_distance_at(cell, level) for cell in trained[row["algorithm"]]])
            row["at_equal_accuracy"] = {"robust_train": level, "distance": mean_estimate(distances).row()}


def _distance_at(cell: Cell, level: float) -> float:
    """The mean distance when the base's robust training accuracy first reached ``level``; linear between looks."""
    accuracy = [0.0, *(probe["robust_train"][0] for probe in cell["probes"])]
    updates = [0, *(probe["update"] for probe in cell["probes"])]
    k = next(k for k, a in enumerate(accuracy) if a >= level)
    share = (level - accuracy[k - 1]) / (accuracy[k] - accuracy[k - 1]) if k else 0.0
    at = updates[k - 1] + share * (updates[k] - updates[k - 1]) if k else 0.0
    times = [0, *(row["update"] for row in cell["distances"])]
    means = [0.0, *(float(np.mean(row["d_w"])) for row in cell["distances"])]
    return float(np.interp(at, times, means))


def exponents(cells: Sequence[Cell], rows: Sequence[Row]) -> list[Row]:
    """How gap, stability and distance fall with n, ∝ n^(−a): the fitted a with its interval, and the predicted one."""
    sizes = sorted({cell["n"] for cell in cells})
    if len(sizes) < 2:
        return []
    return [
        _exponent(name, sizes, cells, [row for row in rows if row["algorithm"] == name])
        for name in dict.fromkeys(cell["algorithm"] for cell in cells)
    ]


def _distance(cell: Cell) -> float:
    return float(np.mean(cell["distances"][-1]["d_w"]))


def _largest(cell: Cell) -> float:
    return float(np.abs(cell["differences"]).max())


def _risk_gap(cell: Cell) -> float:
    last = cell["probes"][-1]
    return float(np.mean(last["risk_test"]) - np.mean(last["risk_train"]))


MEASURES: dict[str, Callable[[Cell], float]] = {
    "distance": _distance,
    "mean_largest": _largest,
    "risk_gap": _risk_gap,
}
"""What a cell contributes to each fitted exponent."""


def _exponent(name: str, sizes: list[int], cells: Sequence[Cell], rows: list[Row]) -> Row:
    own = [c for c in cells if c["algorithm"] == name]
    seeds = sorted({c["seed"] for c in own})
    by = {(c["n"], c["seed"]): c for c in own}
    whole = [seed for seed in seeds if all((n, seed) in by for n in sizes)]
    row: Row = {"algorithm": name, "sizes": sizes, "seeds": len(whole)}
    for key, measure in MEASURES.items():
        values = np.array([[measure(by[n, seed]) for n in sizes] for seed in whole])
        row[key] = {**fitted_exponent(np.array(sizes, float), values), "means": values.mean(0).tolist()}
    lam = next((r["bound"]["lambda"] for r in rows if r["bound"] is not None), None)
    theorem = {"erm": "vanilla"}.get(parse_algorithm(name).family, parse_algorithm(name).family)
    row["predicted"] = None if lam is None else -rate(theorem, lam).n
    row["predicted_any_lambda"] = None if theorem not in ("fast", "free") else 1.0
    return row


def fitted_exponent(sizes: NDArray[np.float64], values: NDArray[np.float64]) -> Row:
    """a in value ∝ n^(−a) from values (seeds, sizes): least squares on the means' logarithms, bootstrap over seeds."""
    x = np.log(sizes) - np.log(sizes).mean()
    rng = np.random.default_rng(0)
    draws = rng.integers(0, len(values), (1000, len(values)))

    def slope(means: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(-(np.log(means) @ x) / (x @ x))

    value = float(slope(values.mean(0)))
    spread = slope(values[draws].mean(1))
    spread = spread[np.isfinite(spread)]
    if not np.isfinite(value):
        return {"value": None, "low": None, "high": None}
    if len(values) < 2 or not len(spread):
        return {"value": value, "low": None, "high": None}
    low, high = np.percentile(spread, (2.5, 97.5))
    return {"value": value, "low": float(low), "high": float(high)}
