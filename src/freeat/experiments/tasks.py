"""The tasks of experiments: train a run, attack it, transfer perturbations between runs, each stored once.

A process that needs a finished task finds its result, and one that needs a running task waits for it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

from freeat.attacks.pgd import Iterate
from freeat.attacks.registry import parse_attack
from freeat.compute.machine import Provenance, provenance, resolve_device
from freeat.errors import InputError
from freeat.experiments.blocks import StartProgress
from freeat.experiments.evaluations import evaluate_models, transfer_models
from freeat.experiments.sweep import Sweep
from freeat.files.documents import NewerFormat, identity_of, space_for
from freeat.runs.build import build_data
from freeat.runs.folder import RunFolder, RunResult
from freeat.runs.open import open_model
from freeat.runs.run import RunOptions, execute
from freeat.runs.spec import EvalSpec, TrainSpec
from freeat.tasks.scheduler import DocumentTask, StoredTask
from freeat.threat import Start, make_ball
from freeat.training.records import Callback, Callbacks, Record, accuracies
from freeat.training.trainer import Stopped


@dataclass(frozen=True, kw_only=True)
class Store:
    """A folder of runs and measurements, and what every run in it has in common."""

    path: Path
    device: str = "auto"
    data_dir: Path | None = None
    checkpoint_every: float = 60.0

    def task(self, name: str, spec: TrainSpec, evaluation: EvalSpec) -> "TrainTask":
        """The run of a spec in this store, under its identity, which does not depend on where the store lies."""
        key = identity_of({"spec": spec.facts, "evaluation": evaluation.settings()})
        options = RunOptions(
            folder=self.path / "runs" / key,
            device=self.device,
            data_dir=self.data_dir,
            checkpoint_every=self.checkpoint_every,
        )
        return TrainTask(name=name, key=key, spec=spec, evaluation=evaluation, options=options)


@contextmanager
def _read_whole(folder: Path) -> Iterator[None]:
    """Inside, damaged files of a folder are refused with the remedy."""
    try:
        yield
    except NewerFormat:
        raise
    except InputError as error:
        raise InputError(f"{error}; restore it, or delete {folder} to have it made again") from None


class EvaluationLog:
    """A callback that adds a line to a file at every evaluation; several processes may share the file."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path

    def step(self, update: int, total: int, loss: float | None) -> None: ...

    def record(self, record: Record) -> None:
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        line = f"{now}  {self.name}: update {record.update}  {accuracies(record)}\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with space_for(self.path, len(line.encode())), self.path.open("a", encoding="utf-8") as file:
            file.write(line)


@dataclass(frozen=True, kw_only=True)
class TrainTask(StoredTask[RunResult]):
    """One run; ``notes`` are what its readers must know before it begins, ``log`` receives a line per evaluation."""

    name: str
    key: str
    spec: TrainSpec
    evaluation: EvalSpec
    options: RunOptions
    needs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    log: Path | None = None

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.options.folder)

    @property
    def threads(self) -> int:
        return self.spec.threads or 1

    @property
    def data_digest(self) -> str | None:
        """Facts of the data the run was begun with; None if it was not begun or is damaged."""
        try:
            return self.folder.data_digest
        except InputError:
            return None

    def result(self) -> RunResult | None:
        """The result, if everything that tables and figures need can be read."""
        with _read_whole(self.folder.path):
            result = self.folder.result
            if result is not None:
                _ = self.folder.data_digest, list(self.folder.history())
            return result

    def run(self, callback: Callback, should_stop: Callable[[], bool]) -> None:
        if self.log is not None:
            callback = Callbacks(callback, EvaluationLog(self.name, self.log))
        execute(self.spec, self.evaluation, self.options, callback=callback, should_stop=should_stop)

    def described(self, result: RunResult) -> str:
        return accuracies(result)


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """The robust accuracy of a model, by the key of its run, under an attack at one radius."""

    model: str
    split: str
    eps: float
    attack: str
    robust_accuracy: float
    n: int


@dataclass(frozen=True, kw_only=True)
class MeasurementDocument:
    """What was measured, on which weights by the keys of their runs, and what made it."""

    name: str
    weights: dict[str, str]
    results: tuple[Accuracy, ...]
    provenance: Provenance


@dataclass(frozen=True, kw_only=True)
class Measurement(DocumentTask[MeasurementDocument]):
    """Trained models under one attack over radii: on themselves, or with perturbations made on a ``source``."""

    kind = "measurement"
    document = MeasurementDocument

    name: str
    store: Store
    attack: str
    norm: str
    radii: tuple[float, ...]
    n: int
    targets: tuple[TrainTask, ...]
    source: TrainTask | None = None
    iterate: Iterate = "worst"
    start: Start = "uniform"

    @property
    def target(self) -> TrainTask:
        """Whose data and seed it uses."""
        return self.targets[0]

    @property
    def runs(self) -> tuple[TrainTask, ...]:
        """The runs whose models it opens, the source first."""
        return self.targets if self.source is None else (self.source, *self.targets)

    @cached_property
    def key(self) -> str:
        facts = {name: getattr(self, name) for name in ("attack", "norm", "radii", "n", "iterate", "start")}
        kind = "attack" if self.source is None else "transfer"
        runs = [run.key for run in self.runs]
        return identity_of({"kind": kind, "runs": runs, "splits": ("test",), **facts})

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(run.key for run in self.runs)

    @property
    def threads(self) -> int:
        return self.target.threads

    @property
    def path(self) -> Path:
        return self.store.path / "measurements" / self.key / "result.json"

    def result(self) -> MeasurementDocument | None:
        """What was measured, if it was on the weights that are there now."""
        with _read_whole(self.path.parent):
            document = super().result()
        if document is not None:
            for run in self.runs:
                result = run.found()
                if result is None or result.weights != document.weights.get(run.key):
                    return None
        return document

    def described(self, result: MeasurementDocument) -> str:
        return f"{len(result.results)} results"

    def compute(self, callback: Callback, should_stop: Callable[[], bool]) -> MeasurementDocument:
        """Open the models and measure; finished results are found again after an interruption."""
        spec, device = self.target.spec, resolve_device(self.store.device)
        data = build_data(spec, data_dir=self.store.data_dir)
        models = [open_model(run.folder.path, data, device=device, name=run.key) for run in self.runs]
        attack = parse_attack(self.attack, iterate=self.iterate, start=self.start)
        balls = tuple(make_ball(self.norm, eps) for eps in self.radii)
        sweep = Sweep(data=data, attacks=(attack,), balls=balls, n=self.n, seed=spec.seed)
        watch = _watch(callback, should_stop, len(balls))
        if self.source is None:
            report = evaluate_models(models, sweep, watch=watch)
        else:  # without sanity checks: the compared runs have theirs from Square
            report = transfer_models(models[:1], models[1:], sweep, checks=False, watch=watch)
        names = [field.name for field in fields(Accuracy)]
        return MeasurementDocument(
            name=self.name,
            weights={model.name: model.digest for model in models},
            results=tuple(Accuracy(**{name: getattr(one, name) for name in names}) for one in report.results),
            provenance=provenance(device),
        )


def _watch(callback: Callback, should_stop: Callable[[], bool], total: int) -> StartProgress:
    """Report every evaluation of a measurement, and stop between two."""
    done = 0

    def watch(title: str, images: int) -> Callable[[int], None]:
        nonlocal done
        if should_stop():
            raise Stopped("stopped between two measurements as asked; run the same command again to resume")
        callback.step(min(done, total), total, None)
        done += 1
        return lambda count: None

    return watch


PaperTask = TrainTask | Measurement
