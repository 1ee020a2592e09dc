"""Opening a model by its reference."""

from pathlib import Path

import pytest
import torch
from torch import nn

from freeat.data import load_data
from freeat.errors import InputError
from freeat.models import build
from freeat.runs.build import weights_digest
from freeat.runs.open import open_model
from problems import digits_classifier

DATA = load_data("digits")


def test_open_a_network_with_a_weights_file(tmp_path: Path) -> None:
    net = digits_classifier()
    torch.save({"state_dict": net.state_dict()}, tmp_path / "mine.pt")
    opened = open_model(f"linear@{tmp_path / 'mine.pt'}", DATA)
    assert opened.name == "mine"
    assert opened.digest == weights_digest(net)
    assert not opened.model.training


def test_a_factory_is_imported_only_with_trust(tmp_path: Path) -> None:
    torch.save(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).state_dict(), tmp_path / "w.pt")
    reference = f"tests_factory:make@{tmp_path / 'w.pt'}"
    (tmp_path / "tests_factory.py").write_text(
        "from torch import nn\n\ndef make(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    with pytest.raises(InputError, match="trust"):
        open_model(reference, DATA)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        assert isinstance(open_model(reference, DATA, trust_code=True, name="me").model, nn.Sequential)


def test_a_live_module_keeps_its_mode() -> None:
    net = digits_classifier().train()
    opened = open_model(net, DATA)
    assert opened.model is net
    assert net.training


def test_a_live_module_is_moved_only_to_a_named_device() -> None:
    moves = []

    class Watched(nn.Sequential):
        def to(self, *args: object, **kwargs: object) -> "Watched":
            moves.append(args)
            return super().to(*args, **kwargs)  # type: ignore[no-any-return, call-overload]

    net = Watched(digits_classifier())
    open_model(net, DATA)
    assert not moves
    open_model(net, DATA, device="cpu")
    assert moves == [("cpu",)]


def test_normalization_is_put_in_front_of_a_weights_file(tmp_path: Path) -> None:
    net = digits_classifier()
    torch.save(net.state_dict(), tmp_path / "w.pt")
    opened = open_model(f"linear@{tmp_path / 'w.pt'}", DATA, normalize="mean=0.5;std=0.25")
    x, _ = DATA.test.batch(torch.arange(5))
    torch.testing.assert_close(opened.model(x), net((x - 0.5) / 0.25))


@pytest.mark.parametrize("reference", ["nowhere", "resnet18", str(Path(__file__).parent)])
def test_an_unknown_reference_is_refused_with_the_remedy(reference: str) -> None:
    with pytest.raises(InputError, match=r"resnet18@FILE"):
        open_model(reference, DATA)


def test_a_model_for_other_classes_is_refused() -> None:
    with pytest.raises(InputError, match="logits"):
        open_model(build("linear", classes=7, shape=DATA.shape), DATA)
