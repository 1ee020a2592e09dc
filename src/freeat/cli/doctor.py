"""``freeat doctor``: versions, devices and their precisions, memory, data sets and extras of this machine."""

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freeat.cli.options import data_dir_option, json_option, print_result
from freeat.errors import install_command, optional_packages

if TYPE_CHECKING:
    import torch
    from torch import Tensor

REPEATS = 10


@click.command()
@data_dir_option
@json_option
def doctor(data_dir: Path | None, as_json: bool) -> None:
    """Show this machine: versions, devices, precisions, memory, data sets, installed extras.

    A precision's speed is that of a small convolution with its backward pass, relative to fp32.
    """
    found = describe_machine(data_dir)
    print_result(found, _lines(found), as_json=as_json)


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


def describe_machine(data_dir: Path | None = None) -> dict[str, Any]:
    """Everything as one document. It takes a second or two, most of it to time the precisions."""
    import torch

    from freeat.compute.machine import provenance

    facts = provenance(torch.device("cpu"))
    return {
        "versions": facts.versions,
        "commit": facts.commit,
        "system": facts.machine.system,
        "cores": facts.machine.cores,
        "threads": torch.get_num_threads(),
        "devices": [_device(device) for device in _devices()],
        "data": _data(data_dir),
        "extras": [
            {**asdict(found), "command": None if found.installed else install_command(found.extra)}
            for found in optional_packages()
        ],
    }


def _devices() -> Iterator["torch.device"]:
    import torch

    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        yield torch.device("cuda", number)
    if torch.backends.mps.is_available():
        yield torch.device("mps")
    yield torch.device("cpu")


def _device(device: "torch.device") -> dict[str, Any]:
    from freeat.compute.machine import provenance
    from freeat.compute.precision import PRECISIONS, resolve_precision

    total, free = _memory(device)
    machine = provenance(device).machine
    seconds = {name: _seconds(name, device) for name in PRECISIONS if name != "auto"}
    return {
        "device": str(device),
        "name": machine.accelerator or machine.processor,
        "memory": total,
        "free_memory": free,
        "precisions": {
            name: {
                "usable": taken is not None,
                "speed": taken and seconds["fp32"] and seconds["fp32"] / taken,
            }
            for name, taken in seconds.items()
        },
        "auto": resolve_precision("auto", device),
    }


def _seconds(precision: str, device: "torch.device") -> float | None:
    """The time of a convolution with its backward pass in this arithmetic; None where it cannot be computed."""
    import torch
    from torch import nn

    from freeat.compute.precision import Precision

    draws = torch.Generator().manual_seed(0)
    weights = (torch.rand(32, 32, 3, 3, generator=draws) - 0.5).to(device)
    x = torch.rand(8, 32, 16, 16, generator=draws).to(device, memory_format=torch.channels_last)
    x.requires_grad_()
    weights.requires_grad_()

    def convolution(images: "Tensor") -> "Tensor":
        return nn.functional.conv2d(images, weights, padding=1)

    # The processor's own time: other programs may keep a short turn waiting for a hundred times its length.
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    times = []
    try:
        arithmetic = Precision(precision, device)
        for _ in range(1 + REPEATS):
            began = clock()
            loss = arithmetic.run(convolution, x).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            finite = bool(torch.isfinite(loss))  # also waits for the device
            times.append(clock() - began)
    except (RuntimeError, NotImplementedError):  # a kernel that this device does not have
        return None
    return min(times[1:]) if finite else None


def _memory(device: "torch.device") -> tuple[int | None, int | None]:
    """Total and free bytes; None where the system does not report them."""
    import torch

    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return total, free
    names = getattr(os, "sysconf_names", {})  # what Windows does not have
    pages = [
        os.sysconf(name) * os.sysconf("SC_PAGE_SIZE") if name in names else None
        for name in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES")
    ]
    return pages[0], pages[1]


def _data(data_dir: Path | None) -> dict[str, Any]:
    from freeat.data import available, data_folder

    folder = data_folder(data_dir)
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return {
        "folder": str(folder),
        "free_bytes": shutil.disk_usage(there).free,
        "sets": [
            {
                "name": entry.name,
                "state": entry.state,
                "path": None if entry.path is None else str(entry.path),
            }
            for entry in available(data_dir)
        ],
    }
