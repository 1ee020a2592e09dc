"""Records, results and descriptions of runs with numbers of the test's choosing."""

from typing import Any

from freeat.compute import Cost
from freeat.compute.machine import Machine, Provenance
from freeat.evaluation.evaluate import ClassSummary, Summary, gap
from freeat.evaluation.statistics import wilson
from freeat.runs.folder import DataFacts, MachineSettings, RunDescription, RunResult
from freeat.runs.spec import SEMANTICS, EvalSpec, TrainSpec
from freeat.training.records import Record

WEIGHTS = "w" * 64
"""The digest of the weights of a made result."""


def make_classes(*sizes: int) -> tuple[ClassSummary, ...]:
    """Classes of these sizes, of which only the sizes matter."""
    return tuple(
        ClassSummary(
            label=label,
            n=size,
            clean_accuracy=0.5,
            clean_interval=(0.0, 1.0),
            robust_accuracy=0.5,
            robust_interval=(0.0, 1.0),
        )
        for label, size in enumerate(sizes)
    )


def make_summary(
    robust: float = 0.5, clean: float = 0.9, n: int = 1000, population: int | None = None, classes: int = 10
) -> Summary:
    return Summary(
        n=n,
        population=population or n,
        classes=classes,
        clean_accuracy=clean,
        clean_interval=wilson(clean * n, n),
        robust_accuracy=robust,
        robust_interval=wilson(robust * n, n),
        balanced_robust_accuracy=robust,
        worst_class_robust_accuracy=robust,
        per_class=make_classes(*(n // classes for _ in range(classes))),
        cost=Cost(),
        clean_loss=0.5,
        robust_loss=1.5,
    )


def make_record(train: Summary | None = None, test: Summary | None = None, **changes: Any) -> Record:
    """A record of two splits; the gaps follow from them."""
    train, test = train or make_summary(), test or make_summary(0.4)
    settings: dict[str, Any] = {
        "attack": "pgd-10",
        "iterate": "worst",
        "norm": "l2",
        "eps": 0.5,
        "kind": "evaluation",
        "update": 4,
        "batch": 4,
        "epoch": 1.0,
        "equivalent_epoch": 1.0,
        "lr": 0.1,
        "gradient_evaluations": 100,
        "forward_passes": 0,
        "training_loss": 1.0,
        "gradient_norms": None,
        "evaluation_share": 0.1,
        "seconds": 12.0,
        "gap": gap(train, test),
        "clean_gap": gap(train, test, "clean_accuracy"),
    }
    return Record(train=train, test=test, **settings | changes)


def make_result(record: Record, **changes: Any) -> RunResult:
    return RunResult(**vars(record) | {"identity": "0" * 20, "weights": WEIGHTS, "notes": ()} | changes)


def make_provenance(
    *, commit: str | None = "abc", processor: str = "one", command: str = "freeat train"
) -> Provenance:
    machine = Machine(system="Linux", processor=processor, cores=1, accelerator=None)
    return Provenance(versions={"freeat": "0.1.0"}, commit=commit, machine=machine, command=command)


def make_description(
    spec: TrainSpec,
    evaluation: EvalSpec | None = None,
    *,
    commit: str | None = "abc",
    digest: str = "d" * 64,
    **changes: Any,
) -> RunDescription:
    data = DataFacts(
        name=spec.data, digest=digest, train=1000, test=1000, shape=(3, 32, 32), classes=tuple("0123456789")
    )
    settings: dict[str, Any] = {
        "updates": 10,
        "data": data,
        "initial_weights": "i" * 64,
        "new_head": (),
        "parameters": 100,
        "notes": (),
        "semantics": SEMANTICS,
        "resolved": spec,
        "resolved_evaluation": evaluation or EvalSpec(),
        "chosen": MachineSettings(threads=1, precision="fp32", device="cpu", processes=1, torch="2.0"),
        "provenance": make_provenance(commit=commit),
    }
    return RunDescription(
        identity=spec.identity, spec=spec, evaluation=evaluation or EvalSpec(), **settings | changes
    )
