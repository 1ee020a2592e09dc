"""The plan of a reproduction as text: its tasks, what they cost, and what is left out."""

from collections.abc import Mapping, Sequence
from typing import Any

from freeat.reports.text import NARROWEST


def duration(seconds: float) -> str:
    """A time as people say it: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:,.1f} h"


def plan_table(outlook: Mapping[str, Any], absent: Mapping[str, str]) -> None:
    """Print the tasks of a plan in their order; ``absent``: data sets that are not here, with the reason."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("task", no_wrap=True)
    for name in ("passes", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    rows = [(item, "finished" if item["finished"] else "") for item in outlook["items"]]
    for item, state in [*rows, *((item, "absent") for item in outlook["absent_items"])]:
        table.add_row(item["name"], f"{item['passes']:,.0f}", duration(item["seconds"]), state)
    console = Console(soft_wrap=True)
    console.width = max(console.width, NARROWEST)
    console.print(table)
    for line in plan_lines(outlook, absent):
        console.print(line, markup=False, highlight=False)


def plan_lines(outlook: Mapping[str, Any], absent: Mapping[str, str]) -> list[str]:
    """What it comes to, what remains of it, what absent data sets would add, and what is left out."""
    workers = f"{outlook['workers']} at a time" if outlook["workers"] > 1 else "one at a time"
    budget = "" if outlook["budget"] is None else f", of {duration(outlook['budget'])} there are"
    about = f"about {duration(outlook['seconds'])} on this machine, {workers}{budget}"
    lines = [f"{_counted(outlook['items'])}: {about}"]
    if finished := sum(item["finished"] for item in outlook["items"]):
        some = f"{finished} of them are finished: about {duration(outlook['remaining'])} remain"
        lines.append(some if finished < len(outlook["items"]) else "all of them are finished")
    if more := outlook["absent_items"]:
        seconds = sum(item["seconds"] for item in more) / outlook["workers"]
        lines.append(f"with the absent data sets {_counted(more)} more: about {duration(seconds)}")
    lines += [f"left out: {what} ({reason})" for what, reason in absent.items()]
    lines += [f"left out: {one['what']} ({one['reason']})" for one in outlook["left_out"]]
    return lines


def _counted(items: Sequence[Mapping[str, Any]]) -> str:
    passes = sum(item["passes"] for item in items)
    return f"{len(items)} tasks, {passes:,.0f} passes of single images"
