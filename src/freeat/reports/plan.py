"""The plan of a reproduction as text: its tasks, what they cost, and what is left out."""

from collections.abc import Mapping
from typing import Any

from freeat.reports.table import NARROWEST


def duration(seconds: float) -> str:
    """A time as people say it: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:,.1f} h"


def plan_table(plan: Mapping[str, Any], absent: Mapping[str, str]) -> None:
    """Print the tasks of a plan in their order; ``absent``: data sets that are not here, with the reason."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("task", no_wrap=True)
    for name in ("passes", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for item in plan["items"]:
        table.add_row(item["name"], f"{item['passes']:,.0f}", duration(item["seconds"]))
    console = Console(soft_wrap=True)
    console.width = max(console.width, NARROWEST)
    console.print(table)
    for line in plan_lines(plan, absent):
        console.print(line, markup=False, highlight=False)


def plan_lines(plan: Mapping[str, Any], absent: Mapping[str, str]) -> list[str]:
    """What it comes to, and what is left out."""
    passes = sum(item["passes"] for item in plan["items"])
    total = f"{len(plan['items'])} tasks, {passes:,.0f} passes of single images"
    workers = f"{plan['workers']} at a time" if plan["workers"] > 1 else "one at a time"
    budget = "" if plan["budget"] is None else f", of {duration(plan['budget'])} there are"
    lines = [f"{total}: about {duration(plan['seconds'])} on this machine, {workers}{budget}"]
    lines += [f"left out: {what} ({reason})" for what, reason in absent.items()]
    lines += [f"left out: {one['what']} ({one['reason']})" for one in plan["left_out"]]
    return lines
