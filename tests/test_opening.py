"""Any model by one reference; and RobustBench's form on top of it."""

from pathlib import Path

import pytest
import torch
from torch import nn

from freeat.attacks.pgd import Pgd
from freeat.data import load
from freeat.errors import InputError
from freeat.initial import weights_digest
from freeat.models import build
from freeat.opening import open_model
from freeat.robustbench import benchmark, load_model

DATA = load("digits")


def trained() -> nn.Module:
    """A linear classifier of the digits by one least-squares fit."""
    net = build("linear", classes=10, shape=DATA.shape)
    x, y = DATA.train.batch(torch.arange(len(DATA.train)))
    flat = torch.cat([x.flatten(1), torch.ones(len(x), 1)], 1)
    solved = torch.linalg.lstsq(flat, 10 * nn.functional.one_hot(y).float(), driver="gelsd").solution
    head = next(module for module in net.modules() if isinstance(module, nn.Linear))
    with torch.no_grad():
        head.weight.copy_(solved[:-1].T)
        head.bias.copy_(solved[-1])
    return net.eval()


def test_a_network_with_a_weights_file(tmp_path: Path) -> None:
    net = trained()
    torch.save({"state_dict": net.state_dict()}, tmp_path / "mine.pt")
    opened = open_model(f"linear@{tmp_path / 'mine.pt'}", DATA)
    assert opened.name == "mine"
    assert opened.digest == weights_digest(net)
    assert not opened.model.training


def test_a_factory_needs_trust(tmp_path: Path) -> None:
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
    net = trained().train()
    opened = open_model(net, DATA)
    assert opened.model is net
    assert net.training


def test_normalization_in_front(tmp_path: Path) -> None:
    net = trained()
    torch.save(net.state_dict(), tmp_path / "w.pt")
    opened = open_model(f"linear@{tmp_path / 'w.pt'}", DATA, normalize="mean=0.5;std=0.25")
    x, _ = DATA.test.batch(torch.arange(5))
    torch.testing.assert_close(opened.model(x), net((x - 0.5) / 0.25))


@pytest.mark.parametrize("reference", ["nowhere", "resnet18", str(Path(__file__).parent)])
def test_refusals_name_the_remedy(reference: str) -> None:
    with pytest.raises(InputError, match=r"resnet18@FILE"):
        open_model(reference, DATA)


def test_a_model_for_other_classes_is_refused() -> None:
    with pytest.raises(InputError, match="logits"):
        open_model(build("linear", classes=7, shape=DATA.shape), DATA)


def test_robustbench_form(tmp_path: Path) -> None:
    net = trained()
    torch.save(net.state_dict(), tmp_path / "w.pt")
    model = load_model(f"linear@{tmp_path / 'w.pt'}", dataset="digits")
    clean, robust = benchmark(model, 100, "digits", "L2", eps="1/10", device="cpu", attack="pgd-10")
    x, y = DATA.test.batch(torch.arange(100))
    assert clean == float((net(x).argmax(-1) == y).double().mean())
    assert 0 < robust < clean
    assert benchmark(model, 100, "digits", "Linf", eps=0.0, device="cpu", attack="pgd-2") == (clean, clean)
    standard = benchmark(model, 40, "digits", "L2", device="cpu", attack="pgd-5")
    assert standard == benchmark(model, 40, "digits", "L2", eps=0.5, device="cpu", attack="pgd-5")


def test_the_benchmark_computes_the_same_bits_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        Pgd,
        "step_size",
        lambda attack, ball: seen.append(torch.are_deterministic_algorithms_enabled()) or ball.eps,
    )
    for deterministic in (True, False):
        benchmark(trained(), 5, "digits", eps=0.1, device="cpu", attack="pgd-1", deterministic=deterministic)
    assert seen == [True, False]
    assert not torch.are_deterministic_algorithms_enabled()
