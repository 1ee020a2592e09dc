"""The worked examples run, train something robust, and do what our own loop does."""

import os
import re
import runpy
import subprocess
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
    assert found.test.clean_accuracy > 0.85
    assert found.test.robust_accuracy > 0.3  # an untrained model has about 0.1 clean


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


@pytest.mark.slow
def test_accelerate_in_two_processes() -> None:
    """The learner's process group sums the gradients of both."""
    pytest.importorskip("accelerate", reason="pip install accelerate")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*launch, str(EXAMPLES / "accelerate_loop.py")],
        env=os.environ | {"ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("evaluated by") == 1
    clean = re.search(r"clean   train (\S+)%", done.stdout)
    assert clean
    assert float(clean[1]) > 85
