"""Where the numbers of a reproduction come from: what each run and measurement behind it says of its making."""

from collections.abc import Iterable, Mapping
from typing import Any

from freeat.experiments.paper.experiment import Experiment
from freeat.experiments.tasks import Measurement, Training
from freeat.runs.reading import found_result

MADE_BY = ("commit", "versions", "machine")
"""What a result keeps of the program and the machine that made it; the oldest lack some."""


def runs_behind(experiments: Iterable[Experiment]) -> dict[str, Training]:
    """The runs by key, each once."""
    return {task.key: task for e in experiments for task in e.tasks() if isinstance(task, Training)}


def describe_runs(runs: Mapping[str, Training]) -> dict[str, Any]:
    """Of each run its settings, what was chosen for it, data, making, notes and time."""
    return {key: _run(run) for key, run in runs.items()}


def _run(run: Training) -> dict[str, Any]:
    result = found_result(run)
    about = run.folder.description if result is not None and run.folder.exists else {}
    return {
        "name": run.name,
        "spec": run.spec.words(),
        "seconds": result["seconds"] if result else None,
        "chosen": about.get("chosen"),
        "data": {name: about["data"].get(name) for name in ("name", "digest")} if about else None,
        "notes": notes_of(run),
        **{name: about.get(name) for name in MADE_BY},
    }


def describe_measurements(experiments: Iterable[Experiment]) -> dict[str, Any]:
    """The finished measurements by key: what they are called, and their making."""
    tasks = {task.key: task for e in experiments for task in e.tasks() if isinstance(task, Measurement)}
    results = {key: (task.name, found_result(task)) for key, task in tasks.items()}
    return {
        key: {"name": name, **{word: result.get(word) for word in MADE_BY}}
        for key, (name, result) in results.items()
        if result is not None
    }


def notes_of(run: Training) -> list[str]:
    """What a finished run wants to be known of it: data that stand in for others, settings to be wary of."""
    return list((found_result(run) or {}).get("notes", ()))


def distinct(documents: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """The values under a name, each once, in the order they are found; what is absent counts for nothing."""
    found: list[Any] = []
    for value in (document[name] for document in documents):
        if value is not None and value not in found:
            found.append(value)
    return found


def distinct_notes(runs: Iterable[Training]) -> list[str]:
    """The notes of all these runs, each once."""
    return list(dict.fromkeys(note for run in runs for note in notes_of(run)))
