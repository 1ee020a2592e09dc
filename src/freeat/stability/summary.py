"""What the cells of a study say together: distances, stability, gaps and bounds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from freeat.algorithms import Erm, parse_algorithm
from freeat.files.documents import decoded, plain
from freeat.stability.constants import Constants
from freeat.stability.estimates import mean_estimate, mean_largest, uniform_stability
from freeat.stability.exponents import converged, distance_of, risk_gap_of
from freeat.stability.setting import Setting
from freeat.theory import Problem, bound, relative_step, sharpest_bound, solved_recursion

Cell = dict[str, Any]
Row = dict[str, Any]
TRAINED = 0.1
"""An algorithm has trained when its robust training accuracy is this much above chance."""


MEASURED = (
    "distance",
    "uniform_stability",
    "mean_largest",
    "robust_train",
    "robust_test",
    "gap",
    "risk_gap",
    "meetings",
    "constants",
    "bound",
    "at_equal_accuracy",
)
"""What a row holds, null where every seed diverged."""


def summarize(setting: Setting, cells: Sequence[Cell], classes: int) -> list[Row]:
    """One row per sample size and algorithm, in the order they come; only finished seeds that converged count."""
    keys = list(dict.fromkeys((cell["n"], cell["algorithm"]) for cell in cells))
    every = {key: [c for c in cells if (c["n"], c["algorithm"]) == key] for key in keys}
    groups = {key: converged(group) for key, group in every.items()}
    rows = []
    for n, name in keys:
        own, all_ = groups[n, name], every[n, name]
        row = _row(setting.with_n(n), name, own, classes) if own else _empty_row(n, name)
        rows.append(row | _divergence(all_))
    for n in dict.fromkeys(n for n, _ in keys):
        _compare_at_equal_accuracy([row for row in rows if row["n"] == n], groups)
    return rows


def _empty_row(n: int, name: str) -> Row:
    return {
        "algorithm": name,
        "n": n,
        "seeds": 0,
        "neighbours": 0,
        "trained": False,
        "seconds": 0.0,
    } | dict.fromkeys(MEASURED)


def _divergence(cells: Sequence[Cell]) -> Row:
    """How many seeds diverged, and in words why nothing is said of them."""
    updates = [cell["diverged"] for cell in cells if cell.get("diverged") is not None]
    if not updates:
        return {"diverged": 0, "reason": None}
    left_out = "nothing could be measured" if len(updates) == len(cells) else "they are left out"
    return {
        "diverged": len(updates),
        "reason": f"{len(updates)} of {len(cells)} seeds diverged, first seen at update {min(updates)}: {left_out}; "
        "lower --lr",
    }


def _row(setting: Setting, name: str, cells: list[Cell], classes: int) -> Row:
    finals = [cell["probes"][-1] for cell in cells]
    differences = np.array([cell["differences"] for cell in cells])
    accuracy = {split: np.array([f[f"robust_{split}"] for f in finals]) for split in ("train", "test")}
    row: Row = {
        "algorithm": name,
        "n": setting.n,
        "seeds": len(cells),
        "neighbours": differences.shape[1],
        "distance": plain(mean_estimate(np.array([distance_of(cell) for cell in cells]))),
        "uniform_stability": plain(uniform_stability(differences)) if len(cells) > 1 else None,
        "mean_largest": plain(mean_largest(differences)),
        "robust_train": plain(mean_estimate(accuracy["train"].mean(1))),
        "robust_test": plain(mean_estimate(accuracy["test"].mean(1))),
        "gap": plain(mean_estimate((accuracy["train"] - accuracy["test"]).mean(1))),
        "risk_gap": plain(mean_estimate(np.array([risk_gap_of(cell) for cell in cells]))),
        "meetings": float(np.mean([t is not None for c in cells for t in c["t0"]])),
        "seconds": sum(c["seconds"] for c in cells),
    }
    row["trained"] = row["robust_train"]["value"] >= 1 / classes + TRAINED
    constants = constants_of(cells)
    row["constants"] = None if constants is None else plain(constants)
    row["bound"] = _bound(setting, name, constants)
    return row


def constants_of(cells: Sequence[Cell]) -> Constants | None:
    """The constants that all cells together showed."""
    found: Constants | None = None
    for cell in cells:
        if cell["constants"] is not None:
            here = decoded(cell["constants"], Constants, "a cell")
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
    psi = constants.psi
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
        **plain(bound(theorem, problem, **run).row()),
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
            row["at_equal_accuracy"] = {"robust_train": level, "distance": plain(mean_estimate(distances))}


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
