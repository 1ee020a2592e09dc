"""The reference of the public names: each has its sections, explains every argument, and its example runs."""

import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import freeat

every_name = pytest.mark.parametrize("name", freeat.__all__)


def sections(name: str) -> dict[str, str]:
    """The sections of a docstring by their headings; the text before them is under an empty heading."""
    parts = re.split(
        r"^(Args|Returns|Raises|Example):\n", inspect.getdoc(getattr(freeat, name)) or "", flags=re.M
    )
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def parameters(value: Any) -> list[str]:
    """What a function or constructor takes; a protocol is never constructed, an exception takes its message."""
    if getattr(value, "_is_protocol", False):
        return []
    if isinstance(value, type) and issubclass(value, Exception):
        return ["message"]
    return [name for name in inspect.signature(value).parameters if name != "self"]


@every_name
def test_every_argument_is_explained(name: str) -> None:
    explained = re.findall(r"^    \*{0,2}(\w+)(?: \(.*?\))?:", sections(name).get("Args", ""), flags=re.M)
    assert explained == parameters(getattr(freeat, name))


@every_name
def test_returned_values_and_errors_are_explained(name: str) -> None:
    value, found = getattr(freeat, name), sections(name)
    assert found[""].strip()
    if inspect.isfunction(value):
        assert "Returns" in found
        assert "InputError:" in found["Raises"]
    elif value is not freeat.InputError and "InputError" in inspect.getsource(value).replace(
        inspect.getdoc(value) or "", ""
    ):
        assert "InputError:" in found.get("Raises", "")


@every_name
def test_the_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, as its reader would type it."""
    monkeypatch.chdir(tmp_path)
    example = sections(name)["Example"]
    session = doctest.DocTestParser().get_doctest(example, {}, name, None, 0)
    output: list[str] = []
    outcome = doctest.DocTestRunner().run(session, out=output.append)
    assert outcome.attempted > 0
    assert outcome.failed == 0, "".join(output)
