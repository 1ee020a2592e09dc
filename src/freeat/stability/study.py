"""A study: algorithms × sample sizes × seeds, one stored cell each, so that it can stop and go on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from freeat.algorithms import parse_algorithm
from freeat.data import DataSet
from freeat.errors import InputError
from freeat.files.documents import check_has, plain, read_json, write_json
from freeat.models import check_logits
from freeat.stability.cell import run_cell
from freeat.stability.setting import Setting
from freeat.stability.twins import choose_engine

FORMAT = 1
Cell = dict[str, Any]


def _silent(title: str, update: int, total: int) -> None:
    """Watches nothing."""


class _Stopped(Exception):
    """Someone wished to stop; the cell that was running is run again from its beginning."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is run, and the folder it is kept in."""

    setting: Setting
    algorithms: tuple[str, ...]
    seeds: int
    sizes: tuple[int, ...]
    folder: Path
    engine: str | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __post_init__(self) -> None:
        names = tuple(str(parse_algorithm(name)) for name in self.algorithms)
        object.__setattr__(self, "algorithms", names)
        if not names or self.seeds < 1 or not self.sizes:
            raise InputError(
                f"a study of {len(names)} algorithms, {self.seeds} seeds and {len(self.sizes)} sizes: "
                "give at least one of each"
            )

    def prepare(self, data: DataSet) -> None:
        """Make the folder this study's; refuse one that holds another setting or other data.

        Algorithms, sizes and seeds are no part of the setting: a study may grow.
        """
        path = self.folder / "study.json"
        setting = {name: value for name, value in self.setting.words().items() if name != "n"}
        facts = {"setting": setting, "data_digest": data.digest, "notes": list(data.notes)}
        if path.is_file():
            stored = read_json(path, format=FORMAT)
            check_has(stored, ("setting", "data_digest"), path)
            for key in ("setting", "data_digest"):
                if stored[key] != facts[key]:
                    raise InputError(
                        f"{self.folder} holds a study of another {key.replace('_', ' ')}: choose another --out, or "
                        "delete the folder"
                    )
            return
        if self.folder.exists() and any(self.folder.iterdir()):
            raise InputError(
                f"{self.folder} exists and holds no study: choose another --out; nothing was touched"
            )
        self._try(data)
        write_json(path, facts, format=FORMAT)

    def _try(self, data: DataSet) -> None:
        """Make everything the cells are made of once, so that bad input is refused before a file is written."""
        for size in self.sizes:
            self.setting.with_n(size).twins(data)
        for name in self.algorithms:
            self.setting.algorithm(name)
        self.setting.ball.check(data.shape)
        self.setting.augmentation(data)
        model = self.setting.model_of(data, 0, torch.device("cpu"))
        check_logits(model, data.shape, len(data.classes), torch.device("cpu"), images=data.glimpse)

    def run(
        self,
        data: DataSet,
        *,
        watch: Callable[[str, int, int], None] = _silent,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Cell]:
        """Every cell in turn, read where it is stored and run where it is not; ends early on a wish to stop."""
        self.prepare(data)
        here = _on(data, self.device)

        def looked(title: str, update: int, total: int) -> None:
            if should_stop():
                raise _Stopped
            watch(title, update, total)

        for seed in range(self.seeds):
            for size in self.sizes:
                for name in self.algorithms:
                    try:
                        cell = self._cell(here, name, size, seed, looked)
                    except _Stopped:
                        return
                    yield cell

    def cells(self) -> list[Cell]:
        """The cells of this study that are stored."""
        paths = (
            self._path(name, size, seed)
            for seed in range(self.seeds)
            for size in self.sizes
            for name in self.algorithms
        )
        return [read_cell(path) for path in paths if path.is_file()]

    def _path(self, name: str, size: int, seed: int) -> Path:
        return self.folder / "cells" / f"{name}-n{size}-seed{seed}.json"

    def _cell(
        self, data: DataSet, name: str, size: int, seed: int, watch: Callable[[str, int, int], None]
    ) -> Cell:
        path = self._path(name, size, seed)
        if not path.is_file():
            setting = self.setting.with_n(size)
            engine = self._engine(data, setting, name)

            def seen(update: int, total: int) -> None:
                watch(f"{name} n={size} seed {seed}", update, total)

            cell = run_cell(setting, data, name, seed, engine, device=self.device, watch=seen)
            write_json(path, {**cell, "engine": engine}, format=FORMAT)
        return read_cell(path)

    def _engine(self, data: DataSet, setting: Setting, name: str) -> str:
        """The engine asked for, or the faster one: measured once for each algorithm, and then as stored."""
        if self.engine is not None:
            return self.engine
        path = self.folder / "engines.json"
        stored = read_json(path, format=FORMAT) if path.is_file() else {}
        if name not in stored:
            twins, algorithm = setting.twins(data), setting.algorithm(name)
            x, y = twins.sample.batch(setting.batches(0)(1))
            choice = choose_engine(
                setting.model_of(data, 0, self.device),
                twins.members,
                setting.learner_of(algorithm, 0),
                algorithm,
                x,
                y,
            )
            stored[name] = plain(choice)
            write_json(path, {k: v for k, v in stored.items() if k != "format"}, format=FORMAT)
        return str(stored[name]["engine"])


def _on(data: DataSet, device: torch.device) -> DataSet:
    return replace(data, train=data.train.to(device), test=data.test.to(device))


def parse_algorithms(text: str) -> tuple[str, ...]:
    """Algorithms as written on the command line: ``vanilla-10,fast,free-4``."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def parse_sizes(values: Sequence[str]) -> tuple[int, ...]:
    """Sample sizes as written on the command line: ``125,250,500``."""
    words = [word for value in values for word in value.split(",")]
    if not all(word.strip().isdecimal() for word in words):
        raise InputError(f"sample sizes {', '.join(words)}: write whole numbers such as 125,250,500")
    return tuple(sorted({int(word) for word in words}))


def read_cell(path: Path) -> Cell:
    """A stored cell, whole; one whose runs diverged has measured nothing."""
    cell = read_json(path, format=FORMAT)
    measured = ("probes", "distances", "differences", "t0") if cell.get("diverged") is None else ()
    check_has(cell, ("algorithm", "n", "seed", *measured), path)
    return cell
