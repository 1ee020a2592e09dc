"""A study: algorithms × sample sizes × seeds, one task and one stored result each, so that it can stop and resume."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from freeat.compute.machine import arithmetic, resolve_device
from freeat.data import DataSet
from freeat.errors import InputError
from freeat.files.documents import check_output, in_file_name, read_document, write_document
from freeat.files.locks import check_unclaimed, leased
from freeat.runs.build import algorithm_source
from freeat.runs.run import RunOptions
from freeat.runs.spec import SEMANTICS, canonical_parts
from freeat.stability.results import StudySettings, TwinResult, TwinSetup, run_twins
from freeat.stability.twins import EngineChoice, choose_engine
from freeat.tasks.scheduler import DocumentTask, stop_or_report
from freeat.training.records import Callback

RESULT, STUDY, SUMMARY = "result.json", "study.json", "summary.json"


@dataclass(frozen=True, kw_only=True)
class StudyDocument:
    """What a study's folder is for: the settings and the data.

    ``engines`` and ``sources`` hold, by algorithm, how its twins are trained and the digest of imported code.
    """

    settings: StudySettings
    data_digest: str
    notes: tuple[str, ...]
    engines: dict[str, EngineChoice]
    sources: dict[str, str]
    semantics: int


@dataclass(frozen=True, kw_only=True)
class TwinTask(DocumentTask[TwinResult]):
    """The twin runs of one algorithm, sample size and seed: K neighbours and their base."""

    kind = "twins"
    document = TwinResult

    settings: StudySettings
    algorithm: str
    n: int
    seed: int
    engine: str
    options: RunOptions
    threads: int = 1
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.algorithm} n={self.n} seed {self.seed}"

    @property
    def key(self) -> str:
        return self.name

    @property
    def path(self) -> Path:
        name = in_file_name(f"{self.algorithm}-n{self.n}-seed{self.seed}")
        return self.options.folder / "results" / name / RESULT

    def setup(self, data: DataSet) -> TwinSetup:
        """The objects of the runs."""
        return TwinSetup(
            self.settings,
            data,
            self.algorithm,
            n=self.n,
            seed=self.seed,
            device=resolve_device(self.options.device),
            trust_code=self.options.trust_code,
        )

    def compute(self, callback: Callback, should_stop: Callable[[], bool]) -> TwinResult:
        """Train the twins from their beginning, whatever was there before."""
        data = self.settings.load(self.options.data_dir)
        return run_twins(self.setup(data), self.engine, on_update=stop_or_report(callback, should_stop))

    def described(self, result: TwinResult) -> str:
        if result.diverged is not None:
            return f"diverged by update {result.diverged} ({result.engine})"
        distance, last = result.distances[-1].d_w, result.probes[-1]
        return (
            f"distance {sum(distance) / len(distance):.4g}, robust train {last.robust_train[0]:.1%}, "
            f"test {last.robust_test[0]:.1%} ({result.engine})"
        )


@dataclass(frozen=True, kw_only=True)
class StabilityStudy:
    """What is run, and the folder it is kept in. Algorithms, sizes and seeds may be added later."""

    settings: StudySettings
    algorithms: tuple[str, ...]
    seeds: int
    sizes: tuple[int, ...]
    options: RunOptions
    threads: int = 1
    engine: str | None = None

    def __post_init__(self) -> None:
        names = tuple(dict.fromkeys(canonical_parts(name) for name in self.algorithms))
        object.__setattr__(self, "algorithms", names)
        if not names or self.seeds < 1 or not self.sizes:
            raise InputError(
                f"a study of {len(names)} algorithms, {self.seeds} seeds and {len(self.sizes)} sizes: "
                "give at least one of each"
            )

    @property
    def folder(self) -> Path:
        return self.options.folder

    def prepare(self, data: DataSet) -> tuple[StudyDocument, list[TwinTask]]:
        """Make the folder this study's, choose the engines, and return the tasks in order.

        Bad input is refused before anything is written, and so is a folder that holds another study. Of several
        processes that begin the same study, the first measures the engines and the others take its choice.
        """
        self._document(data)
        tasks = self._tasks()
        check_output(self.folder / STUDY, self.folder / SUMMARY, *(task.path for task in tasks))
        for task in tasks[: len(self.sizes) * len(self.algorithms)]:
            setup = task.setup(data)
        setup.model()
        with leased(self.folder, wait=True):
            document = self._document(data)
            if self.engine is None:
                document = replace(document, engines=self._engines(data, tasks, document.engines))
            write_document(self.folder / STUDY, "study", document)
        # An algorithm whose results are all stored has no engine, and needs none.
        chosen = {name: choice.engine for name, choice in document.engines.items()}
        return document, [
            replace(task, engine=self.engine or chosen.get(task.algorithm, task.engine)) for task in tasks
        ]

    def _document(self, data: DataSet) -> StudyDocument:
        """What the folder is for, with what it holds already; refuses a folder that holds something else."""
        path = self.folder / STUDY
        document = StudyDocument(
            settings=self.settings,
            data_digest=data.digest,
            notes=tuple(data.notes),
            engines={},
            sources=self._sources(),
            semantics=SEMANTICS,
        )
        if path.is_file():
            stored = read_document(path, "study", StudyDocument)
            self._refuse_another(stored, document)
            sources = {**stored.sources, **document.sources}
            return replace(document, engines=stored.engines, sources=sources)
        check_unclaimed(self.folder, "holds no study")
        return document

    def _tasks(self) -> list[TwinTask]:
        return [
            TwinTask(
                settings=self.settings,
                algorithm=name,
                n=size,
                seed=seed,
                engine=self.engine or "separate",
                options=self.options,
                threads=self.threads,
            )
            for seed in range(self.seeds)
            for size in self.sizes
            for name in self.algorithms
        ]

    def _refuse_another(self, stored: StudyDocument, now: StudyDocument) -> None:
        names = [field.name for field in fields(StudySettings)]
        other = [name for name in names if getattr(stored.settings, name) != getattr(self.settings, name)]
        changed = [name for name, digest in now.sources.items() if stored.sources.get(name, digest) != digest]
        for what, differs in (
            (f"another setting ({', '.join(other)})", bool(other)),
            ("older semantics", stored.semantics != now.semantics),
            ("other data", stored.data_digest != now.data_digest),
            (f"other code of {', '.join(changed)}", bool(changed)),
        ):
            if differs:
                raise InputError(
                    f"{self.folder} holds a study of {what}: choose another --out, or delete the folder"
                )

    def _sources(self) -> dict[str, str]:
        """The digests of imported algorithms; refuses options that no algorithm takes."""
        trust_code = self.options.trust_code
        taken = {o for name in self.algorithms for o in self.settings.args_of(name, trust_code=trust_code)}
        if foreign := sorted((self.settings.algorithm_args or {}).keys() - taken):
            raise InputError(
                f"--algorithm-args {', '.join(foreign)}: no algorithm of {', '.join(self.algorithms)} takes it; "
                "leave it out"
            )
        specs = {
            name: self.settings.spec(name, n=self.sizes[0], seed=0, trust_code=trust_code)
            for name in self.algorithms
        }
        digests = {name: algorithm_source(spec, trust_code=trust_code) for name, spec in specs.items()}
        return {name: digest for name, digest in digests.items() if digest is not None}

    def _engines(
        self, data: DataSet, tasks: Sequence[TwinTask], known: Mapping[str, EngineChoice]
    ) -> dict[str, EngineChoice]:
        """The known engines, and the faster one of every other algorithm that has something left to run."""
        engines = dict(known)
        for task in tasks:
            if task.algorithm in engines or task.path.is_file():
                continue
            setup = task.setup(data)
            x, y = setup.twins.sample.batch(setup.batches(1))
            with arithmetic(threads=self.threads, deterministic=True):
                engines[task.algorithm] = choose_engine(
                    setup.model(), setup.twins.members, setup.learner, setup.algorithm, x, y
                )
        return engines
