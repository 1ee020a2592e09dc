"""Every code block of README and docs runs, or gives the reason why it cannot and is parsed instead.

The blocks of a page run in their order and in one folder, as its reader would type them. A comment before a block
changes that: ``<!-- not run: the reason -->`` has its commands only checked for names, options and values that
exist, and its Python compiled; ``<!-- file: its name -->`` saves the block as a file that later blocks use.
"""

import doctest
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from freeat.cli.main import cli, run

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.relative_to(DOCS).parts),
]
SHELL = {"sh", "console"}
EXECUTED = {*SHELL, "python", "pycon"}
SHOWN = {"yaml", "json", "text", "html", "bibtex", "mermaid"}
"""Kinds of blocks that are there to be read."""

FENCE = re.compile(
    r"(?:<!-- (?P<mark>not run|file): (?P<note>[^>]+?) -->\s*)?"
    r"^(?P<indent> *)```(?P<kind>[^`\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.S | re.M,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; ``reason`` is why it cannot run here, ``file`` where it is saved instead."""

    kind: str
    code: str
    indent: str
    reason: str | None
    file: str | None

    def __str__(self) -> str:
        return self.code.strip().partition("\n")[0][:60]

    @property
    def commands(self) -> list[list[str]]:
        """The command lines of a shell block: without comments, and in a console block without what is printed."""
        lines = self.code.replace("\\\n", " ").splitlines()
        if self.kind == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [parts for line in lines if (parts := shlex.split(line, comments=True))]


def blocks(page: Path) -> list[Block]:
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [
        Block(
            kind=m["kind"].strip(),
            code=m["code"],
            indent=m["indent"],
            reason=m["note"] if m["mark"] == "not run" else None,
            file=m["note"] if m["mark"] == "file" else None,
        )
        for m in found
    ]


def freeat_arguments(parts: list[str]) -> list[str] | None:
    """What ``freeat`` is given by this command line; None where it is not freeat that is called."""
    if parts[0] == "freeat":
        return parts[1:]
    if "-m" in parts and parts[parts.index("-m") + 1] == "freeat":
        return parts[parts.index("-m") + 2 :]
    return None


every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def test_the_readme_has_blocks() -> None:
    assert {block.kind for block in blocks(PAGES[0])} >= {"sh", "console", "python"}


@every_page
def test_every_block_has_a_known_kind(page: Path) -> None:
    """A kind that is not known here, or a block in a list, would never be run; a lost fence hides the rest."""
    found = blocks(page)
    for block in found:
        known = block.kind in EXECUTED | SHOWN or re.fullmatch(r"\{[a-z-]+\}.*", block.kind)
        assert known, f"```{block.kind} is neither run nor known as something to be read: {block}"
        assert not (block.indent and block.kind in EXECUTED), f"indented: {block}"
    fences = [
        line for line in page.read_text(encoding="utf-8").splitlines() if line.strip().startswith("```")
    ]
    assert len(fences) == 2 * len(found), "a fence is not closed"


@every_page
def test_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # a command may add the folder, for a model that lies there
    for block in blocks(page):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.code, encoding="utf-8")
            sys.modules.pop(Path(block.file).stem, None)
        elif block.kind == "python":
            check_python(block, page)
        elif block.kind in SHELL:
            check_commands(block, capsys)


@every_page
def test_python_sessions_print_what_they_show(page: Path) -> None:
    """What a Python session shows is what it prints; the sessions of a page are one."""
    code = "\n".join(block.code for block in blocks(page) if block.kind == "pycon")
    output: list[str] = []
    session = doctest.DocTestParser().get_doctest(code, {}, page.name, str(page), 0)
    outcome = doctest.DocTestRunner().run(session, out=output.append)
    assert outcome.failed == 0, "".join(output)
    assert outcome.attempted == len(re.findall(r"^>>> ", code, re.M))


def check_python(block: Block, page: Path) -> None:
    """Python runs in a process of its own, with every warning an error."""
    compile(block.code, page.name, "exec")
    if block.reason is None:
        call = [sys.executable, "-W", "error", "-c", block.code]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


