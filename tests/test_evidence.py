"""The page of evidence says what the result files say, and results name commits that can be checked out."""

import re
import shutil
import subprocess
from pathlib import Path
from statistics import fmean

import pytest

from freeat.stability.population_summary import read_population

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


POPULATION = ROOT / "results" / "population" / "README.md"
COUNT = re.compile(r"(\d+) (?:of \d+ )?(smaller|larger)")
Effect = tuple[int, int, str]
"""On how many instances a gap is smaller and larger, and the mean difference."""


def effect(cell: str) -> Effect | None:
    """The effect that a cell of a table states; None where it states none."""
    counts = {kind: int(count) for count, kind in COUNT.findall(cell)}
    mean = re.search(r"[-+]\d\.\d{4}", cell.replace("−", "-"))
    return (
        None if mean is None or not counts else (counts.get("smaller", 0), counts.get("larger", 0), mean[0])
    )


def population_effects() -> list[tuple[str, list[Effect]]]:
    """The differences of the population's page, with what they state at equal updates and risk, L2 and then Linf."""
    found = []
    for line in POPULATION.read_text(encoding="utf-8").splitlines():
        label, *cells = (cell.strip("* ") for cell in line.strip("|").split("|"))
        effects = [one for one in map(effect, cells) if one is not None]
        if " − " in label and len(effects) == 4:
            found.append((label, effects))
    return found


def test_the_counts_and_means_of_the_population_are_those_of_its_document() -> None:
    stated = population_effects()
    arms = {"Free-4": "free-4", "ERM": "erm", "Vanilla": "vanilla-exact", "Vanilla-10": "vanilla-10"}
    arms |= {"weak Vanilla": "vanilla-weak", "weak Vanilla with replay": "vanilla-weak-replay"}
    assert len(stated) == 10
    for k, (label, effects) in enumerate(stated):
        study = read_population(POPULATION.parent / ("linear", "nets")[k // 5] / "population.json")
        pair = tuple(arms[name] for name in label.split(" − "))
        computed = []
        for norm in ("l2", "linf"):
            rows = [row for row in study.summary.differences if (row.arm, row.reference) == pair]
            rows = [row for row in rows if row.instance.norm == norm]
            at_equal_risk = [row.matched.difference for row in rows if row.matched is not None]
            for column in ([row.surrogate for row in rows], at_equal_risk):
                signs = [one.value > 0 for one in column if one.excludes_zero]
                mean = f"{fmean(one.value for one in column):+.4f}"
                computed.append((signs.count(False), signs.count(True), mean))
        assert effects == computed, label


def test_the_page_states_the_counts_of_the_population() -> None:
    known = {one for _, effects in population_effects() for one in effects}
    stated = [
        found
        for numbers, source in rows()
        if source.resolve() == POPULATION
        for cell in numbers.split("|")
        if (found := effect(cell)) is not None
    ]
    assert len(stated) >= 10
    assert [one for one in stated if one not in known] == []


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
