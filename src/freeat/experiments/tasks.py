"""Pieces of work with an identity and a place in a store: train a run, attack it, transfer between runs.

Whoever asks for the same piece finds it done, or waits for the process that is doing it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from freeat.attacks.registry import parse_attack
from freeat.compute.machine import arithmetic, provenance, resolve_device
from freeat.data import load
from freeat.errors import InputError
from freeat.experiments.sweep import Sweep, SweepReport, evaluate_models
from freeat.experiments.transfer import transfer_models
from freeat.files.documents import check_has, plain, read_json, write_json
from freeat.files.locks import leased
from freeat.runs.folder import RunFolder
from freeat.runs.open import Opened, open_model
from freeat.runs.reading import found_result, read_whole
from freeat.runs.run import RunOptions, execute
from freeat.runs.spec import EvalSpec, TrainSpec
from freeat.threat import make_ball
from freeat.training.records import Callback, accuracies
from freeat.training.trainer import Stopped

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where the tasks of a reproduction happen: the store, and what every run there has in common."""

    store: Path
    device: str = "auto"
    data_dir: Path | None = None
    checkpoint_every: float = 60.0

    def place(self, key: str) -> RunOptions:
        return RunOptions(
            folder=self.store / "runs" / key,
            device=self.device,
            data_dir=self.data_dir,
            checkpoint_every=self.checkpoint_every,
        )


@dataclass(frozen=True, kw_only=True)
class Training:
    """One run."""

    name: str
    spec: TrainSpec
    evaluation: EvalSpec
    site: Site
    needs: tuple[str, ...] = ()

    @cached_property
    def key(self) -> str:
        return _digest(json.loads(self.spec.canonical) | {"evaluation": self.evaluation.words()})

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.site.place(self.key).folder)

    @property
    def threads(self) -> int:
        return self.spec.threads or 1

    @property
    def data_digest(self) -> str | None:
        """Of the data it was begun with; None where it was not begun, or its description is damaged."""
        try:
            return self.folder.data_digest
        except InputError:
            return None

    def result(self) -> dict[str, Any] | None:
        """What came out, where all of the run can be read that tables and figures are made of."""
        with read_whole(self.folder.path):
            result = self.folder.result
            if result is not None:
                check_has(result, ("train", "test", "update", "seconds"), self.folder.path / "result.json")
                _ = self.folder.data_digest, list(self.folder.history())
            return result

    def finished(self) -> bool:
        return self.result() is not None

    def run(self, callback: Callback, should_stop: Callable[[], bool]) -> None:
        place = self.site.place(self.key)
        execute(self.spec, self.evaluation, place, callback=callback, should_stop=should_stop)

    def summary(self) -> str:
        result = self.result()
        return accuracies(result) if result else "not finished"


@dataclass(frozen=True, kw_only=True)
class Attacking:
    """A trained model under one attack, over radii and splits."""

    name: str
    target: Training
    attack: str
    norm: str
    radii: tuple[float, ...]
    n: int
    splits: tuple[str, ...] = ("test",)
    iterate: str = "worst"

    @cached_property
    def key(self) -> str:
        words = {name: getattr(self, name) for name in ("attack", "norm", "radii", "n", "splits", "iterate")}
        return _digest({"kind": "attack", "target": self.target.key, **words})

    @property
    def runs(self) -> tuple[Training, ...]:
        """The runs whose models it opens."""
        return (self.target,)

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(run.key for run in self.runs)

    @property
    def threads(self) -> int:
        return self.target.threads

    def result(self) -> dict[str, Any] | None:
        return _stored(self)

    def finished(self) -> bool:
        return self.result() is not None

    def run(self, callback: Callback, should_stop: Callable[[], bool]) -> None:
        _measure(self, self._attack, callback, should_stop)

    def summary(self) -> str:
        return _counted(self)

    def _attack(self, models: Sequence[Opened], sweep: Sweep, watch: Any) -> SweepReport:
        return evaluate_models(models, sweep, watch=watch)


