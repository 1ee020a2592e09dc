"""A stability study as figures and text: distances and loss differences against t, gradient norms, exponents in n."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from freeat.reports.plots import draw_band, look, save_figure, styled
from freeat.reports.tables import aligned
from freeat.stability.estimates import BootstrapEstimate
from freeat.stability.results import TwinResult
from freeat.stability.summary import ExponentRow, SummaryRow

Curves = Mapping[str, tuple[list[int], list[float]]]
ByAlgorithm = Mapping[str, Sequence[TwinResult]]
ROOM = 1e4
"""How far above the measured distances a figure still shows their bounds."""


def draw_study(
    folder: Path,
    results: Sequence[TwinResult],
    curves: Curves,
    exponents: Sequence[ExponentRow],
    title: str,
) -> list[Path]:
    """Every figure that the results allow; ``curves`` are bounds on the distance by algorithm."""
    largest = max(result.n for result in results)
    shown = [result for result in results if result.n == largest]
    names = list(dict.fromkeys(result.algorithm for result in shown))
    by_name = {name: [result for result in shown if result.algorithm == name] for name in names}
    with styled():
        paths = [
            _draw_distances(folder / "distance.png", by_name, curves, f"{title}, n = {largest}"),
            _draw_differences(folder / "loss-difference.png", by_name, f"{title}, n = {largest}"),
        ]
        if any(result.gradient_norms for result in shown):
            paths.append(_draw_gradients(folder / "gradient-norms.png", by_name, f"{title}, n = {largest}"))
        if exponents:
            paths.append(_draw_exponents(folder / "exponents.png", exponents, title))
    return paths


def _draw_distances(path: Path, by_name: ByAlgorithm, curves: Curves, title: str) -> Path:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.9), layout="constrained")
    top = ROOM * max(np.max(row.d_w) for results in by_name.values() for r in results for row in r.distances)
    for place, (name, results) in enumerate(by_name.items()):
        x = [row.update for row in results[0].distances]
        d_w = np.array([[np.mean(row.d_w) for row in result.distances] for result in results])
        d_delta = np.array([[np.mean(row.d_delta) for row in result.distances] for result in results])
        for panel, values in zip(axes, (d_w, d_delta), strict=True):
            draw_band(panel, x, values, name, look(place))
        if name in curves:
            updates, limits = curves[name]
            seen = np.minimum(limits[1:], 2 * top)  # a vacuous bound leaves the figure, and may be infinite
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


def _draw_differences(path: Path, by_name: ByAlgorithm, title: str) -> Path:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.9), layout="constrained")
    for place, (name, results) in enumerate(by_name.items()):
        x = [probe.update for probe in results[0].probes]
        largest = np.array([[probe.largest_difference for probe in result.probes] for result in results])
        mean = np.array([[probe.mean_difference for probe in result.probes] for result in results])
        for panel, values in zip(axes, (largest, mean), strict=True):
            draw_band(panel, x, values, name, look(place))
    axes[0].set(xlabel="weight updates", title="largest over probes and neighbours")
    axes[1].set(xlabel="weight updates", title="mean over probes and neighbours")
    axes[0].set_ylabel("|difference of max_δ (1 − p_y)|")
    axes[0].legend()
    figure.suptitle(title)
    return save_figure(figure, path)


def _draw_gradients(path: Path, by_name: ByAlgorithm, title: str) -> Path:
    """Figure 12: how many images had which ‖∇_δ h‖ when, and the running minimum, which is 1/ψ."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm

    first = {name: results[0].gradient_norms for name, results in by_name.items()}
    shown = {name: rows for name, rows in first.items() if rows}
    figure, axes = plt.subplots(
        1, len(shown), figsize=(4.6 * len(shown), 3.9), layout="constrained", squeeze=False
    )
    most = max(2, *(count for rows in shown.values() for row in rows for count in row.bins.values()))
    for panel, (name, rows) in zip(axes[0], shown.items(), strict=True):
        bins = sorted({int(b) for row in rows for b in row.bins})
        counts = np.array([[row.bins.get(str(b), 0) for row in rows] for b in range(bins[0], bins[-1] + 1)])
        updates = np.array([0, *(row.update for row in rows)])
        edges = 10 ** (np.arange(bins[0], bins[-1] + 2) / 10)
        mesh = panel.pcolormesh(updates, edges, counts, norm=LogNorm(1, most), cmap="viridis")
        panel.set_facecolor(mesh.cmap(0.0))  # where no image was
        panel.plot(updates[1:], [row.smallest_so_far for row in rows], color="white", linewidth=1.2)
        panel.set(yscale="log", xlabel="weight updates", title=name)
        panel.grid(False)
    axes[0][0].set_ylabel("‖∇_δ h‖ of each image; white: running minimum")
    figure.colorbar(mesh, ax=axes[0].tolist(), label="images since the record before")
    figure.suptitle(title)
    return save_figure(figure, path)


