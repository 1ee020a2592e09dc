"""Every code block of README and docs runs, or says why it cannot and is parsed instead.

A block that cannot run here stands behind a comment ``<!-- not run: the reason -->``; its commands are then only
checked for names and options that exist.
"""

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from freeat.cli import COMMANDS, cli, run

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\s*)?^```(?P<kind>sh|console|python)\n(?P<code>.*?)^```",
    re.S | re.M,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the reason why it cannot run here, if there is one."""

    kind: str
    code: str
    reason: str | None

    def __str__(self) -> str:
        return self.code.strip().splitlines()[0][:60]

    @property
    def commands(self) -> list[list[str]]:
        """The command lines of a shell block: without comments, and in a console block without what is printed."""
        lines = self.code.replace("\\\n", " ").splitlines()
        if self.kind == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [words for line in lines if (words := shlex.split(line, comments=True))]


def blocks(page: Path, *kinds: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(m["kind"], m["code"], m["reason"]) for m in FENCE.finditer(text) if m["kind"] in kinds]


def freeat_words(words: list[str]) -> list[str] | None:
    """What ``freeat`` is given by this command line; None where it is not freeat that is called."""
    if words[0] == "freeat":
        return words[1:]
    if "-m" in words and words[words.index("-m") + 1] == "freeat":
        return words[words.index("-m") + 2 :]
    return None


def test_the_readme_has_blocks() -> None:
    assert blocks(PAGES[0], "python")
    assert blocks(PAGES[0], "sh")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "python"):
        compile(block.code, page.name, "exec")
        if block.reason is None:
            call = [sys.executable, "-W", "error", "-c", block.code]
            done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{block}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands of a page, in their order and in one folder, as its reader types them."""
    monkeypatch.chdir(tmp_path)
    for block in blocks(page, "sh", "console"):
        for words in block.commands:
            args = freeat_words(words)
            if args is None:
                check_known_tool(words)
            elif block.reason is not None:
                check_well_formed(args)
            else:
                assert run(args) == 0, f"{shlex.join(words)}\n{capsys.readouterr().err}"


def check_well_formed(args: list[str]) -> None:
    """A command that cannot run here: its name and options exist, and its values parse."""
    if args[0].startswith("-"):
        assert run(args) == 0
        return
    assert args[0] in COMMANDS, shlex.join(args)
    context = click.Context(cli)
    command = cli.get_command(context, args[0])
    assert command is not None
    command.make_context(args[0], args[1:], parent=context)


def check_known_tool(words: list[str]) -> None:
    """Commands other than freeat: targets of the Makefile, installation, launchers."""
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for target in words[1:]:
            assert "=" in target or re.search(rf"^{target}:", makefile, re.M), f"make has no target {target}"
        return
    assert words[0] in {"pip", "git", "cd", "export", "python", "torchrun", "sbatch", "ray"}, shlex.join(
        words
    )
