"""A reproduction as one document: tables, figures and claims from the runs and measurements in its store."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from freeat.experiments.paper.experiment import Experiment
from freeat.experiments.paper.figure_series import gather_figure
from freeat.experiments.paper.ledger import judge_claims
from freeat.experiments.paper.table_rows import gather_table
from freeat.experiments.tasks import Training


def gather(
    experiments: Sequence[Experiment], *, estimated: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """What the store says of the experiments; what is missing in it is null or absent, never invented.

    ``estimated`` are the seconds that a plan expected of each task, by key.
    """
    tables = [gather_table(e) for e in experiments if e.kind == "table"]
    figures = [gather_figure(e) for e in experiments if e.kind != "table"]
    return {
        "experiments": [experiment.name for experiment in experiments],
        "tables": tables,
        "figures": figures,
        "claims": judge_claims({"tables": tables, "figures": figures}),
        "runs": _runs(experiments, estimated or {}),
    }


def _runs(experiments: Iterable[Experiment], estimated: Mapping[str, float]) -> dict[str, Any]:
    """The runs behind them, each once: its settings, the time it took, and the time it was expected to take."""
    runs = {task.key: task for e in experiments for task in e.tasks() if isinstance(task, Training)}
    described = {}
    for key, run in runs.items():
        result = run.result()
        described[key] = {
            "name": run.name,
            "spec": run.spec.words(),
            "seconds": result["seconds"] if result else None,
            "estimated_seconds": estimated.get(key),
        }
    return described
