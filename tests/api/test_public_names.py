"""The public names are a promise: each is importable, documented, and none disappears unnoticed."""

import doctest
import subprocess
import sys
from pathlib import Path

import pytest

import freeat

PROMISED = {
    "Algorithm",
    "CrossEntropy",
    "DataSet",
    "Erm",
    "Fast",
    "Free",
    "Friendly",
    "Images",
    "InputError",
    "L2",
    "Learner",
    "Linf",
    "LogitPairing",
    "Mart",
    "Pgd",
    "RobustGap",
    "Trades",
    "Trained",
    "Vanilla",
    "WarmUp",
    "evaluate",
    "export",
    "load",
    "load_data",
    "load_result",
    "make_algorithm",
    "make_ball",
    "robust_gap",
    "train",
}


def test_nothing_promised_is_missing() -> None:
    assert set(freeat.__all__) >= PROMISED


def test_every_public_name_is_promised() -> None:
    assert set(freeat.__all__) <= PROMISED, "add the new name to PROMISED: from now on it is kept"


def test_public_names_are_documented() -> None:
    assert [name for name in freeat.__all__ if not (getattr(freeat, name).__doc__ or "").strip()] == []


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_examples_of_public_docstrings_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finder, said = doctest.DocTestFinder(recurse=False), list[str]()
    for example in finder.find(getattr(freeat, name), name, globs={}):
        outcome = doctest.DocTestRunner().run(example, out=said.append)
        assert outcome.failed == 0, "".join(said)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="Fre"):
        freeat.Fre  # noqa: B018


def test_importing_freeat_does_not_import_torch() -> None:
    code = "import sys, freeat, freeat.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
