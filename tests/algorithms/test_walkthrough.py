"""CONTRIBUTING's walk-through followed to the letter: an algorithm in one file, and how it joins the library."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from freeat.cli.main import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def shown(pattern: str) -> str:
    """What the page shows to be typed."""
    found = re.search(pattern, PAGE, re.S)
    assert found, pattern
    return found[1]


FILE = shown(r"<!-- file: noise.py -->\n```python\n(.*?)```")
TRAIN, COMPARE, STABILITY = (
    shlex.split(line)[1:] for line in shown(r"```sh\n(freeat train .*?)```").splitlines()
)


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's file in it, and nothing else."""
    (tmp_path / "noise.py").write_text(FILE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("noise", None)
    return tmp_path


def test_train_takes_warmup_and_alpha_and_refuses_a_changed_file(
    own_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {"--warmup", "--alpha"} <= {*TRAIN}
    assert run(TRAIN) == 0
    assert "Noise-3 after 20 updates" in capsys.readouterr().out
    (stored,) = own_file.glob("runs/*/run.json")
    document = json.loads(stored.read_text(encoding="utf-8"))
    assert document["spec"]["algorithm"] == "noise:Noise-3"
    assert len(document["algorithm_source"]) == 64
    assert run(TRAIN) == 0
    assert "is finished" in capsys.readouterr().err
    (own_file / "noise.py").write_text(FILE + "\n", encoding="utf-8")
    sys.modules.pop("noise")
    assert run(TRAIN) == 2
    assert "source lines of the algorithm" in capsys.readouterr().err


@pytest.mark.usefixtures("own_file")
def test_compare_names_it_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(COMPARE) == 0
    printed = capsys.readouterr().out
    assert "Noise-trades-3" in printed
    assert "free-4 does not take outward = True: its runs are without." in printed
    table = Path("comparison/table.md").read_text(encoding="utf-8")
    assert "| Noise-trades-3 |" in table


@pytest.mark.usefixtures("own_file")
def test_stability_measures_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(STABILITY) == 0
    assert "Noise-3" in capsys.readouterr().out


@pytest.mark.usefixtures("own_file")
def test_a_setting_that_the_class_does_not_declare_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    command, message = shown(r"```console\n\$ freeat (.*?)```").splitlines()
    assert run(shlex.split(command)) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("own_file")
def test_a_file_that_names_it_needs_trust(capsys: pytest.CaptureFixture[str]) -> None:
    Path("spec.yaml").write_text("algorithm: noise:Noise\ndata: digits\nmodel: linear\nupdates: 1\n")
    assert run(["train", "spec.yaml"]) == 2
    assert "--trust-code" in capsys.readouterr().err
    assert run(["train", "spec.yaml", "--model", "linear"]) == 2  # what is typed is trusted, no more
    assert "noise" not in sys.modules
    assert run(["train", "spec.yaml", "--trust-code", "--train-size", "40"]) == 0


def inserted(path: Path, after: str, text: str) -> None:
    content = path.read_text(encoding="utf-8")
    assert content.count(after) == 1, f"{after!r} in {path.name}: mend the walk-through"
    path.write_text(content.replace(after, after + text), encoding="utf-8")


@pytest.fixture
def joined(tmp_path: Path) -> Path:
    """A copy of the library and of the suite with the page's algorithm in it."""
    ignored = shutil.ignore_patterns("__pycache__", "html")
    shutil.copytree(ROOT / "src" / "freeat", tmp_path / "src" / "freeat", ignore=ignored)
    shutil.copytree(ROOT / "tests" / "support", tmp_path / "tests" / "support", ignore=ignored)
    for name in ("conftest.py", "algorithms/test_conformance.py"):
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests" / name)
    algorithms = tmp_path / "src" / "freeat" / "algorithms"
    (algorithms / "noise.py").write_text(FILE, encoding="utf-8")
    line = '    noise="freeat.algorithms.noise:Noise",\n'
    inserted(algorithms / "registry.py", '    friendly="freeat.algorithms.friendly:Friendly",\n', line)
    imported = "from freeat.algorithms.noise import Noise\n"
    suite = tmp_path / "tests" / "algorithms" / "test_conformance.py"
    inserted(suite, "from freeat.learner import Learner\n", imported)
    inserted(suite, "ROWS: dict[str, Make] = {\n", shown(r"```text\n(.*?)```"))
    return tmp_path


def test_a_new_algorithm_conforms_and_is_listed(joined: Path) -> None:
    paths = (joined / "src", joined / "tests" / "support")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}

    def done(*words: str) -> str:
        call = [sys.executable, "-m", *words]
        made = subprocess.run(call, cwd=joined, env=environment, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-1000:]
        return made.stdout

    done("freeat.cli.listing")
    assert {"name": "noise-1", "gradients": 1, "options": ["outward"]}.items() <= {
        row["name"]: row for row in json.loads(done("freeat", "algorithms", "--json"))
    }["noise-1"].items()
    words = (
        "-q",
        "-x",
        "-k",
        "noise and l2",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        "--rootdir",
        str(joined),
    )
    counted = re.search(r"(\d+) passed", done("pytest", *words, str(joined / "tests")))
    assert counted
    assert int(counted[1]) > 20
