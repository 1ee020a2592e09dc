"""Models by import path: only with the user's trust, and every way a factory can be wrong."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from freeat.errors import InputError
from freeat.models import build

SOURCE = """
import pathlib
from collections import OrderedDict
import torch
from torch import nn

pathlib.Path(__file__).with_name("imported").touch()

class Net(nn.Linear):
    @classmethod
    def tiny(cls):
        return cls(4, 2)

class Spy(nn.Module):
    def __init__(self, **received):
        super().__init__()
        self.received = received

def net(inputs, classes=2):
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))

def half():
    return nn.Linear(4, 2).to(torch.bfloat16)

def number():
    return 3

def lazy():
    return nn.LazyLinear(2)

def meta():
    return nn.Linear(4, 2, device="meta")

def broken():
    raise KeyError("weights")

ready = nn.Linear(4, 2)
constant = 5
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "usermodels.py").write_text(SOURCE)
    (tmp_path / "brokenmodule.py").write_text("def (")
    (tmp_path / "hungry.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("usermodels", "brokenmodule", "hungry"):
        sys.modules.pop(name, None)


def make(name: str, trust_code: bool = True, **args: object) -> nn.Module:
    return build(name, classes=2, shape=(1, 2, 2), args=args, seed=1, trust_code=trust_code)


def test_import_path_is_not_imported_without_trust(module: Path) -> None:
    with pytest.raises(InputError, match="--trust-code"):
        make("usermodels:net", trust_code=False, inputs=4)
    assert not (module / "imported").exists()
    make("usermodels:net", inputs=4)
    assert (module / "imported").exists()


@pytest.mark.usefixtures("module")
def test_a_factory_gets_its_arguments_and_nothing_else() -> None:
    assert make("usermodels:Spy", a=1, b="two").received == {"a": 1, "b": "two"}
    assert make("usermodels:Net.tiny").weight.shape == (2, 4)  # type: ignore[union-attr]


@pytest.mark.usefixtures("module")
def test_a_factory_is_seeded() -> None:
    before = torch.get_rng_state()
    first, second = (make("usermodels:net", inputs=4).get_parameter("1.weight") for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.usefixtures("module")
def test_a_factory_in_low_precision_is_brought_to_float32() -> None:
    assert make("usermodels:half").get_parameter("weight").dtype == torch.float32


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("path", "args", "message"),
    [
        ("no_such_module:net", {}, "cannot be imported.*installed or on PYTHONPATH"),
        ("brokenmodule:net", {}, "cannot be imported: SyntaxError"),
        ("hungry:net", {}, "no_such_package"),
        ("usermodels:nett", {}, "unknown model in module usermodels 'nett': did you mean 'net'"),
        ("usermodels:xyz", {}, "known: (?!.*OrderedDict)"),
        ("usermodels:Net.large", {}, "unknown model"),
        ("usermodels:net", {}, "does not take the arguments.*inputs"),
        ("usermodels:net", {"inputs": 4, "depth": 2}, "depth.*signature is \\(inputs, classes=2\\)"),
        ("usermodels:net", {"inputs": "four"}, "failed to build: TypeError"),
        ("usermodels:broken", {}, "failed to build: KeyError: 'weights'"),
        ("usermodels:number", {}, "returned int, not a torch.nn.Module"),
        ("usermodels:lazy", {}, "weights without values"),
        ("usermodels:meta", {}, "weights without values"),
        ("usermodels:ready", {}, "ready Linear, not a factory"),
        ("usermodels:constant", {}, "ready int, not a factory"),
        ("usermodels:", {}, "not an import path"),
        (":net", {}, "not an import path"),
        ("../usermodels:net", {}, "not an import path"),
        ("usermodels:net()", {}, "not an import path"),
    ],
)
def test_wrong_factories_are_refused_with_the_remedy(
    path: str, args: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make(path, **args)
