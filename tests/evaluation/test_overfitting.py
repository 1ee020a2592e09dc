"""Catastrophic overfitting of Fast on digits, detected during training."""

from pathlib import Path
from typing import Any

import pytest

from freeat.runs.folder import RunFolder
from freeat.training.trainer import Stopped
from small_runs import carry_out

SETTING: dict[str, Any] = {
    "train_size": 300,
    "model": "cnn-w32",
    "eps": 1.4,
    "lr": 0.02,
    "schedule": "constant",
    "weight_decay": 0,
    "batch_size": 64,
    "updates": 200,
    "eval_every": 20,
    "eval_size": 150,
    "final_size": 300,
    "attack": "pgd-20",
    "eval_alpha": 1.4 / 8,
}
FAST = {**SETTING, "algorithm": "fast", "alpha": 1.4, "start": "zero"}
"""One full-length step from the image itself, in a large ball, which is known to overfit."""


@pytest.mark.slow
def test_fast_overfits_catastrophically_and_is_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = RunFolder(tmp_path / "fast")
    with pytest.raises(Stopped, match="because of a collapse"):
        carry_out(folder.path, on_collapse="stop", **FAST)
    seen = list(folder.history())
    assert [record.collapsed for record in seen] == [*[False] * (len(seen) - 1), True]
    assert seen[-1].update < SETTING["updates"]

    final = carry_out(folder.path, on_collapse="warn", **FAST)  # resumes where it was stopped
    assert "catastrophic overfitting" in caplog.text
    best = max(record.train.robust_accuracy for record in seen)
    assert final.collapsed
    assert final.one_step is not None
    assert final.one_step.robust_accuracy > 0.65
    assert final.train.robust_accuracy < min(0.1, best / 2)

    vanilla = carry_out(tmp_path / "vanilla", algorithm="vanilla-5", **SETTING)
    assert not any(record.collapsed for record in RunFolder(tmp_path / "vanilla").history())
    assert vanilla.train.robust_accuracy > 1.5 * final.train.robust_accuracy
