"""The worked examples run, train something robust, and do what our own loop does."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import freeat

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    """The ``main`` of an example."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]


def check_trained(found: freeat.RobustGap) -> None:
    assert found.test["clean_accuracy"] > 0.85
    assert found.test["robust_accuracy"] > 0.3  # an untrained model has about 0.1 clean


def test_own_loop(capsys: pytest.CaptureFixture[str]) -> None:
    check_trained(example("own_loop")())
    assert "gap" in capsys.readouterr().out


def test_every_example_is_tested() -> None:
    tested = {name.removeprefix("test_") for name in vars(sys.modules[__name__]) if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tested


@pytest.mark.filterwarnings("ignore")  # theirs
def test_lightning_module() -> None:
    pytest.importorskip("lightning", reason="pip install lightning")
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    with torch.random.fork_rng():
        check_trained(example("lightning_module")(**quiet))


@pytest.mark.filterwarnings("ignore")  # theirs
def test_accelerate_loop() -> None:
    pytest.importorskip("accelerate", reason="pip install accelerate")
    with torch.random.fork_rng():
        check_trained(example("accelerate_loop")())
