"""The engine: runs in worker processes are those of this process, and one that fails harms no other."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from freeat.assembly import Place
from freeat.cli import run
from freeat.errors import InputError
from freeat.experiments.comparison import comparison_jobs
from freeat.experiments.engine import Job, Tick, carry_out, check_jobs
from freeat.spec import split_words
from freeat.store import RunFolder
from small_runs import WORDS, arguments, outcome
from small_runs import carry_out as run_here


def make_jobs(folder: Path, algorithms: list[str], seeds: list[int], **changes: Any) -> list[Job]:
    training, evaluation = split_words({**WORDS, **changes})
    return comparison_jobs(training, evaluation, algorithms, seeds, Place(folder=folder, device="cpu"))


def test_results_are_those_of_a_direct_run_and_a_failure_stops_no_other(tmp_path: Path) -> None:
    jobs = make_jobs(tmp_path / "there", ["fast", "erm"], [0])
    broken = replace(jobs[0], name="broken", spec=jobs[0].spec.replaced(model="no-such-net"))
    broken = replace(broken, place=replace(broken.place, folder=tmp_path / "broken"))
    diverging = replace(jobs[0], name="diverging", spec=jobs[0].spec.replaced(lr=1e38))
    diverging = replace(diverging, place=replace(diverging.place, folder=tmp_path / "diverging"))
    ticks: list[Tick] = []
    done = {o.job.name: o for o in carry_out([broken, diverging, *jobs], workers=1, on_tick=ticks.append)}
    assert done["broken"].result is None
    assert "unknown model" in str(done["broken"].failure)
    assert "Diverged: the training loss" in str(done["diverging"].failure)
    for algorithm in ("fast", "erm"):
        run_here(tmp_path / algorithm, algorithm=algorithm)
        there = done[f"{algorithm}/seed-0"]
        assert there.result == RunFolder(there.job.place.folder).result
        assert outcome(there.job.place.folder) == outcome(tmp_path / algorithm)
        last = [tick for tick in ticks if tick.name == there.job.name][-1]
        assert last.update == last.total == 14


def test_bad_jobs_are_refused_before_any_begins(tmp_path: Path) -> None:
    jobs = make_jobs(tmp_path, ["fast", "free-4"], [0])
    check_jobs(jobs)
    for changes, message in (
        ({"model": "no-such-net"}, "unknown model"),
        ({"carry": True}, "only Free does"),
        ({"train_size": 5000}, "exceeds"),
        ({"norm": "linf", "eps": 8}, "write 8/255"),
    ):
        with pytest.raises(InputError, match=message):
            check_jobs(make_jobs(tmp_path, ["fast", "free-4"], [0], **changes))
    with pytest.raises(InputError, match="unknown device"):
        check_jobs([replace(job, place=replace(job.place, device="abacus")) for job in jobs])
    assert not list(tmp_path.iterdir())


def compare_arguments(folder: Path, **changes: Any) -> list[str]:
    return ["compare", *arguments(**changes), "--out", str(folder), "--device", "cpu", "--jobs", "1"]


def test_compare_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = [*compare_arguments(tmp_path / "c"), "--algorithms", "erm,free-4", "--seeds", "2"]
    assert run([*args, "--json"]) == 0
    first = capsys.readouterr()
    document = json.loads(first.out)
    assert first.out.count("\n") == 1
    assert "[4/4]" in first.err
    assert [row["algorithm"] for row in document["algorithms"]] == ["erm", "free-4"]
    assert [row["seeds"] for row in document["algorithms"]] == [[0, 1], [0, 1]]
    means = [RunFolder(Path(f)).result for f in document["algorithms"][1]["folders"]]
    expected = sum(result["gap"]["value"] for result in means if result) / 2
    assert document["algorithms"][1]["robust_gap"]["mean"] == pytest.approx(expected)
    assert (tmp_path / "c" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "| free-4 |" in (tmp_path / "c" / "table.md").read_text(encoding="utf-8")
    stored = json.loads((tmp_path / "c" / "comparison.json").read_text(encoding="utf-8"))
    assert stored["algorithms"] == document["algorithms"]
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "c" / "runs").rglob("*")}
    assert run([*args, "--axis", "passes"]) == 0
    assert "free-4" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "c" / "runs").rglob("*")} == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algorithms", "fre-4"], "did you mean 'free-4'"),
        (["--seeds", "none"], "--seeds 'none'"),
        (["--preset", "dmo"], "did you mean 'demo'"),
        (["--model", "resnt18"], "did you mean 'resnet18'"),
        (["--algorithms", "fast", "--carry"], "only Free does"),
    ],
    ids=str,
)
def test_bad_comparisons_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert run([*compare_arguments(tmp_path / "c"), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
def test_the_workers_of_a_killed_comparison_save_and_end(tmp_path: Path) -> None:
    args = compare_arguments(tmp_path, algorithm=None, updates=1_000_000, eval_every=1_000_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "freeat", *args, "--algorithms", "fast", "--seeds", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    folder = tmp_path / "runs" / "fast" / "seed-0"
    _until((folder / "run.json").exists)
    worker = json.loads((folder / "lease.json").read_text())["pid"]
    process.send_signal(signal.SIGKILL)
    process.wait()
    _until(lambda: not (folder / "lease.json").exists())
    assert RunFolder(folder).checkpoints.newest() is not None
    _until(lambda: _ended(worker))


def _until(holds: Any) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def _ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").is_file() and " Z " in Path(f"/proc/{pid}/stat").read_text()
