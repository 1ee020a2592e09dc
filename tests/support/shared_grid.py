"""A grid of small runs and measurements in a store, and a program that carries it out beside others of its kind."""

import sys
from pathlib import Path
from typing import Any

from freeat.experiments.tasks import Attacking, Site, Training, Transferring
from freeat.runs.spec import split_words
from freeat.tasks import make_backend, run_tasks
from small_runs import WORDS, outcome

LONG: dict[str, Any] = {**WORDS, "model": "cnn-w4", "updates": 300, "eval_every": 60}


def grid(store: Path) -> list[Training | Attacking | Transferring]:
    """Five runs of a few seconds, and measurements that need them."""
    site = Site(store=store, device="cpu", checkpoint_every=0.0)
    runs = []
    for number, algorithm in enumerate(("vanilla-2", "free-4", "fast", "free-trades-4", "erm")):
        training, evaluation = split_words({**LONG, "algorithm": algorithm, "seed": number % 2})
        runs.append(Training(name=algorithm, spec=training, evaluation=evaluation, site=site))
    judged: dict[str, Any] = {"attack": "pgd-2", "norm": "l2", "radii": (0.2, 0.4), "n": 24}
    attacks = [Attacking(name=f"attack on {run.name}", target=run, **judged) for run in runs[:2]]
    transfer = Transferring(name="transfer", source=runs[1], targets=(runs[0], runs[2]), **judged)
    return [transfer, *runs, *attacks]


def results(store: Path) -> dict[str, Any]:
    """All that must be equal in two stores of the grid, to the last bit."""
    found: dict[str, Any] = {}
    for task in grid(store):
        if isinstance(task, Training):
            found[task.name] = outcome(task.folder.path)
        else:
            document = task.result()
            assert document is not None, task.name
            found[task.name] = [_timeless(cell) for cell in document["cells"]]
    return found


def _timeless(value: Any) -> Any:
    """The same without how long it took and which process it was."""
    if not isinstance(value, dict):
        return value
    return {name: _timeless(one) for name, one in value.items() if name not in ("seconds", "command")}


def main(store: Path) -> int:
    """Carry the grid out with one worker process; the exit code is the number of failures."""
    with make_backend(jobs=1) as backend:
        done = run_tasks(grid(store), backend)
    for failure in (o for o in done if o.failure):
        sys.stderr.write(f"{failure.task.name}: {failure.failure}\n")
    return sum(o.failure is not None for o in done)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
