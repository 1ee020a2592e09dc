"""The source distribution: all that tests and documentation read is in it, and nothing that was left out on purpose."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEFT_OUT = {"results", ".ci"}
"""What was measured, and what only the repository needs."""
ALWAYS_IN = {"pyproject.toml", ".gitignore"}
"""What hatchling packs of its own accord."""


def packed() -> list[str]:
    """The patterns of what is packed."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns: list[str] = settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    return patterns


def test_patterns_name_what_lies_at_the_root() -> None:
    """One without a slash in front would match at every depth: README.md also those of results/."""
    for pattern in packed():
        assert pattern.startswith("/")
        assert (ROOT / pattern.removeprefix("/")).exists(), pattern


def listed(*options: str) -> list[str]:
    """What git lists of the repository."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout of the repository: what it holds is not known")
    call = ["git", "ls-files", *options]
    return subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_everything_else_of_the_repository_is_packed() -> None:
    tracked = {path.partition("/")[0] for path in listed()}
    assert {pattern.removeprefix("/") for pattern in packed()} == tracked - LEFT_OUT - ALWAYS_IN


def test_nothing_that_is_kept_is_ignored() -> None:
    """The builder leaves out what .gitignore names, even where git tracks it."""
    assert listed("--cached", "--ignored", "--exclude-standard") == []
