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
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\s*)?^```(?P<kind>sh|python)\n(?P<code>.*?)^```", re.S | re.M
)


@dataclass(frozen=True)
class Block:
    page: str
    kind: str
    code: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page}: {self.code.strip().splitlines()[0][:60]}"


def blocks(kind: str) -> list[Block]:
    matches = ((page, match) for page in PAGES for match in FENCE.finditer(page.read_text(encoding="utf-8")))
    return [Block(page.name, kind, m["code"], m["reason"]) for page, m in matches if m["kind"] == kind]


def commands(block: Block) -> list[list[str]]:
    """The command lines of a shell block, without comments."""
    lines = block.code.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def freeat_words(words: list[str]) -> list[str] | None:
    """What ``freeat`` is given by this command line; None where it is not freeat that is called."""
    if words[0] == "freeat":
        return words[1:]
    if "-m" in words and words[words.index("-m") + 1] == "freeat":
        return words[words.index("-m") + 2 :]
    return None


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_pages_have_blocks() -> None:
    assert blocks("python")
    assert blocks("sh")


@pytest.mark.parametrize("block", [b for b in blocks("python") if b.reason is None], ids=str)
def test_python_blocks_run(block: Block, workplace: Path) -> None:
    call = [sys.executable, "-W", "error", "-c", block.code]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_python_blocks_that_cannot_run_compile() -> None:
    for block in blocks("python"):
        compile(block.code, block.page, "exec")


@pytest.mark.parametrize("block", [b for b in blocks("sh") if b.reason is None], ids=str)
def test_commands_run(block: Block, workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in commands(block):
        args = freeat_words(words)
        if args is not None:
            code = run(args)
            assert code == 0, f"{shlex.join(words)}\n{capsys.readouterr().err}"
        else:
            check_known_tool(words)


@pytest.mark.parametrize("block", [b for b in blocks("sh") if b.reason is not None], ids=str)
def test_commands_that_cannot_run_are_well_formed(block: Block) -> None:
    for words in commands(block):
        args = freeat_words(words)
        if args is None:
            check_known_tool(words)
            continue
        if args[0].startswith("-"):
            assert run(args) == 0
            continue
        assert args[0] in COMMANDS, shlex.join(words)
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
