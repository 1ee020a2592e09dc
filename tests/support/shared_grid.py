"""A grid of small runs and measurements in a store, and a program that carries it out beside others of its kind."""

import sys
from pathlib import Path
from typing import Any

from freeat.experiments.tasks import Measurement, PaperTask, Store, TrainTask
from freeat.runs.spec import split_settings
from freeat.tasks import make_backend, run_tasks
from small_runs import SMALL_RUN, outcome

LONG: dict[str, Any] = {**SMALL_RUN, "model": "cnn-w4", "updates": 300, "eval_every": 60}


def grid(store: Path) -> list[PaperTask]:
    """Five runs of a few seconds, and measurements that need them."""
    where = Store(path=store, device="cpu", checkpoint_every=0.0)
    runs = []
    for number, algorithm in enumerate(("vanilla-2", "free-4", "fast", "free-trades-4", "erm")):
        training, evaluation = split_settings({**LONG, "algorithm": algorithm, "seed": number % 2})
        runs.append(where.task(algorithm, training, evaluation))
    measured: dict[str, Any] = {"attack": "pgd-2", "norm": "l2", "radii": (0.2, 0.4), "n": 24}
    attacks = [
        Measurement(name=f"attack on {run.name}", store=where, targets=(run,), **measured) for run in runs[:2]
    ]
    transfer = Measurement(
        name="transfer", store=where, source=runs[1], targets=(runs[0], runs[2]), **measured
    )
    return [transfer, *runs, *attacks]


def results(store: Path) -> dict[str, Any]:
    """All that must be equal in two stores of the grid, to the last bit."""
    found: dict[str, Any] = {}
    for task in grid(store):
        if isinstance(task, TrainTask):
            found[task.name] = outcome(task.folder.path)
        else:
            document = task.result()
            assert document is not None, task.name
            found[task.name] = document.results
    return found


def main(store: Path) -> int:
    """Carry the grid out with one worker process; the exit code is the number of failures."""
    with make_backend(jobs=1) as backend:
        done = run_tasks(grid(store), backend)
    for failure in (o for o in done if o.failure):
        sys.stderr.write(f"{failure.task.name}: {failure.failure}\n")
    return sum(o.failure is not None for o in done)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
