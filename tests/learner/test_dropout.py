"""Layers that draw for themselves follow the seed and the step, so that resume has the same bits."""

from pathlib import Path

import pytest
import torch
from torch import nn

import freeat
from freeat.runs.run import RunOptions, execute
from freeat.runs.spec import EvalSpec, TrainSpec
from freeat.training.trainer import Stopped


def net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Dropout(0.5), nn.Linear(24, 10))


SPEC = TrainSpec(
    model="test_dropout:net", norm="l2", eps=0.3, updates=24, train_size=100, batch_size=40, threads=1
)


def weights(folder: Path, stop_at: int | None = None) -> bytes:
    """Train in the folder, stopped once after ``stop_at`` batches; returns the bytes of the model file."""
    options = RunOptions(folder=folder, trust_code=True, device="cpu")
    evaluation = EvalSpec(eval_every=12, eval_size=20, final_size=20)
    if stop_at is not None:
        looks = iter(range(1000))
        with pytest.raises(Stopped):
            execute(SPEC, evaluation, options, should_stop=lambda: next(looks) + 1 >= stop_at)
    torch.manual_seed(int(folder.name[-1]))  # what the global generator is at must not matter
    execute(SPEC, evaluation, options)
    return (folder / "model.safetensors").read_bytes()


def test_resume_with_dropout_is_bit_identical(tmp_path: Path) -> None:
    assert weights(tmp_path / "run-1") == weights(tmp_path / "run-2", stop_at=3)


def test_the_global_generator_is_unchanged() -> None:
    model = net()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    freeat.train(model, "digits", algorithm=freeat.Free(ball=freeat.L2(0.3), m=2), updates=4, device="cpu")
    assert torch.equal(torch.rand(3), expected)
