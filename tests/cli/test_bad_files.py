"""Seeded fuzzing of every command and every kind of file: no traceback, no hang, no explosion, nothing changed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from freeat.cli.main import run as freeat
from small_runs import carry_out

SUPPORT = Path(__file__).parents[1] / "support"
FAILURES = ("traceback", "hang", "memory", "changed file")


def fuzzed(cases: int, jobs: int) -> dict[str, Any]:
    """The counts of the fuzzer, in a process without threads, which can be forked."""
    paths = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(SUPPORT / "fuzzing.py"), f"--cases={cases}", f"--jobs={jobs}", "--seed=0"]
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, stdout=subprocess.PIPE, env=environment)
    assert ended.stdout, "the fuzzer itself failed"
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def check(found: dict[str, Any], cases: int) -> None:
    shown = "\n".join(
        f"{one['case']}: {one['failures']}\n{one['output'][-600:]}" for one in found["failed"][:10]
    )
    assert {name: found[name] for name in FAILURES} == dict.fromkeys(FAILURES, 0), shown
    assert found["cases"] == cases
    assert found["refused"] > cases / 3  # the mistakes are found, not passed over


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a case is a forked child")
@pytest.mark.timeout(600)
def test_a_hundred_bad_inputs_are_refused_or_survived() -> None:
    check(fuzzed(100, jobs=1), 100)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a case is a forked child")
@pytest.mark.timeout(1800)
def test_two_thousand_bad_inputs_are_refused_or_survived() -> None:
    check(fuzzed(2000, jobs=2), 2000)


@pytest.mark.parametrize("number", [0, -1, 10**30])
@pytest.mark.parametrize("name", ["result.json", "history.jsonl"])
def test_numbers_that_no_run_gives_are_named_by_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, number: int
) -> None:
    """They are of the right type, and every number computed from them may fail."""
    for run in ("good", "bad"):
        carry_out(tmp_path / run, algorithm="fast")
    path = tmp_path / "bad" / name
    changed = re.sub(r'"(n|population|robust_accuracy|-?\d+)": [\d.]+', rf'"\1": {number}', path.read_text())
    path.write_text(changed)
    assert freeat(["report", str(tmp_path), "--out", str(tmp_path / "report.html"), "--json"]) == 0
    assert f"{name}" in json.dumps(json.loads(capsys.readouterr().out)["left_out"])
