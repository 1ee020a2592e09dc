"""``freeat doctor`` and the extras it lists."""

import json
from importlib import metadata
from pathlib import Path

import pytest
import torch

import freeat
from freeat.cli import doctor as examination
from freeat.cli.main import run
from freeat.compute.precision import Precision
from freeat.errors import InputError, need, optional_packages


def test_json_describes_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json", "--data-dir", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["freeat"] == freeat.__version__
    assert found["versions"]["torch"] == metadata.version("torch")
    assert found["threads"] == torch.get_num_threads()
    cpu = found["devices"][-1]
    assert cpu["device"] == "cpu"
    assert cpu["precisions"]["fp32"] == {"usable": True, "speed": 1.0}
    assert cpu["auto"] in cpu["precisions"]
    assert cpu["memory"] is None or cpu["memory"] > 1e8
    assert found["data"]["folder"] == str(tmp_path)
    states = {entry["name"]: entry["state"] for entry in found["data"]["sets"]}
    assert states["digits"] == "embedded"
    assert states["cifar10"] == "absent"
    for row in found["extras"]:
        assert (row["installed"] is None) == (row["command"] is not None)


def test_text_describes_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--data-dir", str(tmp_path / "not" / "there")]) == 0
    output = capsys.readouterr().out
    assert f"freeat {freeat.__version__}" in output
    assert "fp32  1.00 × fp32" in output
    assert "freeat data fetch cifar10" in output
    assert "autoattack" in output


@pytest.mark.parametrize(
    ("cores", "threads", "line"),
    [(1, 1, "1 core, 1 thread"), (2, 1, "2 cores, 1 thread"), (None, 4, "unknown cores, 4 threads")],
)
def test_counts_of_one_are_singular(
    cores: int | None,
    threads: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nothing = {"folder": "data", "free_bytes": None, "sets": []}
    found = {"versions": {}, "system": "Linux", "devices": [], "data": nothing, "extras": []}
    monkeypatch.setattr(
        examination, "describe_machine", lambda data_dir: found | {"cores": cores, "threads": threads}
    )
    assert run(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == line


def test_a_precision_that_does_not_work_is_not_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, model: object, x: object) -> object:
        raise RuntimeError("not implemented for 'Half'")

    monkeypatch.setattr(Precision, "run", refuse)
    (cpu,) = (entry for entry in examination.describe_machine()["devices"] if entry["device"] == "cpu")
    assert cpu["precisions"]["fp16"] == {"usable": False, "speed": None}


def test_extras_are_those_of_the_metadata() -> None:
    extras = {found.extra for found in optional_packages()}
    declared = set(metadata.metadata("freeat").get_all("Provides-Extra") or ())
    assert extras < declared
    assert "dev" not in extras
    assert "lint" not in extras
    (autoattack,) = (found for found in optional_packages() if found.extra == "autoattack")
    assert autoattack.package == "pyautoattack"


def test_a_missing_package_is_named_with_its_command() -> None:
    with pytest.raises(
        InputError, match=r"the moon needs the package no_such_package.*pip install 'freeat\[moon\]'"
    ):
        need("no_such_package.part", extra="moon", what="the moon")
    assert need("json", extra="none", what="nothing") is json
