"""A refused command leaves the disk as it was: every command, with bad input that it meets early and late."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from freeat.cli.main import COMMANDS, run
from freeat.files.locks import leased
from small_runs import arguments, carry_out

Prepare = Callable[[Path], object]

SMALL = ["--n", "20", "--d", "4", "--updates", "4", "--seeds", "2", "--times", "2", "--jobs", "1"]
STUDY = ["--model", "linear", "--train-size", "20", "--updates", "2", "--replaced", "2", "--seeds", "1"]
STUDY += ["--batch-size", "4", "--probes", "4", "--eval-size", "4", "--algorithms", "fast", "--jobs", "1"]
BOUND = ["--beta", "2", "--c", "0.1", "--lipschitz", "1", "--lipschitz-w", "1", "--psi", "4", "--eps", "0.5"]
BOUND += ["--n", "100", "--updates", "50", "--m", "4", "--alpha-delta", "0.2", "--batch-size", "10"]
COMPARE = [
    *arguments(algorithm=None, out="comparison"),
    "--algorithms",
    "fast",
    "--seeds",
    "1",
    "--jobs",
    "1",
]


def folder(name: str) -> Prepare:
    """There is a folder where a file is to be written."""
    return lambda path: (path / name).mkdir(parents=True)


def file(name: str) -> Prepare:
    """There is a file where a folder is to be made."""

    def write(path: Path) -> None:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("a file of the user")

    return write


def nothing(path: Path) -> None:
    """The folder holds the runs only."""


REFUSED: dict[str, tuple[Prepare, list[str], str]] = {
    "train: result.json is a folder": (
        lambda path: ((path / "fast" / "result.json").unlink(), (path / "fast" / "result.json").mkdir()),
        ["train", *arguments(algorithm="fast", out="fast")],
        "result.json is a folder",
    ),
    "train: the weights are a folder": (
        folder("new/model.safetensors"),
        ["train", *arguments(out="new")],
        "not a run folder",
    ),
    "train: below a file": (
        file("taken"),
        ["train", *arguments(out="taken/run")],
        "taken is a file; choose another --out",
    ),
    "train: refused when it begins": (
        nothing,
        ["train", *arguments(model="troubled_models:BrokenNet", out="deep/down/run")],
        "NaN or infinite before it is trained",
    ),
    "train: changed settings": (
        nothing,
        ["train", *arguments(algorithm="fast", lr=0.3, out="fast")],
        "a run of another spec",
    ),
    "predict: no model": (file("photo.jpg"), ["predict", "nowhere", "photo.jpg"], "nowhere"),
    "predict: no image": (
        file("photo.jpg"),
        ["predict", "fast", "photo.jpg"],
        "1 of 1 images cannot be read",
    ),
    "evaluate: the second model": (nothing, ["evaluate", "fast", "nowhere"], "'nowhere' is not a run folder"),
    "evaluate: other data": (
        lambda path: run_json(path / "erm", '"digest": "', '"digest": "0'),
        ["evaluate", "fast", "erm", "--threads", "1"],
        "the data are not those erm was begun with",
    ),
    "evaluate: the figure": (
        folder("figure.png"),
        ["evaluate", "fast", "--attack", "pgd-1", "-n", "8", "--plot", "figure.png"],
        "is a directory",
    ),
    "evaluate: the results": (
        file("taken"),
        ["evaluate", "fast", "--attack", "pgd-1", "-n", "8", "--out", "taken/results"],
        "taken is a file",
    ),
    "compare: other files": (file("comparison/thesis.tex"), ["compare", *COMPARE], "not a comparison"),
    "compare: the figure": (folder("comparison/curves.png"), ["compare", *COMPARE], "not a comparison"),
    "compare: an algorithm": (
        nothing,
        ["compare", *COMPARE, "--algorithms", "fast,fastt"],
        "unknown algorithm 'fastt'",
    ),
    "reproduce: a dry run on a backend": (
        nothing,
        ["reproduce", "table-6", "--scale", "smoke", "--dry-run", "--gpus-per-run", "7"],
        "--gpus-per-run 7",
    ),
    "reproduce: a backend": (
        nothing,
        ["reproduce", "table-6", "--scale", "smoke", "--address", "auto"],
        "--address auto",
    ),
    "reproduce: a name": (
        nothing,
        ["reproduce", "table-6", "table-66", "--scale", "smoke"],
        "unknown experiment 'table-66'",
    ),
    "reproduce: so far": (
        nothing,
        ["reproduce", "table-6", "--scale", "smoke", "--so-far"],
        "nothing of this was begun",
    ),
    "reproduce: the tables": (
        file("reproduction/smoke/tables"),
        ["reproduce", "table-6", "--scale", "smoke"],
        "tables is a file",
    ),
    "runs: one that does not exist": (
        nothing,
        ["runs", "delete", "fast", "nowhere", "--yes"],
        "no run 'nowhere'",
    ),
    "transfer: the figure": (
        folder("figure.png"),
        ["transfer", "fast", "--to", "erm", "-n", "8", "--attack", "pgd-1", "--plot", "figure.png"],
        "is a directory",
    ),
    "stability: other files": (file("stability/thesis.tex"), ["stability", *STUDY], "holds no study"),
    "stability: a model": (nothing, ["stability", *STUDY, "--model", "cnnn"], "unknown model 'cnnn'"),
    "population: the table": (folder("population/table.md"), ["population", *SMALL], "table.md is a folder"),
    "population: below a file": (file("population"), ["population", *SMALL], "population is a file"),
    "report: the page": (folder("report.html"), ["report", "fast"], "is a directory"),
    "report: a folder that is not there": (
        nothing,
        ["report", "fast", "nowhere", "--out", "new/report.html"],
        "nowhere does not exist",
    ),
    "bound: the second figure": (
        folder("plots/remark-3.png"),
        ["bound", *BOUND, "--plots", "plots"],
        "remark-3.png is a folder",
    ),
    "export: weights that a run does not have": (
        nothing,
        ["export", "fast", "--weights", "best"],
        "no best weights",
    ),
    "export: the folder of another": (file("exports/fast"), ["export", "fast"], "not an exported model"),
    "data: the second name": (
        nothing,
        ["data", "fetch", "digits", "cifar11", "--data-dir", "data"],
        "unknown data set 'cifar11'",
    ),
    "algorithms: an argument": (nothing, ["algorithms", "fast"], "unexpected extra argument"),
    "attacks: an argument": (nothing, ["attacks", "pgd"], "unexpected extra argument"),
    "models: an argument": (nothing, ["models", "linear"], "unexpected extra argument"),
    "doctor: an argument": (nothing, ["doctor", "now"], "unexpected extra argument"),
    "completion: a shell": (nothing, ["completion", "dash"], "is not one of"),
}


def run_json(path: Path, old: str, new: str) -> None:
    text = (path / "run.json").read_text()
    assert old in text
    (path / "run.json").write_text(text.replace(old, new))


def snapshot(path: Path) -> dict[str, tuple[int, bytes]]:
    """Every file and folder, with when it was written, and its content."""
    return {
        str(one.relative_to(path)): (one.stat().st_mtime_ns, one.read_bytes() if one.is_file() else b"")
        for one in path.rglob("*")
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained")
    for algorithm in ("fast", "erm"):
        carry_out(path / algorithm, algorithm=algorithm)
    return path


@pytest.fixture
def folder(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with two runs."""
    for one in trained.iterdir():
        shutil.copytree(one, tmp_path / one.name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_command_leaves_the_disk_as_it_was(
    folder: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare, args, message = REFUSED[case]
    prepare(folder)
    before = snapshot(folder)
    assert run(args) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert snapshot(folder) == before


def test_every_command_has_a_refusal_here() -> None:
    assert {args[0] for _, args, _ in REFUSED.values()} == COMMANDS.keys()


def test_runs_are_deleted_only_where_none_of_them_is_in_use(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with leased(folder / "erm"):
        before = snapshot(folder)
        assert run(["runs", "delete", "fast", "erm", "--yes"]) == 2
        assert "in use by another process" in capsys.readouterr().err
        assert snapshot(folder) == before
    assert run(["runs", "delete", "fast", "erm", "--yes"]) == 0
    assert list(folder.iterdir()) == []


def test_a_dry_run_writes_nothing_and_counts_as_the_run_would(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(folder)
    assert run(["reproduce", "table-6", "--scale", "smoke", "--dry-run"]) == 0
    assert "forward–backward passes" in capsys.readouterr().out
    assert snapshot(folder) == before
