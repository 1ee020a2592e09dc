"""Building: weights follow the seed and nothing else; the caller's state is left alone."""

import pytest
import torch

from freeat.errors import InputError
from freeat.models import Normalization, build, size


def weights(seed: int, name: str = "cnn-w4") -> list[torch.Tensor]:
    return list(build(name, classes=10, shape=(3, 8, 8), seed=seed).parameters())


@pytest.mark.parametrize("name", ["cnn-w4", "wrn10-1", "resnet18-w4-nonorm", "mlp-w8"])
def test_weights_are_a_function_of_the_seed(name: str) -> None:
    torch.manual_seed(1)
    first = weights(7, name)
    torch.manual_seed(2)
    assert all(map(torch.equal, first, weights(7, name)))
    assert not all(map(torch.equal, first, weights(8, name)))


def test_seeds_beyond_32_bits_differ() -> None:
    assert not all(map(torch.equal, weights(5), weights(5 + 2**32)))


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    build("cnn-w4", classes=10, shape=(3, 8, 8))
    size("resnet18")
    with pytest.raises(InputError):
        build("cnnn", classes=10, shape=(3, 8, 8))
    assert torch.equal(torch.get_rng_state(), before)


def test_default_dtype_and_device_do_not_reach_the_weights() -> None:
    expected = weights(0)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            actual = weights(0)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(map(torch.equal, expected, actual))
    assert {p.dtype for p in actual} == {torch.float32}


def test_a_normalized_model_is_the_model_of_normalized_images() -> None:
    normalize = Normalization.parse("cifar10")
    plain = build("cnn-w4", classes=10, shape=(3, 8, 8), seed=3).eval()
    wrapped = build("cnn-w4", classes=10, shape=(3, 8, 8), seed=3, normalize=normalize).eval()
    x = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (normalize.mean, normalize.std))
    torch.testing.assert_close(wrapped(x), plain((x - mean) / std))


@pytest.mark.parametrize(
    ("classes", "shape", "message"),
    [
        (1, (3, 8, 8), "1 classes: give at least 2"),
        (10, (3, 8), "shape \\(3, 8\\)"),
        (10, (0, 8, 8), "all at least 1"),
    ],
)
def test_impossible_problems_are_refused(classes: int, shape: tuple[int, int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build("cnn", classes=classes, shape=shape)


def test_named_networks_take_no_arguments() -> None:
    with pytest.raises(InputError, match=r"takes no arguments.*suffixes"):
        build("cnn", classes=10, shape=(3, 8, 8), args={"width": 16})
