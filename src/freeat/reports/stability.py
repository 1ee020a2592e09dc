"""Pictures of a stability study: distances and loss differences against t, gradient norms, exponents in n."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freeat.reports.plots import draw_band, look, save_figure, styled
from freeat.reports.text import aligned

Cell = dict[str, Any]
Row = dict[str, Any]
Curves = dict[str, tuple[list[int], list[float]]]
ROOM = 1e4
"""How far above the measured distances a picture still shows their bounds."""


def draw_study(
    folder: Path, cells: Sequence[Cell], curves: Curves, exponents: Sequence[Row], title: str
) -> list[Path]:
    """Every picture that the cells allow; ``curves`` are bounds on the distance by algorithm."""
    largest = max(cell["n"] for cell in cells)
    shown = [cell for cell in cells if cell["n"] == largest]
    names = list(dict.fromkeys(cell["algorithm"] for cell in shown))
    by_name = {name: [cell for cell in shown if cell["algorithm"] == name] for name in names}
    with styled():
        paths = [
            _draw_distances(folder / "distance.png", by_name, curves, f"{title}, n = {largest}"),
            _draw_differences(folder / "loss-difference.png", by_name, f"{title}, n = {largest}"),
        ]
        if any(cell["gradient_norms"] for cell in shown):
            paths.append(_draw_gradients(folder / "gradient-norms.png", by_name, f"{title}, n = {largest}"))
        if exponents:
            paths.append(_draw_exponents(folder / "exponents.png", exponents, title))
    return paths


def _draw_distances(path: Path, by_name: dict[str, list[Cell]], curves: Curves, title: str) -> Path:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.9), layout="constrained")
    measured = max(np.max(row["d_w"]) for cells in by_name.values() for c in cells for row in c["distances"])
    top = ROOM * measured
    for place, (name, cells) in enumerate(by_name.items()):
        x = [row["update"] for row in cells[0]["distances"]]
        for panel, key in zip(axes, ("d_w", "d_delta"), strict=True):
            values = np.array([[np.mean(row[key]) for row in cell["distances"]] for cell in cells])
            draw_band(panel, x, values, name, look(place))
        if name in curves:
            updates, limits = curves[name]
            seen = np.minimum(limits[1:], 2 * top)  # a vacuous bound leaves the picture, and may be infinite
            label = f"bound, {name}" + (" (above)" if seen.min() > top else "")
            axes[0].plot(updates[1:], seen, linestyle="--", color=look(place)["color"], label=label)
    axes[0].set(
        xlabel="weight updates", ylabel="‖w − w′‖, mean over neighbours", title="distance of the weights"
    )
    axes[1].set(
        xlabel="weight updates", ylabel="mean ‖δ − δ′‖ of the batch", title="distance of the perturbations"
    )
    if curves:
        axes[0].set_yscale("log")
        low, high = axes[0].get_ylim()
        axes[0].set_ylim(low, min(high, top))
    axes[0].legend()
    figure.suptitle(title)
    return save_figure(figure, path)


def _draw_differences(path: Path, by_name: dict[str, list[Cell]], title: str) -> Path:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.9), layout="constrained")
    for place, (name, cells) in enumerate(by_name.items()):
        x = [probe["update"] for probe in cells[0]["probes"]]
        for panel, key in zip(axes, ("largest_difference", "mean_difference"), strict=True):
            values = np.array([[probe[key] for probe in cell["probes"]] for cell in cells])
            draw_band(panel, x, values, name, look(place))
    axes[0].set(xlabel="weight updates", title="largest over probes and neighbours")
    axes[1].set(xlabel="weight updates", title="mean over probes and neighbours")
    axes[0].set_ylabel("|difference of max_δ (1 − p_y)|")
    axes[0].legend()
    figure.suptitle(title)
    return save_figure(figure, path)


def _draw_gradients(path: Path, by_name: dict[str, list[Cell]], title: str) -> Path:
    """Figure 12: how many images had which ‖∇_δ h‖ when, and the running minimum, which is 1/ψ."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm

    shown = {
        name: cells[0]["gradient_norms"] for name, cells in by_name.items() if cells[0]["gradient_norms"]
    }
    figure, axes = plt.subplots(
        1, len(shown), figsize=(4.6 * len(shown), 3.9), layout="constrained", squeeze=False
    )
    most = max(2, *(count for rows in shown.values() for row in rows for count in row["bins"].values()))
    for panel, (name, rows) in zip(axes[0], shown.items(), strict=True):
        bins = sorted({int(b) for row in rows for b in row["bins"]})
        counts = np.array(
            [[row["bins"].get(str(b), 0) for row in rows] for b in range(bins[0], bins[-1] + 1)]
        )
        updates = np.array([0, *(row["update"] for row in rows)])
        edges = 10 ** (np.arange(bins[0], bins[-1] + 2) / 10)
        mesh = panel.pcolormesh(updates, edges, counts, norm=LogNorm(1, most), cmap="viridis")
        panel.set_facecolor(mesh.cmap(0.0))  # where no image was
        panel.plot(updates[1:], [row["smallest_so_far"] for row in rows], color="white", linewidth=1.2)
        panel.set(yscale="log", xlabel="weight updates", title=name)
        panel.grid(False)
    axes[0][0].set_ylabel("‖∇_δ h‖ of each image; white: running minimum")
    figure.colorbar(mesh, ax=axes[0].tolist(), label="images since the record before")
    figure.suptitle(title)
    return save_figure(figure, path)


