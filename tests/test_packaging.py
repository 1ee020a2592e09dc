"""What is distributed and how: the source distribution, the workflows, the container, the versions of the site."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from freeat.errors import FOR_DEVELOPERS

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


def test_metadata_are_complete_and_known_to_the_index() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    facts = (
        "description readme license license-files requires-python authors keywords classifiers urls scripts"
    )
    for fact in facts.split():
        assert about[fact], fact
    lowest = about["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {lowest}" in about["classifiers"]
    known = pytest.importorskip("trove_classifiers", reason="it comes with hatchling").classifiers
    assert {*about["classifiers"]} <= known


def test_the_first_page_lists_every_extra_of_a_user() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    page = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    rows = re.search(r"\| extra \|.*?\n\n", page, re.S)
    assert rows
    listed = {*re.findall(r"`([a-z]+)`", "".join(row.split("|")[1] for row in rows[0].splitlines()[2:-1]))}
    assert listed == {*extras} - {*FOR_DEVELOPERS, "browser"}
    assert {line.split(">")[0] for line in extras["tensorboard"]} == {"tensorboard", "tensorboardX"}


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_and_scripts_that_exist(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = "\n".join(step.get("run", "") for step in steps)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake ([a-z-]+)", commands):
        assert re.search(rf"^{target}:", makefile, re.M), target
    for script in re.findall(r"[a-z/]+\.py\b", commands):
        assert (ROOT / script).is_file(), script
    assert {step["uses"].partition("@")[2] for step in steps if "uses" in step}.isdisjoint({"", "main"})


def test_workflows_run_what_ci_runs() -> None:
    called = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    for target in re.findall(r"^make (.+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.M):
        assert f"run: make {target}" in called


def test_container_copies_files_that_are_sent_to_it() -> None:
    sent = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
        if line.startswith("!")
    }
    copies = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.M)
    assert copies
    for name in " ".join(copies).split():
        assert (ROOT / name).exists()
        assert name in sent


def test_hooks_run_tools_of_the_environment() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0][
        "hooks"
    ]
    for hook in hooks:
        tool = hook["entry"].split()[0]
        assert tool.startswith(".venv/bin/")
        assert f"$(BIN)/{Path(tool).name}" in (ROOT / "Makefile").read_text(encoding="utf-8")


def publish(build: Path, site: Path, version: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, ROOT / "docs" / "publish.py", build, site, version]
    return subprocess.run(call, capture_output=True, text=True, check=False)


def test_front_page_leads_to_the_newest_release(tmp_path: Path) -> None:
    build, site = tmp_path / "build", tmp_path / "site"
    build.mkdir()
    (build / "index.html").write_text("a page", encoding="utf-8")
    site.mkdir()
    for version in ("v0.9.0", "main", "v0.10.0"):
        assert publish(build, site, version).returncode == 0
    assert json.loads((site / "versions.json").read_text(encoding="utf-8")) == ["v0.10.0", "v0.9.0", "main"]
    assert "url=v0.10.0/" in (site / "index.html").read_text(encoding="utf-8")
    assert (site / "v0.9.0" / "index.html").read_text(encoding="utf-8") == "a page"


@pytest.mark.parametrize("version", ["feature", "v1", "../v0.1.0"])
def test_other_names_are_no_version_of_the_site(tmp_path: Path, version: str) -> None:
    (tmp_path / "index.html").touch()
    done = publish(tmp_path, tmp_path, version)
    assert done.returncode == 1
    assert "must be main or a tag" in done.stderr
