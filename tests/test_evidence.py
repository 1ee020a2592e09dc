"""The page of evidence says what the result files say: the source of a row has every number of the row."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "evidence.md"
NUMBER = re.compile(r"-?\d+\.\d+")


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
def test_source_has_every_number_of_the_row(numbers: str, source: Path) -> None:
    text = source.read_text(encoding="utf-8").replace("−", "-")
    stored = set(NUMBER.findall(text))
    missing = [number for number in NUMBER.findall(numbers) if number not in stored]
    assert missing == [], f"not in {source.name}"
