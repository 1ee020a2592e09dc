"""Folders read into typed values: runs, comparisons, studies, evaluations, examples, reproductions. Reads only."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from freeat.errors import InputError
from freeat.experiments import comparison
from freeat.experiments.examples import examples_path
from freeat.experiments.paper.documents import ReproductionDocument, read_reproduction
from freeat.files.documents import read_document
from freeat.reports.robustness import attack_text
from freeat.reports.stability import results_by_algorithm
from freeat.runs.folder import RunDescription, RunFolder, RunResult
from freeat.runs.results import Identity, Results, StoredChecks, StoredEvaluation, StoredResult, read_result
from freeat.runs.spec import EvalSpec, TrainSpec
from freeat.stability.population_summary import POPULATION, PopulationStudy, read_population
from freeat.stability.results import StudySettings, TwinResult, converged
from freeat.stability.study import RESULT, STUDY, SUMMARY, StudyDocument
from freeat.stability.summary import StudySummary
from freeat.training.records import Record, curve_of, record_of

T = TypeVar("T")
DEPTH = 8
"""How many levels below the given folders are searched."""
FROM = " from "
"""Separates an attack from the source model of its perturbations."""
DIGEST = re.compile(r"[0-9a-f]{20}")
"""File names of runs in the store of a reproduction (hashes), which the page does not show."""
INSIDE_RUNS = ("checkpoints", "examples")
"""Folders whose content belongs to the one that holds them."""


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """A training run as its folder describes it; ``last`` is its result, or the newest record of an unfinished one.

    ``weights`` are those whose scores its records hold. ``training`` are all records of the run, from its beginning.
    """

    name: str
    description: RunDescription
    history: list[Record]
    result: RunResult | None
    weights: str = "model"
    training: Sequence[Record] = ()

    def views(self) -> "list[FoundRun]":
        """The run as seen by each kind of weights that comparisons show: the last or slow ones, and the average."""
        return [
            replace(
                self,
                weights=weights,
                history=curve_of(self.history, weights),
                result=None if self.result is None else record_of(self.result, weights),
            )
            for weights in self.spec.weights
        ]

    @property
    def spec(self) -> TrainSpec:
        return self.description.spec

    @property
    def evaluation(self) -> EvalSpec:
        return self.description.evaluation

    @property
    def last(self) -> Record | None:
        return self.result or (self.history[-1] if self.history else None)


@dataclass(frozen=True, kw_only=True)
class FoundStudy:
    """A stability study: its settings and summary, where they are there, and the results of runs that converged."""

    name: str
    settings: StudySettings | None
    summary: StudySummary | None
    results: list[TwinResult]

    @property
    def by_algorithm(self) -> dict[str, list[TwinResult]]:
        """The results at the largest n by algorithm, in the order of the summary."""
        rows = self.summary.rows if self.summary else ()
        return results_by_algorithm(self.results, [row.algorithm for row in rows])

    @property
    def largest_n(self) -> int:
        return max(result.n for result in self.results)


@dataclass(frozen=True, kw_only=True)
class ModelChecks:
    """The sanity checks of a model, by the name it has on the page."""

    model: str
    stored: StoredChecks

    @property
    def norm(self) -> str:
        return str(self.stored.identity["ball"]["norm"])

    @property
    def eps(self) -> float:
        return float(self.stored.identity["ball"]["eps"])


@dataclass(frozen=True, kw_only=True)
class ExampleFile:
    """A file of adversarial examples, with its evaluation if that was found."""

    path: Path
    evaluation: StoredEvaluation | None = None


@dataclass
class Findings:
    """Everything found, in the order of the folders, and what could not be read."""

    runs: list[FoundRun] = field(default_factory=list)
    comparisons: list[tuple[str, comparison.Comparison]] = field(default_factory=list)
    studies: list[FoundStudy] = field(default_factory=list)
    populations: list[tuple[str, PopulationStudy]] = field(default_factory=list)
    evaluations: list[StoredEvaluation] = field(default_factory=list)
    checks: list[ModelChecks] = field(default_factory=list)
    examples: list[ExampleFile] = field(default_factory=list)
    reproductions: list[tuple[str, ReproductionDocument]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many things were found, of every kind."""
        found: list[Sequence[object]] = [self.runs, self.comparisons, self.studies, self.populations]
        return sum(map(len, [*found, self.evaluations, self.checks, self.examples, self.reproductions]))


