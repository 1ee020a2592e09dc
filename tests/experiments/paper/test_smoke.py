"""The whole paper at the smallest scale, and a reproduction that is killed again and again."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from freeat.experiments.paper.catalogue import EXPERIMENTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's"),
]

KILLS = 5


def start(store: Path, *names: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "freeat", "reproduce", *names, "--scale", "smoke", "--device", "cpu"]
    return subprocess.Popen(
        [*command, "--store", str(store), "--out", str(store / "out"), "--checkpoint-every", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
        start_new_session=True,
    )


def finish(process: subprocess.Popen[bytes], store: Path) -> dict[str, Any]:
    _, said = process.communicate(timeout=1400)
    assert process.returncode == 0, said.decode()
    document: dict[str, Any] = json.loads((store / "out" / "reproduction.json").read_text(encoding="utf-8"))
    return document


def test_every_table_and_figure_is_made(tmp_path: Path) -> None:
    document = finish(start(tmp_path / "store", "all"), tmp_path / "store")
    assert document["experiments"] == list(EXPERIMENTS)
    assert document["left_out"] == []
    assert document["failures"] == []
    for table in document["tables"]:
        for row in table["rows"]:
            assert row["measured"], (table["name"], row["label"])
            assert row["plain"], (table["name"], row["label"])
    for figure in document["figures"]:
        assert figure["panels"], figure["name"]
        for panel in figure["panels"]:
            assert panel["series"], (figure["name"], panel["data"], panel["norm"])
    assert all(run["seconds"] and run["estimated_seconds"] for run in document["runs"].values())


def test_a_reproduction_that_is_killed_goes_on_to_the_same_tables(tmp_path: Path) -> None:
    store, names = tmp_path / "store", ("table-6", "figure-3")
    undisturbed = finish(start(store, *names), store)
    shutil.move(
        store, tmp_path / "undisturbed"
    )  # the paths of the miniature data are part of a run's settings
    moments = random.Random(7)
    for _ in range(KILLS):
        process = start(store, *names)
        wait_for_work(process, store)
        time.sleep(moments.uniform(0.0, 3.0))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    resumed = finish(start(store, *names), store)
    assert resumed["failures"] == []
    assert resumed["tables"] == undisturbed["tables"]
    assert resumed["figures"] == undisturbed["figures"]
    assert resumed["claims"] == undisturbed["claims"]


def wait_for_work(process: subprocess.Popen[bytes], store: Path) -> None:
    """Until some run or measurement is under way, or all is done."""
    until = time.monotonic() + 120
    while process.poll() is None and not list(store.glob("*/*/lease.json")):
        assert time.monotonic() < until, "no sign of work"
        time.sleep(0.02)
