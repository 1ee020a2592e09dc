"""Runs of a second, for the tests of the run side, and what must be equal in two of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from freeat.runs.folder import RunFolder, RunResult
from freeat.runs.run import RunOptions, execute
from freeat.runs.spec import split_settings
from freeat.training.records import Callback, Record

SMALL_RUN: dict[str, Any] = {
    "data": "digits",
    "train_size": 60,
    "model": "mlp-w12",
    "norm": "l2",
    "eps": 0.5,
    "updates": 14,
    "batch_size": 16,
    "threads": 1,
    "eval_every": 4,
    "eval_size": 16,
    "final_size": 24,
    "attack": "pgd-2",
}


def arguments(**changes: Any) -> list[str]:
    """The small run as options of the command line; None leaves a setting out, True is a flag."""
    given = {**SMALL_RUN, **changes}
    given = {n: json.dumps(value) if isinstance(value, dict) else value for n, value in given.items()}
    pairs = ((f"--{name.replace('_', '-')}", value) for name, value in given.items() if value is not None)
    return [word for name, value in pairs for word in ([name] if value is True else [name, str(value)])]


def noise_file(path: Path, classes: int, seed: int = 0) -> str:
    """A data set of random images of ``classes`` classes in a file."""
    x = np.random.default_rng((classes, seed)).random((80, 8, 8, 1), np.float32)
    y = np.arange(80) % classes
    np.savez(path, x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    return str(path)


def carry_out(
    folder: Path,
    *,
    callback: Callback | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_every: float = 1e9,
    on_collapse: Any = "warn",
    trust_code: bool = True,
    **changes: Any,
) -> RunResult:
    """Run the small run, with some settings changed, in a folder."""
    settings = {name: value for name, value in {**SMALL_RUN, **changes}.items() if value is not None}
    options = RunOptions(
        folder=folder,
        device="cpu",
        checkpoint_every=checkpoint_every,
        on_collapse=on_collapse,
        trust_code=trust_code,
    )
    result = execute(*split_settings(settings), options, callback=callback, should_stop=should_stop)
    assert result is not None
    return result


def timeless(record: Record) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name != "seconds"}


def outcome(folder: Path) -> dict[str, Any]:
    """All that two equal runs must have in common, to the last bit."""
    run = RunFolder(folder)
    weights = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    assert run.result is not None
    assert "model.safetensors" in weights
    history = [timeless(record) for record in run.history()]
    return {"weights": weights, "history": history, "result": timeless(run.result)}
