"""The rows of a table: what was measured, in both views of the training images, beside what was published."""

from typing import Any

from freeat.experiments.paper.experiment import Entry, Experiment
from freeat.experiments.paper.origins import distinct_notes
from freeat.experiments.paper.published import published_tables
from freeat.experiments.paper.records import above_chance, cells, finished, record_at

USUAL = ("robust_train", "robust_test", "robust_gap")


def gather_table(experiment: Experiment) -> dict[str, Any]:
    """A table of a reproduction; cells whose runs are missing are null."""
    published = published_tables().get(experiment.name)
    columns = published.columns if published else USUAL
    rows = []
    for entry in experiment.entries:
        printed = published.row(entry.data, entry.norm, entry.label) if published else None
        rows.append(_row(entry, columns) | {"published": printed.words() if printed else None})
    runs = [run for entry in experiment.entries for run in entry.runs]
    return {
        "name": experiment.name,
        "title": experiment.title,
        "columns": list(columns),
        "rows": rows,
        "notes": distinct_notes(runs),
    }


def _row(entry: Entry, columns: tuple[str, ...]) -> dict[str, Any]:
    read = [(run, r) for run in finished(entry.runs) if (r := record_at(run, entry.at)) is not None]
    records = [record for _, record in read]
    return {
        "data": entry.data,
        "norm": entry.norm,
        "label": entry.label,
        "at": entry.at,
        "measured": cells(records, columns, "augmented") if records else None,
        "plain": cells(records, columns, "plain") if records else None,
        "above_chance": all(above_chance(run, record) for run, record in read) if read else None,
        "collapsed": sum(bool(record.get("collapsed")) for record in records),
        "seeds": len(records),
        "runs": [run.key for run in entry.runs],
    }
