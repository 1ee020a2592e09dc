"""A reproduction as one document: tables, figures and claims from the runs and measurements in its store."""

import math
from collections.abc import Sequence
from typing import Any

from freeat.experiments.paper.experiment import Experiment
from freeat.experiments.paper.figure_series import gather_figure
from freeat.experiments.paper.ledger import judge_claims
from freeat.experiments.paper.origins import (
    describe_measurements,
    describe_runs,
    distinct,
    distinct_notes,
    runs_behind,
)
from freeat.experiments.paper.sufficiency import judge_sufficiency
from freeat.experiments.paper.table_rows import gather_table


def gather(experiments: Sequence[Experiment]) -> dict[str, Any]:
    """What the store says of the experiments; what is missing in it is null or absent, never invented.

    ``commits`` and ``machines`` are those that made the results, which need not be those that gather them.
    """
    tables = [gather_table(e) for e in experiments if e.kind == "table"]
    figures = [gather_figure(e) for e in experiments if e.kind != "table"]
    runs = runs_behind(experiments)
    described, measurements = describe_runs(runs), describe_measurements(experiments)
    made = [*described.values(), *measurements.values()]
    return {
        "experiments": [experiment.name for experiment in experiments],
        "commits": distinct(made, "commit"),
        "machines": distinct(made, "machine"),
        "training_seconds": math.fsum(run["seconds"] or 0.0 for run in described.values()),
        "notes": distinct_notes(runs.values()),
        "sufficiency": judge_sufficiency(tables),
        "tables": tables,
        "figures": figures,
        "claims": judge_claims({"tables": tables, "figures": figures}),
        "runs": described,
        "measurements": measurements,
    }
