"""Our models in other libraries: the same logits there, and an attack of theirs runs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import freeat
from freeat.interop.adapters import as_art, as_foolbox, as_robustbench
from freeat.interop.robustbench import benchmark
from small_runs import carry_out

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters") / "run"
    carry_out(folder, model="cnn-w4", updates=60, lr=0.05, train_size=300, normalize="digits")
    return folder


@pytest.fixture(scope="module")
def batch() -> tuple[Tensor, Tensor]:
    return freeat.load_data("digits").test.sample(40).batch(torch.arange(40))


def logits(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        result: Tensor = model(x)
    return result


def test_foolbox_gives_the_same_accuracy(trained: Path, batch: tuple[Tensor, Tensor]) -> None:
    foolbox = pytest.importorskip("foolbox", reason="pip install 'freeat[peers]'")
    x, y = batch
    model, theirs = freeat.load(trained), as_foolbox(trained)
    assert torch.equal(theirs(x), logits(model, x))
    attack = foolbox.attacks.LinfFastGradientAttack(random_start=False)
    _, (found,), (fooled,) = attack(theirs, x.contiguous(), y, epsilons=[0.2])
    assert bool(((found - x).abs() <= 0.2 + 1e-6).all())
    assert torch.equal(fooled, logits(model, found).argmax(-1) != y)
    assert fooled.sum() > (logits(model, x).argmax(-1) != y).sum()


def test_art_gives_the_same_logits(trained: Path, batch: tuple[Tensor, Tensor]) -> None:
    pytest.importorskip("art", reason="pip install 'freeat[peers]'")
    from art.attacks.evasion import FastGradientMethod

    x, y = batch
    model, theirs = freeat.load(trained), as_art(trained)
    np.testing.assert_allclose(theirs.predict(x.numpy()), logits(model, x).numpy(), atol=1e-5)
    assert theirs.nb_classes == 10
    found = torch.from_numpy(FastGradientMethod(theirs, norm=np.inf, eps=0.2).generate(x.numpy(), y.numpy()))
    assert 0 < float((found - x).abs().max()) <= 0.2 + 1e-6
    wrong = (logits(model, found).argmax(-1) != y).sum()
    assert wrong > (logits(model, x).argmax(-1) != y).sum()


def test_art_needs_the_shape_of_a_live_models_images(batch: tuple[Tensor, Tensor]) -> None:
    pytest.importorskip("art", reason="pip install 'freeat[peers]'")
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).train()
    with pytest.raises(freeat.InputError, match="shape="):
        as_art(net)
    np.testing.assert_array_equal(
        as_art(net, shape=(1, 8, 8)).predict(batch[0].numpy()), logits(net, batch[0])
    )
    assert not net.training


def test_robustbench_takes_a_run_in_evaluation_mode(trained: Path, batch: tuple[Tensor, Tensor]) -> None:
    x, y = batch
    model = as_robustbench(trained)
    assert not model.training
    assert torch.equal(logits(model, x), logits(freeat.load(trained), x))
    clean, robust = benchmark(model, 40, "digits", "L2", eps=0.3, device="cpu", attack="pgd-5")
    assert clean == float((logits(model, x).argmax(-1) == y).double().mean())
    assert robust < clean


def test_an_exported_folder_is_accepted(trained: Path, tmp_path: Path, batch: tuple[Tensor, Tensor]) -> None:
    folder = freeat.export(trained, tmp_path / "out")
    assert torch.equal(logits(as_robustbench(folder), batch[0]), logits(freeat.load(trained), batch[0]))
    with pytest.raises(freeat.InputError, match="neither an exported model"):
        as_robustbench(tmp_path)