def check_commands(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    for parts in block.commands:
        args = freeat_arguments(parts)
        if args is None:
            check_known_tool(parts)
        elif block.reason is not None:
            check_well_formed(args)
        else:
            assert run(args) == 0, f"{shlex.join(parts)}\n{capsys.readouterr().err}"


def check_well_formed(args: list[str], group: click.Group = cli) -> None:
    """A command that cannot run here: its name and options exist, and its values parse."""
    if args[0].startswith("-"):
        assert run(args) == 0
        return
    context = click.Context(group)
    command = group.get_command(context, args[0])
    assert command is not None, f"{group.name} has no command {args[0]!r}"
    if isinstance(command, click.Group):
        check_well_formed(args[1:], command)
    else:
        command.make_context(args[0], args[1:], parent=context)


def check_known_tool(parts: list[str]) -> None:
    """Commands other than freeat: targets of the Makefile, installation, launchers."""
    if parts[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for target in parts[1:]:
            assert "=" in target or re.search(rf"^{target}:", makefile, re.M), f"make has no target {target}"
        return
    assert parts[0] in {
        "pip",
        "git",
        "cd",
        "docker",
        "hf",
        "export",
        "python",
        "torchrun",
        "sbatch",
        "ray",
    }, shlex.join(parts)


def test_notebook_runs_and_shows_what_it_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell of the tour runs, and what its reader sees in the repository is of the kind that it prints."""
    nbformat = pytest.importorskip("nbformat", reason="needs the extra `test`")
    nbclient = pytest.importorskip("nbclient", reason="needs the extra `test`")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    notebook = nbformat.read(ROOT / "examples" / "tour.ipynb", as_version=4)
    stored = [kinds_of_output(cell) for cell in notebook.cells]
    assert any("image/png" in kinds for kinds in stored)
    nbclient.NotebookClient(
        notebook, timeout=240, coalesce_streams=True, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert [kinds_of_output(cell) for cell in notebook.cells] == stored


def kinds_of_output(cell: Any) -> set[str]:
    """What a cell shows: text, figures, values."""
    outputs = cell.get("outputs", [])
    return {kind for output in outputs for kind in output.get("data", {output.get("name", ""): ""})}


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that makes the gallery's figures."""
    spec = importlib.util.spec_from_file_location("gallery", DOCS / "gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gallery", module)
    spec.loader.exec_module(module)
    return module


def test_every_figure_of_the_gallery_is_written_by_a_command_of_the_page(gallery: ModuleType) -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    figures = gallery.figures(page, DOCS)
    assert len(figures) == page.count("![") >= 9
    written = {Path(part).parts[0] for command in gallery.commands(page) for part in command}
    for figure in figures:
        assert Path(figure.source).parts[0] in written, figure.source
        assert 0 < figure.path.stat().st_size <= gallery.LARGEST, figure.path
    assert re.search(r"commit [0-9a-f]{12}[; ].*torch \d.*cores", gallery.MADE.search(page)[0], re.S)


PAGE = """
```sh
freeat bound --beta 2 --c 0.1 --lipschitz 1 --lipschitz-w 1 --psi 4 --eps 0.5 --alpha-delta 0.2 --m 4 \\
    --batch-size 10 --n 1000 --updates 1000 --plots bounds
```

<!-- from: bounds/b*.png -->
![Bounds](figures/bounds.png)

<!-- made -->
Not made yet.
<!-- end of made -->
"""


def test_gallery_draws_its_figures_once(
    gallery: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, work = tmp_path / "page.md", tmp_path / "work"
    page.write_text(PAGE, encoding="utf-8")
    figure = tmp_path / "figures" / "bounds.png"
    assert gallery.make_gallery(page, work) == [figure]
    assert figure.stat().st_size <= (work / "bounds" / "bounds.png").stat().st_size
    made = page.read_text(encoding="utf-8")
    assert "Not made yet" not in made
    assert "torch" in made
    figure.unlink()
    monkeypatch.setattr(gallery.subprocess, "run", lambda *_, **__: pytest.fail("the command is done"))
    gallery.make_gallery(page, work)
    assert figure.is_file()
    assert page.read_text(encoding="utf-8") == made