@dataclass(frozen=True, kw_only=True)
class Transferring:
    """Perturbations made on one trained model and applied to others, over radii."""

    name: str
    source: Training
    targets: tuple[Training, ...]
    attack: str
    norm: str
    radii: tuple[float, ...]
    n: int
    splits: tuple[str, ...] = ("test",)
    iterate: str = "last"

    @cached_property
    def key(self) -> str:
        words = {name: getattr(self, name) for name in ("attack", "norm", "radii", "n", "splits", "iterate")}
        targets = [target.key for target in self.targets]
        return _digest({"kind": "transfer", "source": self.source.key, "targets": targets, **words})

    @property
    def runs(self) -> tuple[Training, ...]:
        """The runs whose models it opens, the source first."""
        return (self.source, *self.targets)

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(run.key for run in self.runs)

    @property
    def threads(self) -> int:
        return self.source.threads

    @property
    def target(self) -> Training:
        """Whose data and place the measurement uses."""
        return self.targets[0]

    def result(self) -> dict[str, Any] | None:
        return _stored(self)

    def finished(self) -> bool:
        return self.result() is not None

    def run(self, callback: Callback, should_stop: Callable[[], bool]) -> None:
        _measure(self, self._transfer, callback, should_stop)

    def summary(self) -> str:
        return _counted(self)

    def _transfer(self, models: Sequence[Opened], sweep: Sweep, watch: Any) -> SweepReport:
        source, *targets = models
        # Without checks: the compared runs have theirs from Square, and no plan counts them here.
        return transfer_models([source], targets, sweep, checks=False, watch=watch)


Measurement = Attacking | Transferring


def _measure(
    task: Measurement,
    measure: Callable[[Sequence[Opened], Sweep, Any], SweepReport],
    callback: Callback,
    should_stop: Callable[[], bool],
) -> None:
    """Open the models, measure, publish; finished results are found again after an interruption."""
    site, spec = task.target.site, task.target.spec
    folder = _home(task)
    folder.mkdir(parents=True, exist_ok=True)
    with leased(folder) as lease, arithmetic(threads=task.threads, deterministic=spec.deterministic):
        if task.finished():
            return
        device = resolve_device(site.device)
        data = load(spec.data, data_dir=site.data_dir, seed=spec.seed, image_size=spec.image_size)
        opened = [open_model(run.folder.path, data, device=device, name=run.key) for run in task.runs]
        attack = parse_attack(task.attack, iterate=task.iterate)  # type: ignore[arg-type]
        balls = tuple(make_ball(task.norm, eps) for eps in task.radii)
        sweep = Sweep(data=data, attacks=(attack,), balls=balls, splits=task.splits, n=task.n, seed=spec.seed)
        total = len(balls) * len(task.splits)
        done = 0

        def watch(title: str, images: int) -> Callable[[int], None]:
            nonlocal done
            if should_stop():
                raise Stopped(
                    "stopped between two measurements as asked; run the same command again to resume"
                )
            callback.step(min(done, total), total, None)
            done += 1
            return lambda count: None

        report = measure(opened, sweep, watch)
        lease.check()
        weights = {model.name: model.digest for model in opened}
        document = {"name": task.name, "weights": weights, **plain(report), **provenance(device)}
        write_json(folder / "result.json", document, format=FORMAT)


def _stored(task: Measurement) -> dict[str, Any] | None:
    """What was measured, if it was on the weights that are there now."""
    path = _home(task) / "result.json"
    if not path.is_file():
        return None
    with read_whole(path.parent):
        document = read_json(path, format=FORMAT)
        check_has(document, ("results",), path)
    return document if _still_holds(document, task.runs) else None


def _counted(task: Measurement) -> str:
    result = task.result()
    return f"{len(result['results'])} results" if result else "not finished"


def _still_holds(document: Mapping[str, Any], runs: Sequence[Training]) -> bool:
    """Whether its runs are all finished, with the weights it opened; where a digest is not known they pass."""
    opened = document.get("weights", {})
    for run in runs:
        result = found_result(run)
        if result is None:
            return False
        before, now = opened.get(run.key), result.get("weights")
        if before is not None and now is not None and before != now:
            return False
    return True


def _home(task: Measurement) -> Path:
    return task.target.site.store / "measurements" / task.key


def _digest(words: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:16]
