"""``freeat doctor``: what this machine has."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from freeat.cli.data import data_dir_option
from freeat.cli.options import json_option


@click.command()
@data_dir_option
@json_option
def doctor(data_dir: Path | None, as_json: bool) -> None:
    """Say what this machine has: versions, devices, precisions, memory, data sets, extras.

    A precision's speed is that of a small convolution with its backward pass, relative to fp32.
    """
    from freeat.cli.machine_facts import examine

    found = examine(data_dir)
    click.echo(json.dumps(found) if as_json else "\n".join(_lines(found)))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield ", ".join([*(f"{name} {version}" for name, version in found["versions"].items()), found["system"]])
    yield f"{_counted(found['cores'], 'core')}, {_counted(found['threads'], 'thread')}"
    for device in found["devices"]:
        yield ""
        yield (
            f"{device['device']}: {device['name']}, memory {_gigabytes(device['memory'])}, free "
            + _gigabytes(device["free_memory"])
        )
        for name, precision in device["precisions"].items():
            fast = f"{precision['speed']:.2f} × fp32" if precision["usable"] else "not usable here"
            yield f"  {name:<5} {fast}{'   (--precision auto)' if name == device['auto'] else ''}"
    data = found["data"]
    yield ""
    yield f"data in {data['folder']}, {_gigabytes(data['free_bytes'])} free"
    for entry in data["sets"]:
        missing = f"   freeat data fetch {entry['name']}" if entry["state"] == "absent" else ""
        yield f"  {entry['name']:<14} {entry['state']:<10} {entry['path'] or ''}{missing}".rstrip()
    yield ""
    yield "extras"
    for row in found["extras"]:
        state = row["installed"] or f"-   {row['command']}"
        yield f"  {row['extra']:<12} {row['package']:<31} {state}"


def _counted(number: int | None, what: str) -> str:
    return f"{'unknown' if number is None else number} {what}{'' if number == 1 else 's'}"


def _gigabytes(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 1e9:.1f} GB"