def _draw_exponents(path: Path, exponents: Sequence[ExponentRow], title: str) -> Path:
    import matplotlib.pyplot as plt

    titles = ("‖w − w′‖", "average of the largest loss difference", "gap of the robust risk")
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained")
    for place, row in enumerate(exponents):
        for panel, fit in zip(axes, (row.distance, row.mean_largest, row.risk_gap), strict=True):
            label = row.algorithm if fit.fit is None else f"{row.algorithm}: n^{-fit.fit.value:.2f}"
            panel.plot(row.sizes, fit.means, label=label, **look(place))
    for panel, text in zip(axes, titles, strict=True):
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


def stability_lines(rows: Sequence[SummaryRow]) -> list[str]:
    """The study as a table of text, with what must be said about it."""
    lines = aligned([COLUMNS, *(_line(row) for row in rows)])
    first = next((row for row in rows if row.seeds), rows[0])
    lines.append(
        f"means over {first.seeds} seeds and {first.neighbours} neighbours, [95 % interval over seeds]; "
        "stability and gap in the bounded loss 1 − p_y"
    )
    for row in rows:
        if row.reason:
            lines.append(f"{row.algorithm} (n = {row.n}): {row.reason}")
        if not row.seeds:
            continue
        if not row.trained:
            lines.append(f"{row.algorithm} (n = {row.n}) did not train: its stability is no merit")
        elif equal := row.at_equal_accuracy:
            lines.append(
                f"{row.algorithm} (n = {row.n}): distance {_with_interval(equal.distance)} when robust "
                f"train accuracy reached {equal.robust_train:.1%}"
            )
        if row.constants and row.constants.no_beta:
            lines.append(f"{row.algorithm}: {row.constants.no_beta}")
    if caveats := [row.constants.caveat for row in rows if row.bound and row.constants]:
        lines.append(f"bounds use estimated constants: {caveats[0]}")
    return lines


def exponent_lines(exponents: Sequence[ExponentRow]) -> list[str]:
    """The fits ∝ n^(−a), beside what the theorems predict."""
    lines = []
    for row in exponents:
        fits = (
            f"distance {_with_interval(row.distance.fit)}, mean largest {_with_interval(row.mean_largest.fit)}, "
            f"risk gap {_with_interval(row.risk_gap.fit)}"
        )
        predicted = "no theorem" if row.predicted is None else f"bound {row.predicted:.3g}"
        lines.append(f"{row.algorithm}: ∝ n^(−a) with a = {fits}; {predicted}")
    return lines


def _line(row: SummaryRow) -> list[str]:
    limit = row.bound
    shown = f"10^{limit.log10_bound:.2g}{' (vacuous)' * limit.vacuous}" if limit else "–"
    estimates = (row.distance, row.uniform_stability, row.mean_largest, row.risk_gap)
    accuracies = (row.robust_train, row.robust_test)
    return [
        row.algorithm,
        str(row.n),
        *map(_with_interval, estimates),
        shown,
        *("–" if accuracy is None else f"{accuracy.value:.1%}" for accuracy in accuracies),
    ]


def _with_interval(estimate: BootstrapEstimate | None) -> str:
    if estimate is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.3g}"
    return f"{estimate.value:.3g} [{estimate.low:.3g}, {estimate.high:.3g}]"
