"""The runs below a folder: listing, finding and deleting them."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from freeat.algorithms.registry import parse_algorithm
from freeat.errors import InputError, unknown_name
from freeat.files.locks import check_free, is_held, leased
from freeat.runs.folder import RunFolder, RunResult
from freeat.runs.spec import TrainSpec

Status = Literal["finished", "running", "stopped", "damaged"]
STATUSES: tuple[Status, ...] = ("finished", "running", "stopped", "damaged")


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run in a store: its name, settings, status and progress. A damaged one has no spec."""

    key: str
    folder: RunFolder
    status: Status
    spec: TrainSpec | None
    update: int = 0
    updates: int = 0
    result: RunResult | None = None
    error: str | None = None

    def row(self) -> "RunRow":
        """Its row in the list of runs."""
        spec, result = self.spec, self.result
        return RunRow(
            run=self.key,
            folder=str(self.folder.path),
            status=self.status,
            **({name: getattr(spec, name) for name in LISTED} if spec else {}),
            label=spec.label_of("model") if spec else None,
            update=self.update,
            updates=self.updates,
            bytes=size_of(self.folder.path),
            robust_train=result.train.robust_accuracy if result else None,
            robust_test=result.test.robust_accuracy if result else None,
            robust_gap=result.gap.value if result else None,
            clean_test=result.test.clean_accuracy if result else None,
            seconds=result.seconds if result else None,
            error=self.error,
        )


LISTED = ("data", "model", "norm", "eps", "algorithm", "seed", "train_size")


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A row of the list of runs; None for what a damaged or unfinished run does not have."""

    run: str
    folder: str
    status: Status
    data: str | None = None
    model: str | None = None
    norm: str | None = None
    eps: float | None = None
    algorithm: str | None = None
    label: str | None = None
    seed: int | None = None
    train_size: int | None = None
    update: int
    updates: int
    bytes: int
    robust_train: float | None
    robust_test: float | None
    robust_gap: float | None
    clean_test: float | None
    seconds: float | None
    error: str | None


def runs_in(store: Path) -> Iterator[StoredRun]:
    """Every run below a folder, by name; hidden folders and the insides of runs are not searched."""
    if not store.is_dir():
        raise InputError(f"--store {store}: no such folder")
    for path, folders, files in os.walk(store):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "run.json" in files:
            folders.clear()
            yield read_run(Path(path), store)


def read_run(path: Path, store: Path) -> StoredRun:
    """The run in a folder, with its present status."""
    folder = RunFolder(path)
    key = path.relative_to(store).as_posix() if path.is_relative_to(store) else str(path)
    try:
        description, result = folder.description, folder.result
        spec = replace(
            description.spec, model=description.resolved.model
        )  # auto is the network that it became
        updates = description.updates
    except InputError as error:
        return StoredRun(key=key, folder=folder, status="damaged", spec=None, error=str(error))
    if result is not None:
        status: Status = "finished"
    else:
        status = "running" if is_held(path) else "stopped"
    update = result.update if result else folder.checkpoints.latest_update or 0
    return StoredRun(
        key=key, folder=folder, status=status, spec=spec, update=update, updates=updates, result=result
    )


def matching(
    runs: Iterator[StoredRun],
    *,
    data: str | None = None,
    norm: str | None = None,
    algorithm: str | None = None,
    seed: int | None = None,
    status: str | None = None,
) -> Iterator[StoredRun]:
    """The runs with these settings and status; None stands for any."""
    if status is not None and status not in STATUSES:
        raise unknown_name("status", status, STATUSES)
    wanted = {
        "data": data,
        "norm": norm.lower() if norm else None,
        "algorithm": str(parse_algorithm(algorithm)) if algorithm else None,
        "seed": seed,
    }
    for run in runs:
        fits = all(value is None or getattr(run.spec, name, None) == value for name, value in wanted.items())
        if fits and status in (None, run.status):
            yield run


def find_run(store: Path, name: str) -> StoredRun:
    """The run with this folder, this name in the list, or this prefix of the last part of its name."""
    if RunFolder(Path(name)).exists:
        return read_run(Path(name), store)
    found = list(runs_in(store))
    exact = [run for run in found if run.key == name]
    similar = exact or [run for run in found if Path(run.key).name.startswith(name) and name]
    if not similar:
        raise InputError(
            f"no run {name!r} among the {len(found)} below {store}: see `freeat runs`, or give another --store"
        )
    if len(similar) > 1:
        names = ", ".join(run.key for run in similar[:4])
        raise InputError(
            f"run {name!r} may be any of {names}{', …' * (len(similar) > 4)}: write more of its name"
        )
    return similar[0]


def delete_run(run: StoredRun) -> None:
    """Remove a run's folder; one that is running is refused."""
    check_free(run.folder.path)
    with leased(run.folder.path):
        shutil.rmtree(run.folder.path)


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder, without those deleted meanwhile."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):
                total += (Path(path) / name).stat().st_size
    return total
