"""Source, help texts, docs and tests use the words of the field.

Words with another honest use (a table has cells, a tensor is on a device) are not in the table.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from freeat.cli.main import cli

ROOT = Path(__file__).parents[1]

INSTEAD = {
    r"judg(?:e|es|ed|ing|ement|ements|ment)": "evaluate, evaluation",
    r"campaigns?": "sweep",
    r"honesty": "sanity check",
    r"coins?": "rng",
    r"wiring": "fx trace",
    r"watchers?": "callback",
    r"nobody": "Callbacks()",
    r"clothes": "adapter",
    r"shipping": "export",
    r"stand-ins?|stand_ins?|StandIns?": "substitute",
    r"miniatures?": "synthetic data",
    r"fruitless": "empty",
    r"withdraws?|withdrawn": "reset",
    r"goes on|going on with|go on from|to go on": "resume",
    r"told": "receive, print",
    r"pieces?": "task",
    r"grounds?": "dataset info, background",
    r"pictures?": "figure, image",
    r"so many": "n, a number of",
    r"of ours": "built-in",
    r"wish(?:es)?": "request",
    r"luck": "chance",
    r"lent|lend|lends|freezing": "frozen eval mode",
    r"trials?": "task, candidate",
    r"ledgers?": "claims",
    r"rivals?": "the compared algorithm",
    r"datas": "data sets",
    r"knows|tells": "has, shows, distinguishes",
    r"outdone": "fools fewer images",
    r"cautions?": "warning",
    r"unsteady|steady": "inconsistent, consistency",
    r"misfits?": "mismatched",
    r"onward": "moved",
    r"tidy|tidies": "remove what is unfinished",
    r"of late|as people say": "the number of seconds, as text",
}
"""What is not written, as a regular expression of whole words, and what to write instead."""

FOLDERS = {
    "src/freeat": ("py", "html", "js", "css"),
    "tests": ("py",),
    "docs": ("md", "py", "html"),
    "examples": ("py",),
    "benchmarks": ("py",),
}
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")
HISTORY = ROOT / "docs" / "log.md"
"""The record of what was done keeps the words of its time."""


def texts() -> Iterator[tuple[str, str]]:
    """Every text that is searched, with its name."""
    paths = [ROOT / page for page in PAGES]
    for folder, endings in FOLDERS.items():
        paths += [path for ending in endings for path in sorted((ROOT / folder).rglob(f"*.{ending}"))]
    for path in paths:
        name = path.relative_to(ROOT)
        vendored, built = path.name.endswith(".min.js"), "_build" in name.parts
        if path not in (HISTORY, Path(__file__)) and not vendored and not built:
            yield str(name), f"{path.stem}\n{path.read_text(encoding='utf-8')}"
    yield from help_texts(cli, "freeat")


def help_texts(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """What ``--help`` prints, of a command and all its subcommands."""
    context = click.Context(command, info_name=name)
    yield f"{name} --help", command.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            subcommand = command.get_command(context, each)
            assert subcommand is not None
            yield from help_texts(subcommand, f"{name} {each}")


@pytest.fixture(scope="module")
def every_text() -> dict[str, str]:
    return dict(texts())


@pytest.mark.parametrize("word", INSTEAD)
def test_a_word_is_not_written(word: str, every_text: dict[str, str]) -> None:
    # A word ends also at the underscores and capitals of an identifier.
    pattern = re.compile(rf"(?<![A-Za-z])(?:{word})(?![a-z])", re.IGNORECASE)
    found = [
        f"{name}: {line.strip()}"
        for name, text in every_text.items()
        for line in text.splitlines()
        if pattern.search(line)
    ]
    assert found == [], f"write {INSTEAD[word]}"
