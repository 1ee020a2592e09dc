"""The ResNet-18 that pyautoattack ships: right on CIFAR-10, and not robust at all."""

import importlib.resources

import pytest
import torch

from freeat.attacks.pgd import Pgd
from freeat.data import load_data
from freeat.evaluation.evaluate import evaluate
from freeat.runs.open import open_model
from freeat.threat import Linf


@pytest.mark.data("cifar10")
@pytest.mark.peer
def test_a_published_model_by_reference() -> None:
    pytest.importorskip("pyautoattack")
    weights = importlib.resources.files("pyautoattack") / "examples" / "model_test.pt"
    data = load_data("cifar10")
    opened = open_model(f"pyautoattack.examples.resnet:ResNet18@{weights}", data, trust_code=True)
    images = data.test.take(torch.arange(24))
    summary = evaluate(opened.model, images, Pgd(steps=10), Linf(8 / 255), classes=10).summary()
    assert summary.clean_accuracy >= 22 / 24
    assert summary.robust_accuracy == 0
