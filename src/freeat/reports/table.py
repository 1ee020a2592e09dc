"""Accuracies and gaps as text."""

from typing import Any


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


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
    return lines
