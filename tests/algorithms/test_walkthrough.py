"""CONTRIBUTING's walk-through followed to the letter: a new algorithm joins the library and its conformance suite."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def inserted(path: Path, after: str, text: str) -> None:
    content = path.read_text(encoding="utf-8")
    assert content.count(after) == 1, f"{after!r} in {path.name}: mend the walk-through"
    path.write_text(content.replace(after, after + text), encoding="utf-8")


def shown(pattern: str) -> str:
    """What the page shows to be typed."""
    found = re.search(pattern, PAGE, re.S)
    assert found, pattern
    return found[1]


@pytest.fixture
def joined(tmp_path: Path) -> Path:
    """A copy of the library and of the suite with the page's algorithm in it."""
    ignored = shutil.ignore_patterns("__pycache__", "html")
    shutil.copytree(ROOT / "src" / "freeat", tmp_path / "src" / "freeat", ignore=ignored)
    for name in ("conftest.py", "problems.py", "algorithms/test_conformance.py"):
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests" / name)
    algorithms = tmp_path / "src" / "freeat" / "algorithms"
    code = shown(r"<!-- file: noise.py -->\n```python\n(.*?)```")
    (algorithms / "noise.py").write_text(code, encoding="utf-8")
    names = algorithms / "names.py"
    imported = "from freeat.algorithms.noise import Noise\n"
    inserted(names, "from freeat.algorithms.friendly import Friendly\n", imported)
    inserted(names, '    "friendly": Friendly,\n', f"    {shown(r'line in `FAMILIES` .`([^`]*)`')}\n")
    inserted(names, "EXAMPLES = {\n", '    "noise": "one descent at a random point",\n')
    case, action = " ".join(shown(r"case in `make_algorithm` .`([^`]*)`").split()).split(": ", 1)
    inserted(names, "match parsed.family:\n", f"        {case}:\n            {action}\n")
    suite = tmp_path / "tests" / "algorithms" / "test_conformance.py"
    inserted(suite, "from freeat.learner import Learner\n", imported)
    inserted(suite, "ROWS = {\n", shown(r"```text\n(.*?)```"))
    return tmp_path


def test_the_newcomer_conforms(joined: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{joined / 'src'}{os.pathsep}{joined / 'tests'}"}
    words = [
        "-q",
        "-k",
        "noise and l2",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        "--rootdir",
        str(joined),
        "-x",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(joined / "tests")],
        cwd=joined,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    counted = re.search(r"(\d+) passed", done.stdout)
    assert counted
    assert int(counted[1]) > 20