def _draw_exponents(path: Path, exponents: Sequence[Row], title: str) -> Path:
    import matplotlib.pyplot as plt

    keys = {
        "distance": "‖w − w′‖",
        "mean_largest": "average of the largest loss difference",
        "risk_gap": "gap of the robust risk",
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained")
    for place, row in enumerate(exponents):
        for panel, key in zip(axes, keys, strict=True):
            a = row[key]["value"]
            label = row["algorithm"] if a is None else f"{row['algorithm']}: n^{-a:.2f}"
            panel.plot(row["sizes"], row[key]["means"], label=label, **look(place))
    for panel, text in zip(axes, keys.values(), strict=True):
        panel.set(xscale="log", yscale="log", xlabel="n (T fixed)", title=text)
        panel.legend()
    figure.suptitle(title)
    return save_figure(figure, path)


COLUMNS = (
    "algorithm",
    "n",
    "distance",
    "uniform stability",
    "mean largest",
    "risk gap",
    "bound",
    "robust train",
    "test",
)
FITTED = ("distance", "mean_largest", "risk_gap")


def stability_lines(rows: Sequence[Row]) -> list[str]:
    """The study as a table of text, with what must be said about it."""
    lines = aligned([COLUMNS, *(_line(row) for row in rows)])
    first = next((row for row in rows if row["seeds"]), rows[0])
    lines.append(
        f"means over {first['seeds']} seeds and {first['neighbours']} neighbours, [95 % interval over seeds]; "
        "stability and gap in the bounded loss 1 − p_y"
    )
    for row in rows:
        if row["reason"]:
            lines.append(f"{row['algorithm']} (n = {row['n']}): {row['reason']}")
        if not row["seeds"]:
            continue
        if not row["trained"]:
            lines.append(f"{row['algorithm']} (n = {row['n']}) did not train: its stability is no merit")
        elif equal := row["at_equal_accuracy"]:
            lines.append(
                f"{row['algorithm']} (n = {row['n']}): distance {_with_interval(equal['distance'])} when robust "
                f"train accuracy reached {equal['robust_train']:.1%}"
            )
        if row["constants"] and row["constants"]["no_beta"]:
            lines.append(f"{row['algorithm']}: {row['constants']['no_beta']}")
    if any(row["bound"] for row in rows):
        caveat = next(row["constants"]["caveat"] for row in rows if row["bound"])
        lines.append(f"bounds use estimated constants: {caveat}")
    return lines


def exponent_lines(exponents: Sequence[Row]) -> list[str]:
    """The fits ∝ n^(−a), beside what the theorems predict."""
    lines = []
    for row in exponents:
        fits = ", ".join(
            f"{key.replace('_', ' ')} {_with_interval(row[key])}"
            for key in ("distance", "mean_largest", "risk_gap")
        )
        predicted = "no theorem" if row["predicted"] is None else f"bound {row['predicted']:.3g}"
        lines.append(f"{row['algorithm']}: ∝ n^(−a) with a = {fits}; {predicted}")
    return lines


def _line(row: Row) -> list[str]:
    limit = row["bound"]
    shown = (
        "–"
        if limit is None
        else f"10^{limit['log10_bound']:.2g}" + (" (vacuous)" if limit["vacuous"] else "")
    )
    return [
        row["algorithm"],
        str(row["n"]),
        *(_with_interval(row[key]) for key in ("distance", "uniform_stability", "mean_largest", "risk_gap")),
        shown,
        *("–" if row[key] is None else f"{row[key]['value']:.1%}" for key in ("robust_train", "robust_test")),
    ]


def _with_interval(estimate: dict[str, float | None] | None) -> str:
    if estimate is None or estimate["value"] is None:
        return "–"
    if estimate["low"] is None or estimate["high"] is None:
        return f"{estimate['value']:.3g}"
    return f"{estimate['value']:.3g} [{estimate['low']:.3g}, {estimate['high']:.3g}]"
