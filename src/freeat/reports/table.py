"""Accuracies and gaps as text."""

from typing import TYPE_CHECKING, Any

from freeat.evaluation.chance import above_chance, chance_remark

if TYPE_CHECKING:
    from rich.console import JustifyMethod

HEADERS = {
    "robust_train": "robust train",
    "robust_test": "robust test",
    "robust_gap": "robust gap",
    "clean_test": "clean test",
    "clean_gap": "clean gap",
}


NARROWEST = 100
"""Columns a table has at least: on a narrower terminal, lines that wrap are better than numbers cut off."""


def percent(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:.1f}"  # the sum turns -0.0 into 0.0


def accuracy_lines(algorithm: str, result: dict[str, Any]) -> list[str]:
    """What a finished run achieved: train, test and gap, robust and clean."""
    rows = [("robust", "robust_accuracy", "gap"), ("clean", "clean_accuracy", "clean_gap")]
    lines = [
        f"{algorithm} after {result['update']} updates, judged by {result['attack']} at ε = {result['eps']:.4g}:"
    ]
    for word, key, gap in rows:
        low, high = result[gap]["low"], result[gap]["high"]
        lines.append(
            f"  {word:<6} train {percent(result['train'][key])} %   test {percent(result['test'][key])} %   "
            f"gap {percent(result[gap]['value'])} [{percent(low)}, {percent(high)}]"
        )
    train, test = result["train"], result["test"]
    lines.append(
        f"  on {train['n']} of {train['population']} training and {test['n']} of {test['population']} test images"
    )
    return lines


def run_remarks(algorithm: str, result: dict[str, Any]) -> list[str]:
    """What a reader of one run's accuracies must know."""
    guessing = [] if above_chance(result) else [chance_remark(algorithm)]
    return [*guessing, *result["notes"]]


def spread(mean: float, std: float | None) -> str:
    """Mean ± standard deviation over the seeds, in percent; one seed has no spread."""
    return percent(mean) if std is None else f"{percent(mean)} ± {percent(std)}"


def remarks(summary: dict[str, Any]) -> list[str]:
    """What a reader of the table must know."""
    lines = [chance_remark(row["algorithm"]) for row in summary["algorithms"] if not row["above_chance"]]
    lines += [
        f"{row['algorithm']} collapsed in {row['collapsed']} of {len(row['seeds'])} runs."
        for row in summary["algorithms"]
        if row["collapsed"]
    ]
    lines += [f"{failure['run']} failed: {failure['reason']}" for failure in summary["failures"]]
    return [*lines, *summary["notes"]]


def comparison_table(summary: dict[str, Any]) -> None:
    """Print train / test / gap per algorithm to the terminal."""
    from rich.console import Console
    from rich.table import Table

    title = "accuracy in %, mean ± standard deviation over the seeds"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("algorithm", *HEADERS.values(), "passes", "seconds"):
        justify: JustifyMethod = "left" if name == "algorithm" else "right"
        table.add_column(name.replace(" ", "\n"), justify=justify, no_wrap=True)
    for row in summary["algorithms"]:
        cells = [spread(**row[key]) for key in HEADERS]
        table.add_row(row["algorithm"], *cells, f"{row['gradient_passes']:,}", f"{row['seconds']:.1f}")
    console = Console(soft_wrap=True)
    console.width = max(console.width, NARROWEST)
    console.print(table)
    for line in remarks(summary):
        console.print(line, markup=False, highlight=False)


def comparison_markdown(summary: dict[str, Any]) -> str:
    """The same table in Markdown."""
    header = ["algorithm", *HEADERS.values(), "passes", "seconds"]
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    for row in summary["algorithms"]:
        cells = [spread(**row[key]) for key in HEADERS]
        numbers = [f"{row['gradient_passes']:,}", f"{row['seconds']:.1f}"]
        lines.append("| " + " | ".join([row["algorithm"], *cells, *numbers]) + " |")
    return "\n".join([*lines, "", *(f"- {line}" for line in remarks(summary))]) + "\n"
