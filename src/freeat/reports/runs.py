"""Runs as text: a list of them, one of them, and the difference of two."""

from collections.abc import Sequence
from typing import Any

from freeat.reports.table import accuracy_lines, percent
from freeat.units import radius_text

COLUMNS = (
    "run",
    "data",
    "model",
    "norm",
    "ε",
    "algorithm",
    "seed",
    "status",
    "robust train",
    "test",
    "gap",
    "size",
)


def runs_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line per run under a heading, in columns."""
    table = [COLUMNS, *map(_cells, rows)]
    widths = [max(len(row[k]) for row in table) for k in range(len(COLUMNS))]
    lines = [
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    total = sum(row["bytes"] for row in rows)
    return [*lines, f"{len(rows)} runs, {_size(total)}"]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    status = row["status"]
    if status in ("running", "stopped"):
        status = f"{status} {row['update']}/{row['updates']}"
    return (
        row["run"],
        str(row.get("data", "–")),
        str(row.get("model", "–")),
        str(row.get("norm", "–")),
        radius_text(row["eps"]) if "eps" in row else "–",
        str(row.get("algorithm", "–")),
        str(row.get("seed", "–")),
        status,
        *(
            percent(row[name]) if name in row else "–"
            for name in ("robust_train", "robust_test", "robust_gap")
        ),
        _size(row["bytes"]),
    )


def run_lines(document: dict[str, Any]) -> list[str]:
    """What a run is, how far it is and what came out."""
    lines = [f"{document['run']}: {document['status']}, update {document['update']} of {document['updates']}"]
    if "trouble" in document:
        return [lines[0], f"  {document['trouble']}"]
    lines += [f"  {name} = {value}" for name, value in document["spec"].items()]
    lines += [f"  {name} = {value}" for name, value in document["evaluation"].items()]
    chosen = ", ".join(f"{name} {value}" for name, value in document["chosen"].items())
    data = document["data"]
    lines.append(f"  on {data['name']}: {data['train']} training and {data['test']} test images")
    lines.append(f"  chosen here: {chosen}; commit {document['commit'] or 'unknown'}")
    if document["result"] is not None:
        lines += accuracy_lines(document["algorithm"], document["result"])
    return [*lines, f"folder: {document['folder']} ({_size(document['bytes'])})"]


def difference_lines(document: dict[str, Any]) -> list[str]:
    """The settings in which two runs differ, and the paired interval of their accuracies."""
    first, second = document["first"], document["second"]
    lines = [f"first:  {first}", f"second: {second}"]
    lines += [f"  {row['setting']}: {row['first']} | {row['second']}" for row in document["settings"]]
    if not document["settings"]:
        lines.append("  no setting differs")
    judged = document["judged"]
    if "reason" in judged:
        return [*lines, f"not judged side by side: {judged['reason']}"]
    lines.append(
        f"on the same {judged['n']} of {judged['population']} test images, {judged['attack']} "
        f"({judged['verdict']}), {judged['norm']} ε = {radius_text(judged['eps'])}:"
    )
    for word in ("robust", "clean"):
        if (found := judged[word]) is not None:
            lines.append(
                f"  {word:<6} {percent(found['first'])} % | {percent(found['second'])} %   "
                f"difference {percent(found['difference'])} points "
                f"[{percent(found['low'])}, {percent(found['high'])}]   "
                f"right alone: {found['only_first']} | {found['only_second']}"
            )
    return [*lines, *(f"WARNING: {sentence}" for sentence in judged["warnings"])]


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
