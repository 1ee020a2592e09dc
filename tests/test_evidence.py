"""The page of evidence says what the result files say, and results name commits that can be checked out."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "evidence.md"
NUMBER = re.compile(r"-?\d+\.\d+")
COMMIT = re.compile(r"\bcommits?:?\"?:? \"?([0-9a-f]{7,40})\b")
REPLACED = re.compile(r"^\| `([0-9a-f]{7})` \| `([0-9a-f]{7})` \|", re.MULTILINE)


def rows() -> list[tuple[str, Path]]:
    """The rows of all tables without their source, and the file that the source links to."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not line.startswith("|---") and not line.endswith("| source |"):
            numbers, _, source = line.strip("| ").rpartition(" | ")
            link = re.fullmatch(r"\[[\w-]+\]\(([^)#]+)(?:#[\w-]+)?\)", source)
            assert link is not None, f"no source: {line}"
            found.append((numbers.replace("−", "-"), PAGE.parent / link[1]))
    return found


def test_every_table_names_its_sources() -> None:
    assert len(rows()) >= 20


@pytest.mark.parametrize(("numbers", "source"), rows())
def test_a_line_of_the_source_has_the_numbers_of_each_cell(numbers: str, source: Path) -> None:
    text = source.read_text(encoding="utf-8").replace("−", "-")
    lines = [set(NUMBER.findall(line)) for line in text.splitlines()]
    cells = [set(NUMBER.findall(cell)) for cell in numbers.split("|")]
    missing = [cell for cell in cells if not any(cell <= line for line in lines)]
    assert missing == [], f"not in {source.name}"


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_results_name_commits_that_can_be_checked_out() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone of the repository")
    if git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("a shallow clone has no old commits")
    log = (ROOT / "docs" / "log.md").read_text(encoding="utf-8")
    replaced = dict(REPLACED.findall(log))
    pages = [
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "results").rglob("*.md"),
        *(ROOT / "results").rglob("*.json"),
    ]
    named = {name[:7] for page in pages for name in COMMIT.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 10
    known = git("log", "--format=%h", "--abbrev=7", "HEAD").splitlines()
    assert sorted({replaced.get(name, name) for name in named} - set(known)) == []