def gather(folders: Sequence[Path]) -> Findings:
    """Everything found in the folders. Damaged files are named in ``left_out``; a folder without results is refused."""
    found = Findings()
    seen: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            what = "is not a folder" if folder.exists() else "does not exist"
            raise InputError(
                f"{folder} {what}: give the folder of a run, comparison, study or reproduction, or one that holds some"
            )
        root = folder.resolve()
        if root in seen:
            continue
        before = found.count
        _Walk(found=found, root=root, several=len(folders) > 1, seen=seen).visit(root, DEPTH)
        if found.count == before:
            reasons = f" ({'; '.join(found.left_out)})" if found.left_out else ""
            raise InputError(
                f"{folder} holds nothing to report{reasons}: a run has run.json, a comparison comparison.json, a study "
                "study.json; make one with `freeat train`, `compare`, `evaluate`, `stability` or `population`"
            )
    _name_models(found)
    return found


@dataclass
class _Walk:
    """One of the folders given, looked through."""

    found: Findings
    root: Path
    several: bool
    seen: set[Path]
    _made: dict[Path, StoredEvaluation] = field(default_factory=dict)
    _called: dict[Path, str] = field(default_factory=dict)

    def visit(self, folder: Path, depth: int) -> None:
        """Read this folder, then its subfolders."""
        if folder in self.seen or depth < 0:
            return
        self.seen.add(folder)
        found = self.found
        if (folder / "reproduction.json").is_file():  # it includes the runs below it
            self._take(found.reproductions, lambda: (self.name(folder), read_reproduction(folder)))
            return
        if (folder / "run.json").is_file():
            self._take(found.runs, lambda: self._run(folder))
        if (folder / comparison.FILE).is_file():
            stored: list[comparison.Comparison] = []
            self._take(stored, lambda: comparison.read_comparison(folder))
            found.comparisons += [(self.name(folder), one) for one in stored if one.algorithms]
        if (path := folder / POPULATION).is_file():
            self._take(found.populations, lambda: (self.name(folder), read_population(path)))
        elif is_study(folder):
            self._take(found.studies, lambda: self._study(folder))
        else:
            self._results(folder)
        for path in sorted((folder / "examples").glob("*.npz")):
            found.examples.append(ExampleFile(path=path, evaluation=self._made.get(path)))
        for below in self._below(folder):
            self.visit(below, depth - 1)

    def name(self, folder: Path) -> str:
        """The name of a folder on the page: relative to the one given, without "runs" and "results"."""
        if folder in self._called:
            return self._called[folder]
        below = [part for part in folder.relative_to(self.root).parts if part not in ("runs", "results")]
        return "/".join([self.root.name, *below] if self.several or not below else below)

    def _take(self, into: list[T], read: Callable[[], T]) -> None:
        try:
            into.append(read())
        except InputError as error:
            self.found.left_out.append(str(error))

    def _below(self, folder: Path) -> Iterator[Path]:
        try:
            below = sorted(folder.iterdir())
        except OSError as error:
            self.found.left_out.append(f"cannot read {folder}: {error.strerror or error}")
            return
        for path in below:
            ours = not path.name.startswith(".") and path.name not in INSIDE_RUNS
            if ours and path.is_dir() and not path.is_symlink():
                yield path

    def _run(self, path: Path) -> FoundRun:
        folder = RunFolder(path)
        history = list(folder.history())
        if DIGEST.fullmatch(path.name):
            self._called[path] = self._unused(_run_label(folder.spec), path.name)
        return FoundRun(
            name=self.name(path),
            description=folder.description,
            history=history,
            result=folder.result,
            training=history,
        )

    def _unused(self, name: str, digest: str) -> str:
        taken = name in self._called.values() or any(run.name == name for run in self.found.runs)
        return f"{name} ({digest[:6]})" if taken else name

    def _study(self, folder: Path) -> FoundStudy:
        summary, settings = None, None
        if (path := folder / SUMMARY).is_file():
            summary = read_document(path, "study summary", StudySummary)
            settings = summary.settings
        if (path := folder / STUDY).is_file():
            settings = read_document(path, "study", StudyDocument).settings
        results: list[TwinResult] = []
        for path in sorted((folder / "results").glob(f"*/{RESULT}")):
            self._take(results, partial(read_document, path, "twins", TwinResult))
        return FoundStudy(
            name=self.name(folder), settings=settings, summary=summary, results=converged(results)
        )

    def _results(self, folder: Path) -> None:
        """The results of sweeps; in a run's folder the evaluated model is that run, or other weights of it."""
        own = self.name(folder.parent) if (folder.parent / "run.json").is_file() else None
        results: list[StoredResult] = []
        for path in Results(folder).paths():
            self._take(results, partial(read_result, path))
        for result in results:
            if isinstance(result, StoredChecks):
                called = own or f"weights {result.identity['weights'][:8]}"
                self.found.checks.append(ModelChecks(model=called, stored=result))
            else:
                called = result.model if own is None else f"{own}{_weights_suffix(result.model)}"
                evaluation = replace(result, model=called)
                self.found.evaluations.append(evaluation)
                if result.source is None:
                    self._made[examples_path(folder, result)] = evaluation


