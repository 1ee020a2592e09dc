"""Completion in the shell: the script and its answers, quickly and without torch."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from freeat.cli.main import COMMANDS, run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    output = capsys.readouterr().out
    assert output.startswith("# ")
    assert f"_FREEAT_COMPLETE={shell}_complete" in output


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "tcsh" in capsys.readouterr().err


def completed(line: str) -> list[str]:
    """What bash would offer at the end of a line, and whether torch was imported on the way."""
    code = "import sys, freeat.cli.main as c\ntry: c.main()\nfinally: print('torch' in sys.modules, file=sys.stderr)"
    options = line.split(" ")
    environment = os.environ | {
        "_FREEAT_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(options) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr.splitlines() == ["False"]
    return [answer.partition(",")[2] for answer in done.stdout.split("\n") if answer]


def test_commands_are_completed() -> None:
    assert completed("freeat ") == list(COMMANDS)
    assert completed("freeat tr") == ["train", "transfer"]


def test_options_are_completed() -> None:
    assert "--algorithm" in completed("freeat train --al")
    assert "--track" in completed("freeat train --data digits --tr")
    assert completed("freeat evaluate --iterate w") == ["worst"]
    assert "fetch" in completed("freeat data f")


def test_an_unknown_command_has_no_completions() -> None:
    assert completed("freeat trian --al") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_accepts_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out, encoding="utf-8")
    script = f"source {tmp_path / 'script'} && complete -p freeat"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "freeat" in done.stdout
