"""The whole paper at the smallest scale; and parts of it that are killed, shared, spread by Ray, and fail."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from freeat.experiments.paper.catalogue import EXPERIMENTS, Experiment, RunGroup, make_experiment
from freeat.experiments.paper.claims import CLAIMS, decide_claims
from freeat.experiments.paper.documents import Figure, PaperTable
from freeat.experiments.paper.settings import SMOKE
from freeat.experiments.tasks import Store
from freeat.files.documents import decoded, plain, to_json
from killing import Process, cut_off, interrupt_at_random, strike, training_past, working_in
from small_runs import outcome

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's"),
]

PART = ("table-6", "figure-3")

Document = dict[str, Any]


def start(store: Path, names: Sequence[str], *options: str, out: Path | None = None) -> Process:
    """The command, in a process group of its own, so that it can be killed with its workers."""
    command = [sys.executable, "-m", "freeat", "reproduce", *names, "--scale", "smoke", "--device", "cpu"]
    paths = ["--store", str(store), "--out", str(out or store / "out"), "--checkpoint-every", "0"]
    return subprocess.Popen(
        [*command, *paths, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
        start_new_session=True,
    )


def finish(process: Process, out: Path, code: int = 0) -> Document:
    _, errors = process.communicate(timeout=2300)
    assert process.returncode == code, errors.decode()
    document: Document = json.loads((out / "reproduction.json").read_text(encoding="utf-8"))
    return document


@dataclass(frozen=True, kw_only=True)
class Whole:
    """Every table and figure, made by one uninterrupted process, and its store, moved away.

    The paths of the synthetic data are part of a run's settings: only a store at the same path has equal runs.
    """

    document: Document
    store: Path
    path: Path

    def check_same(self, document: Document, names: Sequence[str]) -> None:
        """That a part of it, made at the same path in another way, is the same: its runs to the last bit."""
        own = {
            kind: [one for one in self.document[kind] if one["name"] in names]
            for kind in ("tables", "figures")
        }
        assert document["experiments"] == list(names)
        assert {kind: document[kind] for kind in own} == own
        tables = decoded(own["tables"], tuple[PaperTable, ...], "the test")
        figures = decoded(own["figures"], tuple[Figure, ...], "the test")
        assert document["claims"] == json.loads(to_json(plain(decide_claims(tables, figures))))
        assert (document["failures"], document["left_out"]) == ([], [])
        for key in document["runs"]:
            assert outcome(self.path / "runs" / key) == outcome(self.store / "runs" / key)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    root = tmp_path_factory.mktemp("paper")
    path, store = root / "store", root / "uninterrupted"
    document = finish(start(path, ["all"]), path / "out")
    path.rename(store)
    return Whole(document=document, store=store, path=path)


@pytest.fixture
def path(whole: Whole) -> Iterator[Path]:
    """The path at which a store has the same runs; no store is there yet."""
    yield whole.path
    shutil.rmtree(whole.path, ignore_errors=True)


def experiment_of(whole: Whole, name: str) -> Experiment:
    """The table or figure as the catalogue defines it."""
    store = Store(path=whole.path, data_dir=whole.path / "data", device="cpu", checkpoint_every=0.0)
    return make_experiment(name, SMOKE, store)


def panels(group: RunGroup) -> set[str]:
    """The panels that a series is drawn in: one for each model that transferred perturbations come from."""
    sources = {m.source.spec.algorithm for m in group.measurements if m.source}
    return {f"from {source}" for source in sources} if sources and not group.targets else {group.panel}


def test_every_table_and_figure_is_made(whole: Whole) -> None:
    made = [one["name"] for kind in ("tables", "figures") for one in whole.document[kind]]
    assert whole.document["experiments"] == made == list(EXPERIMENTS)
    assert (whole.document["left_out"], whole.document["failures"]) == ([], [])
    assert all(run["seconds"] for run in whole.document["runs"].values())
    assert [claim["id"] for claim in whole.document["claims"] if claim["measured"]] == [c.id for c in CLAIMS]


def test_every_row_of_the_catalogue_is_in_its_table(whole: Whole) -> None:
    for table in whole.document["tables"]:
        groups = experiment_of(whole, table["name"]).groups
        assert [(row["data"], row["norm"], row["label"]) for row in table["rows"]] == [
            (group.data, group.norm, group.label) for group in groups
        ]
        for row, group in zip(table["rows"], groups, strict=True):
            assert row["runs"] == [run.key for run in group.runs]
            for view in ("measured", "plain"):
                assert list(row[view]) == table["columns"]
                assert {cell["seeds"] for cell in row[view].values()} == {len(group.runs)}


def test_every_series_of_the_catalogue_is_in_its_figure(whole: Whole) -> None:
    for figure in whole.document["figures"]:
        groups = experiment_of(whole, figure["name"]).groups
        drawn = {
            (panel["data"], panel["norm"], panel["panel"], series["label"]): series
            for panel in figure["panels"]
            for series in panel["series"]
        }
        assert drawn.keys() == {
            (group.data, group.norm, panel, group.label) for group in groups for panel in panels(group)
        }, figure["name"]
        for group in groups:
            for panel in panels(group):
                check_points(figure["kind"], group, drawn[group.data, group.norm, panel, group.label])


def check_points(kind: str, group: RunGroup, series: dict[str, Any]) -> None:
    """That a series has all the points of its group, each from all seeds."""
    match kind:
        case "size":
            assert series["n"] == sorted(SMOKE.sizes)
            seeds = {n: point["seeds"] for n, point in zip(series["n"], series["points"], strict=True)}
            assert seeds[group.n] == len(group.runs)
        case "radius":
            assert series["eps"] == sorted(group.measurements[0].radii)
            assert {point["seeds"] for point in series["points"]} == {len(group.runs)}
        case "curves":
            assert series["updates"][-1] == group.runs[0].spec.updates
            assert {point["seeds"] for point in series["points"]} == {len(group.runs)}
        case _:
            assert series["updates"][-1] == group.runs[0].spec.updates
            assert len(series["smallest_of_seeds"]) == len(group.runs)


def test_every_file_is_written(whole: Whole) -> None:
    out = whole.store / "out"
    written = {path.relative_to(out).as_posix() for path in out.rglob("*.*")}
    names = [*(f"table-{k}" for k in range(1, 7)), "radii"]
    tables = {f"tables/{name}.{ending}" for name in names for ending in ("md", "tex", "csv")}
    figures = {f"figures/figure-{k}.{ending}" for k in range(1, 13) for ending in ("png", "pdf")}
    assert written == {"reproduction.json", "claims.md"} | tables | figures
    assert all((out / name).stat().st_size > 100 for name in written)


def test_resume_after_several_kills_is_bit_identical(whole: Whole, path: Path) -> None:
    """In runs of which more or less was saved, and while it measures."""

    def begin() -> Process:
        return start(path, PART)

    for update in random.Random(7).sample(range(1, 10), 3):
        cut_off(begin, path, training_past(update, path))
    cut_off(begin, path, working_in("measurements"))
    whole.check_same(finish(begin(), path / "out"), PART)


def test_resume_after_random_signals_is_bit_identical(whole: Whole, path: Path) -> None:
    def begin() -> Process:
        return start(path, ["table-6"], "--jobs", "2")

    assert interrupt_at_random(begin, path, random.Random(11), times=5, longest=8.0) >= 1
    whole.check_same(finish(begin(), path / "out"), ["table-6"])


def test_two_processes_share_a_store_and_tables(whole: Whole, path: Path) -> None:
    processes = [start(path, ["table-6"], "--jobs", "1") for _ in range(2)]
    for process in processes:
        whole.check_same(finish(process, path / "out"), ["table-6"])
    assert not [*path.rglob("lease.json"), *path.rglob("*.tmp")]


def test_three_processes_share_a_store_and_one_is_killed(whole: Whole, path: Path) -> None:
    outs = [path / f"out-{k}" for k in range(3)]
    processes = {start(path, ["table-6"], "--jobs", "1", out=out): out for out in outs}
    victim = strike(list(processes), path, training_past(3, path))
    assert victim is not None
    assert victim.returncode == -signal.SIGKILL
    del processes[victim]
    for process, out in processes.items():
        whole.check_same(finish(process, out), ["table-6"])
    assert not list(path.rglob("lease.json"))


def test_ray_makes_the_same_table(whole: Whole, path: Path) -> None:
    pytest.importorskip("ray", reason="the backend `ray` is an extra: pip install 'freeat[ray]'")
    process = start(path, ["table-6"], "--backend", "ray", "--address", "local")
    whole.check_same(finish(process, path / "out"), ["table-6"])


def test_a_run_that_fails_is_reported_and_the_others_finish(whole: Whole, path: Path) -> None:
    shutil.copytree(whole.store, path)
    keys = {run["name"]: key for key, run in whole.document["runs"].items()}
    spoilt, missing = keys["cifar10 linf free-4 seed 0"], keys["cifar10 linf vanilla-10 seed 1"]
    for key in (spoilt, missing):
        shutil.rmtree(path / "runs" / key)
    shutil.rmtree(path / "measurements")
    (path / "runs" / spoilt).mkdir()
    (path / "runs" / spoilt / "notes.txt").write_text("a file of the user")

    document = finish(start(path, PART), path / "out", code=1)
    failures = {failure["task"]: failure["reason"] for failure in document["failures"]}
    assert "is not a run folder" in failures.pop("cifar10 linf free-4 seed 0")
    assert failures.keys() == {
        f"transfer from cifar10 linf {source} seed {1 - seed} to seed {seed}"
        for source, seed in (("vanilla-10", 0), ("free-4", 0), ("free-4", 1))
    }
    assert all("which failed" in reason for reason in failures.values())
    assert outcome(path / "runs" / missing) == outcome(whole.store / "runs" / missing)
    _, _, free = document["tables"][0]["rows"]
    assert free["measured"]["robust_gap"]["seeds"] == 1

    shutil.rmtree(path / "runs" / spoilt)
    whole.check_same(finish(start(path, PART), path / "out"), PART)