def _run_label(spec: TrainSpec) -> str:
    """A name for a run of a reproduction, from its settings."""
    size = "" if spec.train_size is None else f" n={spec.train_size}"
    return f"{spec.data} {spec.norm} {spec.label} {spec.model}{size} seed {spec.seed}"


def is_study(folder: Path) -> bool:
    """Whether the folder holds a stability study, or the summary of one."""
    return (folder / STUDY).is_file() or (folder / SUMMARY).is_file()


def _weights_suffix(called: str) -> str:
    """The weights of a run that a name ends in, if it names any: ``@ema`` of ``free-4@ema``."""
    _, at, weights = called.rpartition("@")
    return f"@{weights}" if at else ""


def _model_key(identity: Identity) -> tuple[str, str]:
    """The weights and the layers that a result is about."""
    return identity["weights"], identity["architecture"]


def _name_models(found: Findings) -> None:
    """Make the names of models unique; checks and sources, which are stored by weights, get the same names.

    Every attack is named with those of its settings that are not the usual ones.
    """
    of_name: dict[str, set[tuple[str, str]]] = {}
    for one in found.evaluations:
        of_name.setdefault(one.model, set()).add(_model_key(one.identity))

    def name(one: StoredEvaluation) -> str:
        models = of_name[one.model]
        if len(models) == 1:
            return one.model
        weights, architecture = _model_key(one.identity)
        different = weights if len({weights for weights, _ in models}) == len(models) else architecture
        return f"{one.model} ({different[:6]})"

    exactly = {_model_key(one.identity): name(one) for one in found.evaluations}
    by_weights = {one.weights: name(one) for one in found.evaluations}

    def named(one: StoredEvaluation) -> StoredEvaluation:
        attack, source = one.attack, one.source
        if source is not None:
            source = by_weights.get(one.identity["source"], source)
            attack = f"{attack.split(FROM)[0]}{FROM}{source}"
        return replace(
            one, model=name(one), source=source, attack=attack_text(attack, one.iterate, one.settings)
        )

    renamed = {id(one): named(one) for one in found.evaluations}
    found.evaluations = list(renamed.values())
    found.examples = [
        replace(one, evaluation=None if one.evaluation is None else renamed[id(one.evaluation)])
        for one in found.examples
    ]
    for k, checks in enumerate(found.checks):
        weights, architecture = _model_key(checks.stored.identity)
        model = exactly.get((weights, architecture)) or by_weights.get(weights) or checks.model
        found.checks[k] = replace(checks, model=model)
